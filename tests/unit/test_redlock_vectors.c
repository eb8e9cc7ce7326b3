/* SPDX-License-Identifier: MIT */
/* The core against the oracle, vector by vector.
 *
 * A vector says for each master how it will behave: granted, held by A or by B, gone, error, never sent, quarantined,
 * silent (its reply comes after the deadline, as an error) or late (the same, as a vote). For N = 3 every vector is
 * played in every order of replies, for N = 5 every vector in a sample of orders; the other N up to 15 by sample. The
 * oracle is told the same sequence and says after which event there is a decision and what it is: before it the core
 * must stay silent, with it the core must say the same, and after it nothing more may happen until the last reply is
 * in. Where the answer is to try again, the pause and the next attempt are played too, with the first one's late
 * replies in it. */
#include <stdlib.h>

#include "redlock_driver.h"
#include "redlock_oracle.h"
#include "suite.h"

enum { START_US = 1000000, STEP_US = 100, TTL_US = 30000, DRIFT_US = 302 };
enum { HOLDER_A = 0xaaaa, HOLDER_B = 0xbbbb };

enum behaviour { GRANTS, HELD_A, HELD_B, ERROR, SILENT, LATE, UNSENT, QUARANTINED, GONE, BEHAVIOURS };

/* How a vector is played, beside its order. */
enum mode {
	MODE_PATIENT = 1, /* the master timeout is longer than the ttl: the validity is what ends the wait */
	MODE_BRINK = 2,   /* the replies come in the last microsecond of the validity or after it, ahead of the timer */
	MODE_LINGER = 4,  /* what is left of a lost attempt comes during the next one, not during the pause */
	MODE_SHORT = 8,   /* masters give shorter ttls than asked for, some too short */
	MODE_FOREVER = 16 /* some keys have no expiry */
};

struct vector {
	unsigned masters;
	enum behaviour behaviours[REDLOCK_MASTERS_MAX];
	uint8_t order[REDLOCK_MASTERS_MAX];
	unsigned mode;
};

static uint64_t seen[REDLOCK_CANCELLED + 1]; /* outcomes: each must come up */

static uint64_t random_u64(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random >> 11;
}

static struct redlock_params vector_params(enum redlock_kind kind, const struct vector *vector, uint16_t tries)
{
	struct redlock_params params = {
		.kind = kind,
		.masters = (uint8_t)vector->masters,
		.tries = tries,
		.ttl_us = TTL_US,
		.drift_us = DRIFT_US,
		.master_timeout_us = vector->mode & MODE_PATIENT ? 2 * TTL_US : 5000,
		.retry_min_us = 2000,
		.retry_max_us = 9000,
	};

	if (vector->mode & MODE_BRINK && kind <= REDLOCK_EXTEND)
		params.master_timeout_us = 2 * TTL_US;
	return params;
}

static bool behaviour_is_late(enum behaviour behaviour)
{
	return behaviour == SILENT || behaviour == LATE;
}

static struct oracle_event vector_event(enum redlock_kind kind, const struct vector *vector, unsigned master)
{
	struct oracle_event event = {.master = (uint8_t)master, .ttl_us = TTL_US};
	enum behaviour behaviour = vector->behaviours[master];

	if (behaviour == LATE && kind == REDLOCK_INSPECT)
		behaviour = HELD_A;
	switch (behaviour) {
	case GRANTS:
	case LATE: event.vote = REDLOCK_VOTE_GRANTED; break;
	case HELD_A:
	case HELD_B: event.vote = REDLOCK_VOTE_HELD; break;
	case GONE: event.vote = REDLOCK_VOTE_GONE; break;
	case UNSENT: event.vote = REDLOCK_VOTE_UNSENT; break;
	case QUARANTINED: event.vote = REDLOCK_VOTE_QUARANTINED; break;
	default: event.vote = REDLOCK_VOTE_FAILED; break;
	}
	if (event.vote == REDLOCK_VOTE_GRANTED && vector->mode & MODE_SHORT)
		event.ttl_us = master % 3 == 1 ? DRIFT_US + 2 * STEP_US + master : TTL_US - 1000 * master;
	if (event.vote == REDLOCK_VOTE_HELD) {
		event.holder = behaviour == HELD_B ? HOLDER_B : HOLDER_A;
		event.remaining_us = 10000 + 1000 * (master * 7 + 3) % 11000 + master;
		if (vector->mode & MODE_FOREVER && master % 2 == 0)
			event.remaining_us = REDLOCK_NEVER;
	}
	return event;
}

