/* The keeper's side towards the command and the front: start, signals, stops, ends. See run.h and keeper.h.
 *
 * Ctrl-Z: the command stops; the keeper sees it, gives the terminal back to the job and tells the front to stop; the shell sees that.
 * On fg or bg the shell continues the front, that says so here, and the command is continued, with the terminal if the job has it.
 * The lease is extended all the while. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/base/base.h"
#include "child.h"
#include "supervisor.h"
#include "cli/exit_status.h"
#include "process_tree.h"

/* ---- the front ---- */

static void keeper_tell_front(struct keeper *keeper, char what)
{
	ssize_t sent = send(keeper->run->socket, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent;
}

/* The next message: the number of a signal, 0 where there is none. */
static int keeper_read_front(struct keeper *keeper)
{
	unsigned char number = 0;
	ssize_t got = recv(keeper->run->socket, &number, 1, MSG_DONTWAIT);

	if (got == 1)
		return number;
	if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
		keeper->front_gone = true;
		keeper->fds[KEEPER_FRONT].events = 0; /* an end of file is there for ever */
		keeper->fds[KEEPER_FRONT].fd = keeper->fds[KEEPER_SIGNALS].fd;
	}
	return 0;
}

/* Not what was ignored when redlockctl was started, by nohup for example: it comes here all the same, because it is blocked. */
static bool ends_the_wait(int number)
{
	struct sigaction action;

	if (number != SIGINT && number != SIGTERM && number != SIGHUP && number != SIGQUIT)
		return false;
	return sigaction(number, NULL, &action) != 0 || action.sa_handler != SIG_IGN;
}

/* Shells stop a script only when its program ended by the signal, and not when it says so with its exit status. */
static void keeper_note_interrupt(struct keeper *keeper, int number, bool from_keyboard)
{
	if (number != SIGINT && number != SIGQUIT)
		return;
	atomic_store(&keeper->run->shared->from_keyboard, from_keyboard);
	atomic_store(&keeper->run->shared->interrupt, number);
}

static void keeper_note_end(struct keeper *keeper, int number)
{
	keeper->told_signal = number;
	if (keeper->child == 0)
		keeper_note_interrupt(keeper, number, false);
}

enum acquire_tell keeper_told(void *context)
{
	struct keeper *keeper = context;

	for (int number; (number = keeper_read_front(keeper)) != 0;) {
		if (ends_the_wait(number))
			keeper_note_end(keeper, number);
		if (number == SIGTSTP) {
			keeper->held = true;
			keeper_tell_front(keeper, RUN_STOP);
		}
		if (number == SIGCONT)
			keeper->held = false;
	}
	if (keeper->told_signal != 0 || keeper->front_gone)
		return ACQUIRE_STOP;
	return keeper->held ? ACQUIRE_HOLD : ACQUIRE_GO_ON;
}

/* ---- the command ---- */

static int keeper_cannot_start(struct keeper *keeper, int error)
{
	const char *command = keeper->options->argv[0];
	json_t *fields = json_pack("{s:s*}", "command", command);

	report_event(&keeper->report, REPORT_NOTE, "not-run", fields, "%s: %s", command, strerror(error));
	if (error == EAGAIN || error == ENOMEM)
		return STATUS_SYSTEM;
	return error == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN;
}

bool keeper_start(struct keeper *keeper, int *ret_status)
{
	int error;

	keeper->child = child_start(keeper->run, &keeper->lease, &error);
	if (keeper->child < 0) {
		*ret_status = keeper_cannot_start(keeper, error);
		return false;
	}
	keeper->wants_terminal = keeper->run->terminal.eager;
	atomic_store(&keeper->run->shared->group, keeper->child);
	keeper_tell_front(keeper, RUN_GUARD);
	return true;
}

void keeper_signal_all(struct keeper *keeper, int signal_number)
{
	if (!keeper->child_ended)
		kill(-keeper->child, signal_number);
	tree_signal(getpid(), keeper->child_ended ? 0 : keeper->child, signal_number);
}

static void keeper_continue(struct keeper *keeper)
{
	keeper->mirrored = false;
	if (keeper->child_ended)
		return;
	if (keeper->wants_terminal)
		terminal_pass(&keeper->run->terminal, keeper->run->terminal.job, keeper->child);
	kill(-keeper->child, SIGCONT);
}

/* What a terminal would send goes to the group, as a terminal does it; SIGTERM, too, or a shell would wait for the program that it
 * has started. SIGUSR1 and SIGUSR2 mean something to the command alone: they would end what does not know them. */
static void keeper_pass_on(struct keeper *keeper, int number)
{
	if (number == SIGCONT)
		keeper_continue(keeper);
	else if (keeper->child_ended)
		tree_signal(getpid(), 0, number);
	else
		kill(number == SIGUSR1 || number == SIGUSR2 ? keeper->child : -keeper->child, number);
}

void keeper_on_front(struct keeper *keeper)
{
	for (int number; (number = keeper_read_front(keeper)) != 0;) {
		if (ends_the_wait(number))
			keeper->told_signal = number;
		keeper_pass_on(keeper, number);
	}
}

/* ---- what became of it ---- */

static void keeper_on_stop(struct keeper *keeper, int number)
{
	const struct terminal *terminal = &keeper->run->terminal;
	bool asks = number == SIGTTIN || number == SIGTTOU;

	if (terminal->file < 0 || (number != SIGTSTP && !asks))
		return; /* no shell that would want to know */
	if (asks)
		keeper->wants_terminal = true;
	if (asks && terminal_belongs_to(terminal, terminal->job)) {
		keeper_continue(keeper);
		return;
	}
	terminal_pass(terminal, keeper->child, terminal->job);
	keeper->mirrored = true;
	keeper_tell_front(keeper, RUN_STOP);
}

static void keeper_on_end(struct keeper *keeper, const siginfo_t *info)
{
	const struct terminal *terminal = &keeper->run->terminal;

	if (info->si_code != CLD_EXITED)
		keeper_note_interrupt(keeper, info->si_status, terminal_belongs_to(terminal, keeper->child));
	terminal_pass(terminal, keeper->child, terminal->job);
	keeper->child_ended = true;
	keeper->child_status = info->si_code == CLD_EXITED ? info->si_status : STATUS_SIGNALLED + info->si_status;
	report_event(&keeper->report, REPORT_DETAIL, "ended", json_pack("{s:i}", "status", keeper->child_status), "the command ended with status %d",
		     keeper->child_status);
}

/* Nobody else: if the front was killed, the parent is whoever took the keeper over. */
void keeper_continue_front(const struct keeper *keeper)
{
	if (getppid() == keeper->run->front)
		kill(keeper->run->front, SIGCONT);
}

static void keeper_on_child(struct keeper *keeper, const siginfo_t *info)
{
	if (info->si_code == CLD_STOPPED)
		keeper_on_stop(keeper, info->si_status);
	else if (info->si_code == CLD_CONTINUED && keeper->mirrored)
		keeper_continue_front(keeper); /* somebody else continued it */
	else if (info->si_code != CLD_CONTINUED)
		keeper_on_end(keeper, info);
}

void keeper_on_children(struct keeper *keeper)
{
	siginfo_t info;

	for (;;) {
		info.si_pid = 0;
		int failed = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG);
		if (failed && errno == EINTR)
			continue;
		if (failed)
			keeper->alone = true; /* ECHILD: nothing is left, also nothing that became ours */
		if (failed || info.si_pid == 0)
			return;
		if (info.si_pid == keeper->child)
			keeper_on_child(keeper, &info);
	}
}
