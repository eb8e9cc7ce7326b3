/* SPDX-License-Identifier: MIT */
/* The supervisor: gets the lease, starts the command, extends, ends the command in time, releases. run_internal.h
 * describes the processes.
 *
 * server/renewal/ decides, this file acts: actions become requests and signals, answers and times become events. After
 * each wake-up the order is: answers, the time, everything else. So after the sleep of a machine the command is killed
 * at once if the lease is over. */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "run_internal.h"
#include "server/base/base.h"

enum { LEFTOVERS_US = 500000, RELEASE_MAX_US = 10000000, RELEASE_PAUSE_US = 100000, RELEASE_TIMEOUT_MIN_US = 100000 };
enum { UNKILLABLE_US = 10000000, KILL_GUARD_US = 1000000, TIMEOUT_MIN_US = 50000 };
enum { MARGIN_MIN_US = 20000, MARGIN_MAX_US = 500000 };

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
	return value < min || max < min ? min : value > max ? max : value;
}

/* The time until `time_us`; 0: it has passed. */
static uint64_t until(uint64_t time_us)
{
	uint64_t now_us = clock_now_us();
	return time_us > now_us ? time_us - now_us : 0;
}

static json_int_t supervisor_left_ms(const struct supervisor *supervisor)
{
	return (json_int_t)(until(supervisor->renewal.deadline_us) / 1000);
}

/* ---- the lease ---- */

/* The foreground process kills half a margin later than the supervisor should. */
static void supervisor_set_guard(struct supervisor *supervisor)
{
	assert(supervisor->renewal.deadline_us > 0);
	atomic_store(&supervisor->run->shared->dead_by_us,
		     renewal_kill_us(&supervisor->renewal) + supervisor->renewal.config.margin_us / 2);
}

static void supervisor_report_acquired(struct supervisor *supervisor)
{
	const char *server = client_server(&supervisor->client)->shown;
	json_int_t left_ms = supervisor_left_ms(supervisor);
	json_t *fields = json_pack("{s:I, s:I, s:I, s:s}", "fence", (json_int_t)supervisor->lease.fence, "validity_ms",
				   left_ms, "waited_ms", (json_int_t)supervisor->waited_ms, "server", server);
	report_event(supervisor->arguments, REPORT_DETAIL, "acquired", fields,
		     "acquired at %s after %s, fence %lld, valid for %s", server, DURATION_TEXT(supervisor->waited_ms),
		     (long long)supervisor->lease.fence, DURATION_TEXT(left_ms));
}

static void supervisor_on_refused(struct supervisor *supervisor)
{
	const struct answer *answer = &supervisor->answer;
	const char *where = client_server(&supervisor->client)->shown;
	json_t *fields = json_pack("{s:s, s:s, s:I}", "code", answer->code, "server", where, "waited_ms",
				   (json_int_t)supervisor->waited_ms);
	char text[CLIENT_TEXT_MAX];
	bool is_wanted = answer->outcome == OUTCOME_HELD && supervisor->arguments->held_status == 0;
	report_event(supervisor->arguments, is_wanted ? REPORT_DETAIL : REPORT_NOTE, "not-acquired", fields,
		     "not acquired: %s", client_explain(&supervisor->client, answer, text));
	answer_fini(&supervisor->answer);
	supervisor->status = answer_status(answer, supervisor->arguments);
}

static struct renewal_config supervisor_config(const struct supervisor *supervisor)
{
	uint64_t ttl_ms = supervisor->lease.ttl_ms, ttl_us = ttl_ms * 1000;
	assert(ttl_ms > 0);
	/* a process that is killed takes a moment to end */
	return (struct renewal_config){.ttl_us = ttl_us,
				       .notice_us = arguments_kill_after_ms(supervisor->arguments, ttl_ms) * 1000,
				       .margin_us = clamp(ttl_us / 25, MARGIN_MIN_US, MARGIN_MAX_US)};
}

