/* SPDX-License-Identifier: MIT */
/* The command that looks at the data, for redlockctl drill. See drill.h. It has a supervisor of its own. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drill.h"

enum { READS_MAX = 256 }; /* more than a pipe holds, and an end of an output that has none */
enum { KILL_TRIES = 500, KILL_PAUSE_MS = 10 };

/* The shell, which the kernel kills if its supervisor dies. */
static void drill_check_become(const char *command, int output, const sigset_t *mask, pid_t supervisor)
{
	int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != supervisor || nothing < 0)
		_exit(EXIT_STATUS_CANNOT_RUN);
	dup2(nothing, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(output, STDERR_FILENO);
	descriptors_walk(DESCRIPTORS_SEAL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(EXIT_STATUS_NOT_FOUND);
}

/* Waits for the end of the shell, or for SIGTERM. Then kills all that is left. Returns the exit status. */
static int drill_check_supervise(pid_t shell, const sigset_t *signals)
{
	int status = EXIT_STATUS_SYSTEM, number = 0;
	pid_t ended = 0;
	while (ended != shell && number != SIGTERM) {
		number = sigwaitinfo(signals, NULL);
		while (ended != shell && (ended = waitpid(-1, &status, WNOHANG)) > 0)
			continue;
	}
	for (int tries = 0; tries < KILL_TRIES && ended >= 0; tries++) {
		process_tree_signal(getpid(), 0, SIGKILL);
		poll(NULL, 0, tries > 0 ? KILL_PAUSE_MS : 0);
		while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
			continue;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_STATUS_SIGNALLED + WTERMSIG(status);
}

/* The supervisor of the command, in a process of its own: what the command starts stays below it, and ends with it or
 * with the drill. Does not return. */
static void drill_check_run(const char *command, int output, const sigset_t *mask, pid_t drill)
{
	sigset_t all;
	pid_t supervisor = getpid();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setpgid(0, 0); /* the keys of a terminal are for the drill */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != drill || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
		_exit(EXIT_STATUS_CANNOT_RUN);
	pid_t shell = fork();
	if (shell == 0)
		drill_check_become(command, output, mask, supervisor);
	close(output);
	sigemptyset(&all);
	sigaddset(&all, SIGCHLD);
	sigaddset(&all, SIGTERM);
	_exit(shell > 0 ? drill_check_supervise(shell, &all) : EXIT_STATUS_CANNOT_RUN);
}

bool drill_check_start(struct drill_checking *checking, const char *command, const sigset_t *mask)
{
	int ends[2];
	pid_t drill = getpid();
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return false;
	fcntl(ends[1], F_SETFL, 0); /* the command must be able to write at leisure */
	pid_t pid = fork();
	if (pid == 0)
		drill_check_run(command, ends[1], mask, drill);
	close(ends[1]);
	*checking = (struct drill_checking){.pid = pid, .output = ends[0]};
	if (pid < 0)
		close(ends[0]);
	return pid > 0;
}

static void drill_check_read(struct drill_checking *checking)
{
	char bytes[DRILL_OUTPUT_MAX / 2];
	ssize_t got;
	for (int i = 0; i < READS_MAX && (got = read(checking->output, bytes, sizeof bytes)) > 0; i++) {
		size_t more = (size_t)got, room = sizeof checking->tail - more;
		size_t kept = checking->len < room ? checking->len : room;
		memmove(checking->tail, checking->tail + checking->len - kept, kept);
		memcpy(checking->tail + kept, bytes, more);
		checking->len = kept + more;
	}
}

void drill_check_last_line(const char *output, size_t len, char ret_said[DRILL_SAID_MAX])
{
	while (len > 0 && strchr(" \t\r\n", output[len - 1]))
		len--;
	size_t start = len;
	while (start > 0 && output[start - 1] != '\n')
		start--;
	size_t most = len - start < DRILL_SAID_MAX - 1 ? len - start : DRILL_SAID_MAX - 1;
	for (size_t i = 0; i < most; i++)
		ret_said[i] = output[start + i] == '\0' ? '?' : output[start + i];
	ret_said[most] = '\0';
	report_clean(ret_said);
}

bool drill_check_has_ended(struct drill_checking *checking, struct drill_check *ret_check)
{
	int status;
	assert(checking->pid > 0);
	bool ended = waitpid(checking->pid, &status, WNOHANG) > 0;
	drill_check_read(checking); /* after it has ended: then all of it */
	if (!ended)
		return false;
	ret_check->status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_STATUS_SIGNALLED + WTERMSIG(status);
	drill_check_last_line(checking->tail, checking->len, ret_check->said);
	close(checking->output);
	return true;
}

void drill_check_kill(struct drill_checking *checking)
{
	kill(checking->pid, SIGTERM);
	while (waitpid(checking->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	close(checking->output);
}
