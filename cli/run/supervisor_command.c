/* SPDX-License-Identifier: MIT */
/* The part of the supervisor for the command and the foreground process: start, signals, stops, ends. See
 * run_internal.h.
 *
 * Ctrl-Z: the command stops; the supervisor gives the terminal back to the job and stops the foreground process, and
 * the shell sees a stopped job. On fg or bg the shell continues the foreground process, which sends SIGCONT here. Then
 * the command is continued, with the terminal if the job has it. The lease is extended all the time. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_internal.h"
#include "server/base/base.h"

/* ---- the foreground process ---- */

static void supervisor_send_foreground(struct supervisor *supervisor, char what)
{
	assert(what == RUN_STOP || what == RUN_GUARD);
	send(supervisor->run->socket, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Reads the next message: the number of a signal; 0: none. */
static int supervisor_read_foreground(struct supervisor *supervisor)
{
	unsigned char number = 0;
	ssize_t got = recv(supervisor->run->socket, &number, 1, MSG_DONTWAIT);
	if (got == 1)
		return number;
	if (got == 0 || errno != EAGAIN) {
		supervisor->foreground_gone = true;
		supervisor->client.fds[CLIENT_ORDERS].fd = -1; /* the end of file stays readable */
	}
	return 0;
}

/* False for a signal that was ignored when redlockctl was started, for example by nohup. It arrives because it is
 * blocked. */
static bool supervisor_is_end_signal(int number)
{
	struct sigaction action;
	if (number != SIGINT && number != SIGTERM && number != SIGHUP && number != SIGQUIT)
		return false;
	return sigaction(number, NULL, &action) != 0 || action.sa_handler != SIG_IGN;
}

/* A shell ends its script only if the program was ended by the signal, not because of its exit status. */
static void supervisor_set_interrupt(struct supervisor *supervisor, int number, bool from_keyboard)
{
	if (number != SIGINT && number != SIGQUIT)
		return;
	atomic_store(&supervisor->run->shared->from_keyboard, from_keyboard);
	atomic_store(&supervisor->run->shared->interrupt, number);
}

/* ---- the command ---- */

void supervisor_start(struct supervisor *supervisor)
{
	const char *command = supervisor->arguments->argv[0];
	int error;
	assert(supervisor->child == 0);
	supervisor->child = child_start(supervisor->run, &supervisor->lease, renewal_kill_us(&supervisor->renewal),
					&error);
	if (supervisor->child > 0) {
		supervisor->wants_terminal = supervisor->run->terminal.eager;
		atomic_store(&supervisor->run->shared->group, supervisor->child);
		atomic_store(&supervisor->run->shared->started_us, clock_now_us());
		supervisor_send_foreground(supervisor, RUN_GUARD);
		return;
	}
	supervisor->child_ended = supervisor->all_ended = true;
	if (error == ETIME) {
		supervisor->lost = true;
		report_event(supervisor->arguments, REPORT_NOTE, "lost", json_pack("{s:s}", "code", "late"),
			     "the lock is lost: the machine slept, or redlockctl was stopped; %s was not started",
			     command);
		return;
	}
	bool is_bare = error == ENOENT && !strchr(command, '/');
	bool is_shell = error == ENOENT && strpbrk(command, " \t\n|;&<>");
	report_event(supervisor->arguments, REPORT_NOTE, "not-run", json_pack("{s:s*}", "command", command), "%s: %s%s",
		     is_bare ? "command not found" : command, is_bare ? command : strerror(error),
		     is_shell ? "; for shell syntax: sh -c '...'" : "");
	supervisor->status = error == EAGAIN || error == ENOMEM ? EXIT_STATUS_SYSTEM
			     : error == ENOENT                  ? EXIT_STATUS_NOT_FOUND
								: EXIT_STATUS_CANNOT_RUN;
}

void supervisor_signal_all(struct supervisor *supervisor, int signal_number)
{
	assert(supervisor->child > 0 && signal_number > 0);
	bool signalled = process_group_signal(supervisor->child, signal_number);
	process_tree_signal(getpid(), signalled ? supervisor->child : 0, signal_number);
}

void supervisor_signal_wanted(struct supervisor *supervisor, uint64_t waiters)
{
	int number = supervisor->arguments->signal_wanted;
	if (number == 0 || supervisor->child <= 0 || supervisor->child_ended)
		return;
	report_event(supervisor->arguments, REPORT_DETAIL, "wanted", json_pack("{s:I}", "waiters", (json_int_t)waiters),
		     "somebody waits for the lock: signal %d to the command", number);
	kill(supervisor->child, number);
}

static void supervisor_continue(struct supervisor *supervisor)
{
	assert(supervisor->child > 0);
	supervisor->mirrored = false;
	if (supervisor->child_ended)
		return;
	if (supervisor->wants_terminal)
		terminal_pass(&supervisor->run->terminal, supervisor->run->terminal.job, supervisor->child);
	kill(-supervisor->child, SIGCONT);
}

/* Signals of a terminal go to the group, as from a terminal. So does SIGTERM, or a shell would wait for its program.
 * SIGUSR1 and SIGUSR2 go only to the command: they would end programs that do not handle them. */
static void supervisor_pass_on(struct supervisor *supervisor, int number)
{
	assert(number > 0);
	if (number == SIGCONT)
		supervisor_continue(supervisor);
	else if (supervisor->child_ended)
		process_tree_signal(getpid(), 0, number);
	else
		kill(number == SIGUSR1 || number == SIGUSR2 ? supervisor->child : -supervisor->child, number);
}

enum client_order supervisor_read_order(void *context)
{
	struct supervisor *supervisor = context;
	bool runs = supervisor->child > 0 && !supervisor->all_ended;
	for (int number; (number = supervisor_read_foreground(supervisor)) != 0;) {
		if (supervisor_is_end_signal(number)) {
			supervisor->end_signal = number;
			if (supervisor->child == 0)
				supervisor_set_interrupt(supervisor, number, false);
		}
		if (runs) {
			supervisor_pass_on(supervisor, number);
		} else if (number == SIGTSTP) {
			supervisor->held = true;
			supervisor_send_foreground(supervisor, RUN_STOP);
		} else if (number == SIGCONT) {
			supervisor->held = false;
		}
	}
	if (supervisor->end_signal != 0 || supervisor->foreground_gone)
		return CLIENT_STOP;
	return supervisor->held ? CLIENT_HOLD : CLIENT_GO_ON;
}

/* ---- stops and ends ---- */

static void supervisor_on_stop(struct supervisor *supervisor, int number)
{
	const struct terminal *terminal = &supervisor->run->terminal;
	bool asks = number == SIGTTIN || number == SIGTTOU;
	assert(number > 0);
	if (terminal->file < 0 || (number != SIGTSTP && !asks))
		return; /* no shell to notify */
	if (asks)
		supervisor->wants_terminal = true;
	if (asks && terminal_belongs_to(terminal, terminal->job)) {
		supervisor_continue(supervisor);
		return;
	}
	terminal_pass(terminal, supervisor->child, terminal->job);
	supervisor->mirrored = true;
	supervisor_send_foreground(supervisor, RUN_STOP);
}

static void supervisor_on_end(struct supervisor *supervisor, const siginfo_t *info)
{
	const struct terminal *terminal = &supervisor->run->terminal;
	assert(!supervisor->child_ended);
	if (info->si_code != CLD_EXITED)
		supervisor_set_interrupt(supervisor, info->si_status, terminal_belongs_to(terminal, supervisor->child));
	terminal_pass(terminal, supervisor->child, terminal->job);
	supervisor->child_ended = true;
	supervisor->status = info->si_code == CLD_EXITED ? info->si_status : EXIT_STATUS_SIGNALLED + info->si_status;
	atomic_store(&supervisor->run->shared->status, supervisor->status);
	atomic_store(&supervisor->run->shared->ended_us, clock_now_us());
	report_event(supervisor->arguments, REPORT_DETAIL, "ended", json_pack("{s:i}", "status", supervisor->status),
		     "the command ended with status %d", supervisor->status);
}

/* Does nothing if the foreground process was killed: another process is the parent then, and the pid may be in use
 * again. */
void supervisor_continue_foreground(const struct supervisor *supervisor)
{
	if (getppid() == supervisor->run->foreground)
		kill(supervisor->run->foreground, SIGCONT);
}

void supervisor_on_children(struct supervisor *supervisor)
{
	for (;;) {
		siginfo_t info = {.si_pid = 0};
		int failed = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
		if (failed) {
			assert(supervisor->child_ended);
			supervisor->all_ended = true; /* ECHILD: no process is left */
		}
		if (failed || info.si_pid == 0)
			return;
		if (info.si_pid != supervisor->child)
			continue;
		if (info.si_code == CLD_STOPPED)
			supervisor_on_stop(supervisor, info.si_status);
		else if (info.si_code != CLD_CONTINUED)
			supervisor_on_end(supervisor, &info);
		else if (supervisor->mirrored)
			supervisor_continue_foreground(supervisor); /* another process continued the command */
	}
}
