/* The supervisor: gets the lease, starts the command, extends, ends the command in time, releases. The processes are
 * described in run_shared.h.
 *
 * renewal.c decides, this file acts: actions become requests and signals, answers and times become events. After each
 * wake-up answers come first, then the time, before anything else: after the sleep of a machine the command is killed
 * at once if the lease is over. */
#include "supervisor.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/base/cli_base.h"
#include "descriptors.h"
#include "server/base/base.h"

enum { LEFT_BEHIND_US = 500000, RELEASE_MAX_US = 10000000, RELEASE_PAUSE_US = 100000, RELEASE_TIMEOUT_MIN_US = 100000 };
enum { UNKILLABLE_US = 10000000, KILL_GUARD_US = 1000000 };

static uint32_t supervisor_random(void)
{
	uint32_t random = 0;
	ssize_t got = getrandom(&random, sizeof random, GRND_NONBLOCK);
	return got == (ssize_t)sizeof random ? random : (uint32_t)clock_now_us();
}

static const struct server *supervisor_server(const struct supervisor *supervisor)
{
	assert(supervisor->renewal.server < supervisor->arguments->servers.count);
	return &supervisor->arguments->servers.items[supervisor->renewal.server];
}

static const char *supervisor_left(const struct supervisor *supervisor, char ret_text[DURATION_TEXT_MAX])
{
	uint64_t now_us = clock_now_us(), deadline_us = supervisor->renewal.deadline_us;
	duration_format(deadline_us > now_us ? (deadline_us - now_us) / 1000 : 0, ret_text);
	return ret_text;
}

static json_int_t supervisor_left_ms(const struct supervisor *supervisor)
{
	uint64_t now_us = clock_now_us(), deadline_us = supervisor->renewal.deadline_us;
	return deadline_us > now_us ? (json_int_t)((deadline_us - now_us) / 1000) : 0;
}

/* ---- the lease ---- */

/* The foreground process kills half a margin after the supervisor should have. */
static void supervisor_set_guard(struct supervisor *supervisor)
{
	assert(supervisor->renewal.deadline_us > 0);
	atomic_store(&supervisor->run->shared->dead_by_us,
		     renewal_kill_us(&supervisor->renewal) + renewal_margin_us(&supervisor->renewal) / 2);
}

static void supervisor_report_acquired(struct supervisor *supervisor)
{
	char left[DURATION_TEXT_MAX], waited[DURATION_TEXT_MAX];
	json_t *fields = json_pack("{s:I, s:I, s:I, s:s}", "fence", (json_int_t)supervisor->lease.fence, "validity_ms",
				   supervisor_left_ms(supervisor), "waited_ms", (json_int_t)supervisor->waited_ms,
				   "server", supervisor_server(supervisor)->text);

	duration_format(supervisor->waited_ms, waited);
	report_event(&supervisor->report, REPORT_DETAIL, "acquired", fields,
		     "acquired at %s after %s, fence %lld, valid for %s", supervisor_server(supervisor)->text, waited,
		     (long long)supervisor->lease.fence, supervisor_left(supervisor, left));
}

static void supervisor_report_waiting(void *context, const struct answer *answer)
{
	struct supervisor *supervisor = context;
	report_event(&supervisor->report, REPORT_DETAIL, "waiting", json_pack("{s:s}", "code", answer->code),
		     "waiting: %s", answer->detail);
}

/* Half of the lease must be left, so that there is time to extend it. */
static enum acquire_result supervisor_ask_for_lease(struct supervisor *supervisor, size_t *ret_server,
						    uint64_t *ret_sent_us, struct answer *ret_answer)
{
	struct acquire acquire = {
		.client = &supervisor->client,
		.arguments = supervisor->arguments,
		.least_us = supervisor->arguments->ttl_ms * 500 + supervisor->arguments->kill_after_ms * 500,
		.extra = &supervisor->fds[SUPERVISOR_FOREGROUND],
		.read_order = supervisor_read_order,
		.on_wait = supervisor->report.json || supervisor->report.verbose ? supervisor_report_waiting : NULL,
		.context = supervisor,
	};
	uint64_t begun_us = clock_now_us();
	enum acquire_result result = acquire_lease(&acquire, &supervisor->lease, ret_sent_us, ret_answer);

	supervisor->waited_ms = (clock_now_us() - begun_us) / 1000;
	*ret_server = acquire.server;
	return result;
}

