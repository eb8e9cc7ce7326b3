/* The keeper: gets the lease, starts the command, extends, ends it in time, releases. See run.h for who else there is.
 *
 * renewal.c decides, this file carries out: its actions become requests and signals, answers and the time become its events. After
 * each wake-up come first the answers, then the time: a machine that slept wakes up here, and kills before it does anything else. */
#include "supervisor.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "server/base/base.h"
#include "descriptors.h"
#include "cli/duration.h"
#include "cli/exit_status.h"

enum { LEFT_BEHIND_US = 500000, RELEASE_MAX_US = 10000000, RELEASE_PAUSE_US = 100000, RELEASE_TIMEOUT_MIN_US = 100000 };
enum { UNKILLABLE_US = 10000000, KILL_GUARD_US = 1000000 };

static uint32_t keeper_random(void)
{
	uint32_t random = 0;
	ssize_t got = getrandom(&random, sizeof(random), GRND_NONBLOCK);
	return got == (ssize_t)sizeof(random) ? random : (uint32_t)clock_now_us();
}

static const struct server *keeper_server(const struct keeper *keeper)
{
	return &keeper->options->servers.items[keeper->renewal.server];
}

/* What is left of the lease, for people. */
static const char *keeper_left(const struct keeper *keeper, char ret_text[DURATION_TEXT_MAX])
{
	uint64_t now_us = clock_now_us(), deadline_us = keeper->renewal.deadline_us;
	duration_format(deadline_us > now_us ? (deadline_us - now_us) / 1000 : 0, ret_text);
	return ret_text;
}

static json_int_t keeper_left_ms(const struct keeper *keeper)
{
	uint64_t now_us = clock_now_us(), deadline_us = keeper->renewal.deadline_us;
	return deadline_us > now_us ? (json_int_t)((deadline_us - now_us) / 1000) : 0;
}

/* ---- the lease ---- */

/* The front is to step in half a margin after the keeper should have. */
static void keeper_set_guard(struct keeper *keeper)
{
	atomic_store(&keeper->run->shared->dead_by_us, renewal_kill_us(&keeper->renewal) + renewal_margin_us(&keeper->renewal) / 2);
}

static void keeper_report_acquired(struct keeper *keeper)
{
	char left[DURATION_TEXT_MAX], waited[DURATION_TEXT_MAX];
	json_t *fields = json_pack("{s:I, s:I, s:I, s:s}", "fence", (json_int_t)keeper->lease.fence, "validity_ms", keeper_left_ms(keeper), "waited_ms",
				   (json_int_t)keeper->waited_ms, "server", keeper_server(keeper)->text);

	duration_format(keeper->waited_ms, waited);
	report_event(&keeper->report, REPORT_DETAIL, "acquired", fields, "acquired at %s after %s, fence %lld, valid for %s",
		     keeper_server(keeper)->text, waited, (long long)keeper->lease.fence, keeper_left(keeper, left));
}

static void keeper_report_waiting(void *context, const struct answer *answer)
{
	struct keeper *keeper = context;
	report_event(&keeper->report, REPORT_DETAIL, "waiting", json_pack("{s:s}", "code", answer->code), "waiting: %s", answer->detail);
}

/* Half a lease must be left, or there would hardly be time to extend it. */
static enum acquire_result keeper_ask_for_lease(struct keeper *keeper, size_t *ret_server, uint64_t *ret_sent_us, struct answer *ret_answer)
{
	struct acquire acquire = {
		.http = &keeper->http,
		.options = keeper->options,
		.least_us = keeper->options->ttl_ms * 500 + keeper->options->kill_after_ms * 500,
		.extra = &keeper->fds[KEEPER_FRONT],
		.told = keeper_told,
		.waits = keeper->report.json || keeper->report.verbose ? keeper_report_waiting : NULL,
		.context = keeper,
	};
	uint64_t begun_us = clock_now_us();
	enum acquire_result result = acquire_lease(&acquire, &keeper->lease, ret_sent_us, ret_answer);

	keeper->waited_ms = (clock_now_us() - begun_us) / 1000;
	*ret_server = acquire.server;
	return result;
}

