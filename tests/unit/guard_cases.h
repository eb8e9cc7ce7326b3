/* SPDX-License-Identifier: MIT */
/* Helpers of the guard's tests: one guard, masters that answer what the test says, time that passes with a heartbeat
 * each second. Master i is a server with the run_id RUN(i) and, while all is well, the epoch CERT(i). */
#ifndef GUARD_CASES_H
#define GUARD_CASES_H

#include <check.h>
#include <string.h>

#include "server/redlock/guard/guard.h"
#include "suite.h"

#define MS UINT64_C(1000)
#define SECOND UINT64_C(1000000)
#define START (1000 * SECOND)
#define WALL UINT64_C(1700000000000000)
#define TTL (60 * SECOND)
#define MARGIN (2002 * MS)
#define QUARANTINE (TTL + TTL / 100 + MARGIN) /* with 10,000 ppm */
#define DIGEST UINT64_C(0xd1)
#define CLUSTER UINT64_C(0xc1)
#define RUN(i) (UINT64_C(0x1000) + (i))
#define CERT(i) (UINT64_C(0x2000) + (i))
#define MARKER(i) (UINT64_C(0x3000) + (i))

/* What a master answers to READ. */
#define FITS(i) .epoch = CERT(i), .epoch_run_id = RUN(i), .cluster = CLUSTER, .digest = DIGEST, .ttl_us = TTL
#define NOTHING_AT_ALL .epoch = 0
#define OF_ANOTHER_SERVER(i) \
	.epoch = CERT(i), .epoch_run_id = 0x9999, .cluster = CLUSTER, .digest = DIGEST, .ttl_us = TTL
#define QUARANTINED_BY(number, i) \
	.marker = (number), .marker_run_id = RUN(i), .cluster = CLUSTER, .digest = DIGEST, .ttl_us = TTL

struct cases {
	struct guard guard;
	uint64_t now_us, client_id;
	uint64_t beats[REDLOCK_MASTERS_MAX];
	struct guard_event answers[REDLOCK_MASTERS_MAX]; /* the last answers to READ */
	bool connected[REDLOCK_MASTERS_MAX];
};

static inline struct cases cases_new(unsigned masters, bool bootstrap)
{
	struct guard_params params = {
		.masters = (uint8_t)masters,
		.max_ttl_us = TTL,
		.drift_ppm = 10000,
		.margin_us = MARGIN,
		.digest = DIGEST,
		.bootstrap = bootstrap,
		.seed = 42,
	};
	struct cases cases = {.now_us = START};
	guard_init(&cases.guard, &params);
	return cases;
}

static inline void tell(struct cases *cases, unsigned i, struct guard_event event)
{
	event.master = (uint8_t)i;
	event.now_us = cases->now_us;
	guard_event(&cases->guard, &event);
}

#define TELL(cases, i, ...) tell(cases, i, (struct guard_event){__VA_ARGS__})

static inline void connects(struct cases *cases, unsigned i, uint64_t run_id)
{
	cases->connected[i] = true;
	TELL(cases, i, .kind = GUARD_CONNECTED, .run_id = run_id, .client_id = ++cases->client_id);
}

static inline void loses(struct cases *cases, unsigned i)
{
	cases->connected[i] = false;
	TELL(cases, i, .kind = GUARD_LOST);
}

/* The answer to READ, asked for or not; the master goes on to answer that. */
static inline void answers(struct cases *cases, unsigned i, struct guard_event event)
{
	event.kind = GUARD_EPOCH;
	event.beat = ++cases->beats[i];
	cases->answers[i] = event;
	tell(cases, i, event);
}

#define ANSWERS(cases, i, ...) answers(cases, i, (struct guard_event){__VA_ARGS__})
/* The same on a new connection. */
#define READS(cases, i, ...) (connects(cases, i, RUN(i)), ANSWERS(cases, i, __VA_ARGS__))

static inline struct guard_action next(struct cases *cases, unsigned i)
{
	struct guard_action action;
	guard_next(&cases->guard, i, cases->now_us, WALL + cases->now_us, &action);
	return action;
}