static int supervisor_refused(struct supervisor *supervisor, size_t server, struct answer *answer)
{
	const char *where = supervisor->arguments->servers.items[server].text;
	json_t *fields = json_pack("{s:s, s:s, s:I}", "code", answer->code, "server", where, "waited_ms",
				   (json_int_t)supervisor->waited_ms);
	bool others = answer->outcome == OUTCOME_HELD || answer->outcome == OUTCOME_SPLIT ||
		      answer->outcome == OUTCOME_INVALID;

	report_event(&supervisor->report, REPORT_NOTE, "not-acquired", fields, "not acquired: %s%s%s%s",
		     others ? "" : where, others ? "" : ": ", answer->detail,
		     answer_hint(answer, &supervisor->arguments->credentials));
	int status = acquire_status(supervisor->arguments, answer);
	answer_fini(answer);
	return status;
}

/* False: there is none, *ret_status is the exit status. */
static bool supervisor_acquire(struct supervisor *supervisor, int *ret_status)
{
	struct answer answer;
	size_t server;
	uint64_t sent_us;
	enum acquire_result result = supervisor_ask_for_lease(supervisor, &server, &sent_us, &answer);

	if (result == ACQUIRE_STOPPED)
		*ret_status = EXIT_STATUS_SIGNALLED + supervisor->end_signal;
	if (result == ACQUIRE_REFUSED)
		*ret_status = supervisor_refused(supervisor, server, &answer);
	if (result != ACQUIRE_GRANTED)
		return false;
	struct renewal_config config = {supervisor->arguments->ttl_ms * 1000,
					supervisor->arguments->kill_after_ms * 1000,
					supervisor->arguments->timeout_ms * 1000, supervisor->arguments->servers.count};
	renewal_init(&supervisor->renewal, &config, server, sent_us, supervisor->lease.validity_ms * 1000);
	supervisor_set_guard(supervisor);
	supervisor_report_acquired(supervisor);
	return true;
}

static void supervisor_begin_extend(struct supervisor *supervisor)
{
	struct client_request request;

	assert(supervisor->renewal.state == RENEWAL_ASKING);
	client_request_extend(&request, supervisor->arguments->name, supervisor->lease.token,
			      supervisor->arguments->ttl_ms);
	client_begin(&supervisor->client, supervisor_server(supervisor), &request,
		     renewal_timeout_us(&supervisor->renewal, clock_now_us()));
	client_request_fini(&request);
}

/* ---- the actions ---- */

static const char *supervisor_why(const struct supervisor *supervisor)
{
	switch (supervisor->renewal.why) {
	case RENEWAL_WHY_LOST: return supervisor->failure;
	case RENEWAL_WHY_UNREACHABLE: return "it could not be extended in time";
	case RENEWAL_WHY_BOUND: return "the server does not extend it any further (--max-hold-ms)";
	default: return "it was not extended in time: the machine slept, or redlockctl was stopped";
	}
}

static const char *supervisor_why_code(const struct supervisor *supervisor)
{
	switch (supervisor->renewal.why) {
	case RENEWAL_WHY_LOST: return supervisor->failure_code;
	case RENEWAL_WHY_UNREACHABLE: return "unreachable";
	case RENEWAL_WHY_BOUND: return "max-hold";
	default: return "late";
	}
}

/* Reports once why the command is ended. */
static void supervisor_report_end(struct supervisor *supervisor, const char *what)
{
	char left[DURATION_TEXT_MAX];

	assert(supervisor->renewal.why != RENEWAL_WHY_NONE);
	if (supervisor->end_reported)
		return;
	supervisor->end_reported = true;
	if (supervisor->renewal.why == RENEWAL_WHY_REQUESTED) {
		report_event(&supervisor->report, supervisor->foreground_gone ? REPORT_NOTE : REPORT_DETAIL, "ending",
			     NULL, "%s: %s",
			     supervisor->foreground_gone ? "redlockctl was killed"
							 : "the command left processes behind",
			     what);
		return;
	}
	supervisor->lost = true;
	json_t *fields = json_pack("{s:s, s:I}", "code", supervisor_why_code(supervisor), "left_ms",
				   supervisor_left_ms(supervisor));
	report_event(&supervisor->report, REPORT_NOTE, "lost", fields, "the lock is lost: %s; %s, %s before its end",
		     supervisor_why(supervisor), what, supervisor_left(supervisor, left));
}

