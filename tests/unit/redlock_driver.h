/* SPDX-License-Identifier: MIT */
/* Drives one operation of the core, for all tests of the core.
 *
 * The driver stands for the daemon, without a network: it remembers each command that has no reply yet, feeds events,
 * and after each step checks what must always hold, whatever the votes are. A broken rule ends the test with a message.
 * Single-threaded; owns nothing. */
#ifndef REDLOCK_DRIVER_H
#define REDLOCK_DRIVER_H

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/redlock/redlock.h"

enum { DRIVER_ASKS_MAX = 512 };

/* The number of the case, for the message. */
static uint64_t must_case;

/* Check's own assertions write to a pipe each time, which is too slow for millions of them. */
#define MUST(condition, ...)                                              \
	do {                                                              \
		if (!(condition)) {                                       \
			fprintf(stderr, "case %" PRIu64 ": ", must_case); \
			ck_abort_msg(__VA_ARGS__);                        \
		}                                                         \
	} while (0)

enum { DRIVER_GUESS = 1000 }; /* for every attempt */

struct driver_ask {
	enum redlock_script script;
	uint16_t attempt, round;
	uint8_t master;
	bool tokenless;
};

struct driver {
	struct redlock op;
	struct redlock_params params;
	struct redlock_output out;    /* of the last step */
	struct redlock_result result; /* once done */
	uint64_t now_us, start_us;    /* start of this attempt */
	bool started, done, finished;
	uint16_t tries;          /* attempts begun */
	uint16_t released;       /* the last attempt that was released */
	uint16_t reached;        /* masters to which the script of this attempt may have got */
	unsigned granted;        /* replies of this attempt that granted, before the decision */
	unsigned increased;      /* … and increased their bucket to the guess */
	uint16_t round;          /* of RAISE in this attempt */
	unsigned raised;         /* masters that carried out this round's RAISE */
	uint64_t fence, highest; /* the number of this round; the largest number that a reply of this attempt named */
	uint64_t wait_end_us;    /* of one that waits */
	uint16_t refused;        /* masters that answered this attempt and refused it */
	/* masters that said so to an extension; those for which it was repeated, those that granted that, and those
	 * that got the key back */
	uint16_t gone, confirms, confirmed, repaired;
	uint16_t queued_on; /* masters that have the queue entry once all commands are carried out */
	struct driver_taker {
		uint16_t attempt; /* whose command was the last to take it, or to give it up: 0 */
		bool acquires, before;
	} takers[REDLOCK_MASTERS_MAX];
	unsigned asks_len;
	struct driver_ask asks[DRIVER_ASKS_MAX]; /* commands without a reply, oldest first */
};

static inline void driver_init(struct driver *driver, const struct redlock_params *params, uint64_t seed)
{
	memset(driver, 0, sizeof *driver);
	driver->params = *params;
	redlock_init(&driver->op, params, seed);
	MUST(redlock_deadline_us(&driver->op) == REDLOCK_NEVER, "a deadline before the start");
}

static inline bool driver_waits(const struct driver *driver)
{
	return driver->params.wait_us > 0;
}

/* Masters that may have this attempt's token. The masters that refused a waiter need no release. */
static inline uint16_t driver_ours(const struct driver *driver)
{
	return driver_waits(driver) ? driver->reached & (uint16_t)~driver->refused : driver->reached;
}

static inline void driver_check_try(struct driver *driver)
{
	static const enum redlock_script scripts[] = {[REDLOCK_ACQUIRE] = REDLOCK_SCRIPT_ACQUIRE,
						      [REDLOCK_EXTEND] = REDLOCK_SCRIPT_EXTEND,
						      [REDLOCK_RELEASE] = REDLOCK_SCRIPT_RELEASE,
						      [REDLOCK_INSPECT] = REDLOCK_SCRIPT_INSPECT};
	unsigned limit = driver->params.kind == REDLOCK_ACQUIRE ? driver->params.tries : 1;

	MUST(driver->out.script == scripts[driver->params.kind], "script %d for kind %d", driver->out.script,
	     driver->params.kind);
	MUST(driver->out.to == (1u << driver->params.masters) - 1, "a try goes to %x, not to all masters",
	     driver->out.to);
	MUST(driver->out.attempt == driver->tries + 1, "try %u is called %u", driver->tries + 1u, driver->out.attempt);
	MUST(driver->tries < limit || driver_waits(driver), "more than %u tries", limit);
	MUST(driver->tries == 0 || driver->released == driver->tries || driver_ours(driver) == 0,
	     "a try begins and the one before was not released");
	MUST(!driver_waits(driver) || driver->out.entry == REDLOCK_ENTRY_KEEP, "a try without an entry");
	driver->tries++;
	driver->reached = driver->out.to;
	driver->granted = driver->increased = driver->raised = driver->round = driver->refused = 0;
	driver->fence = DRIVER_GUESS;
	driver->highest = 0;
	MUST(driver->params.kind != REDLOCK_ACQUIRE || driver->out.fence == DRIVER_GUESS, "the guess is not sent");
	driver->start_us = driver->now_us;
}