static int keeper_refused(struct keeper *keeper, size_t server, struct answer *answer)
{
	const char *where = keeper->options->servers.items[server].text;
	json_t *fields = json_pack("{s:s, s:s, s:I}", "code", answer->code, "server", where, "waited_ms", (json_int_t)keeper->waited_ms);
	bool others = answer->outcome == OUTCOME_HELD || answer->outcome == OUTCOME_SPLIT || answer->outcome == OUTCOME_INVALID;

	report_event(&keeper->report, REPORT_NOTE, "not-acquired", fields, "not acquired: %s%s%s%s", others ? "" : where, others ? "" : ": ",
		     answer->detail, credentials_hint(&keeper->options->credentials, answer));
	int status = acquire_status(keeper->options, answer);
	answer_fini(answer);
	return status;
}

/* False: there is none, *ret_status is the exit status. */
static bool keeper_acquire(struct keeper *keeper, int *ret_status)
{
	struct answer answer;
	size_t server;
	uint64_t sent_us;
	enum acquire_result result = keeper_ask_for_lease(keeper, &server, &sent_us, &answer);

	if (result == ACQUIRE_STOPPED)
		*ret_status = STATUS_SIGNALLED + keeper->told_signal;
	if (result == ACQUIRE_REFUSED)
		*ret_status = keeper_refused(keeper, server, &answer);
	if (result != ACQUIRE_GRANTED)
		return false;
	struct renewal_config config = {keeper->options->ttl_ms * 1000, keeper->options->kill_after_ms * 1000, keeper->options->timeout_ms * 1000,
					keeper->options->servers.count};
	renewal_init(&keeper->renewal, &config, server, sent_us, keeper->lease.validity_ms * 1000);
	keeper_set_guard(keeper);
	keeper_report_acquired(keeper);
	return true;
}

static void keeper_begin_extend(struct keeper *keeper)
{
	struct request request;

	request_extend(&request, keeper->options->name, keeper->lease.token, keeper->options->ttl_ms);
	http_begin(&keeper->http, keeper_server(keeper), &request, renewal_timeout_us(&keeper->renewal, clock_now_us()));
	request_fini(&request);
}

/* ---- the actions ---- */

static const char *keeper_why(const struct keeper *keeper)
{
	switch (keeper->renewal.why) {
	case RENEWAL_WHY_LOST:
		return keeper->failure;
	case RENEWAL_WHY_UNREACHABLE:
		return "it could not be extended in time";
	case RENEWAL_WHY_BOUND:
		return "the server does not extend it any further (--max-hold-ms)";
	default:
		return "it was not extended in time: the machine slept, or redlockctl was stopped";
	}
}

static const char *keeper_why_code(const struct keeper *keeper)
{
	switch (keeper->renewal.why) {
	case RENEWAL_WHY_LOST:
		return keeper->failure_code;
	case RENEWAL_WHY_UNREACHABLE:
		return "unreachable";
	case RENEWAL_WHY_BOUND:
		return "max-hold";
	default:
		return "late";
	}
}

/* Once: why the command is ended. */
static void keeper_report_end(struct keeper *keeper, const char *what)
{
	char left[DURATION_TEXT_MAX];

	if (keeper->said)
		return;
	keeper->said = true;
	if (keeper->renewal.why == RENEWAL_WHY_TOLD) {
		report_event(&keeper->report, keeper->front_gone ? REPORT_NOTE : REPORT_DETAIL, "ending", NULL, "%s: %s",
			     keeper->front_gone ? "redlockctl was killed" : "the command left processes behind", what);
		return;
	}
	keeper->lost = true;
	json_t *fields = json_pack("{s:s, s:I}", "code", keeper_why_code(keeper), "left_ms", keeper_left_ms(keeper));
	report_event(&keeper->report, REPORT_NOTE, "lost", fields, "the lock is lost: %s; %s, %s before its end", keeper_why(keeper), what,
		     keeper_left(keeper, left));
}