/* Stopped processes must run to handle SIGTERM. */
static void supervisor_terminate(struct supervisor *supervisor)
{
	assert(supervisor->renewal.state == RENEWAL_ENDING);
	supervisor_report_end(supervisor, "SIGTERM to the command");
	supervisor_signal_all(supervisor, SIGTERM);
	supervisor_signal_all(supervisor, SIGCONT);
}

static void supervisor_kill(struct supervisor *supervisor)
{
	uint64_t guarded_us = clock_now_us() + KILL_GUARD_US;

	assert(supervisor->renewal.state == RENEWAL_KILLING);
	supervisor_signal_all(supervisor, SIGKILL);
	if (atomic_load(&supervisor->run->shared->dead_by_us) < guarded_us)
		/* the supervisor is killing: the foreground process could not do more */
		atomic_store(&supervisor->run->shared->dead_by_us, guarded_us);
	if (supervisor->killing_us != 0)
		return;
	supervisor->killing_us = clock_now_us();
	supervisor_report_end(supervisor, "SIGKILL to the command");
}

static void supervisor_act(struct supervisor *supervisor, enum renewal_action action)
{
	assert(action <= RENEWAL_KILL);
	if (action == RENEWAL_NOTHING)
		return;
	client_cancel(&supervisor->client);
	if (action == RENEWAL_ASK)
		supervisor_begin_extend(supervisor);
	else if (action == RENEWAL_TERMINATE)
		supervisor_terminate(supervisor);
	else
		supervisor_kill(supervisor);
}

/* ---- the events ---- */

static void supervisor_on_extended(struct supervisor *supervisor, const struct lease *lease)
{
	char left[DURATION_TEXT_MAX];
	unsigned failures = supervisor->renewal.failures;

	renewal_extended(&supervisor->renewal, supervisor->client.main.sent_us, lease->validity_ms * 1000);
	supervisor_set_guard(supervisor);
	json_t *fields = json_pack("{s:I, s:s}", "validity_ms", supervisor_left_ms(supervisor), "server",
				   supervisor_server(supervisor)->text);
	report_event(&supervisor->report, failures > 0 ? REPORT_NOTE : REPORT_DETAIL, "extended", fields,
		     "extended at %s, valid for %s", supervisor_server(supervisor)->text,
		     supervisor_left(supervisor, left));
}

static void supervisor_on_failed(struct supervisor *supervisor, const struct answer *answer)
{
	char left[DURATION_TEXT_MAX];
	const struct server *server = supervisor_server(supervisor);

	/* Once for each server, then only as JSON: there are several requests a second. */
	if (supervisor->renewal.failures < supervisor->arguments->servers.count || supervisor->report.json)
		report_event(&supervisor->report, REPORT_NOTE, "not-extended",
			     json_pack("{s:s, s:s, s:I}", "code", answer->code, "server", server->text, "left_ms",
				       supervisor_left_ms(supervisor)),
			     "not extended at %s, %s left: %s", server->text, supervisor_left(supervisor, left),
			     answer->detail);
	supervisor_act(supervisor, renewal_failed(&supervisor->renewal, supervisor_random(), clock_now_us()));
}

static void supervisor_on_answer(struct supervisor *supervisor)
{
	struct answer answer;
	struct lease lease;

	client_read(&supervisor->client, &answer);
	snprintf(supervisor->failure, sizeof supervisor->failure, "%s", answer.detail);
	snprintf(supervisor->failure_code, sizeof supervisor->failure_code, "%s", answer.code);
	if (answer.outcome == OUTCOME_DONE &&
	    answer_lease(&answer, supervisor->arguments->name, supervisor->lease.token, &lease))
		supervisor_on_extended(supervisor, &lease);
	else if (answer.outcome == OUTCOME_LOST)
		supervisor_act(supervisor, renewal_lost(&supervisor->renewal, clock_now_us()));
	else
		supervisor_on_failed(supervisor, &answer);
	answer_fini(&answer);
}

/* Processes left behind have a moment to end by themselves: one may be the last reader of a pipe. */
static void supervisor_on_left_behind(struct supervisor *supervisor)
{
	uint64_t now_us = clock_now_us();

	if (!supervisor->child_ended || supervisor->alone || supervisor->arguments->wait_all)
		return;
	if (supervisor->left_behind_us == 0)
		supervisor->left_behind_us = now_us + LEFT_BEHIND_US;
	if (now_us >= supervisor->left_behind_us)
		supervisor_act(supervisor, renewal_end(&supervisor->renewal, now_us));
}

static bool supervisor_all_ended(const struct supervisor *supervisor)
{
	return supervisor->child_ended && supervisor->alone;
}