/* Only the entry is removed: while nothing is granted, or where it is not. At the end of the wait this goes to all
 * masters, whose answers name the holder. */
static inline void driver_check_leave(struct driver *driver)
{
	bool is_end = driver->out.round != 0;

	MUST(driver_waits(driver) && driver->out.entry == REDLOCK_ENTRY_LEAVE, "without a token, and entry %d",
	     driver->out.entry);
	MUST(driver->out.round <= 1 && driver->out.attempt == driver->tries, "leaves in round %u", driver->out.round);
	MUST(!is_end || driver->out.to == (1u << driver->params.masters) - 1, "the wait is over, and %x are told",
	     driver->out.to);
	if (driver->done || driver->out.done) {
		MUST(!is_end, "leaves once more");
		return;
	}
	MUST(is_end && (driver->released == driver->tries || driver_ours(driver) == 0), "leaves with an attempt open");
	driver->released = driver->tries;
	driver->granted = driver->reached = 0;
}

/* An attempt of a waiter is released where it may be; the last one also wherever its entry may be. */
static inline void driver_check_release(struct driver *driver)
{
	bool stays = driver_waits(driver) && !driver->out.done;
	uint16_t to = stays ? driver_ours(driver) : driver->reached | driver->queued_on;

	MUST(driver->out.attempt == driver->tries, "a release with the token of attempt %u", driver->out.attempt);
	MUST(driver->released < driver->tries, "attempt %u is released twice", driver->tries);
	MUST((driver->out.to & to) == to, "a release to %x, the acquire or the entry may be on %x", driver->out.to, to);
	MUST(driver->out.to == to || (driver_waits(driver) && !stays), "a release to %x, and it may be on %x alone",
	     driver->out.to, to);
	if (driver_waits(driver))
		MUST(driver->out.entry == (stays ? REDLOCK_ENTRY_KEEP : REDLOCK_ENTRY_LEAVE), "a release with entry %d",
		     driver->out.entry);
	driver->released = driver->tries;
}

/* Where the entry is once the script is carried out. */
static inline void driver_note_entry(struct driver *driver, unsigned master)
{
	struct redlock_output *out = &driver->out;
	struct driver_taker *taker = &driver->takers[master];
	uint16_t bit = (uint16_t)(1u << master);

	if (out->entry == REDLOCK_ENTRY_KEEP) {
		*taker = (struct driver_taker){out->attempt, out->script == REDLOCK_SCRIPT_ACQUIRE,
					       (driver->queued_on & bit) != 0};
		driver->queued_on |= bit;
	} else if (out->entry == REDLOCK_ENTRY_LEAVE) {
		taker->attempt = 0;
		driver->queued_on &= (uint16_t)~bit;
	}
}

/* A grant removes the entry. A command that was not sent changed nothing. */
static inline void driver_hear_entry(struct driver *driver, const struct driver_ask *ask, enum redlock_vote vote)
{
	const struct driver_taker *taker = &driver->takers[ask->master];
	uint16_t bit = (uint16_t)(1u << ask->master);
	bool acquires = ask->script == REDLOCK_SCRIPT_ACQUIRE,
	     unsent = vote == REDLOCK_VOTE_UNSENT || vote == REDLOCK_VOTE_QUARANTINED;

	if (taker->attempt != ask->attempt || taker->acquires != acquires || ask->script == REDLOCK_SCRIPT_RAISE)
		return;
	if ((acquires && vote == REDLOCK_VOTE_GRANTED) || (unsent && !taker->before))
		driver->queued_on &= (uint16_t)~bit;
}

