/* SPDX-License-Identifier: MIT */
/* When a lease is extended and when its holder must have ended: the transitions, for holders with and without notice,
 * and that no order of events lets a holder live past the deadline. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "server/renewal/renewal.h"
#include "suite.h"

#define MS UINT64_C(1000)

static const uint64_t began = 1000000 * MS;
static struct renewal renewal;

static uint64_t at(uint64_t ms)
{
	return began + ms * MS;
}

static enum renewal_action tick(uint64_t ms)
{
	return renewal_time(&renewal, at(ms));
}

/* An extension to the full ttl: the drift is a hundredth of it, and 10 ms. */
static enum renewal_action extended_ttl(uint64_t ms, uint64_t ttl_ms)
{
	uint64_t drift_ms = renewal.config.ttl_us / MS / 100 + 10;
	return renewal_extended(&renewal, ttl_ms * MS, ttl_ms > drift_ms ? (ttl_ms - drift_ms) * MS : 0, at(ms));
}

static enum renewal_action extended(uint64_t ms)
{
	return extended_ttl(ms, renewal.config.ttl_us / MS);
}

static enum renewal_action failed(uint64_t ms)
{
	return renewal_failed(&renewal, renewal_pause_us(&renewal), at(ms));
}

#define NEXT(ms) ck_assert_uint_eq(renewal_next_us(&renewal, began), at(ms))
#define DOES(action, expected) ck_assert_int_eq(action, expected)

enum { VALIDITY = 2960, END = VALIDITY - 1 };           /* without notice: a held connection of the daemon */
enum { RENEW = 9900, TERMINATE = 24200, KILL = 29200 }; /* with notice: a command of redlockctl */

/* Granted at `began`; all times are in ms after it. */
static void grant(bool notice)
{
	static const struct renewal_config hold = {.ttl_us = 3000 * MS, .margin_us = MS},
					   run = {.ttl_us = 30000 * MS, .notice_us = 5000 * MS, .margin_us = 500 * MS};
	renewal_init(&renewal, notice ? &run : &hold, began, (notice ? 29700 : VALIDITY) * MS);
	if (!notice)
		renewal.next_us = at(1000); /* round numbers below */
	NEXT(notice ? RENEW : 1000);
}

/* ---- stories: events in their order, and what follows from each ---- */

enum event { TICK, EXTENDED, FAILED, RETRY, LOSE, FINISH, DRAIN, DRAIN_FRESH };
#define NOW UINT64_MAX

struct step {
	enum event event;
	uint64_t ms, value; /* EXTENDED: the ttl, 0: in full; RETRY: the pause */
	enum renewal_action action;
	enum renewal_why why;
	uint64_t next_ms, deadline_ms; /* 0: not looked at */
};

#define ON(what, when, ...)                              \
	{                                                \
		.event = what, .ms = when, ##__VA_ARGS__ \
	}
#define ASK .action = RENEWAL_ASK
#define OVER(reason) .why = RENEWAL_WHY_##reason
#define ENDS(reason) .action = RENEWAL_END, OVER(reason)
#define KILLS(reason) .action = RENEWAL_KILL, OVER(reason)

