/* What the processes of `run` share. There are three, each with one thread:
 *
 *   foreground process   the process that was started. The shell sees it: it takes the signals, stops and ends as the
 *                        command does
 *   supervisor           gets the lease, starts the command, extends, ends the command in time, releases. In a group of
 *                        its own
 *   command              in a group of its own; with the terminal, where the foreground process had it
 *
 * Why a foreground process and a supervisor: with Ctrl-Z the shell wants to see its job stopped, while the lease must
 * be extended all the same; and if one of the two is killed or stopped for good, the other one ends the command before
 * the lease is over. */
#ifndef RUN_SHARED_H
#define RUN_SHARED_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/base/cli_base.h"
#include "terminal.h"

/* A page of memory that foreground process and supervisor share. Only the supervisor writes. */
struct run_shared {
	/* when the foreground process kills what is left, if the supervisor did not; 0: nothing runs */
	_Atomic uint64_t dead_by_us;
	_Atomic pid_t group; /* of the command */
	/* SIGINT or SIGQUIT, if it ended the command: the foreground process ends by it as well */
	_Atomic int interrupt;
	_Atomic bool from_keyboard; /* only the command got that signal, since it had the terminal */
};

/* Messages of the supervisor to the foreground process over their socket; the foreground process sends numbers of
 * signals. */
enum {
	RUN_STOP = 'S', /* stop, as the command has */
	RUN_GUARD = 'G' /* the command runs: check dead_by_us from now on */
};

struct run {
	const struct arguments *arguments;
	struct run_shared *shared;
	struct terminal terminal;
	int socket; /* to the other process */
	pid_t foreground;
	sigset_t inherited_mask;          /* the command gets it */
	struct sigaction inherited_child; /* of SIGCHLD */
};

#endif