static inline void driver_check_entry(const struct driver *driver)
{
	const struct redlock_output *out = &driver->out;
	uint64_t left_us = driver->wait_end_us > driver->now_us ? driver->wait_end_us - driver->now_us : 1;

	if (!driver_waits(driver) || out->script == REDLOCK_SCRIPT_RAISE || out->script == REDLOCK_SCRIPT_NONE)
		MUST(out->entry == REDLOCK_ENTRY_NONE, "entry %d", out->entry);
	MUST(!out->tokenless || out->script == REDLOCK_SCRIPT_RELEASE, "script %d without a token", out->script);
	MUST(out->entry != REDLOCK_ENTRY_KEEP || out->wait_left_us == left_us, "%" PRIu64 " left of the wait",
	     out->wait_left_us);
}

/* A round of RAISE: its number is larger than any seen or asked for; only while the attempt is not released. */
static inline void driver_check_raise(struct driver *driver)
{
	MUST(driver->params.kind == REDLOCK_ACQUIRE && driver->out.attempt == driver->tries, "RAISE for attempt %u",
	     driver->out.attempt);
	MUST(driver->released < driver->tries, "RAISE after the release");
	MUST(driver->out.round == driver->round + 1, "round %u after %u", driver->out.round, driver->round);
	MUST(driver->out.fence > driver->fence && driver->out.fence > driver->highest,
	     "RAISE to a number that was seen");
	MUST((driver->out.to & ~driver->reached) == 0, "RAISE where nothing was acquired");
	driver->round = driver->out.round;
	driver->fence = driver->out.fence;
	driver->raised = 0;
}

/* Once more, after a majority has extended: only if a master is known to have said that it is gone. */
static inline void driver_check_confirm(struct driver *driver)
{
	const struct redlock_output *out = &driver->out;
	const struct redlock_result *result = out->done ? &out->result : &driver->result;

	MUST(driver->params.kind == REDLOCK_EXTEND && out->script == REDLOCK_SCRIPT_EXTEND, "confirms by script %d",
	     out->script);
	MUST((driver->done || out->done) && result->outcome == REDLOCK_OK, "confirms what is not extended");
	MUST(driver->gone != 0 && driver->confirms == 0, "confirms for nothing");
	MUST((out->to & driver->gone) == 0 && out->attempt == driver->tries, "confirms by %x", out->to);
	driver->confirms = driver->gone;
}

/* Only after a majority has extended twice, and those that said between the two that it is gone. The key does not
 * outlive the lease. */
static inline void driver_check_repair(struct driver *driver)
{
	const struct redlock_output *out = &driver->out;
	const struct redlock_result *result = &driver->result;

	MUST(driver->done && result->outcome == REDLOCK_OK && out->script == REDLOCK_SCRIPT_ACQUIRE,
	     "repairs by script %d", out->script);
	MUST(out->to == driver->confirms && driver->repaired == 0, "repairs %x", out->to);
	MUST(__builtin_popcount(driver->confirmed) >= result->votes.needed, "repairs by %x", driver->confirmed);
	MUST(out->fence == result->fence && out->attempt == driver->tries && out->round == 0, "repairs another lease");
	MUST(driver->now_us < out->repair_until_us && out->repair_ttl_us >= 1000, "repairs too late");
	MUST(out->repair_until_us + out->repair_ttl_us <= driver->start_us + result->ttl_us - driver->params.drift_us,
	     "the repaired key outlives the lease");
	driver->repaired = out->to;
}

static inline void driver_check_sent(struct driver *driver)
{
	struct redlock_output *out = &driver->out;

	MUST((out->script == REDLOCK_SCRIPT_NONE) == (out->to == 0), "script %d to %x", out->script, out->to);
	MUST(out->to >> driver->params.masters == 0, "a script to masters that do not exist: %x", out->to);
	driver_check_entry(driver);
	if (out->repair)
		driver_check_repair(driver);
	else if (out->script == REDLOCK_SCRIPT_EXTEND && out->round != 0)
		driver_check_confirm(driver);
	else if (out->tokenless)
		driver_check_leave(driver);
	else if (out->script == REDLOCK_SCRIPT_RELEASE && driver->params.kind == REDLOCK_ACQUIRE)
		driver_check_release(driver);
	else if (out->script == REDLOCK_SCRIPT_RAISE)
		driver_check_raise(driver);
	else if (out->script != REDLOCK_SCRIPT_NONE)
		driver_check_try(driver);
	for (unsigned i = 0; i < driver->params.masters; i++) {
		if ((out->to >> i & 1) == 0)
			continue;
		MUST(driver->asks_len < DRIVER_ASKS_MAX, "too many questions");
		driver_note_entry(driver, i);
		driver->asks[driver->asks_len++] = (struct driver_ask){out->script, out->attempt, out->round,
								       (uint8_t)i, out->tokenless};
	}
}