static const struct story {
	const char *name;
	bool notice;
	struct step steps[8]; /* a TICK at 0 with nothing to do follows */
} stories[] = {
	{"late timer", false, {ON(TICK, 1700, ASK), ON(EXTENDED, 1710, .deadline_ms = 1700 + VALIDITY)}},
	{"slow answer: the next request at once",
	 false,
	 {ON(TICK, 1000, ASK, .next_ms = END), ON(EXTENDED, 2500), ON(TICK, 2500, ASK)}},
	{"lost by an answer", false, {ON(TICK, 1000, ASK), ON(LOSE, 1001, ENDS(LOST))}},
	{"quorum comes back: its validity is no longer about the quorum, and what was promised before stands",
	 false,
	 {ON(TICK, 1000, ASK), ON(FAILED, 1050, .next_ms = 1350, .deadline_ms = VALIDITY), ON(TICK, 1350, ASK),
	  ON(EXTENDED, 1360), ON(TICK, 10000, KILLS(LATE))}},
	{"no answer until the end", false, {ON(TICK, 1000, ASK), ON(TICK, END, KILLS(UNREACHABLE))}},
	{"an answer when nothing is left of the validity, which extends nothing beyond now",
	 false,
	 {ON(TICK, 1000, ASK), ON(EXTENDED, 1000 + VALIDITY, KILLS(LATE))}},
	{"slept past the end", false, {ON(TICK, 5000, KILLS(LATE))}},
	{"at --max-hold-ms it does not matter what the masters answer in the end",
	 false,
	 {ON(TICK, 1000, ASK), ON(EXTENDED, 1000, .value = 2000, .next_ms = 2000), ON(TICK, 2000, ASK),
	  ON(FAILED, 2000), ON(TICK, 3000, KILLS(BOUND))}},
	{"never shorter: less than its drift even",
	 false,
	 {ON(TICK, 1000, ASK), ON(EXTENDED, 1000, .value = 10, .deadline_ms = VALIDITY)}},
	{"drain",
	 false,
	 {ON(DRAIN, 500, .next_ms = 500), ON(TICK, 500, ASK), ON(DRAIN, 501), ON(TICK, 501),
	  ON(EXTENDED, 510, ENDS(DRAINING), .deadline_ms = 500 + VALIDITY)}},
	{"a drain waits for the request under way",
	 false,
	 {ON(TICK, 1000, ASK), ON(DRAIN, 1001), ON(TICK, 1001), ON(EXTENDED, 1010, ENDS(DRAINING))}},
	{"a drain without quorum leaves validity to use elsewhere",
	 false,
	 {ON(DRAIN, 500), ON(TICK, 500, ASK), ON(FAILED, 510, ENDS(DRAINING))}},
	{"a drain waits for half a second",
	 false,
	 {ON(DRAIN, 500), ON(TICK, 500, ASK, .next_ms = 1000), ON(TICK, 999), ON(TICK, 1000, ENDS(DRAINING))}},
	{"a drain of a short lease waits for half of what is left",
	 false,
	 {ON(DRAIN, VALIDITY - 100), ON(TICK, VALIDITY - 100, ASK, .next_ms = VALIDITY - 50)}},
	{"a drain finds it lost", false, {ON(DRAIN, 500), ON(TICK, 500, ASK), ON(LOSE, 501, ENDS(LOST))}},
	{"a drain at the end", false, {ON(DRAIN, VALIDITY), ON(TICK, VALIDITY, KILLS(LATE))}},
	{"a drain of a new one", false, {ON(DRAIN_FRESH, 0, .next_ms = NOW), ON(TICK, 0, ENDS(DRAINING))}},
	{"the next server at once",
	 true,
	 {ON(TICK, RENEW, ASK, .next_ms = TERMINATE), ON(RETRY, 10000), ON(TICK, 10000, ASK),
	  ON(RETRY, 11000, .value = 1000, .next_ms = 12000), ON(TICK, 12000, ASK)}},
	{"it ends in time",
	 true,
	 {ON(TICK, RENEW, ASK), ON(TICK, TERMINATE - 1), ON(TICK, TERMINATE, ENDS(UNREACHABLE)),
	  ON(TICK, KILL - 1, OVER(UNREACHABLE), .next_ms = KILL), ON(TICK, KILL, KILLS(UNREACHABLE)),
	  ON(TICK, KILL + 1, KILLS(UNREACHABLE))}},
	{"a failure at the end does not ask again",
	 true,
	 {ON(TICK, RENEW, ASK), ON(RETRY, TERMINATE, ENDS(UNREACHABLE))}},
	{"a late answer does not revive it",
	 true,
	 {ON(TICK, RENEW, ASK), ON(TICK, TERMINATE, ENDS(UNREACHABLE)),
	  ON(EXTENDED, TERMINATE, OVER(UNREACHABLE), .deadline_ms = 29700), ON(FAILED, TERMINATE, OVER(UNREACHABLE)),
	  ON(LOSE, TERMINATE, OVER(UNREACHABLE)), ON(TICK, KILL, KILLS(UNREACHABLE))}},
	{"lost: it ends at once", true, {ON(TICK, RENEW, ASK), ON(LOSE, 10000, ENDS(LOST), .next_ms = 15000)}},
	{"lost near the end", true, {ON(TICK, RENEW, ASK), ON(LOSE, 28000, ENDS(LOST), .next_ms = KILL)}},
	{"the machine slept for long", true, {ON(TICK, 3600000, KILLS(LATE))}},
	{"the machine slept past the end alone", true, {ON(TICK, TERMINATE + 1, ENDS(LATE))}},
	{"told to end",
	 true,
	 {ON(FINISH, 1000, ENDS(REQUESTED)), ON(FINISH, 1000, OVER(REQUESTED)), ON(TICK, 6000, KILLS(REQUESTED))}},
};

