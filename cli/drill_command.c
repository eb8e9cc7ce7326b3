/* SPDX-License-Identifier: MIT */
/* redlockctl drill: is a job safe when it loses its lock? See drill.h.
 *
 * A trial first: the job and its check must succeed when nothing is lost, and its time is the range for the moments of
 * the stops. Then the rounds. The functions that return bool return false to end the drill, with drill->report.status;
 * the reason was reported. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cli/base/cli_base.h"
#include "commands.h"
#include "drill.h"
#include "server/base/base.h"

enum { TICK_US = 5000, STATE_US = 50000, SUCCESSOR_WAIT_MS = 300000, TRIES = 3 };
/* Limits, since a job may wait for what the other one has: so many times the longest run, or this time if it is
 * longer. */
enum { ALONE_TIMES = 2, ALONE_US = 10000000, SUCCESSOR_TIMES = 10, SUCCESSOR_US = 60000000 };

struct drill {
	struct client *client;
	const struct arguments *arguments;
	struct interrupt interrupt;
	struct drill_job first, successor;
	struct drill_report report;
	uint64_t random;
	uint64_t shortest_us, longest_us; /* of the runs that were not stopped */
};

uint64_t drill_command_moment_us(uint64_t *state, uint64_t run_us)
{
	/* splitmix64 */
	uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint64_t)((double)((mixed ^ mixed >> 31) >> 11) * 0x1p-53 * (double)run_us);
}

/* ---- waiting ---- */

static bool drill_fail(struct drill *drill, int status)
{
	drill->report.status = status;
	return false;
}

static bool drill_fail_system(struct drill *drill, const char *what)
{
	report_error("%s: %s", what, strerror(errno));
	return drill_fail(drill, EXIT_STATUS_SYSTEM);
}

/* False: a signal ends the drill. */
static bool drill_pause(struct drill *drill, uint64_t us)
{
	client_pause(drill->client, clock_now_us() + us);
	return drill->client->order != CLIENT_STOP ||
	       drill_fail(drill, EXIT_STATUS_SIGNALLED + drill->interrupt.number);
}

/* The larger one of a fixed time and a multiple of the longest run. */
static uint64_t drill_limit_us(const struct drill *drill, uint64_t times, uint64_t least_us)
{
	return drill->longest_us * times > least_us ? drill->longest_us * times : least_us;
}

/* ---- runs of the job ---- */

static bool drill_start(struct drill *drill, struct drill_job *job, uint64_t wait_ms)
{
	return drill_job_start(job, drill->arguments, wait_ms, &drill->interrupt.before) ||
	       drill_fail_system(drill, "fork");
}

static void drill_record(const struct drill_job *job, struct drill_run *ret_run)
{
	const struct run_shared *run = &job->page->run;
	bool ended = run->ended_us != 0; /* false: somebody has killed the supervisor, and the job with it */
	assert(run->started_us != 0);
	ret_run->fence = run->fence;
	ret_run->status = ended ? run->status : EXIT_STATUS_SIGNALLED + SIGKILL;
	ret_run->took_ms = ended ? (run->ended_us - run->started_us) / 1000 : 0;
}

/* Waits until the job has started, and then until this time of its run, or its end. */
static bool drill_wait_in_run(struct drill *drill, struct drill_job *job, uint64_t at_us)
{
	for (;;) {
		uint64_t started_us = job->page->run.started_us, now_us = clock_now_us(), until_us = started_us + at_us;
		if (drill_job_has_ended(job) || (started_us != 0 && now_us >= until_us))
			return true;
		bool is_close = started_us != 0 && until_us - now_us < TICK_US;
		if (!drill_pause(drill, is_close ? until_us - now_us : TICK_US))
			return false;
	}
}

/* After the end of a run that nothing has disturbed. False: the run failed, and has said why. */
static bool drill_accept(struct drill *drill, const struct drill_job *job, struct drill_run *ret_run)
{
	const struct run_shared *run = &job->page->run;
	if (run->ended_us == 0)
		return drill_fail(drill, job->exit_status != 0 ? job->exit_status : EXIT_STATUS_SYSTEM);
	drill_record(job, ret_run);
	uint64_t took_us = run->ended_us - run->started_us;
	drill->longest_us = took_us > drill->longest_us ? took_us : drill->longest_us;
	drill->shortest_us = took_us < drill->shortest_us ? took_us : drill->shortest_us;
	return job->exit_status == ret_run->status || drill_fail(drill, job->exit_status);
}

/* ---- the check ---- */

