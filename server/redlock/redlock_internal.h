/* SPDX-License-Identifier: MIT */
/* Shared by the files of the core, from the lowest to the highest. Private to this folder.
 *
 * A set of masters is a uint16_t, bit i for master i. Majorities are whole numbers of the configured masters: no
 * floating point, no notion of "reachable" masters. */
#ifndef REDLOCK_INTERNAL_H
#define REDLOCK_INTERNAL_H

#include "redlock.h"

/* ---- state.c: the states of an operation, and which may follow which ---- */

static inline uint16_t redlock_all_masters(const struct redlock *op)
{
	return (uint16_t)((1U << op->params.masters) - 1U);
}

static inline bool redlock_is_waiter(const struct redlock *op)
{
	return op->params.wait_us > 0;
}

/* Changes the state. Asserts that the change is an allowed one. */
void redlock_state_set(struct redlock *op, enum redlock_state state);
/* Asserts what must hold between two events. */
void redlock_state_check(const struct redlock *op);

/* ---- tally.c: the ballots of one attempt, counted ---- */

struct redlock_tally {
	uint8_t needed;
	uint8_t granted;
	uint8_t held;      /* refused: another token holds it */
	uint8_t queued;    /* refused: it is the turn of another waiter */
	uint8_t elsewhere; /* of `held`: another slot is free */
	uint8_t gone;      /* refused: nobody holds it */
	uint8_t failed;    /* error, lost or unsent */
	uint8_t quarantined;
	uint8_t pending;    /* no answer yet */
	uint8_t answered;   /* granted, held, queued or gone */
	uint8_t unknown;    /* failed, quarantined or pending: may be in favour of anything */
	uint64_t best;      /* the holder that the most masters named; of equals, the first */
	uint8_t best_votes; /* 0: no master named any */
};

struct redlock_tally redlock_tally_count(const struct redlock *op);
/* True if the slot that was asked for is held, and another one may be free on a majority. */
bool redlock_tally_is_elsewhere(const struct redlock_tally *tally);
bool redlock_tally_is_majority(const struct redlock *op, uint16_t set);
uint16_t redlock_tally_voted(const struct redlock *op, enum redlock_vote vote);
uint16_t redlock_tally_named(const struct redlock *op, uint64_t holder);
/* The largest fence that a master of the set named; 0: none. */
uint64_t redlock_tally_highest_fence(const struct redlock *op, uint16_t set);

/* The shortest ttl that a master granted; without a grant the ttl that was asked for. */
uint64_t redlock_tally_shortest_ttl_us(const struct redlock *op);
/* Acquire: how many µs until `needed − granted` more masters are free, as the keys that refused us run out. If too few
 * refused, until the last of these keys has run out. */
uint64_t redlock_tally_free_after_us(const struct redlock *op, const struct redlock_tally *tally);
/* True if the holder may be of another library: its release notifies nobody. False if a majority names a holder of
 * redlockd's. */
bool redlock_tally_is_other_library(const struct redlock *op);
/* Inspection: how many µs until a majority may be free, whoever holds the others. Masters whose state is unknown may be
 * free earlier. At least one master must hold the lock. */
uint64_t redlock_tally_kept_for_us(const struct redlock *op, const struct redlock_tally *tally);
/* Inspection, extension: as many waiters as a majority may know of. A master that has not answered may know of all: one
 * that lost its queue must not hide waiters from the holder. */
uint32_t redlock_tally_waiters(const struct redlock *op, const struct redlock_tally *tally);

/* ---- decide.c: when the votes of an attempt decide it, and what the decision is ---- */

/* Results of the votes besides an enum redlock_outcome. */
enum {
	REDLOCK_UNDECIDED = -2, /* more votes, or the deadline, are needed */
	REDLOCK_RETRY = -1      /* acquire: nobody won, or another slot is free, and another attempt may follow */
};

/* Evaluates the ballots that are in. *ret_result is written only if the outcome is returned. */
int redlock_decide(const struct redlock *op, uint64_t now_us, struct redlock_result *ret_result);
/* Writes the result of an acquisition after RAISE. Settled: OK if validity is left, else NO_QUORUM. Not settled, and no
 * tries left: NO_QUORUM. */
void redlock_decide_fence(const struct redlock *op, bool is_settled, uint64_t now_us,
			  struct redlock_result *ret_result);

/* ---- fence.c: the rounds that make a fence ---- */

enum redlock_round { REDLOCK_ROUND_OPEN, REDLOCK_ROUND_WON, REDLOCK_ROUND_STALE, REDLOCK_ROUND_LOST };