/* The whole attempt as it will happen: what is in time, the timer, what is late. */
static unsigned vector_events(const struct redlock_params *params, const struct vector *vector, uint64_t start_us,
			      struct oracle_event events[REDLOCK_MASTERS_MAX + 1])
{
	uint64_t deadline_us = oracle_deadline_us(params, start_us);
	unsigned len = 0;

	for (unsigned i = 0; i < vector->masters; i++) {
		if (behaviour_is_late(vector->behaviours[vector->order[i]]))
			continue;
		events[len] = vector_event(params->kind, vector, vector->order[i]);
		events[len].at_us = start_us + STEP_US * (i + 1);
		if (vector->mode & MODE_BRINK)
			events[len].at_us = deadline_us - 2 + i;
		len++;
	}
	events[len] = (struct oracle_event){.timer = true, .at_us = deadline_us};
	if (len > 0 && events[len - 1].at_us > deadline_us)
		events[len].at_us = events[len - 1].at_us;
	len++;
	for (unsigned i = 0; i < vector->masters; i++) {
		if (!behaviour_is_late(vector->behaviours[vector->order[i]]))
			continue;
		events[len] = vector_event(params->kind, vector, vector->order[i]);
		events[len].at_us = events[len - 1].at_us + 1;
		len++;
	}
	return len;
}

static void check_quiet(const struct driver *driver)
{
	MUST(driver->out.script == REDLOCK_SCRIPT_NONE || (driver->done && driver->gone != 0), "script %d out of turn",
	     driver->out.script);
	MUST(!driver->out.done, "done out of turn: outcome %d", driver->out.result.outcome);
}

/* One event of attempt `attempt`; a time that has passed by now becomes now. Commands to one master are answered in the
 * order in which they were sent, so what is still open there from an older attempt is answered first. */
static void feed(struct driver *driver, const struct oracle_event *from, uint16_t attempt)
{
	uint64_t now_us = from->at_us > driver->now_us ? from->at_us : driver->now_us;
	struct redlock_event event = {
		.now_us = now_us,
		.master = from->master,
		.vote = from->vote,
		.ttl_us = from->ttl_us,
		.remaining_us = from->remaining_us,
		.holder = from->holder,
	};

	if (from->timer) {
		driver_timer(driver, now_us);
		return;
	}
	while (driver->asks[driver_find(driver, from->master)].attempt < attempt) {
		driver_vote(driver, driver->now_us, from->master, REDLOCK_VOTE_GRANTED);
		check_quiet(driver);
	}
	driver_reply(driver, &event);
}

static void check_holder(const struct redlock_result *result, const struct oracle_verdict *verdict)
{
	bool found = !verdict->result.has_holder;

	MUST(result->has_holder || !verdict->result.has_holder, "no holder is named");
	for (unsigned i = 0; i < verdict->holders_len && !found; i++) {
		found = verdict->holders[i].holder == result->holder;
		if (verdict->result.held)
			found = found && verdict->holders[i].remaining_us == result->remaining_us;
	}
	MUST(found, "holder %x for %u us", (unsigned)result->holder, (unsigned)result->remaining_us);
}

