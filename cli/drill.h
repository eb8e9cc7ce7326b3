/* SPDX-License-Identifier: MIT */
/* Private header of redlockctl drill, which tests whether a job is safe when it loses its lock.
 *
 * A job runs under `redlockctl run`, in children of the drill. To freeze it, these and all processes of the job are
 * stopped. The children end by themselves, with the job, when the drill is killed: the foreground process is killed
 * then, and its supervisor is continued if it is stopped (supervisor_set_up()). */
#ifndef DRILL_H
#define DRILL_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "cli/base/cli_base.h"
#include "cli/run/run.h"

/* ---- drill_job.c: a run of the job ---- */

struct drill_page {
	struct run_shared run;
	struct arguments arguments; /* of the run; "quiet" is set when the job is stopped */
};

struct drill_job {
	struct drill_page *page; /* shared with the processes of the run */
	pid_t foreground;        /* the foreground process; 0: nothing runs */
	int exit_status;         /* of the run, once it has ended */
};

/* False: errno. */
bool drill_job_init(struct drill_job *job) __attribute__((warn_unused_result));

/* Starts the job under its lock, in a group of its own, without stdin and with stderr as its stdout. wait_ms: for the
 * lock. mask: the signals that redlockctl found blocked. False: errno. */
bool drill_job_start(struct drill_job *job, const struct arguments *arguments, uint64_t wait_ms, const sigset_t *mask)
	__attribute__((warn_unused_result));

/* True if nothing of the run is left. */
bool drill_job_has_ended(struct drill_job *job);

/* Stops foreground process, supervisor and all processes of the job. False: a process cannot be stopped. */
bool drill_job_freeze(struct drill_job *job) __attribute__((warn_unused_result));

/* After drill_job_freeze(): true if the job had not ended before. */
bool drill_job_is_frozen(const struct drill_job *job);

/* Continues all that was stopped. */
void drill_job_continue(struct drill_job *job);

/* The three steps of the worst order: the job alone runs, until drill_job_has_finished(); then the supervisor, until
 * drill_job_is_released(); then the foreground process. */
void drill_job_continue_alone(const struct drill_job *job);
bool drill_job_has_finished(const struct drill_job *job);
void drill_job_continue_supervisor(const struct drill_job *job);
bool drill_job_is_released(const struct drill_job *job);

/* Ends the run, if there is one: the job as `run` does it when it is killed, then its lock is released. Blocks until
 * the supervisor has ended. */
void drill_job_end(struct drill_job *job);

/* ---- drill_check.c: the command that looks at the data ---- */

enum { DRILL_SAID_MAX = 200, DRILL_OUTPUT_MAX = 1024 };

struct drill_check {
	int status;                /* as a shell has it */
	char said[DRILL_SAID_MAX]; /* the last line of its output */
};

struct drill_checking {
	pid_t pid;                   /* of its supervisor */
	int output;                  /* the end of a pipe */
	char tail[DRILL_OUTPUT_MAX]; /* the last bytes of the output */
	size_t len;
};

/* Starts it in a shell. False: errno. */
bool drill_check_start(struct drill_checking *checking, const char *command, const sigset_t *mask)
	__attribute__((warn_unused_result));

/* True if it has ended, with all that it started: *ret_check is set. Reads its output. */
bool drill_check_has_ended(struct drill_checking *checking, struct drill_check *ret_check);

/* Kills it with all that it started, and waits for its end. */
void drill_check_kill(struct drill_checking *checking);

/* The last line of an output that is not empty; "" if there is none. */
void drill_check_last_line(const char *output, size_t len, char ret_said[DRILL_SAID_MAX]);

/* ---- drill_report.c: the results, for people, as JSON and as JUnit. Pure ---- */

enum drill_result {
	DRILL_HELD,
	DRILL_UNSAFE,    /* the check failed */
	DRILL_SUCCESSOR, /* the successor failed, or did not end */
	DRILL_EARLY      /* the job ended before it was stopped */
};

struct drill_run {
	uint64_t fence, took_ms;
	int status;
	bool killed; /* it did not end by itself in time */
};

struct drill_round {
	bool is_early;
	uint64_t stopped_after_ms, took_ms;
	struct drill_run first, successor;
	struct drill_check check;
};

struct drill_report {
	const char *name;
	uint64_t seed;
	struct drill_run trial; /* a run that is not disturbed, before the rounds */
	struct drill_check check;
	bool is_tried; /* the trial was done, and its check */
	struct drill_round *rounds;
	size_t count, planned; /* of the rounds */
	int status;            /* the exit status that cut the drill short; 0: none did */
};

enum drill_result drill_report_judge(const struct drill_round *round);
/* True if the job works and the data are right when nothing is lost: otherwise no round is run. */
bool drill_report_is_ready(const struct drill_report *report);
/* True if every round held. */
bool drill_report_is_safe(const struct drill_report *report);

/* Lines for people. */
void drill_report_print_trial(const struct drill_report *report, FILE *to);
void drill_report_print_round(const struct drill_round *round, size_t number, FILE *to);
void drill_report_print_end(const struct drill_report *report, FILE *to);

json_t *drill_report_json(const struct drill_report *report);
void drill_report_write_junit(const struct drill_report *report, FILE *to);

/* ---- drill_command.c ---- */

/* A moment within a run, from 0 to run_us. The same *state gives the same part of the run. */
uint64_t drill_command_moment_us(uint64_t *state, uint64_t run_us);

#endif