static bool supervisor_is_done(const struct supervisor *supervisor)
{
	return supervisor_all_ended(supervisor) ||
	       (supervisor->killing_us != 0 && clock_now_us() >= supervisor->killing_us + UNKILLABLE_US);
}

static uint64_t supervisor_next_us(const struct supervisor *supervisor)
{
	uint64_t next_us = renewal_next_us(&supervisor->renewal, clock_now_us());
	bool waits = supervisor->left_behind_us != 0 && supervisor->renewal.why == RENEWAL_WHY_NONE;

	return waits && supervisor->left_behind_us < next_us ? supervisor->left_behind_us : next_us;
}

static void supervisor_round(struct supervisor *supervisor)
{
	struct signalfd_siginfo ignored;

	if (client_wait(&supervisor->client, supervisor_next_us(supervisor), supervisor->fds, SUPERVISOR_FDS))
		supervisor_on_answer(supervisor);
	supervisor_act(supervisor, renewal_time(&supervisor->renewal, clock_now_us()));
	if (supervisor->fds[SUPERVISOR_FOREGROUND].revents != 0 && !supervisor->foreground_gone)
		supervisor_on_foreground(supervisor);
	while (read(supervisor->fds[SUPERVISOR_SIGNALS].fd, &ignored, sizeof ignored) > 0)
		continue;
	supervisor_on_children(supervisor);
	if (supervisor->foreground_gone)
		supervisor_act(supervisor, renewal_end(&supervisor->renewal, clock_now_us()));
	supervisor_on_left_behind(supervisor);
}

/* ---- release ---- */

/* Waits for the answer, until until_us at most. A signal of the foreground process ends the wait. */
static bool supervisor_wait(struct supervisor *supervisor, uint64_t until_us)
{
	while (clock_now_us() < until_us && supervisor->end_signal == 0) {
		if (client_wait(&supervisor->client, until_us, supervisor->fds, 1))
			return true;
		if (supervisor->fds[SUPERVISOR_FOREGROUND].revents != 0 && !supervisor->foreground_gone)
			supervisor_read_order(supervisor);
		if (supervisor->foreground_gone)
			supervisor->fds[SUPERVISOR_FOREGROUND].revents = 0;
	}
	return false;
}

static enum outcome supervisor_try_release(struct supervisor *supervisor, uint64_t until_us)
{
	struct client_request request;
	struct answer answer = {.outcome = OUTCOME_UNAVAILABLE};
	uint64_t now_us = clock_now_us(),
		 timeout_us = until_us > now_us ? (until_us - now_us) / supervisor->arguments->servers.count : 0;

	if (timeout_us > supervisor->arguments->timeout_ms * 1000)
		timeout_us = supervisor->arguments->timeout_ms * 1000;
	if (timeout_us < RELEASE_TIMEOUT_MIN_US)
		timeout_us = RELEASE_TIMEOUT_MIN_US;
	client_request_release(&request, supervisor->arguments->name, supervisor->lease.token);
	client_begin(&supervisor->client, supervisor_server(supervisor), &request, timeout_us);
	if (supervisor_wait(supervisor, UINT64_MAX))
		client_read(&supervisor->client, &answer);
	else
		client_cancel(&supervisor->client);
	enum outcome outcome = answer.outcome;
	snprintf(supervisor->failure, sizeof supervisor->failure, "%s", answer.detail);
	answer_fini(&answer);
	return outcome;
}

/* Asks one server after the other, until one has released or the lease is over. OUTCOME_LOST: the first server answered
 * that the lease was lost before. */
static enum outcome supervisor_release(struct supervisor *supervisor)
{
	uint64_t until_us = clock_now_us() + RELEASE_MAX_US;

	assert(supervisor->lease.token[0] != '\0');
	if (until_us > supervisor->renewal.deadline_us)
		until_us = supervisor->renewal.deadline_us;
	supervisor->end_signal = 0;
	for (size_t tries = 0; clock_now_us() < until_us && supervisor->end_signal == 0; tries++) {
		enum outcome outcome = supervisor_try_release(supervisor, until_us);
		if (outcome == OUTCOME_DONE || (outcome == OUTCOME_LOST && tries == 0))
			return outcome;
		if (outcome == OUTCOME_LOST)
			return OUTCOME_DONE; /* most likely by a request whose answer was lost */
		supervisor->renewal.server = (supervisor->renewal.server + 1) % supervisor->arguments->servers.count;
		if ((tries + 1) % supervisor->arguments->servers.count == 0)
			supervisor_wait(supervisor, clock_now_us() + RELEASE_PAUSE_US);
	}
	return OUTCOME_UNAVAILABLE;
}