static void check_answer(const struct driver *driver, const struct oracle_verdict *verdict)
{
	const struct redlock_result *result = &driver->out.result, *wanted = &verdict->result;
	bool leased = driver->params.kind <= REDLOCK_EXTEND && wanted->outcome == REDLOCK_OK;

	MUST(driver->out.done, "not done after %u events, outcome %d expected", verdict->after, wanted->outcome);
	MUST(result->outcome == wanted->outcome, "outcome %d, expected %d", result->outcome, wanted->outcome);
	MUST(memcmp(&result->votes, &wanted->votes, sizeof wanted->votes) == 0,
	     "votes %u+%u+%u+%u, expected %u+%u+%u+%u", result->votes.granted, result->votes.refused,
	     result->votes.failed, result->votes.quarantined, wanted->votes.granted, wanted->votes.refused,
	     wanted->votes.failed, wanted->votes.quarantined);
	MUST(result->tries == wanted->tries, "%u tries, expected %u", result->tries, wanted->tries);
	MUST(!leased || result->ttl_us == wanted->ttl_us, "ttl %u", (unsigned)result->ttl_us);
	MUST(!leased || result->validity_us == wanted->validity_us, "validity %u", (unsigned)result->validity_us);
	MUST(wanted->retry_after_us == 0 || result->retry_after_us == wanted->retry_after_us,
	     "retry after %u, expected %u", (unsigned)result->retry_after_us, (unsigned)wanted->retry_after_us);
	MUST(result->held == wanted->held, "held %d", result->held);
	check_holder(result, verdict);
	seen[wanted->outcome]++;
}

static void check_decision(const struct driver *driver, const struct oracle_verdict *verdict)
{
	uint64_t pause_us = redlock_deadline_us(&driver->op) - driver->now_us;

	bool repairs = driver->gone != 0 && driver->params.kind == REDLOCK_EXTEND;
	uint16_t released = repairs ? 0 : driver->out.to;

	MUST(released == verdict->release, "sent to %x, expected %x", released, verdict->release);
	MUST(repairs || driver->out.script == (verdict->release ? REDLOCK_SCRIPT_RELEASE : REDLOCK_SCRIPT_NONE),
	     "script %d", driver->out.script);
	MUST(verdict->release == 0 || driver->out.attempt == verdict->result.tries, "release of attempt %u",
	     driver->out.attempt);
	if (!verdict->retry) {
		check_answer(driver, verdict);
		return;
	}
	MUST(!driver->out.done, "done with outcome %d, expected another try", driver->out.result.outcome);
	MUST(pause_us >= driver->params.retry_min_us && pause_us <= driver->params.retry_max_us, "a pause of %u us",
	     (unsigned)pause_us);
}

/* Plays one attempt up to its decision and returns whether another follows. What is left stays in events[*ret_next
 * …]. */
static bool play_attempt(struct driver *driver, const struct oracle_event *events, unsigned len, unsigned *ret_next)
{
	struct oracle_attempt attempt = {&driver->params, driver->tries, driver->start_us, len, events};
	struct oracle_verdict verdict;

	oracle_judge(&attempt, &verdict);
	MUST(verdict.decided, "the test's own sequence decides nothing");
	MUST(redlock_deadline_us(&driver->op) == oracle_deadline_us(&driver->params, driver->start_us),
	     "the deadline of an attempt");
	for (unsigned i = 0; i < verdict.after; i++) {
		if (i > 0)
			check_quiet(driver);
		feed(driver, &events[i], driver->tries);
	}
	check_decision(driver, &verdict);
	*ret_next = verdict.after;
	return verdict.retry;
}

/* The replies of attempt `attempt` that came after its decision. */
static void play_rest(struct driver *driver, const struct oracle_event *events, unsigned len, uint16_t attempt)
{
	for (unsigned i = 0; i < len; i++) {
		if (events[i].timer)
			continue;
		feed(driver, &events[i], attempt);
		check_quiet(driver);
	}
}