static enum renewal_action happen(const struct step *step)
{
	uint64_t now_us = at(step->ms);
	switch (step->event) {
	case TICK: return tick(step->ms);
	case EXTENDED: return step->value ? extended_ttl(step->ms, step->value) : extended(step->ms);
	case FAILED: return failed(step->ms);
	case RETRY: return renewal_failed(&renewal, step->value * MS, now_us);
	case LOSE: return renewal_finish(&renewal, RENEWAL_WHY_LOST, now_us);
	case FINISH: return renewal_finish(&renewal, RENEWAL_WHY_REQUESTED, now_us);
	default: renewal_drain(&renewal, now_us, step->event == DRAIN_FRESH); return RENEWAL_NOTHING;
	}
}

TEST_EACH(each_story, 0, sizeof stories / sizeof *stories)
{
	const struct story *story = &stories[_i];
	grant(story->notice);
	for (const struct step *step = story->steps; step->ms > 0 || step->event != TICK || step->action; step++) {
		int number = (int)(step - story->steps);
		enum renewal_action action = happen(step);
		ck_assert_msg(action == step->action && renewal.why == step->why, "%s: step %d: action %d, why %d",
			      story->name, number, (int)action, (int)renewal.why);
		if (step->next_ms > 0)
			NEXT(step->next_ms == NOW ? 0 : step->next_ms);
		if (step->deadline_ms > 0)
			ck_assert_uint_eq(renewal.deadline_us, at(step->deadline_ms));
		ck_assert_int_eq(renewal_is_over(&renewal), step->why != RENEWAL_WHY_NONE);
		if (step->why == RENEWAL_WHY_NONE)
			continue;
		DOES(extended(0), RENEWAL_NOTHING); /* no event changes an end */
		renewal_drain(&renewal, began, false);
		ck_assert_int_eq(renewal.why, step->why);
	}
}

/* ---- more than one way ---- */

TEST(each_third)
{
	static const struct renewal_config config = {.ttl_us = 3030 * MS, .margin_us = MS};
	renewal_init(&renewal, &config, began, 3000 * MS);
	NEXT(1000);
	DOES(tick(999), RENEWAL_NOTHING);
	for (uint64_t sent = 1000; sent < 100000; sent += 1000) {
		DOES(tick(sent), RENEWAL_ASK);
		DOES(tick(sent + 1), RENEWAL_NOTHING); /* one at a time */
		DOES(renewal_extended(&renewal, 3030 * MS, 3000 * MS, at(sent + 5)), RENEWAL_NOTHING);
		/* from when it was asked for, not from the answer */
		ck_assert_uint_eq(renewal.deadline_us, at(sent + 3000));
		NEXT(sent + 1000);
	}
}

