/* The supervisor of `run`: what its two halves share. supervisor.c is the loop and the lease, supervisor_command.c the
 * command. */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include "cli/base/cli_base.h"
#include "cli/http/client.h"
#include "renewal.h"
#include "run_shared.h"

enum { SUPERVISOR_FOREGROUND, SUPERVISOR_SIGNALS, SUPERVISOR_FDS };

struct supervisor {
	struct run *run;
	const struct arguments *arguments;
	struct report report;
	struct client client;
	struct curl_waitfd fds[SUPERVISOR_FDS]; /* the foreground process's socket, SIGCHLD */
	struct lease lease;
	uint64_t waited_ms; /* for it, or in vain */
	struct renewal renewal;
	char failure[ANSWER_DETAIL_MAX]; /* why the last extension failed */
	char failure_code[ANSWER_CODE_MAX];
	bool lost;         /* the command was ended because of the lease */
	bool end_reported; /* why it is ended */

	bool held;      /* waiting: asks nobody, because the job is stopped */
	int end_signal; /* waiting: end with it; releasing: do not wait any longer */
	bool foreground_gone;

	pid_t child;
	bool child_ended, alone; /* the command; all that it started as well */
	int child_status;        /* as a shell would say it */
	bool mirrored;           /* the foreground process was told to stop */
	bool wants_terminal;     /* it had it, or asked for it */
	uint64_t left_behind_us; /* when those that it left behind are told to end; 0: not yet known */
	uint64_t killing_us;     /* since when it is tried to kill them; 0: not yet */
};

/* The supervisor's process, from the lease to its release. Returns the exit status. */
int supervisor_run(struct run *run);

/* Messages of the foreground process while a lease is waited for. */
enum acquire_order supervisor_read_order(void *context);

/* Starts the command. False: it cannot be run, and why was said; *ret_status is the exit status for it. */
bool supervisor_start(struct supervisor *supervisor, int *ret_status) __attribute__((warn_unused_result));

/* What lies on the two descriptors while the command runs. */
void supervisor_on_foreground(struct supervisor *supervisor);
void supervisor_on_children(struct supervisor *supervisor);

/* The foreground process stopped as the command did, and goes on. */
void supervisor_continue_foreground(const struct supervisor *supervisor);

/* To the command and all that it started. */
void supervisor_signal_all(struct supervisor *supervisor, int signal_number);

#endif