/* The pause after a lost attempt, up to the start of the next one. */
static void play_pause(struct driver *driver, struct oracle_event *rest, unsigned len, bool linger)
{
	uint64_t end_us = redlock_deadline_us(&driver->op);
	uint16_t attempt = driver->tries;

	if (!linger) {
		play_rest(driver, rest, len, attempt);
		while (driver->asks_len > 0) {
			driver_vote(driver, driver->now_us, driver->asks[driver->asks_len - 1].master,
				    REDLOCK_VOTE_GRANTED);
			check_quiet(driver);
		}
	}
	MUST(redlock_deadline_us(&driver->op) == end_us, "a late reply moved the end of the pause");
	driver_timer(driver, driver->now_us > end_us ? driver->now_us : end_us);
	MUST(driver->tries == attempt + 1, "no try where one was due");
	for (unsigned i = 0; linger && i < len; i++)
		rest[i].at_us = driver->now_us; /* all at the start of the new attempt, ahead of its own replies */
	if (linger)
		play_rest(driver, rest, len, attempt);
}

static void play(enum redlock_kind kind, const struct vector *vectors, uint16_t tries)
{
	struct redlock_params params = vector_params(kind, &vectors[0], tries);
	struct oracle_event events[REDLOCK_MASTERS_MAX + 1];
	struct driver driver;

	driver_init(&driver, &params, ++must_case);
	driver_start(&driver, START_US);
	for (;;) {
		unsigned len = vector_events(&params, &vectors[driver.tries - 1], driver.start_us, events), next;

		if (!play_attempt(&driver, events, len, &next)) {
			play_rest(&driver, &events[next], len - next, driver.tries);
			break;
		}
		play_pause(&driver, &events[next], len - next, vectors[0].mode & MODE_LINGER);
	}
	driver_finish(&driver, REDLOCK_VOTE_GRANTED);
}

static unsigned kind_behaviours(enum redlock_kind kind, enum behaviour behaviours[BEHAVIOURS])
{
	unsigned len = 0;

	for (unsigned i = 0; i < BEHAVIOURS; i++) {
		if ((i == GONE && kind == REDLOCK_ACQUIRE) || (i == GRANTS && kind == REDLOCK_INSPECT))
			continue;
		behaviours[len++] = i;
	}
	return len;
}

/* Vector number `number` of a kind; false when there are no more. */
static bool vector_nth(enum redlock_kind kind, unsigned masters, uint64_t number, struct vector *vector)
{
	enum behaviour behaviours[BEHAVIOURS];
	unsigned base = kind_behaviours(kind, behaviours);

	vector->masters = masters;
	for (unsigned i = 0; i < masters; i++) {
		vector->behaviours[i] = behaviours[number % base];
		number /= base;
	}
	return number == 0;
}

static void vector_shuffle(struct vector *vector, uint64_t *random)
{
	for (unsigned i = 0; i < vector->masters; i++) {
		unsigned k = (unsigned)(random_u64(random) % (i + 1));

		vector->order[i] = vector->order[k];
		vector->order[k] = (uint8_t)i;
	}
}

/* Order number `number` of the masters; false when there are no more. */
static bool vector_order_nth(struct vector *vector, unsigned number)
{
	for (unsigned i = 0; i < vector->masters; i++) {
		unsigned k = number % (i + 1);

		number /= i + 1;
		vector->order[i] = vector->order[k];
		vector->order[k] = (uint8_t)i;
	}
	return number == 0;
}

/* Plays a vector with a random one after it, for the case that there is a second try. */
static void play_then_random(enum redlock_kind kind, struct vector *vector, uint64_t *random)
{
	struct vector vectors[2] = {*vector, *vector};

	vector_nth(kind, vector->masters, random_u64(random), &vectors[1]);
	vector_shuffle(&vectors[1], random);
	play(kind, vectors, kind == REDLOCK_ACQUIRE ? (uint16_t)(1 + random_u64(random) % 2) : 1);
}