/* What is stopped must run to end well. */
static void keeper_terminate(struct keeper *keeper)
{
	keeper_report_end(keeper, "SIGTERM to the command");
	keeper_signal_all(keeper, SIGTERM);
	keeper_signal_all(keeper, SIGCONT);
}

static void keeper_kill(struct keeper *keeper)
{
	uint64_t guarded_us = clock_now_us() + KILL_GUARD_US;

	keeper_signal_all(keeper, SIGKILL);
	if (atomic_load(&keeper->run->shared->dead_by_us) < guarded_us)
		atomic_store(&keeper->run->shared->dead_by_us, guarded_us); /* the keeper is at it: the front could do no more */
	if (keeper->killing_us != 0)
		return;
	keeper->killing_us = clock_now_us();
	keeper_report_end(keeper, "SIGKILL to the command");
}

static void keeper_act(struct keeper *keeper, enum renewal_action action)
{
	if (action == RENEWAL_NOTHING)
		return;
	http_cancel(&keeper->http);
	if (action == RENEWAL_ASK)
		keeper_begin_extend(keeper);
	else if (action == RENEWAL_TERMINATE)
		keeper_terminate(keeper);
	else
		keeper_kill(keeper);
}

/* ---- the events ---- */

static void keeper_on_extended(struct keeper *keeper, const struct lease *lease)
{
	char left[DURATION_TEXT_MAX];
	unsigned failures = keeper->renewal.failures;

	renewal_extended(&keeper->renewal, keeper->http.main.sent_us, lease->validity_ms * 1000);
	keeper_set_guard(keeper);
	json_t *fields = json_pack("{s:I, s:s}", "validity_ms", keeper_left_ms(keeper), "server", keeper_server(keeper)->text);
	report_event(&keeper->report, failures > 0 ? REPORT_NOTE : REPORT_DETAIL, "extended", fields, "extended at %s, valid for %s",
		     keeper_server(keeper)->text, keeper_left(keeper, left));
}

static void keeper_on_failed(struct keeper *keeper, const struct answer *answer)
{
	char left[DURATION_TEXT_MAX];
	const struct server *server = keeper_server(keeper);

	/* Each server once, then only for programs: it is tried several times a second. */
	if (keeper->renewal.failures < keeper->options->servers.count || keeper->report.json)
		report_event(&keeper->report, REPORT_NOTE, "not-extended",
			     json_pack("{s:s, s:s, s:I}", "code", answer->code, "server", server->text, "left_ms", keeper_left_ms(keeper)),
			     "not extended at %s, %s left: %s", server->text, keeper_left(keeper, left), answer->detail);
	keeper_act(keeper, renewal_failed(&keeper->renewal, keeper_random(), clock_now_us()));
}

static void keeper_on_answer(struct keeper *keeper)
{
	struct answer answer;
	struct lease lease;

	http_read(&keeper->http, &answer);
	snprintf(keeper->failure, sizeof(keeper->failure), "%s", answer.detail);
	snprintf(keeper->failure_code, sizeof(keeper->failure_code), "%s", answer.code);
	if (answer.outcome == OUTCOME_DONE && answer_lease(&answer, keeper->options->name, keeper->lease.token, &lease))
		keeper_on_extended(keeper, &lease);
	else if (answer.outcome == OUTCOME_LOST)
		keeper_act(keeper, renewal_lost(&keeper->renewal, clock_now_us()));
	else
		keeper_on_failed(keeper, &answer);
	answer_fini(&answer);
}

/* What the command left behind gets a moment to end by itself: it may be the last reader of a pipe. */
static void keeper_on_left_behind(struct keeper *keeper)
{
	uint64_t now_us = clock_now_us();

	if (!keeper->child_ended || keeper->alone || keeper->options->wait_all)
		return;
	if (keeper->left_behind_us == 0)
		keeper->left_behind_us = now_us + LEFT_BEHIND_US;
	if (now_us >= keeper->left_behind_us)
		keeper_act(keeper, renewal_end(&keeper->renewal, now_us));
}

static bool keeper_all_ended(const struct keeper *keeper)
{
	return keeper->child_ended && keeper->alone;
}