/* What is to be sent next must be of this kind. */
static inline struct guard_action wants(struct cases *cases, unsigned i, enum guard_action_kind kind)
{
	struct guard_action action = next(cases, i);
	ck_assert_int_eq(action.kind, kind);
	return action;
}

/* Time passes, with a heartbeat of all connected masters each second, and nothing new in it. */
static inline void pass(struct cases *cases, uint64_t us)
{
	uint64_t end_us = cases->now_us + us;
	while (end_us - cases->now_us > SECOND) {
		cases->now_us += SECOND;
		for (unsigned i = 0; i < cases->guard.params.masters; i++)
			if (cases->connected[i] && cases->guard.masters[i].read)
				answers(cases, i, cases->answers[i]);
	}
	cases->now_us = end_us;
}

static inline void is(const struct cases *cases, unsigned i, enum guard_state state, enum guard_reason reason)
{
	ck_assert_int_eq(cases->guard.masters[i].state, state);
	ck_assert_int_eq(guard_may_vote(&cases->guard, i), state == GUARD_VOTING);
	if (state != GUARD_VOTING && state != GUARD_ABSENT && state != GUARD_ASKING)
		ck_assert_int_eq(cases->guard.masters[i].reason, reason);
}

static inline uint64_t left_us(const struct cases *cases, unsigned i)
{
	return guard_quarantine_left_us(&cases->guard, i, cases->now_us);
}

/* So much of the quarantine is left. */
static inline void left(const struct cases *cases, unsigned i, uint64_t us)
{
	ck_assert_uint_eq(left_us(cases, i), us);
}

/* ---- ways into a state ---- */

static inline void gets_epoch(struct cases *cases, unsigned i)
{
	TELL(cases, i, .kind = GUARD_EPOCH_WRITTEN, .done = true);
	is(cases, i, GUARD_VOTING, GUARD_NO_REASON);
}

static inline void votes(struct cases *cases, unsigned i)
{
	connects(cases, i, RUN(i));
	wants(cases, i, GUARD_READ);
	ANSWERS(cases, i, FITS(i));
	is(cases, i, GUARD_VOTING, GUARD_NO_REASON);
}

static inline void others_vote(struct cases *cases, unsigned but)
{
	for (unsigned i = 0; i < cases->guard.params.masters; i++)
		if (i != but)
			votes(cases, i);
}

/* Restarted without its memory; QUARANTINE is to be sent. */
static inline void quarantined(struct cases *cases, unsigned i)
{
	connects(cases, i, RUN(i));
	wants(cases, i, GUARD_READ);
	ANSWERS(cases, i, NOTHING_AT_ALL);
	is(cases, i, GUARD_MARKING, GUARD_NO_EPOCH);
}

/* QUARANTINE is carried out; the master's marker is MARKER(i), as if another redlockd had left it just before. */
static inline void quarantine_done(struct cases *cases, unsigned i, bool kept)
{
	wants(cases, i, GUARD_QUARANTINE);
	TELL(cases, i, .kind = GUARD_QUARANTINED, .done = true, .marker = MARKER(i), .kept = kept, .ttl_us = TTL);
	cases->answers[i] = (struct guard_event){
		.marker = MARKER(i), .marker_run_id = RUN(i), .digest = DIGEST, .kept = kept, .ttl_us = TTL};
}

static inline void waits(struct cases *cases, unsigned i)
{
	quarantined(cases, i);
	quarantine_done(cases, i, false);
	is(cases, i, GUARD_WAITING, GUARD_NO_EPOCH);
}

static inline void all_wait(struct cases *cases)
{
	for (unsigned i = 0; i < cases->guard.params.masters; i++)
		waits(cases, i);
}

/* The wait is over: it asks for the others' fences. */
static inline void recoveries(struct cases *cases, unsigned i)
{
	waits(cases, i);
	pass(cases, QUARANTINE);
	wants(cases, i, GUARD_NOTHING);
	is(cases, i, GUARD_RECOVERING, GUARD_NO_EPOCH);
}

/* Master j is asked, and tells. */
static inline void tells_fence(struct cases *cases, unsigned j, uint64_t fence)
{
	wants(cases, j, GUARD_SURVEY);
	TELL(cases, j, .kind = GUARD_FENCES, .done = true, .fence = fence, .ttl_us = TTL);
}

#endif