/* All vectors, all orders, all modes. */
static void play_all(enum redlock_kind kind, unsigned masters, unsigned modes)
{
	uint64_t random = 88172645463325252u + kind;
	struct vector vector;

	for (uint64_t number = 0; vector_nth(kind, masters, number, &vector); number++) {
		for (unsigned order = 0; vector_order_nth(&vector, order); order++) {
			for (vector.mode = 0; vector.mode < modes; vector.mode++)
				play_then_random(kind, &vector, &random);
		}
	}
}

/* All vectors, each in a sample of orders and modes. */
static void play_orders(enum redlock_kind kind, unsigned masters, unsigned orders)
{
	uint64_t random = 362436069362436069u + kind;
	struct vector vector;

	for (uint64_t number = 0; vector_nth(kind, masters, number, &vector); number++) {
		for (unsigned order = 0; order < orders; order++) {
			vector_shuffle(&vector, &random);
			vector.mode = (unsigned)(random_u64(&random) % (2 * MODE_FOREVER));
			play_then_random(kind, &vector, &random);
		}
	}
}

TEST_EACH(test_three_masters_every_vector_every_order, REDLOCK_ACQUIRE, REDLOCK_INSPECT + 1)
{
	play_all((enum redlock_kind)_i, 1, 2 * MODE_FOREVER);
	play_all((enum redlock_kind)_i, 2, 2 * MODE_FOREVER);
	play_all((enum redlock_kind)_i, 3, 2 * MODE_FOREVER);
}

TEST_EACH(test_four_masters_every_vector, REDLOCK_ACQUIRE, REDLOCK_INSPECT + 1)
{
	play_orders((enum redlock_kind)_i, 4, 12);
}

TEST_EACH(test_five_masters_every_vector, REDLOCK_ACQUIRE, REDLOCK_INSPECT + 1)
{
	play_orders((enum redlock_kind)_i, 5, 4);
}

TEST_EACH(test_many_masters_sample, REDLOCK_ACQUIRE, REDLOCK_INSPECT + 1)
{
	uint64_t random = 123456789u;
	struct vector vector;

	for (unsigned masters = 6; masters <= REDLOCK_MASTERS_MAX; masters++) {
		for (unsigned sample = 0; sample < 2000; sample++) {
			uint64_t number = random_u64(&random) << 17 ^ random_u64(&random);

			vector_nth((enum redlock_kind)_i, masters, number, &vector);
			vector_shuffle(&vector, &random);
			vector.mode = (unsigned)(random_u64(&random) % (2 * MODE_FOREVER));
			play_then_random((enum redlock_kind)_i, &vector, &random);
		}
	}
}

/* A test of the test: the vectors must have led to every outcome that their kind has. */
TEST_EACH(test_every_outcome_seen, REDLOCK_ACQUIRE, REDLOCK_INSPECT + 1)
{
	static const enum redlock_outcome outcomes[][6] = {
		[REDLOCK_ACQUIRE] = {REDLOCK_OK, REDLOCK_LOCKED, REDLOCK_NO_QUORUM, REDLOCK_SPLIT},
		[REDLOCK_EXTEND] = {REDLOCK_OK, REDLOCK_NOT_OWNER, REDLOCK_EXPIRED, REDLOCK_NO_QUORUM},
		[REDLOCK_RELEASE] = {REDLOCK_OK, REDLOCK_NOT_OWNER, REDLOCK_EXPIRED, REDLOCK_NO_QUORUM},
		[REDLOCK_INSPECT] = {REDLOCK_OK, REDLOCK_NO_QUORUM, REDLOCK_OK, REDLOCK_OK},
	};

	memset(seen, 0, sizeof seen);
	play_all((enum redlock_kind)_i, 3, 2);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_gt(seen[outcomes[_i][i]], 0);
}