static bool keeper_is_done(const struct keeper *keeper)
{
	return keeper_all_ended(keeper) || (keeper->killing_us != 0 && clock_now_us() >= keeper->killing_us + UNKILLABLE_US);
}

static uint64_t keeper_next_us(const struct keeper *keeper)
{
	uint64_t next_us = renewal_next_us(&keeper->renewal, clock_now_us());
	bool waits = keeper->left_behind_us != 0 && keeper->renewal.why == RENEWAL_WHY_NONE;

	return waits && keeper->left_behind_us < next_us ? keeper->left_behind_us : next_us;
}

static void keeper_round(struct keeper *keeper)
{
	struct signalfd_siginfo ignored;

	if (http_wait(&keeper->http, keeper_next_us(keeper), keeper->fds, KEEPER_FDS))
		keeper_on_answer(keeper);
	keeper_act(keeper, renewal_time(&keeper->renewal, clock_now_us()));
	if (keeper->fds[KEEPER_FRONT].revents != 0 && !keeper->front_gone)
		keeper_on_front(keeper);
	while (read(keeper->fds[KEEPER_SIGNALS].fd, &ignored, sizeof(ignored)) > 0)
		continue;
	keeper_on_children(keeper);
	if (keeper->front_gone)
		keeper_act(keeper, renewal_end(&keeper->renewal, clock_now_us()));
	keeper_on_left_behind(keeper);
}

/* ---- release ---- */

/* Waits for the answer, or for a moment; what the front says meanwhile counts. */
static bool keeper_sit(struct keeper *keeper, uint64_t until_us)
{
	while (clock_now_us() < until_us && keeper->told_signal == 0) {
		if (http_wait(&keeper->http, until_us, keeper->fds, 1))
			return true;
		if (keeper->fds[KEEPER_FRONT].revents != 0 && !keeper->front_gone)
			keeper_told(keeper);
		if (keeper->front_gone)
			keeper->fds[KEEPER_FRONT].revents = 0;
	}
	return false;
}

static enum outcome keeper_try_release(struct keeper *keeper, uint64_t until_us)
{
	struct request request;
	struct answer answer = {.outcome = OUTCOME_UNAVAILABLE};
	uint64_t now_us = clock_now_us(), timeout_us = until_us > now_us ? (until_us - now_us) / keeper->options->servers.count : 0;

	if (timeout_us > keeper->options->timeout_ms * 1000)
		timeout_us = keeper->options->timeout_ms * 1000;
	if (timeout_us < RELEASE_TIMEOUT_MIN_US)
		timeout_us = RELEASE_TIMEOUT_MIN_US;
	request_release(&request, keeper->options->name, keeper->lease.token);
	http_begin(&keeper->http, keeper_server(keeper), &request, timeout_us);
	if (keeper_sit(keeper, UINT64_MAX))
		http_read(&keeper->http, &answer);
	else
		http_cancel(&keeper->http);
	enum outcome outcome = answer.outcome;
	snprintf(keeper->failure, sizeof(keeper->failure), "%s", answer.detail);
	answer_fini(&answer);
	return outcome;
}

/* From server to server until one has done it, or the lease is over anyway. OUTCOME_LOST: the very first that was asked said that the
 * lease was not ours any more, while it should have been. */
static enum outcome keeper_release(struct keeper *keeper)
{
	uint64_t until_us = clock_now_us() + RELEASE_MAX_US;

	if (until_us > keeper->renewal.deadline_us)
		until_us = keeper->renewal.deadline_us;
	keeper->told_signal = 0;
	for (size_t tries = 0; clock_now_us() < until_us && keeper->told_signal == 0; tries++) {
		enum outcome outcome = keeper_try_release(keeper, until_us);
		if (outcome == OUTCOME_DONE || (outcome == OUTCOME_LOST && tries == 0))
			return outcome;
		if (outcome == OUTCOME_LOST)
			return OUTCOME_DONE; /* most likely by a try whose answer was lost */
		keeper->renewal.server = (keeper->renewal.server + 1) % keeper->options->servers.count;
		if ((tries + 1) % keeper->options->servers.count == 0)
			keeper_sit(keeper, clock_now_us() + RELEASE_PAUSE_US);
	}
	return OUTCOME_UNAVAILABLE;
}