/* True if on a majority the acquire increased the bucket to the guess: then the guess is the fence, in one round. */
bool redlock_fence_guess_holds(const struct redlock *op);
/* Stores the number that a reply carries and, in RAISING, its vote on the round. */
void redlock_fence_record(struct redlock *op, const struct redlock_event *event);
/* The state of the current round: WON by a majority; STALE: not won, but a higher number may win; LOST. */
enum redlock_round redlock_fence_count(const struct redlock *op);
/* Begins the next round, with a number one above all that were seen and a deadline of its own. Returns the masters to
 * which RAISE goes: all that granted or may have. 0: no time or no numbers are left. */
uint16_t redlock_fence_next_round(struct redlock *op, uint64_t now_us);
/* The deadline of a round: masters that have not answered count as failed. */
void redlock_fence_close_round(struct redlock *op);

/* ---- waiting.c: when a waiter tries again ---- */

/* now + for, at most REDLOCK_NEVER. */
uint64_t redlock_after_us(uint64_t now_us, uint64_t for_us);
/* Sets the deadline to the earliest of: the end of a pause; when the lock may be free (only the first waiter of this
 * process); some time after notifications of too few masters; the end of the wait. Without effect in other states. */
void redlock_waiting_set_deadline(struct redlock *op, uint64_t now_us);
/* Another library holds the lock: the waiter looks again after REDLOCK_LOOK_AGAIN_US, or when the time of the holder is
 * up if that is sooner. */
void redlock_waiting_look_again(struct redlock *op, uint64_t now_us);
/* PASSED: if nothing more is heard, the process whose turn it is may be dead. */
void redlock_waiting_handle_passed(struct redlock *op, const struct redlock_event *event);
/* FIRST: no other waiter of this process is before it any more. */
void redlock_waiting_handle_first(struct redlock *op, const struct redlock_event *event);
/* LOOK: once, also if it is not the first of this process. */
void redlock_waiting_handle_look(struct redlock *op, const struct redlock_event *event);
/* EARLIER: the waiter no longer wakes at the holder's end. */
void redlock_waiting_handle_earlier(struct redlock *op, const struct redlock_event *event);

/* ---- attempt.c: what an attempt sends (into *out, which holds no command yet), and how it ends ---- */

enum redlock_script redlock_attempt_script(enum redlock_kind kind);
/* Sends a script to a set of masters; nothing if the set is empty. */
void redlock_attempt_send(struct redlock *op, enum redlock_script script, uint16_t to, struct redlock_output *out);
/* Steps 1 and 2: takes the time, and sends to all masters at once. `guess`: of the fence. */
void redlock_attempt_begin(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out);
/* Step 5: unlock all masters, including those that refused or were silent; a waiter leaves the queue with it. Masters
 * to which nothing was sent are left out: nothing can have happened there. Acquire only, else without effect. */
void redlock_attempt_release(struct redlock *op, struct redlock_output *out);
/* Leaves the queue on some masters, without a token to release. */
void redlock_attempt_leave_queue(struct redlock *op, uint16_t masters, struct redlock_output *out);
/* Granted: leaves the queue where the attempt was not granted, or where that is not known. The masters that have not
 * answered yet are handled when they do. */
void redlock_attempt_leave_rest(struct redlock *op, struct redlock_output *out);
/* Repair, first step: a majority extended, and some masters answered GONE. Sends that majority a second extension. */
void redlock_attempt_confirm(struct redlock *op, uint64_t now_us, uint16_t gone, struct redlock_output *out);
/* Second step: `event` answers the second extension. With a majority, the masters that answered GONE get the key
 * back. */
void redlock_attempt_repair(struct redlock *op, const struct redlock_event *event, struct redlock_output *out);
/* The attempt is lost, and another one follows after a random pause. */
void redlock_attempt_pause(struct redlock *op, uint64_t now_us);
/* The attempt of a waiter is lost. It releases, and waits until the holder that `locked` names may have released it or,
 * if that is NULL, for a random pause. */
void redlock_attempt_wait(struct redlock *op, uint64_t now_us, const struct redlock_result *locked,
			  struct redlock_output *out);
/* The wait is over: leaves the queue on all masters, whose answers show who holds the lock now. */
void redlock_attempt_begin_leaving(struct redlock *op, uint64_t now_us, struct redlock_output *out);
void redlock_attempt_finish(struct redlock *op, const struct redlock_result *result, struct redlock_output *out);

#endif
