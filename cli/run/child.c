/* SPDX-License-Identifier: MIT */
/* From fork() to exec(). See run_internal.h.
 *
 * The command inherits signals, descriptors, folder and environment of redlockctl, with REDLOCK_* added. The kernel
 * kills it when the supervisor dies; the foreground process kills its children then. */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "run_internal.h"
#include "server/base/base.h"

/* REDLOCK_HELD has the names of all enclosing runs, one a line, since a name has no control characters. */
static bool child_is_held(const char *held, const char *name)
{
	size_t len = strlen(name);
	while (held && (strncmp(held, name, len) != 0 || (held[len] != '\0' && held[len] != '\n'))) {
		held = strchr(held, '\n');
		held += held != NULL;
	}
	return held;
}

bool child_is_enclosed(const struct arguments *arguments)
{
	for (size_t i = 0; i < arguments->names.count; i++)
		if (child_is_held(getenv("REDLOCK_HELD"), arguments->names.items[i]))
			return true;
	return false;
}

static void child_set_environment(const struct run *run, const struct lease *lease)
{
	const struct arguments *arguments = run->arguments;
	const char *outer = getenv("REDLOCK_HELD");
	struct text held, names;
	char fence[24], slot[24];
	assert(lease->token[0] != '\0');
	text_init(&held);
	text_init(&names);
	for (size_t i = 0; i < arguments->names.count; i++)
		text_printf(&names, "%s%s", i > 0 ? "\n" : "", arguments->names.items[i]);
	text_printf(&held, "%s%s%s", outer ? outer : "", outer ? "\n" : "", names.bytes);
	snprintf(fence, sizeof fence, "%" PRIu64, lease->fence);
	snprintf(slot, sizeof slot, "%" PRIu64, lease->slot);
	if (setenv("REDLOCK_RESOURCE", names.bytes, 1) != 0 || setenv("REDLOCK_TOKEN", lease->token, 1) != 0 ||
	    setenv("REDLOCK_FENCE", fence, 1) != 0 ||
	    (arguments->slots > 0 ? setenv("REDLOCK_SLOT", slot, 1) : unsetenv("REDLOCK_SLOT")) != 0 ||
	    setenv("REDLOCK_HELD", held.bytes, 1) != 0)
		memory_exhausted("environment");
	text_fini(&held);
	text_fini(&names);
}

/* Runs in the new process, and returns only on failure, with errno. ETIME: too late, since a process was stopped or the
 * machine slept after the grant. */
static void child_become(struct run *run, const struct lease *lease, uint64_t latest_us, pid_t supervisor)
{
	assert(run->arguments->argv && run->arguments->argv[0]);
	setpgid(0, 0);
	if (run->terminal.eager)
		terminal_pass(&run->terminal, run->terminal.job, getpid());
	child_set_environment(run, lease);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return;
	if (getppid() != supervisor)
		_exit(0); /* it died before prctl() */
	sigaction(SIGCHLD, &run->inherited_child, NULL);
	sigprocmask(SIG_SETMASK, &run->inherited_mask, NULL);
	if (clock_now_us() < latest_us)
		execvp(run->arguments->argv[0], run->arguments->argv);
	else
		errno = ETIME;
}

pid_t child_start(struct run *run, const struct lease *lease, uint64_t latest_us, int *ret_error)
{
	int ends[2];
	pid_t supervisor = getpid();
	assert(run->socket >= 0);
	*ret_error = 0;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		*ret_error = errno;
		return -1;
	}
	descriptors_walk(DESCRIPTORS_SEAL);
	pid_t child = fork();
	if (child == 0)
		child_become(run, lease, latest_us, supervisor);
	int error = errno;
	if (child == 0) {
		ssize_t written = write(ends[1], &error, sizeof error);
		(void)written;
		_exit(127);
	}
	close(ends[1]);
	if (child > 0)
		setpgid(child, child); /* in both processes, since either may run first */
	/* exec() closes the pipe, so that read() returns 0 */
	if (child < 0 || read(ends[0], &error, sizeof error) == (ssize_t)sizeof error)
		*ret_error = error;
	close(ends[0]);
	return *ret_error == 0 ? child : -1;
}
