/* SPDX-License-Identifier: MIT */
/* Private header of this folder.
 *
 * `run` has three processes, each with one thread:
 *
 *   foreground process   the process that was started. The shell sees it: it takes the signals, stops and ends as the
 *                        command does
 *   supervisor           gets the lease, starts the command, extends, ends the command in time, releases. In a group of
 *                        its own
 *   command              in a group of its own; with the terminal, where the foreground process had it
 *
 * Foreground process and supervisor are separate for two reasons. With Ctrl-Z the shell must see its job stopped, while
 * the lease must still be extended. If one of the two is killed or stopped for good, the other one ends the command
 * before the lease is over. */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/base/cli_base.h"
#include "cli/http/client.h"
#include "run.h"
#include "server/renewal/renewal.h"

/* ---- process_tree.c ---- */

/* Sends a signal to a process group, if a child of the caller is in it: otherwise its number may be another group's.
 * False: none is, or no signal could be sent. Needs no /proc. */
bool process_group_signal(pid_t group, int signal_number);

/* ---- descriptors.c ---- */

/* Replaces stdin and stdout by /dev/null: a reader of the command's output must see its end when the command closes it,
 * not only when redlockctl ends. */
void descriptors_release_stdio(void);

/* ---- terminal.c: the terminal, and the process group that has it ---- */

struct terminal {
	int file;   /* the controlling terminal; -1: there is none */
	pid_t job;  /* the group of the foreground process, which the shell knows */
	bool eager; /* the command gets the terminal from the start, not only when it reads from it */
};

void terminal_open(struct terminal *terminal);

bool terminal_belongs_to(const struct terminal *terminal, pid_t group);

/* Gives the terminal to `to` if it belongs to `from`. Also from the background if SIGTTOU is blocked. */
void terminal_pass(const struct terminal *terminal, pid_t from, pid_t to);

/* ---- shared by the processes ---- */

/* Messages of the supervisor to the foreground process over their socket; the foreground process sends numbers of
 * signals. */
enum {
	RUN_STOP = 'S', /* stop, since the command has stopped */
	RUN_GUARD = 'G' /* the command runs: check dead_by_us from now on */
};

struct run {
	const struct arguments *arguments;
	struct run_shared *shared;
	struct terminal terminal;
	int socket; /* to the other process */
	pid_t foreground;
	sigset_t inherited_mask;          /* for the command */
	struct sigaction inherited_child; /* of SIGCHLD */
};

/* ---- child.c: starts the command ---- */

/* True if an enclosing run holds the lock already. */
bool child_is_enclosed(const struct arguments *arguments);

/* Starts the command in a process group of its own. -1: it cannot be run, with *ret_error; ETIME: `latest_us`
 * (CLOCK_BOOTTIME) has passed. */
pid_t child_start(struct run *run, const struct lease *lease, uint64_t latest_us, int *ret_error)
	__attribute__((warn_unused_result));

/* ---- foreground.c: the foreground process ---- */

/* Follows the supervisor until it has ended. Returns the exit status. */
int foreground_run(struct run *run, pid_t supervisor);

/* ---- supervisor.c, supervisor_command.c: the supervisor: its loop and the lease; the command ---- */

struct supervisor {
	struct run *run;
	const struct arguments *arguments;
	struct client client; /* orders: the socket of the foreground process */
	struct lease lease;
	uint64_t got_us;    /* when the lease was granted */
	uint64_t waited_ms; /* until the lease was granted or the wait given up */
	struct renewal renewal;
	struct answer answer; /* the last one, without its JSON */
	unsigned failures;    /* of extensions, in a row */
	uint64_t waiters;     /* by the last extension */
	bool lost;            /* the command was ended because of the lease */
	bool end_reported;    /* the reason was reported */

	bool held;      /* waiting: sends no request, since the job is stopped */
	int end_signal; /* waiting: ends the wait; releasing: stops waiting */
	bool foreground_gone;

	pid_t child;
	bool child_ended, all_ended; /* the command; all that it started, too */
	int status;                  /* the exit status, as a shell has it */
	bool mirrored;               /* the foreground process was stopped */
	bool wants_terminal;         /* the command had it, or tried to read */
	uint64_t leftovers_until_us; /* when processes left behind get SIGTERM; 0: none */
	uint64_t killing_us;         /* since when SIGKILL is sent; 0: not yet */
};

/* Runs the supervisor, from the lease to its release. Returns the exit status. */
int supervisor_run(struct run *run);

/* Reads messages of the foreground process: orders for a request, or signals for the command while it runs. */
enum client_order supervisor_read_order(void *context);

/* Starts the command. If it cannot be run, reports that, and treats it as ended. */
void supervisor_start(struct supervisor *supervisor);

/* Reaps children, and handles stops and the end of the command. */
void supervisor_on_children(struct supervisor *supervisor);

/* Continues the foreground process, which was stopped with the command. */
void supervisor_continue_foreground(const struct supervisor *supervisor);

/* Sends --signal-wanted to the command alone, if it runs. */
void supervisor_signal_wanted(struct supervisor *supervisor, uint64_t waiters);

/* Sends a signal to the command and all that it started. */
void supervisor_signal_all(struct supervisor *supervisor, int signal_number);

#endif