static bool drill_check(struct drill *drill, struct drill_check *ret_check)
{
	struct drill_checking checking;
	if (!drill_check_start(&checking, drill->arguments->check, &drill->interrupt.before))
		return drill_fail_system(drill, "--check");
	while (!drill_check_has_ended(&checking, ret_check))
		if (!drill_pause(drill, TICK_US)) {
			drill_check_kill(&checking);
			return false;
		}
	return true;
}

/* ---- the lock ---- */

/* Asks who has the lock. *ret_fence: of the holder; 0: it is free. */
static bool drill_ask(struct drill *drill, struct answer *ret_answer, uint64_t *ret_fence)
{
	struct client *client = drill->client;
	struct client_request request = client_request_get_state(drill->arguments->names.joined);
	*ret_answer = client_ask(client, drill->arguments->servers.count, &request, drill->arguments->timeout_ms * 1000,
				 true);
	if (client->order == CLIENT_STOP)
		return drill_fail(drill, EXIT_STATUS_SIGNALLED + drill->interrupt.number);
	const json_t *held = json_object_get(ret_answer->json, "held");
	if (ret_answer->outcome == OUTCOME_DONE && !json_is_boolean(held))
		answer_set(ret_answer, OUTCOME_STRANGE, "strange", "the answer is not from redlockd");
	if (ret_answer->outcome != OUTCOME_DONE)
		return drill_fail(drill, print_failure(client, ret_answer));
	*ret_fence = json_is_true(held) ? (uint64_t)json_integer_value(json_object_get(ret_answer->json, "fence")) : 0;
	return true;
}

/* Nothing is started if the lock is held, or must not be looked at. */
static bool drill_look(struct drill *drill)
{
	struct answer answer;
	uint64_t fence;
	if (!drill_ask(drill, &answer, &fence))
		return false;
	bool held = json_is_true(json_object_get(answer.json, "held"));
	if (held) {
		answer_state(&answer);
		return drill_fail(drill, print_failure(drill->client, &answer));
	}
	answer_fini(&answer);
	return true;
}

/* Waits until the lease of the job that is stopped has ended. */
static bool drill_wait_for_end(struct drill *drill)
{
	struct answer answer;
	uint64_t fence;
	for (;;) {
		if (!drill_ask(drill, &answer, &fence))
			return false;
		answer_fini(&answer);
		if (fence != drill->first.page->run.fence)
			return true;
		if (!drill_pause(drill, STATE_US))
			return false;
	}
}

/* ---- a round ---- */

/* Starts the job and stops it. A random moment may be too late, so another one is tried then. */
static bool drill_stop_first(struct drill *drill, struct drill_round *round)
{
	uint64_t at_us = drill->arguments->at_ms * 1000;
	round->is_early = true;
	for (int tries = at_us > 0 ? 1 : TRIES; round->is_early && tries > 0; tries--) {
		uint64_t when_us = at_us > 0 ? at_us : drill_command_moment_us(&drill->random, drill->shortest_us);
		if (!drill_start(drill, &drill->first, 0) || !drill_wait_in_run(drill, &drill->first, when_us))
			return false;
		if (drill->first.foreground > 0 && !drill_job_freeze(&drill->first)) {
			report_error("the job cannot be stopped");
			return drill_fail(drill, EXIT_STATUS_SYSTEM);
		}
		round->stopped_after_ms = (clock_now_us() - drill->first.page->run.started_us) / 1000;
		round->is_early = drill->first.foreground == 0 || !drill_job_is_frozen(&drill->first);
		if (!round->is_early)
			return true;
		if (drill->first.foreground > 0) {
			drill_job_continue(&drill->first);
			if (!drill_wait_in_run(drill, &drill->first, UINT64_MAX / 2))
				return false;
		}
		if (!drill_accept(drill, &drill->first, &round->first))
			return false;
	}
	return true;
}

/* Runs the job while the first one is stopped. It may wait for what that has: then it is killed. */
static bool drill_run_successor(struct drill *drill, struct drill_round *round)
{
	struct drill_job *job = &drill->successor;
	if (!drill_start(drill, job, SUCCESSOR_WAIT_MS) ||
	    !drill_wait_in_run(drill, job, drill_limit_us(drill, SUCCESSOR_TIMES, SUCCESSOR_US)))
		return false;
	round->successor.killed = job->foreground > 0;
	if (!round->successor.killed)
		return drill_accept(drill, job, &round->successor);
	drill_job_end(job);
	drill_record(job, &round->successor);
	return true;
}

