/* SPDX-License-Identifier: MIT */
/* The command of redlockctl run is not started once its lease is over. */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/run_internal.h"
#include "server/base/base.h"
#include "suite.h"

/* Starts a command that makes a file, with `latest_us` as the end; whether the file is there when it has ended. */
static bool makes_its_file(uint64_t latest_us, int *ret_error)
{
	char path[] = "/tmp/redlockd-child-XXXXXX";
	char *argv[] = {"touch", path, NULL};
	const struct arguments arguments = {.names = {.items = {"orders/42"}, .count = 1, .joined = "orders/42"},
					    .argv = argv};
	const struct lease lease = {.token = "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2", .fence = 1};
	struct run run = {.arguments = &arguments, .terminal = {.file = -1}};

	ck_assert_int_ge(mkstemp(path), 0);
	ck_assert_int_eq(unlink(path), 0);
	sigaction(SIGCHLD, NULL, &run.inherited_child);
	sigprocmask(SIG_SETMASK, NULL, &run.inherited_mask);
	pid_t child = child_start(&run, &lease, latest_us, ret_error);
	ck_assert((child > 0) == (*ret_error == 0));
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	bool made = access(path, F_OK) == 0;
	if (made)
		unlink(path);
	return made;
}

TEST(in_time)
{
	int error;
	ck_assert(makes_its_file(clock_now_us() + 60000000, &error));
	ck_assert_int_eq(error, 0);
}

TEST(too_late)
{
	int error;
	ck_assert(!makes_its_file(clock_now_us(), &error));
	ck_assert_int_eq(error, ETIME);
}
