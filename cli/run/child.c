/* From fork() to exec(). See child.h.
 *
 * The command inherits signals, descriptors, folder and environment as redlockctl did, and REDLOCK_* besides. The
 * kernel kills it when the supervisor dies; the foreground process kills its children then. */
#include "child.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "descriptors.h"

static bool child_set_environment(const struct run *run, const struct lease *lease)
{
	char fence[24];

	assert(lease->token[0] != '\0');
	snprintf(fence, sizeof fence, "%" PRIu64, lease->fence);
	return setenv("REDLOCK_RESOURCE", run->arguments->name, 1) == 0 &&
	       setenv("REDLOCK_TOKEN", lease->token, 1) == 0 && setenv("REDLOCK_FENCE", fence, 1) == 0;
}

/* In the new process. Returns only on failure, with errno. */
static void child_become(struct run *run, const struct lease *lease, pid_t supervisor)
{
	assert(run->arguments->argv && run->arguments->argv[0]);
	setpgid(0, 0);
	if (run->terminal.eager)
		terminal_pass(&run->terminal, run->terminal.job, getpid());
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || !child_set_environment(run, lease))
		return;
	if (getppid() != supervisor)
		_exit(0); /* it died before prctl() */
	sigaction(SIGCHLD, &run->inherited_child, NULL);
	sigprocmask(SIG_SETMASK, &run->inherited_mask, NULL);
	execvp(run->arguments->argv[0], run->arguments->argv);
}

/* exec() closes the pipe; if it fails, errno is written to it. */
static int child_read_error(int file)
{
	int error = 0;
	ssize_t got;

	do
		got = read(file, &error, sizeof error);
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)sizeof error ? error : 0;
}

static void child_send_error(int file)
{
	int error = errno;
	ssize_t written = write(file, &error, sizeof error);

	(void)written;
	_exit(127);
}

pid_t child_start(struct run *run, const struct lease *lease, int *ret_error)
{
	int ends[2];
	pid_t supervisor = getpid();

	assert(run->socket >= 0);
	*ret_error = 0;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		*ret_error = errno;
		return -1;
	}
	descriptors_seal();
	pid_t child = fork();
	if (child == 0) {
		child_become(run, lease, supervisor);
		child_send_error(ends[1]);
	}
	int error = errno;
	close(ends[1]);
	if (child > 0)
		setpgid(child, child); /* in both processes, since either may run first */
	*ret_error = child < 0 ? error : child_read_error(ends[0]);
	close(ends[0]);
	return *ret_error == 0 ? child : -1;
}