/* Acquires the lease. False: there is none. */
static bool supervisor_acquire(struct supervisor *supervisor)
{
	struct acquire acquire = {.client = &supervisor->client};
	uint64_t begun_us = clock_now_us();
	bool granted = acquire_lease(&acquire, &supervisor->lease, &supervisor->answer);
	supervisor->waited_ms = (clock_now_us() - begun_us) / 1000;
	if (!granted && supervisor->client.order == CLIENT_STOP)
		supervisor->status = EXIT_STATUS_SIGNALLED + supervisor->end_signal;
	else if (!granted)
		supervisor_on_refused(supervisor);
	if (!granted)
		return false;
	supervisor->got_us = clock_now_us();
	atomic_store(&supervisor->run->shared->fence, supervisor->lease.fence);
	struct renewal_config config = supervisor_config(supervisor);
	renewal_init(&supervisor->renewal, &config, supervisor->lease.sent_us, supervisor->lease.validity_ms * 1000);
	supervisor_set_guard(supervisor);
	supervisor_report_acquired(supervisor);
	return true;
}

/* With this time limit, all servers can be tried before the command gets SIGTERM. */
static void supervisor_begin_extend(struct supervisor *supervisor)
{
	const struct arguments *arguments = supervisor->arguments;
	struct client_request request = client_request_extend(arguments, supervisor->lease.token,
							      supervisor->lease.ttl_ms);
	uint64_t left_us = until(renewal_end_us(&supervisor->renewal));
	assert(supervisor->renewal.state == RENEWAL_ASKING);
	client_begin(&supervisor->client, &supervisor->client.main, &request,
		     clamp(left_us / (arguments->servers.count + 1), TIMEOUT_MIN_US, arguments->timeout_ms * 1000));
}

/* ---- the actions ---- */

/* Reports once why the command is ended. */
static void supervisor_report_end(struct supervisor *supervisor, const char *what)
{
	const struct {
		const char *code, *text;
	} whys[] = {
		[RENEWAL_WHY_LOST] = {supervisor->answer.code, supervisor->answer.detail},
		[RENEWAL_WHY_UNREACHABLE] = {"unreachable", "it could not be extended in time"},
		[RENEWAL_WHY_BOUND] = {"max-hold", "the server does not extend it any further (--max-hold-ms)"},
		[RENEWAL_WHY_LATE] = {"late",
				      "it was not extended in time: the machine slept, or redlockctl was stopped"},
	};
	enum renewal_why why = supervisor->renewal.why;
	json_int_t left_ms = supervisor_left_ms(supervisor);
	bool killed = supervisor->foreground_gone;
	assert(why != RENEWAL_WHY_NONE);
	if (supervisor->end_reported)
		return;
	supervisor->end_reported = true;
	supervisor->lost = why != RENEWAL_WHY_REQUESTED;
	char left[64] = "";
	if (why != RENEWAL_WHY_LOST) /* else the server says that the lease is over */
		snprintf(left, sizeof left, ", %s before the lease ends", DURATION_TEXT(left_ms));
	if (supervisor->lost)
		report_event(supervisor->arguments, REPORT_NOTE, "lost",
			     json_pack("{s:s, s:I}", "code", whys[why].code, "left_ms", left_ms),
			     "the lock is lost: %s; %s%s", whys[why].text, what, left);
	else
		report_event(supervisor->arguments, killed ? REPORT_NOTE : REPORT_DETAIL, "ending", NULL, "%s: %s",
			     killed ? "redlockctl was killed" : "the command left processes behind", what);
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
		/* the supervisor is killing, and the foreground process could not do more */
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
	client_cancel(&supervisor->client, &supervisor->client.main);
	if (action == RENEWAL_ASK)
		supervisor_begin_extend(supervisor);
	else if (action == RENEWAL_END)
		supervisor_terminate(supervisor);
	else
		supervisor_kill(supervisor);
}

/* ---- the events ---- */