/* Returns the exit status. */
static int keeper_finish(struct keeper *keeper, int status)
{
	char left[DURATION_TEXT_MAX];

	atomic_store(&keeper->run->shared->dead_by_us, 0);
	http_cancel(&keeper->http);
	if (keeper->lost && keeper->renewal.why == RENEWAL_WHY_LOST)
		return STATUS_LOST;
	enum outcome outcome = keeper_release(keeper);
	if (outcome == OUTCOME_DONE) {
		report_event(&keeper->report, REPORT_DETAIL, "released", NULL, "released");
	} else if (outcome == OUTCOME_LOST && !keeper->lost) {
		keeper->lost = true;
		report_event(&keeper->report, REPORT_NOTE, "lost", NULL, "the lock was lost before the command ended: %s", keeper->failure);
	} else if (keeper_left_ms(keeper) > 0) {
		report_event(&keeper->report, REPORT_NOTE, "not-released", NULL, "not released%s%s; it runs out in %s",
			     *keeper->failure == '\0' ? "" : ": ", keeper->failure, keeper_left(keeper, left));
	}
	return keeper->lost ? STATUS_LOST : status;
}

/* Processes of the command still run, and nothing ends them: to release the lock would give it to somebody else beside them. Returns the exit status. */
static int keeper_abandon(struct keeper *keeper)
{
	char left[DURATION_TEXT_MAX];
	bool lost = keeper->lost && keeper->renewal.why == RENEWAL_WHY_LOST;
	json_int_t left_ms = lost ? 0 : keeper_left_ms(keeper);

	atomic_store(&keeper->run->shared->dead_by_us, 0);
	http_cancel(&keeper->http);
	if (left_ms > 0)
		report_event(&keeper->report, REPORT_NOTE, "unkillable", json_pack("{s:I}", "left_ms", left_ms),
			     "processes of the command still run and cannot be killed: the lock is not released, it runs out in %s", keeper_left(keeper, left));
	else
		report_event(&keeper->report, REPORT_NOTE, "unkillable", json_pack("{s:I}", "left_ms", left_ms),
			     "processes of the command still run and cannot be killed: they run on without the lock");
	return STATUS_LOST;
}

/* ---- */

static bool keeper_set_up(struct keeper *keeper)
{
	sigset_t children;

	setpgid(0, 0);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	keeper->fds[KEEPER_FRONT] = (struct curl_waitfd){.fd = keeper->run->socket, .events = CURL_WAIT_POLLIN};
	keeper->fds[KEEPER_SIGNALS] = (struct curl_waitfd){.fd = signals, .events = CURL_WAIT_POLLIN};
	return signals >= 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && http_init(&keeper->http, &keeper->options->credentials);
}

static int keeper_command(struct keeper *keeper)
{
	int status;

	if (!keeper_start(keeper, &status))
		return keeper_finish(keeper, status);
	descriptors_let_go();
	while (!keeper_is_done(keeper))
		keeper_round(keeper);
	return keeper_all_ended(keeper) ? keeper_finish(keeper, keeper->child_status) : keeper_abandon(keeper);
}

int keeper_run(struct run *run)
{
	struct keeper keeper = {.run = run, .options = run->options};
	int status = STATUS_SYSTEM;

	keeper.report = (struct report){.json = run->options->json, .verbose = run->options->verbose, .name = run->options->name};
	if (!keeper_set_up(&keeper)) {
		report_complain("cannot be set up: %s", strerror(errno));
		return STATUS_SYSTEM;
	}
	if (keeper_acquire(&keeper, &status))
		status = keeper_command(&keeper);
	http_fini(&keeper.http);
	explicit_bzero(&keeper.lease, sizeof(keeper.lease));
	if (keeper.mirrored)
		keeper_continue_front(&keeper); /* it stopped because the command did */
	return status;
}