/* What an answer must satisfy, whatever the votes are. */
static inline void driver_check_result(struct driver *driver)
{
	struct redlock_result *result = &driver->out.result;
	struct redlock_votes *votes = &result->votes;
	bool leased = driver->params.kind == REDLOCK_ACQUIRE || driver->params.kind == REDLOCK_EXTEND;
	unsigned majority = driver->params.masters / 2u + 1;

	MUST(votes->masters == driver->params.masters && votes->needed == majority, "votes of other masters");
	MUST(votes->granted + votes->refused + votes->failed + votes->quarantined <= votes->masters,
	     "more votes than masters");
	if (driver->params.kind != REDLOCK_INSPECT && result->outcome != REDLOCK_CANCELLED)
		MUST(votes->granted == driver->granted, "%u votes granted, %u counted", driver->granted,
		     votes->granted);
	MUST(result->tries == driver->tries, "%u tries made, %u counted", driver->tries, result->tries);
	if (result->outcome == REDLOCK_OK && leased) {
		MUST(driver->granted >= majority && votes->granted >= majority, "OK with %u of %u votes",
		     driver->granted, majority);
		MUST(result->validity_us > 0 && result->validity_us <= driver->params.ttl_us, "OK without validity");
		MUST(result->ttl_us > 0 && result->ttl_us <= driver->params.ttl_us, "OK with another ttl");
		MUST(result->validity_us + (driver->now_us - driver->start_us) + driver->params.drift_us ==
			     result->ttl_us,
		     "validity is not ttl - elapsed - drift");
	}
	if (driver->params.kind == REDLOCK_ACQUIRE) {
		bool ok = result->outcome == REDLOCK_OK;
		unsigned strict = driver->round == 0 ? driver->increased : driver->raised;

		MUST(!ok || strict >= majority, "a fence with %u strict increases of %u", strict, majority);
		MUST(!ok || result->fence == driver->fence, "fence %" PRIu64 " instead of %" PRIu64, result->fence,
		     driver->fence);
		MUST(!ok || result->rounds == driver->round, "%u rounds instead of %u", result->rounds, driver->round);

		MUST(ok == (driver->released < driver->tries) || driver_ours(driver) == 0,
		     "outcome %d, released up to %u", result->outcome, driver->released);
	}
}

static inline void driver_step(struct driver *driver, const struct redlock_event *event)
{
	struct redlock_output *out = &driver->out;

	MUST(event->now_us >= driver->now_us, "the test's own clock goes backwards");
	driver->now_us = event->now_us;
	memset(out, 0xa5, sizeof *out); /* all of it must be written */
	if (event->kind == REDLOCK_START)
		driver->wait_end_us = event->now_us + driver->params.wait_us;
	redlock_step(&driver->op, event, out);
	if (event->kind == REDLOCK_START)
		driver->started = true;
	driver_check_sent(driver);
	MUST(!(out->done && driver->done), "done twice");
	if (out->done) {
		driver_check_result(driver);
		driver->done = true;
		driver->result = out->result;
	}
	MUST(out->finished == (driver->done && driver->asks_len == 0), "finished is %d with %u questions open",
	     out->finished, driver->asks_len);
	MUST((redlock_deadline_us(&driver->op) == REDLOCK_NEVER) == driver->done,
	     "a deadline is wanted exactly until done");
	MUST(!out->finished || driver->queued_on == 0, "finished, and the entry is left on %x", driver->queued_on);
	driver->finished = out->finished;
}

static inline void driver_start(struct driver *driver, uint64_t now_us)
{
	driver_step(driver, &(struct redlock_event){.kind = REDLOCK_START, .now_us = now_us, .fence = DRIVER_GUESS});
}

static inline void driver_timer(struct driver *driver, uint64_t now_us)
{
	driver_step(driver, &(struct redlock_event){.kind = REDLOCK_TIMER, .now_us = now_us, .fence = DRIVER_GUESS});
}