static void supervisor_on_extended(struct supervisor *supervisor, const struct lease *lease)
{
	unsigned failures = supervisor->failures;
	enum renewal_action action = renewal_extended(&supervisor->renewal, lease->ttl_ms * 1000,
						      lease->validity_ms * 1000, clock_now_us());
	supervisor->failures = 0;
	supervisor_set_guard(supervisor);
	json_t *fields = json_pack("{s:I, s:s}", "validity_ms", supervisor_left_ms(supervisor), "server",
				   client_server(&supervisor->client)->shown);
	report_event(supervisor->arguments, failures > 0 ? REPORT_NOTE : REPORT_DETAIL, "extended", fields,
		     "extended at %s, valid for %s", client_server(&supervisor->client)->shown,
		     DURATION_TEXT(supervisor_left_ms(supervisor)));
	if (lease->waiters > 0 && supervisor->waiters == 0)
		supervisor_signal_wanted(supervisor, lease->waiters);
	supervisor->waiters = lease->waiters;
	supervisor_act(supervisor, action); /* the answer may cause the end, which is reported last */
}

static void supervisor_on_failed(struct supervisor *supervisor)
{
	const struct answer *answer = &supervisor->answer;
	const struct address *server = client_server(&supervisor->client);
	size_t servers = supervisor->arguments->servers.count;
	uint64_t half_us = renewal_pause_us(&supervisor->renewal) / 2;
	/* Reports once for each server, then only as JSON: there are several requests a second. */
	if (supervisor->failures < servers || supervisor->arguments->json)
		report_event(supervisor->arguments, REPORT_NOTE, "not-extended",
			     json_pack("{s:s, s:s, s:I}", "code", answer->code, "server", server->shown, "left_ms",
				       supervisor_left_ms(supervisor)),
			     "not extended at %s, %s left: %s", server->shown,
			     DURATION_TEXT(supervisor_left_ms(supervisor)), answer->detail);
	client_next_server(&supervisor->client);
	supervisor->failures++;
	/* The pause is random, so that clients do not return all at once. */
	uint64_t pause_us = supervisor->failures % servers != 0 ? 0 : half_us + random_number() % (half_us + 1);
	supervisor_act(supervisor, renewal_failed(&supervisor->renewal, pause_us, clock_now_us()));
}

/* After a change of --max-ttl-ms or --min-ttl-ms: requests at once what the server allows. False: the answer says
 * nothing of this. */
static bool supervisor_fit_ttl(struct supervisor *supervisor)
{
	uint64_t least_ms = supervisor->answer.ttl_min_ms, most_ms = supervisor->answer.ttl_max_ms;
	uint64_t ttl_ms = MIN(MAX(supervisor->lease.ttl_ms, least_ms), most_ms);
	if (supervisor->answer.outcome != OUTCOME_INVALID || most_ms == 0 || ttl_ms == supervisor->lease.ttl_ms)
		return false;
	supervisor->lease.ttl_ms = ttl_ms;
	supervisor->renewal.config = supervisor_config(supervisor);
	supervisor_act(supervisor, renewal_failed(&supervisor->renewal, 0, clock_now_us()));
	return true;
}

static void supervisor_on_answer(struct supervisor *supervisor)
{
	struct answer *answer = &supervisor->answer;
	struct lease lease;
	client_read(&supervisor->client.main, answer);
	bool extended = answer->outcome == OUTCOME_DONE &&
			answer_lease(answer, supervisor->arguments, &supervisor->lease, &lease);
	answer_fini(answer);
	if (extended)
		supervisor_on_extended(supervisor, &lease);
	else if (answer->outcome == OUTCOME_LOST)
		supervisor_act(supervisor, renewal_finish(&supervisor->renewal, RENEWAL_WHY_LOST, clock_now_us()));
	else if (!supervisor_fit_ttl(supervisor))
		supervisor_on_failed(supervisor);
}

