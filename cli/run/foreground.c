/* The front of `run`: the process that the shell knows. See run.h.
 *
 * It passes signals on, stops when the command has stopped, and ends as the keeper says. It asks no server. If the keeper dies, or
 * lets the moment pass at which all should have been dead, the front kills everything below itself, the keeper included. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/base/base.h"
#include "descriptors.h"
#include "cli/report.h"
#include "run.h"
#include "cli/exit_status.h"
#include "process_tree.h"

enum { FRONT_SIGNALS, FRONT_SOCKET, FRONT_TIMER, FRONT_FDS };
enum { KILL_AGAIN_MS = 10, KILL_TRIES = 500 };

struct front {
	struct run *run;
	pid_t keeper;
	struct pollfd fds[FRONT_FDS];
	bool keeper_gone;
	int keeper_status; /* of waitpid() */
};

static bool front_set_up(struct front *front)
{
	static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT, SIGCHLD};
	sigset_t signals;

	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(passed) / sizeof(*passed); i++)
		sigaddset(&signals, passed[i]);
	front->fds[FRONT_SIGNALS].fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	front->fds[FRONT_TIMER].fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	front->fds[FRONT_SOCKET].fd = front->run->socket;
	for (int i = 0; i < FRONT_FDS; i++)
		front->fds[i].events = POLLIN;
	return front->fds[FRONT_SIGNALS].fd >= 0 && front->fds[FRONT_TIMER].fd >= 0;
}

static void front_send(struct front *front, int signal_number)
{
	unsigned char number = (unsigned char)signal_number;
	ssize_t sent = send(front->run->socket, &number, 1, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)sent;
}

/* Collects the keeper, and whatever else came down to us. False: there are no children. */
static bool front_collect(struct front *front)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == front->keeper) {
			front->keeper_gone = true;
			front->keeper_status = status;
		}
	return pid == 0;
}

static void front_on_signals(struct front *front)
{
	struct signalfd_siginfo info;

	while (read(front->fds[FRONT_SIGNALS].fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			front_collect(front);
		else
			front_send(front, (int)info.ssi_signo);
	}
}

/* Lets one signal do what it does by default; `to` as for kill(). */
static void front_suffer(int signal_number, pid_t to)
{
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, signal_number);
	kill(to, signal_number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	sigprocmask(SIG_BLOCK, &one, NULL);
}

/* The whole job stops, as with any other program: a script around redlockctl, too, or the shell would not see a stopped job. Comes
 * back when it is continued, or at once where nobody could continue it (the kernel does not stop an orphaned group). */
static void front_stop(struct front *front)
{
	front_suffer(SIGTSTP, 0);
	front_send(front, SIGCONT);
}

/* Ends by the signal that ended the command, if it was one of those that interrupt scripts; without a core of ours. Returns where it
 * is ignored. */
static int front_end(struct front *front, int status)
{
	int number = atomic_load(&front->run->shared->interrupt);

	if (number != 0 && status == STATUS_SIGNALLED + number) {
		prctl(PR_SET_DUMPABLE, 0);
		front_suffer(number, atomic_load(&front->run->shared->from_keyboard) ? 0 : getpid());
	}
	return status;
}

static void front_arm(struct front *front)
{
	uint64_t when_us = atomic_load(&front->run->shared->dead_by_us);
	struct itimerspec when = {.it_value = {(time_t)(when_us / 1000000), (long)(when_us % 1000000 * 1000)}};

	timerfd_settime(front->fds[FRONT_TIMER].fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void front_on_socket(struct front *front)
{
	char what;
	ssize_t got = recv(front->run->socket, &what, 1, MSG_DONTWAIT);

	if (got == 1 && what == RUN_STOP)
		front_stop(front);
	else if (got == 1 && what == RUN_GUARD)
		front_arm(front);
	else if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
		front->fds[FRONT_SOCKET].fd = -1; /* the keeper ends: SIGCHLD follows */
}

/* Everything below this process, until nothing is left. False: something lives on. */
static bool front_kill_all(struct front *front)
{
	bool left = true;

	for (int tries = 0; left && tries < KILL_TRIES; tries++) {
		tree_signal(getpid(), 0, SIGKILL);
		left = front_collect(front);
		if (left)
			poll(NULL, 0, KILL_AGAIN_MS);
	}
	pid_t group = atomic_load(&front->run->shared->group);
	if (group != 0)
		terminal_pass(&front->run->terminal, group, front->run->terminal.job);
	return !left;
}

static bool front_must_step_in(const struct front *front)
{
	uint64_t dead_by_us = atomic_load(&front->run->shared->dead_by_us);
	return dead_by_us != 0 && clock_now_us() >= dead_by_us;
}

static int front_step_in(struct front *front, const char *why)
{
	bool ran = atomic_load(&front->run->shared->dead_by_us) != 0;
	struct report report = {.json = front->run->options->json, .name = front->run->options->name};

	bool ended = front_kill_all(front);
	if (ran)
		report_event(&report, REPORT_NOTE, "lost", json_pack("{s:s}", "code", "keeper"), "%s: %s, and the lock runs out by itself", why,
			     ended ? "the command was killed" : "processes of the command still run and cannot be killed");
	else
		report_event(&report, REPORT_NOTE, "failed", NULL, "%s", why);
	return ran ? STATUS_LOST : STATUS_SYSTEM;
}

int front_run(struct run *run, pid_t keeper)
{
	struct front front = {.run = run, .keeper = keeper};

	if (!front_set_up(&front))
		return front_step_in(&front, "no descriptors are left");
	descriptors_let_go();
	while (!front.keeper_gone) {
		poll(front.fds, FRONT_FDS, -1);
		front_on_signals(&front);
		if (front.fds[FRONT_SOCKET].revents != 0)
			front_on_socket(&front);
		if (front.fds[FRONT_TIMER].revents == 0)
			continue;
		if (!front.keeper_gone && front_must_step_in(&front))
			return front_step_in(&front, "the keeper of the lock hung");
		front_arm(&front);
	}
	if (!WIFEXITED(front.keeper_status))
		return front_step_in(&front, "the keeper of the lock was killed");
	return front_end(&front, WEXITSTATUS(front.keeper_status));
}
