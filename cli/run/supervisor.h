/* The supervisor of `run`. supervisor.c is the loop and the lease, supervisor_command.c the command. */
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
	struct curl_waitfd fds[SUPERVISOR_FDS]; /* the socket of the foreground process, SIGCHLD */
	struct lease lease;
	uint64_t waited_ms; /* until the lease was granted or the wait given up */
	struct renewal renewal;
	char failure[ANSWER_DETAIL_MAX]; /* why the last extension failed */
	char failure_code[ANSWER_CODE_MAX];
	bool lost;         /* the command was ended because of the lease */
	bool end_reported; /* the reason was reported */

	bool held;      /* waiting: sends no request, since the job is stopped */
	int end_signal; /* waiting: ends by it; releasing: stops waiting */
	bool foreground_gone;

	pid_t child;
	bool child_ended, alone; /* the command; and all that it started */
	int child_status;        /* as of a shell */
	bool mirrored;           /* the foreground process was stopped */
	bool wants_terminal;     /* the command had it, or tried to read */
	uint64_t left_behind_us; /* when processes left behind get SIGTERM; 0: none */
	uint64_t killing_us;     /* since when SIGKILL is sent; 0: not yet */
};

/* The supervisor's process, from the lease to its release. Returns the exit status. */
int supervisor_run(struct run *run);

/* Messages of the foreground process while a lease is waited for. */
enum acquire_order supervisor_read_order(void *context);

/* Starts the command. False: it cannot be run, which was reported; *ret_status is the exit status. */
bool supervisor_start(struct supervisor *supervisor, int *ret_status) __attribute__((warn_unused_result));

/* Handle the two descriptors while the command runs. */
void supervisor_on_foreground(struct supervisor *supervisor);
void supervisor_on_children(struct supervisor *supervisor);

/* Continues the foreground process, which stopped as the command did. */
void supervisor_continue_foreground(const struct supervisor *supervisor);

/* Sends a signal to the command and all that it started. */
void supervisor_signal_all(struct supervisor *supervisor, int signal_number);

#endif