/* Processes left behind get a moment to end by themselves: one may be the last reader of a pipe. */
static void supervisor_on_leftovers(struct supervisor *supervisor)
{
	uint64_t now_us = clock_now_us();
	if (!supervisor->child_ended || supervisor->all_ended || supervisor->arguments->wait_all)
		return;
	if (supervisor->leftovers_until_us == 0)
		supervisor->leftovers_until_us = now_us + LEFTOVERS_US;
	if (now_us >= supervisor->leftovers_until_us)
		supervisor_act(supervisor, renewal_finish(&supervisor->renewal, RENEWAL_WHY_REQUESTED, now_us));
}

static bool supervisor_is_done(const struct supervisor *supervisor)
{
	return supervisor->all_ended ||
	       (supervisor->killing_us != 0 && clock_now_us() >= supervisor->killing_us + UNKILLABLE_US);
}

static uint64_t supervisor_next_us(const struct supervisor *supervisor)
{
	uint64_t next_us = renewal_next_us(&supervisor->renewal, clock_now_us());
	bool waits = supervisor->leftovers_until_us != 0 && supervisor->renewal.why == RENEWAL_WHY_NONE;
	return waits && supervisor->leftovers_until_us < next_us ? supervisor->leftovers_until_us : next_us;
}

static void supervisor_round(struct supervisor *supervisor)
{
	struct signalfd_siginfo ignored;
	if (client_wait(&supervisor->client, supervisor_next_us(supervisor), CLIENT_CHILDREN))
		supervisor_on_answer(supervisor);
	supervisor_act(supervisor, renewal_time(&supervisor->renewal, clock_now_us()));
	if (supervisor->client.fds[CLIENT_ORDERS].revents != 0)
		supervisor_read_order(supervisor);
	while (read(supervisor->client.fds[CLIENT_CHILDREN].fd, &ignored, sizeof ignored) > 0)
		continue;
	supervisor_on_children(supervisor);
	if (supervisor->foreground_gone)
		supervisor_act(supervisor, renewal_finish(&supervisor->renewal, RENEWAL_WHY_REQUESTED, clock_now_us()));
	supervisor_on_leftovers(supervisor);
}

/* ---- release ---- */

/* Tries one server after the other, until one has released, the lease is over, or the foreground process sends a
 * signal. OUTCOME_LOST: the first server answered that the lease was lost before. */
static enum outcome supervisor_release(struct supervisor *supervisor)
{
	const struct arguments *arguments = supervisor->arguments;
	uint64_t keep_ms = until(supervisor->got_us + arguments->at_least_ms * 1000 + 999) / 1000;
	struct client_request request = client_request_release(arguments, supervisor->lease.token, keep_ms);
	uint64_t until_us = clock_now_us() + RELEASE_MAX_US;
	assert(supervisor->lease.token[0] != '\0');
	if (until_us > supervisor->renewal.deadline_us)
		until_us = supervisor->renewal.deadline_us;
	supervisor->end_signal = 0;
	for (size_t tries = 0; clock_now_us() < until_us && supervisor->end_signal == 0; tries++) {
		uint64_t timeout_us = clamp(until(until_us) / arguments->servers.count, RELEASE_TIMEOUT_MIN_US,
					    arguments->timeout_ms * 1000);
		supervisor->client.order = CLIENT_GO_ON;
		supervisor->answer = client_ask(&supervisor->client, 1, &request, timeout_us, true);
		answer_fini(&supervisor->answer);
		enum outcome outcome = supervisor->answer.outcome;
		if (outcome == OUTCOME_DONE || (outcome == OUTCOME_LOST && tries == 0))
			return outcome;
		if (outcome == OUTCOME_LOST)
			return OUTCOME_DONE; /* most likely released by a request whose answer was lost */
		client_next_server(&supervisor->client);
		if ((tries + 1) % arguments->servers.count == 0)
			client_pause(&supervisor->client, clock_now_us() + RELEASE_PAUSE_US);
	}
	return OUTCOME_UNAVAILABLE;
}