/* Continues the first one: the supervisor, which would end it at once, only when the job has ended by itself. */
static bool drill_continue_first(struct drill *drill, struct drill_round *round)
{
	struct drill_job *job = &drill->first;
	uint64_t until_us = clock_now_us() + drill_limit_us(drill, ALONE_TIMES, ALONE_US);
	drill_job_continue_alone(job);
	while (!drill_job_has_finished(job) && clock_now_us() < until_us)
		if (!drill_pause(drill, TICK_US))
			return false;
	round->first.killed = !drill_job_has_finished(job);
	drill_job_continue_supervisor(job);
	while (!drill_job_is_released(job))
		if (!drill_pause(drill, TICK_US))
			return false;
	drill_job_continue(job);
	if (!drill_wait_in_run(drill, job, UINT64_MAX / 2))
		return false;
	drill_record(job, &round->first);
	return true;
}

static bool drill_round(struct drill *drill, struct drill_round *round)
{
	uint64_t begun_us = clock_now_us();
	bool done = drill_stop_first(drill, round) &&
		    (round->is_early || (drill_wait_for_end(drill) && drill_run_successor(drill, round) &&
					 drill_continue_first(drill, round) && drill_check(drill, &round->check)));
	round->took_ms = (clock_now_us() - begun_us) / 1000;
	return done;
}

/* ---- the drill ---- */

static bool drill_trial(struct drill *drill)
{
	struct drill_report *report = &drill->report;
	bool done = drill_start(drill, &drill->first, 0) && drill_wait_in_run(drill, &drill->first, UINT64_MAX / 2) &&
		    drill_accept(drill, &drill->first, &report->trial) && drill_check(drill, &report->check);
	report->is_tried = done;
	if (done && !drill->arguments->json)
		drill_report_print_trial(report, stdout);
	return done;
}

static void drill_run(struct drill *drill)
{
	struct drill_report *report = &drill->report;
	if (!drill_look(drill) || !drill_trial(drill) || !drill_report_is_ready(report))
		return;
	while (report->count < report->planned && drill_round(drill, &report->rounds[report->count])) {
		report->count++;
		if (!drill->arguments->json)
			drill_report_print_round(&report->rounds[report->count - 1], report->count, stdout);
		fflush(stdout);
	}
}

/* Returns the exit status. */
static int drill_finish(struct drill *drill, FILE *junit)
{
	struct drill_report *report = &drill->report;
	int status = report->status != 0            ? report->status
		     : drill_report_is_safe(report) ? EXIT_STATUS_OK
						    : EXIT_STATUS_UNSAFE;
	if (report->status == 0 && drill->arguments->json)
		print_json(drill_report_json(report));
	else if (report->status == 0)
		drill_report_print_end(report, stdout);
	if (print_end(false) != EXIT_STATUS_OK && status == EXIT_STATUS_OK)
		status = EXIT_STATUS_SYSTEM;
	if (!junit)
		return status;
	drill_report_write_junit(report, junit);
	if (ferror(junit) || fclose(junit) != 0) {
		report_error("--junit: %s", strerror(errno));
		status = status == EXIT_STATUS_OK ? EXIT_STATUS_SYSTEM : status;
	}
	return status;
}

static bool drill_init(struct drill *drill)
{
	const struct arguments *arguments = drill->arguments;
	struct drill_report *report = &drill->report;
	report->name = arguments->names.joined;
	report->planned = arguments->rounds;
	report->rounds = memory_alloc(report->planned * sizeof *report->rounds);
	memset(report->rounds, 0, report->planned * sizeof *report->rounds);
	report->seed = drill->random = arguments->seed != 0 ? arguments->seed : random_number() % UINT32_MAX + 1;
	signal(SIGCHLD, SIG_DFL); /* if it were ignored, no child could be waited for */
	return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && drill_job_init(&drill->first) &&
	       drill_job_init(&drill->successor);
}

int drill_command(struct client *client)
{
	const char *path = client->arguments->junit;
	FILE *junit = path ? fopen(path, "we") : NULL;
	struct drill drill = {.client = client, .arguments = client->arguments, .shortest_us = UINT64_MAX};
	assert(client->arguments->argv && client->arguments->check);
	if (path && !junit) {
		report_error("--junit '%s': %s", path, strerror(errno));
		return EXIT_STATUS_USAGE;
	}
	if (!drill_init(&drill)) {
		report_error("cannot be set up: %s", strerror(errno));
		return EXIT_STATUS_SYSTEM;
	}
	if (!interrupt_begin(&drill.interrupt, client))
		return EXIT_STATUS_SYSTEM;
	drill_run(&drill);
	drill_job_end(&drill.successor);
	drill_job_end(&drill.first);
	int status = drill_finish(&drill, junit);
	free(drill.report.rounds);
	interrupt_end(&drill.interrupt);
	return status;
}