static inline void driver_cancel(struct driver *driver, uint64_t now_us)
{
	driver_step(driver, &(struct redlock_event){.kind = REDLOCK_CANCEL, .now_us = now_us});
}

/* The oldest command to a master without a reply, or −1. */
static inline int driver_find(const struct driver *driver, unsigned master)
{
	for (unsigned i = 0; i < driver->asks_len; i++) {
		if (driver->asks[i].master == master)
			return (int)i;
	}
	return -1;
}

/* Answers the oldest command to event->master that has no reply; fills in its script and attempt. */
static inline void driver_reply(struct driver *driver, struct redlock_event *event)
{
	int at = driver_find(driver, event->master);
	struct driver_ask ask;

	MUST(at >= 0, "the test answers master %u, which was not asked", event->master);
	ask = driver->asks[at];
	driver->asks_len--;
	memmove(&driver->asks[at], &driver->asks[at + 1], (driver->asks_len - (unsigned)at) * sizeof ask);
	event->kind = REDLOCK_REPLY;
	event->script = ask.script;
	event->attempt = ask.attempt;
	event->round = ask.round;
	if (ask.attempt == driver->tries && !driver->done && driver->released < driver->tries &&
	    ask.script == REDLOCK_SCRIPT_RAISE) {
		driver->raised += event->vote == REDLOCK_VOTE_GRANTED && ask.round == driver->round;
		if (event->vote == REDLOCK_VOTE_STALE && event->fence > driver->highest)
			driver->highest = event->fence;
	} else if (ask.attempt == driver->tries && !driver->done && driver->released < driver->tries) {
		if (ask.script == REDLOCK_SCRIPT_ACQUIRE && event->vote == REDLOCK_VOTE_GRANTED) {
			driver->increased += event->fence < DRIVER_GUESS && driver->round == 0;
			driver->highest = event->fence > driver->highest ? event->fence : driver->highest;
		}
		driver->granted += event->vote == REDLOCK_VOTE_GRANTED;
		if (event->vote == REDLOCK_VOTE_UNSENT || event->vote == REDLOCK_VOTE_QUARANTINED)
			driver->reached &= (uint16_t) ~(1u << event->master);
		if (event->vote == REDLOCK_VOTE_HELD || event->vote == REDLOCK_VOTE_QUEUED)
			driver->refused |= (uint16_t)(1u << event->master);
	}
	if (ask.script == REDLOCK_SCRIPT_EXTEND && event->vote == REDLOCK_VOTE_GONE && ask.round == 0)
		driver->gone |= (uint16_t)(1u << event->master);
	if (ask.script == REDLOCK_SCRIPT_EXTEND && event->vote == REDLOCK_VOTE_GRANTED && ask.round != 0)
		driver->confirmed |= (uint16_t)(1u << event->master);
	driver_hear_entry(driver, &ask, event->vote);
	driver_step(driver, event);
}

/* A reply with only a vote; grants give the ttl that was asked for. */
static inline void driver_vote(struct driver *driver, uint64_t now_us, unsigned master, enum redlock_vote vote)
{
	struct redlock_event event = {
		.now_us = now_us, .master = (uint8_t)master, .vote = vote, .ttl_us = driver->params.ttl_us};

	driver_reply(driver, &event);
}

static inline void driver_held(struct driver *driver, uint64_t now_us, unsigned master, uint64_t holder,
			       uint64_t remaining_us)
{
	struct redlock_event event = {.now_us = now_us, .master = (uint8_t)master, .vote = REDLOCK_VOTE_HELD};

	event.holder = holder;
	event.remaining_us = remaining_us;
	driver_reply(driver, &event);
}

/* Answers whatever is still open, until the operation is finished. */
static inline void driver_finish(struct driver *driver, enum redlock_vote vote)
{
	MUST(driver->done, "the test finishes an operation that is not done");
	while (driver->asks_len > 0) {
		MUST(!driver->finished, "finished too early");
		driver_vote(driver, driver->now_us, driver->asks[0].master, vote);
		MUST(driver->out.script == REDLOCK_SCRIPT_NONE || driver->gone != 0 || driver_waits(driver),
		     "a script after the operation was done");
	}
	MUST(driver->finished, "not finished with no question open");
}

#endif