static void supervisor_finish(struct supervisor *supervisor)
{
	bool is_over = supervisor->renewal.why == RENEWAL_WHY_LOST;
	enum outcome outcome = is_over ? OUTCOME_LOST : supervisor_release(supervisor);
	if (outcome == OUTCOME_DONE) {
		uint64_t kept_ms = until(supervisor->got_us + supervisor->arguments->at_least_ms * 1000) / 1000;
		report_event(supervisor->arguments, REPORT_DETAIL, "released", NULL,
			     kept_ms > 0 ? "released, and kept for %s" : "released", DURATION_TEXT(kept_ms));
	} else if (outcome == OUTCOME_LOST && !supervisor->lost) {
		supervisor->lost = true;
		report_event(supervisor->arguments, REPORT_NOTE, "lost", NULL,
			     "the lock was lost before the command ended: %s", supervisor->answer.detail);
	} else if (!is_over && supervisor_left_ms(supervisor) > 0) {
		report_event(supervisor->arguments, REPORT_NOTE, "not-released", NULL,
			     "not released%s%s; it runs out in %s", supervisor->answer.detail[0] == '\0' ? "" : ": ",
			     supervisor->answer.detail, DURATION_TEXT(supervisor_left_ms(supervisor)));
	}
	if (supervisor->lost)
		supervisor->status = EXIT_STATUS_LOST;
}

/* Processes of the command cannot be killed. The lock is not released, since the next holder would run beside them. */
static void supervisor_abandon(struct supervisor *supervisor)
{
	char lock[DURATION_TEXT_MAX + 64] = "they continue without the lock";
	json_int_t left_ms = supervisor->renewal.why == RENEWAL_WHY_LOST ? 0 : supervisor_left_ms(supervisor);
	assert(!supervisor->all_ended);
	if (left_ms > 0)
		snprintf(lock, sizeof lock, "the lock is not released, it runs out in %s", DURATION_TEXT(left_ms));
	report_event(supervisor->arguments, REPORT_NOTE, "unkillable", json_pack("{s:I}", "left_ms", left_ms),
		     "processes of the command still run and cannot be killed: %s", lock);
	supervisor->status = EXIT_STATUS_LOST;
}

/* ---- the process ---- */

static bool supervisor_set_up(struct supervisor *supervisor)
{
	sigset_t children;
	assert(supervisor->run->socket >= 0);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGCONT); /* a stopped one must end the command if the foreground process is killed */
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || !client_init(&supervisor->client, supervisor->arguments))
		return false;
	supervisor->client.fds[CLIENT_ORDERS].fd = supervisor->run->socket;
	supervisor->client.fds[CLIENT_CHILDREN].fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	supervisor->client.read_order = supervisor_read_order;
	supervisor->client.context = supervisor;
	return supervisor->client.fds[CLIENT_CHILDREN].fd >= 0;
}

static void supervisor_command(struct supervisor *supervisor)
{
	supervisor_start(supervisor);
	descriptors_release_stdio();
	while (!supervisor_is_done(supervisor))
		supervisor_round(supervisor);
	atomic_store(&supervisor->run->shared->dead_by_us, 0);
	client_cancel(&supervisor->client, &supervisor->client.main);
	if (supervisor->all_ended)
		supervisor_finish(supervisor);
	else
		supervisor_abandon(supervisor);
}

int supervisor_run(struct run *run)
{
	struct supervisor supervisor = {.run = run, .arguments = run->arguments};
	assert(run->arguments->argv);
	if (!supervisor_set_up(&supervisor)) {
		report_error("cannot be set up: %s", strerror(errno));
		return EXIT_STATUS_SYSTEM;
	}
	if (supervisor_acquire(&supervisor))
		supervisor_command(&supervisor);
	client_fini(&supervisor.client);
	explicit_bzero(&supervisor.lease, sizeof supervisor.lease);
	if (supervisor.mirrored)
		supervisor_continue_foreground(&supervisor); /* it was stopped with the command */
	return supervisor.status;
}
