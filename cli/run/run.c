/* SPDX-License-Identifier: MIT */
/* Sets up `run`: signals, the shared page, the socket, the two processes. See run_internal.h.
 *
 * Foreground process and supervisor block all signals and read them from descriptors; the command gets the blocked and
 * ignored signals that redlockctl got. */
#include "run.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "run_internal.h"

static int run_fail(const char *what)
{
	assert(what);
	report_error("%s: %s", what, strerror(errno));
	return EXIT_STATUS_SYSTEM;
}

/* SIGCHLD must not be ignored: the kernel would reap the command and drop its exit status. */
static void run_block_signals(struct run *run)
{
	sigset_t all;
	struct sigaction usual = {.sa_handler = SIG_DFL};
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &run->inherited_mask);
	sigaction(SIGCHLD, &usual, &run->inherited_child);
}

int run_command(const struct arguments *arguments)
{
	void *shared = mmap(NULL, sizeof(struct run_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return run_fail("mmap");
	descriptors_walk(DESCRIPTORS_RECORD);
	return run_command_shared(arguments, shared);
}

int run_command_shared(const struct arguments *arguments, struct run_shared *shared)
{
	struct run run = {.arguments = arguments, .shared = shared, .foreground = getpid()};
	int sockets[2];
	assert(arguments->command == COMMAND_RUN && arguments->argv);
	if (child_is_enclosed(arguments)) {
		report_event(arguments, REPORT_NOTE, "not-acquired", json_pack("{s:s}", "code", "enclosed"),
			     "not acquired: already held by the enclosing run");
		return arguments->held_status;
	}
	run_block_signals(&run);
	terminal_open(&run.terminal);
	/* Processes that the command leaves behind become children of the supervisor, or of the foreground process if
	 * the supervisor has ended. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		return run_fail("prctl");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
		return run_fail("socketpair");
	pid_t supervisor = fork();
	if (supervisor < 0)
		return run_fail("fork");
	if (supervisor > 0)
		atomic_store(&shared->supervisor, supervisor);
	run.socket = sockets[supervisor == 0];
	close(sockets[supervisor != 0]);
	return supervisor == 0 ? supervisor_run(&run) : foreground_run(&run, supervisor);
}