/* Returns the exit status. */
static int supervisor_finish(struct supervisor *supervisor, int status)
{
	char left[DURATION_TEXT_MAX];

	atomic_store(&supervisor->run->shared->dead_by_us, 0);
	client_cancel(&supervisor->client);
	if (supervisor->lost && supervisor->renewal.why == RENEWAL_WHY_LOST)
		return EXIT_STATUS_LOST;
	enum outcome outcome = supervisor_release(supervisor);
	if (outcome == OUTCOME_DONE) {
		report_event(&supervisor->report, REPORT_DETAIL, "released", NULL, "released");
	} else if (outcome == OUTCOME_LOST && !supervisor->lost) {
		supervisor->lost = true;
		report_event(&supervisor->report, REPORT_NOTE, "lost", NULL,
			     "the lock was lost before the command ended: %s", supervisor->failure);
	} else if (supervisor_left_ms(supervisor) > 0) {
		report_event(&supervisor->report, REPORT_NOTE, "not-released", NULL,
			     "not released%s%s; it runs out in %s", *supervisor->failure == '\0' ? "" : ": ",
			     supervisor->failure, supervisor_left(supervisor, left));
	}
	return supervisor->lost ? EXIT_STATUS_LOST : status;
}

/* Processes of the command cannot be killed: the lock is not released, since the next holder would run beside them.
 * Returns the exit status. */
static int supervisor_abandon(struct supervisor *supervisor)
{
	char left[DURATION_TEXT_MAX];
	bool lost = supervisor->lost && supervisor->renewal.why == RENEWAL_WHY_LOST;
	json_int_t left_ms = lost ? 0 : supervisor_left_ms(supervisor);

	assert(!supervisor_all_ended(supervisor));
	atomic_store(&supervisor->run->shared->dead_by_us, 0);
	client_cancel(&supervisor->client);
	if (left_ms > 0)
		report_event(&supervisor->report, REPORT_NOTE, "unkillable", json_pack("{s:I}", "left_ms", left_ms),
			     "processes of the command still run and cannot be killed: the lock is not released, it "
			     "runs out in %s",
			     supervisor_left(supervisor, left));
	else
		report_event(&supervisor->report, REPORT_NOTE, "unkillable", json_pack("{s:I}", "left_ms", left_ms),
			     "processes of the command still run and cannot be killed: they continue without the lock");
	return EXIT_STATUS_LOST;
}

/* ---- the process ---- */

static bool supervisor_set_up(struct supervisor *supervisor)
{
	sigset_t children;

	assert(supervisor->run->socket >= 0);
	setpgid(0, 0);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	supervisor->fds[SUPERVISOR_FOREGROUND] = (struct curl_waitfd){.fd = supervisor->run->socket,
								      .events = CURL_WAIT_POLLIN};
	supervisor->fds[SUPERVISOR_SIGNALS] = (struct curl_waitfd){.fd = signals, .events = CURL_WAIT_POLLIN};
	return signals >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 &&
	       client_init(&supervisor->client, &supervisor->arguments->credentials);
}

static int supervisor_command(struct supervisor *supervisor)
{
	int status;

	if (!supervisor_start(supervisor, &status))
		return supervisor_finish(supervisor, status);
	descriptors_release_stdio();
	while (!supervisor_is_done(supervisor))
		supervisor_round(supervisor);
	return supervisor_all_ended(supervisor) ? supervisor_finish(supervisor, supervisor->child_status)
						: supervisor_abandon(supervisor);
}

int supervisor_run(struct run *run)
{
	struct supervisor supervisor = {.run = run, .arguments = run->arguments};
	int status = EXIT_STATUS_SYSTEM;

	assert(run->arguments->argv);
	supervisor.report = (struct report){
		.json = run->arguments->json, .verbose = run->arguments->verbose, .name = run->arguments->name};
	if (!supervisor_set_up(&supervisor)) {
		report_complain("cannot be set up: %s", strerror(errno));
		return EXIT_STATUS_SYSTEM;
	}
	if (supervisor_acquire(&supervisor, &status))
		status = supervisor_command(&supervisor);
	client_fini(&supervisor.client);
	explicit_bzero(&supervisor.lease, sizeof supervisor.lease);
	if (supervisor.mirrored)
		supervisor_continue_foreground(&supervisor); /* it stopped because the command did */
	return status;
}