/* Tried again and again while validity is left; lost at its end, not later and not much earlier. */
TEST(no_quorum)
{
	unsigned tries = 0;
	uint64_t ms = 0;

	grant(false);
	for (;; tries++) {
		ms = (renewal_next_us(&renewal, began) - began) / MS;
		if (tick(ms) != RENEWAL_ASK)
			break;
		DOES(failed(ms), RENEWAL_NOTHING);
	}
	ck_assert_uint_eq(ms, END);
	ck_assert_uint_eq(tries, 7); /* at 1000, 1300, … 2800 */
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_UNREACHABLE);
}

TEST(pause_is_bounded)
{
	static const struct renewal_config config = {.ttl_us = 60000 * MS, .margin_us = MS};
	renewal_init(&renewal, &config, began, 60000 * MS);
	ck_assert_uint_eq(renewal_pause_us(&renewal), 1000 * MS);
}

/* At --max-hold-ms, here 4000, the extensions get shorter: no more of them are asked for, but for those of each
 * third. */
TEST(bound_of_its_age)
{
	grant(false);
	for (uint64_t sent = 1000; sent <= 3000; sent += 1000) {
		DOES(tick(sent), RENEWAL_ASK);
		DOES(extended_ttl(sent, 4000 - sent), RENEWAL_NOTHING);
		renewal.next_us = at(sent + 1000);
	}
	ck_assert_uint_eq(renewal.deadline_us, at(4000 - 40));
	NEXT(4000 - 41);
	DOES(tick(4000 - 41), RENEWAL_KILL);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_BOUND);
}

TEST(shortest_lease)
{
	static const struct renewal_config config = {.ttl_us = 10 * MS, .margin_us = MS};
	renewal_init(&renewal, &config, began, MS); /* 1 ms of validity is none that can be told */
	NEXT(0);
	DOES(tick(0), RENEWAL_KILL);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_BOUND);
}

/* Random events in random order, with a world that only grants what a server may: whatever happens, KILL is said before
 * the deadline if the state machine is called when it asked to be, and always at the first call after its time. */
TEST_EACH(never_past_the_deadline, 0, 300)
{
	srand((unsigned)_i + 1);
	struct renewal_config any = {.ttl_us = (uint64_t)(200 + rand() % 30000) * MS};
	uint64_t now = began;

	any.notice_us = any.ttl_us / 2 * (uint64_t)(rand() % 101) / 100;
	any.margin_us = 1 + any.ttl_us / 25;
	renewal_init(&renewal, &any, now, any.ttl_us * 98 / 100);
	for (int i = 0; i < 300; i++) {
		uint64_t next = renewal_next_us(&renewal, now);
		ck_assert(renewal.state == RENEWAL_KILLING || next <= renewal_kill_us(&renewal));
		bool in_time = rand() % 8 != 0 || renewal.state != RENEWAL_ASKING;
		now = in_time && next > now ? next : now + (uint64_t)rand() % 1000;
		enum renewal_action action = renewal_time(&renewal, now);
		if (now >= renewal_kill_us(&renewal))
			DOES(action, RENEWAL_KILL);
		if (rand() % 50 == 0)
			renewal_drain(&renewal, now, rand() % 2 == 0);
		if (renewal.state == RENEWAL_ASKING && rand() % 3 != 0) {
			uint64_t validity = 1 + (uint64_t)rand() % any.ttl_us;
			if (rand() % 3 == 0)
				renewal_failed(&renewal, (uint64_t)rand() % 1000000, now);
			else
				renewal_extended(&renewal, any.ttl_us - (uint64_t)rand() % 2, validity, now);
		}
		if (renewal.state == RENEWAL_ENDING)
			ck_assert_uint_le(renewal.kill_us, renewal_kill_us(&renewal));
		ck_assert_uint_lt(renewal_kill_us(&renewal), renewal.deadline_us);
	}
}
