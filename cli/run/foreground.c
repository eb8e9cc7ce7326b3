/* SPDX-License-Identifier: MIT */
/* The foreground process of `run`, which the shell started. See run_internal.h.
 *
 * It passes signals on, stops when the command has stopped, and ends with the status of the supervisor. It sends no
 * requests. If the supervisor dies, or processes still run after dead_by_us, it kills all processes below itself, the
 * supervisor included. */

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_internal.h"
#include "server/base/base.h"

enum { FOREGROUND_SIGNALS, FOREGROUND_SOCKET, FOREGROUND_TIMER, FOREGROUND_FDS };
enum { KILL_AGAIN_MS = 10, KILL_TRIES = 500 };

struct foreground {
	struct run *run;
	pid_t supervisor;
	struct pollfd fds[FOREGROUND_FDS];
	bool supervisor_gone;
	int supervisor_status; /* of waitpid() */
};

static bool foreground_set_up(struct foreground *foreground)
{
	static const int passed[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
				     SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT, SIGCHLD};
	sigset_t signals;
	assert(foreground->run->socket >= 0);
	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
		sigaddset(&signals, passed[i]);
	foreground->fds[FOREGROUND_SIGNALS].fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	foreground->fds[FOREGROUND_TIMER].fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	foreground->fds[FOREGROUND_SOCKET].fd = foreground->run->socket;
	for (int i = 0; i < FOREGROUND_FDS; i++)
		foreground->fds[i].events = POLLIN;
	return foreground->fds[FOREGROUND_SIGNALS].fd >= 0 && foreground->fds[FOREGROUND_TIMER].fd >= 0;
}

static void foreground_send(struct foreground *foreground, int signal_number)
{
	unsigned char number = (unsigned char)signal_number;
	assert(signal_number > 0 && signal_number < 128);
	send(foreground->run->socket, &number, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Reaps the supervisor, and processes that became children of this one. False: there are no children. */
static bool foreground_reap(struct foreground *foreground)
{
	int status;
	pid_t pid;
	assert(foreground->supervisor > 0);
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == foreground->supervisor) {
			foreground->supervisor_gone = true;
			foreground->supervisor_status = status;
		}
	return pid == 0;
}

static void foreground_on_signals(struct foreground *foreground)
{
	struct signalfd_siginfo info;
	while (read(foreground->fds[FOREGROUND_SIGNALS].fd, &info, sizeof info) == (ssize_t)sizeof info) {
		if (info.ssi_signo == SIGCHLD)
			foreground_reap(foreground);
		else
			foreground_send(foreground, (int)info.ssi_signo);
	}
}

/* Sends a signal with its default action; `to` as for kill(). */
static void foreground_raise(int signal_number, pid_t to)
{
	sigset_t one;
	assert(signal_number > 0);
	sigemptyset(&one);
	sigaddset(&one, signal_number);
	kill(to, signal_number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	sigprocmask(SIG_BLOCK, &one, NULL);
}

/* Ends by the signal that ended the command, if it is one that interrupts scripts; without a core dump. Returns the
 * status if the signal is ignored. */
static int foreground_end(struct foreground *foreground, int status)
{
	int number = atomic_load(&foreground->run->shared->interrupt);
	if (number != 0 && status == EXIT_STATUS_SIGNALLED + number) {
		prctl(PR_SET_DUMPABLE, 0);
		foreground_raise(number, atomic_load(&foreground->run->shared->from_keyboard) ? 0 : getpid());
	}
	return status;
}

static void foreground_arm(struct foreground *foreground)
{
	client_arm(foreground->fds[FOREGROUND_TIMER].fd, atomic_load(&foreground->run->shared->dead_by_us));
}

static void foreground_on_socket(struct foreground *foreground)
{
	char what;
	ssize_t got = recv(foreground->run->socket, &what, 1, MSG_DONTWAIT);
	assert(!foreground->supervisor_gone);
	if (got == 1 && what == RUN_STOP) {
		/* Stops the whole job, including a script around redlockctl, or the shell would not see a stopped job.
		 * The call returns when the job is continued, or at once if nobody could continue it (the kernel does
		 * not stop an orphaned group). Without a terminal there are no jobs, and only this process is
		 * stopped. */
		foreground_raise(SIGTSTP, foreground->run->terminal.file < 0 ? getpid() : 0);
		foreground_send(foreground, SIGCONT);
	} else if (got == 1 && what == RUN_GUARD) {
		foreground_arm(foreground);
	} else if (got == 0 || (got < 0 && errno != EAGAIN)) {
		foreground->fds[FOREGROUND_SOCKET].fd = -1; /* the supervisor ends, SIGCHLD follows */
	}
}

/* Kills everything below this process. False: a process is left. */
static bool foreground_kill_all(struct foreground *foreground)
{
	bool left = true;
	pid_t group = atomic_load(&foreground->run->shared->group);
	for (int tries = 0; left && tries < KILL_TRIES; tries++) {
		if (!foreground->supervisor_gone)
			kill(foreground->supervisor, SIGKILL);
		if (group != 0)
			process_group_signal(group, SIGKILL);
		process_tree_signal(getpid(), 0, SIGKILL);
		left = foreground_reap(foreground);
		if (left)
			poll(NULL, 0, KILL_AGAIN_MS);
	}
	if (group != 0)
		terminal_pass(&foreground->run->terminal, group, foreground->run->terminal.job);
	return !left;
}

static int foreground_take_over(struct foreground *foreground, const char *why)
{
	bool ran = atomic_load(&foreground->run->shared->dead_by_us) != 0;
	const struct arguments *arguments = foreground->run->arguments;
	assert(why);
	bool ended = foreground_kill_all(foreground);
	if (ran)
		report_event(arguments, REPORT_NOTE, "lost", json_pack("{s:s}", "code", "supervisor"),
			     "%s: %s, and the lock runs out by itself", why,
			     ended ? "the command was killed"
				   : "processes of the command still run and cannot be killed");
	else
		report_event(arguments, REPORT_NOTE, "failed", NULL, "%s", why);
	return ran ? EXIT_STATUS_LOST : EXIT_STATUS_SYSTEM;
}

int foreground_run(struct run *run, pid_t supervisor)
{
	struct foreground foreground = {.run = run, .supervisor = supervisor};
	assert(supervisor > 0);
	if (!foreground_set_up(&foreground))
		return foreground_take_over(&foreground, "no descriptors are left");
	descriptors_release_stdio();
	while (!foreground.supervisor_gone) {
		poll(foreground.fds, FOREGROUND_FDS, -1);
		foreground_on_signals(&foreground);
		/* not from a supervisor that has ended: its processes are killed, not stopped */
		if (foreground.fds[FOREGROUND_SOCKET].revents != 0 && !foreground.supervisor_gone)
			foreground_on_socket(&foreground);
		uint64_t dead_by_us = atomic_load(&run->shared->dead_by_us);
		if (foreground.fds[FOREGROUND_TIMER].revents == 0)
			continue;
		if (!foreground.supervisor_gone && dead_by_us != 0 && clock_now_us() >= dead_by_us)
			return foreground_take_over(&foreground, "the supervisor of the lock hung");
		foreground_arm(&foreground);
	}
	if (!WIFEXITED(foreground.supervisor_status))
		return foreground_take_over(&foreground, "the supervisor of the lock was killed");
	return foreground_end(&foreground, WEXITSTATUS(foreground.supervisor_status));
}
