/* SPDX-License-Identifier: MIT */
/* Events of one operation: see redlock.h.
 *
 *            START                 majority, or no majority possible
 *   IDLE ────────────► VOTING ─────────────────────────────────────────► DECIDED (late replies are
 *                       ▲  │ │ granted, but the guess was too low          ▲ ▲     still counted)
 *                       │  │ └──────────► RAISING ─────────────────────────┘ │
 *                 TIMER │  ▼ nobody won     │ lost (acquire)                │ who holds it now
 *                      PAUSING ◄────────────┘                              │
 *                      WAITING ────────────────────────────────────────► LEAVING
 *                      (in the queue)         the wait is over
 *
 * A waiter goes to WAITING where others go to PAUSING or end as LOCKED. NOTIFIED or its timer brings it back to VOTING.
 *
 * attempt.c sends the commands of an attempt, tally.c counts its votes, decide.c decides it. fence.c has the rounds
 * that make a fence, waiting.c the next try of a waiter, state.c the changes of state. */
#include "redlock.h"

#include <assert.h>
#include <string.h>

#include "redlock_internal.h"

void redlock_init(struct redlock *op, const struct redlock_params *params, uint64_t seed)
{
	bool leases = params->kind == REDLOCK_ACQUIRE || params->kind == REDLOCK_EXTEND;
	assert(params->kind <= REDLOCK_INSPECT);
	assert(params->masters >= 1);
	assert(params->masters <= REDLOCK_MASTERS_MAX);
	assert(!leases || params->ttl_us > params->drift_us);
	assert(params->kind != REDLOCK_ACQUIRE || params->tries >= 1);
	assert(params->master_timeout_us > 0);
	assert(params->retry_min_us <= params->retry_max_us);
	assert(params->wait_us == 0 || params->kind == REDLOCK_ACQUIRE);
	memset(op, 0, sizeof *op);
	op->params = *params;
	op->state = REDLOCK_IDLE;
	op->random = seed;
	op->deadline_us = op->free_us = REDLOCK_NEVER;
}

uint64_t redlock_deadline_us(const struct redlock *op)
{
	return op->deadline_us;
}

bool redlock_wants(const struct redlock *op, uint16_t attempt, uint16_t round)
{
	enum redlock_state state = round == 0 ? REDLOCK_VOTING : REDLOCK_RAISING;
	return (op->state == state || op->state == REDLOCK_LEAVING) && op->attempt == attempt && op->round == round;
}

/* ---- what the votes lead to ---- */

/* Nobody won the attempt, or its fence could not be settled: another one follows if tries are left. */
static void lose_attempt(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING);
	if (redlock_is_waiter(op)) {
		redlock_attempt_wait(op, now_us, NULL, out);
		return;
	}
	redlock_attempt_release(op, out);
	if (op->attempt < op->params.tries) {
		redlock_attempt_pause(op, now_us);
		return;
	}
	struct redlock_result result;
	redlock_decide_fence(op, false, now_us, &result);
	redlock_attempt_finish(op, &result, out);
}

/* A round of RAISE, to all masters that may have granted. */
static void begin_round(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING);
	uint16_t to = redlock_fence_next_round(op, now_us);
	if (to == 0)
		lose_attempt(op, now_us, out);
	else
		redlock_attempt_send(op, REDLOCK_SCRIPT_RAISE, to, out);
}

/* Acts on the decision about an attempt. A waiter keeps waiting unless it was granted, or its first attempt found no
 * quorum to queue on. */
static void conclude_attempt(struct redlock *op, uint64_t now_us, const struct redlock_result *result,
			     struct redlock_output *out)
{
	bool is_over = op->state == REDLOCK_LEAVING || result->outcome == REDLOCK_OK ||
		       (result->outcome == REDLOCK_NO_QUORUM && op->attempt == 1);
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING || op->state == REDLOCK_LEAVING);
	assert(op->state != REDLOCK_LEAVING || result->outcome != REDLOCK_OK);
	if (redlock_is_waiter(op) && !is_over) {
		redlock_attempt_wait(op, now_us, result->outcome == REDLOCK_LOCKED ? result : NULL, out);
		return;
	}
	if (result->outcome == REDLOCK_OK && op->params.kind == REDLOCK_EXTEND) {
		op->fence = result->fence;
		op->lease_end_us = now_us + result->validity_us;
		redlock_attempt_confirm(op, now_us, redlock_tally_voted(op, REDLOCK_VOTE_GONE), out);
	} else if (result->outcome == REDLOCK_OK) {
		redlock_attempt_leave_rest(op, out);
	} else if (op->state != REDLOCK_LEAVING) {
		redlock_attempt_release(op, out);
	}
	redlock_attempt_finish(op, result, out);
}

static void evaluate_round(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	struct redlock_result result;
	assert(op->state == REDLOCK_RAISING);
	assert(op->round > 0);
	switch (redlock_fence_count(op)) {
	case REDLOCK_ROUND_OPEN: break;
	case REDLOCK_ROUND_WON:
		redlock_decide_fence(op, true, now_us, &result);
		conclude_attempt(op, now_us, &result, out);
		break;
	case REDLOCK_ROUND_STALE: begin_round(op, now_us, out); break;
	case REDLOCK_ROUND_LOST: lose_attempt(op, now_us, out); break;
	}
}

static void evaluate_votes(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	struct redlock_result result;
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_LEAVING);
	switch (redlock_decide(op, now_us, &result)) {
	case REDLOCK_UNDECIDED: break;
	case REDLOCK_RETRY: lose_attempt(op, now_us, out); break;
	default: /* an outcome */
		if (result.outcome == REDLOCK_OK && op->params.kind == REDLOCK_ACQUIRE &&
		    !redlock_fence_guess_holds(op)) {
			begin_round(op, now_us, out);
			break;
		}
		conclude_attempt(op, now_us, &result, out);
		break;
	}
}

/* ---- replies ---- */

/* A vote on this attempt. In RAISING only its fence still matters. */
static void handle_vote(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->vote <= REDLOCK_VOTE_QUEUED);
	assert(redlock_has(op->sent, event->master));
	if (redlock_has(op->answered, event->master))
		return;
	uint16_t bit = (uint16_t)(1U << event->master);
	op->answered |= bit;
	if (event->vote == REDLOCK_VOTE_UNSENT || event->vote == REDLOCK_VOTE_QUARANTINED)
		op->sent &= (uint16_t)~bit;
	op->ballots[event->master] = (struct redlock_ballot){event->vote,    event->other_library, event->elsewhere,
							     event->waiters, event->ttl_us,        event->remaining_us,
							     event->holder,  event->fence};
	redlock_fence_record(op, event);
	op->params.wait_for_all |= event->wait_for_all;
	if (op->state != REDLOCK_RAISING)
		evaluate_votes(op, event->now_us, out);
}

/* A vote that came after the decision. Unless the vote is a grant, an entry may be left in the queue of that master. */
static void handle_late_vote(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->attempt < op->attempt || op->state == REDLOCK_PAUSING || op->state == REDLOCK_WAITING ||
	       op->state == REDLOCK_DECIDED);
	bool granted = op->state == REDLOCK_DECIDED && op->granted && redlock_is_waiter(op) &&
		       redlock_has(op->sent, event->master);
	if (granted && event->vote != REDLOCK_VOTE_GRANTED && event->script == REDLOCK_SCRIPT_ACQUIRE &&
	    event->attempt == op->attempt)
		redlock_attempt_leave_queue(op, (uint16_t)(1U << event->master), out);
	if (op->state != REDLOCK_DECIDED || !op->granted || event->script != REDLOCK_SCRIPT_EXTEND)
		return;
	if (event->round == 0 && event->vote == REDLOCK_VOTE_GONE)
		redlock_attempt_confirm(op, event->now_us, (uint16_t)(1U << event->master), out);
	else
		redlock_attempt_repair(op, event, out);
}

static enum redlock_script awaited_script(const struct redlock *op)
{
	assert(op->state != REDLOCK_LEAVING || redlock_is_waiter(op));
	return op->state == REDLOCK_LEAVING ? REDLOCK_SCRIPT_RELEASE : redlock_attempt_script(op->params.kind);
}

static void handle_reply(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->master < op->params.masters);
	assert(op->outstanding > 0);
	assert(event->attempt >= 1);
	assert(event->attempt <= op->attempt);
	op->outstanding--;
	bool open = op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING || op->state == REDLOCK_LEAVING;
	if (!open || event->attempt != op->attempt) {
		/* The vote is of an older attempt, or late: the release of its token has been sent already. */
		handle_late_vote(op, event, out);
		return;
	}
	if (event->script == awaited_script(op) && (op->state != REDLOCK_LEAVING || event->round == op->round)) {
		handle_vote(op, event, out);
	} else if (event->script == REDLOCK_SCRIPT_RAISE && op->state == REDLOCK_RAISING) {
		redlock_fence_record(op, event);
		if (event->round == op->round)
			evaluate_round(op, event->now_us, out);
	}
}

/* ---- timers ---- */

/* The deadline of an attempt: masters that have not answered count as failed. */
static void close_voting(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_LEAVING);
	assert(now_us >= op->deadline_us);
	for (unsigned i = 0; i < op->params.masters; i++) {
		if (redlock_has(op->answered, i))
			continue;
		op->answered |= (uint16_t)(1U << i);
		op->ballots[i] = (struct redlock_ballot){.vote = REDLOCK_VOTE_FAILED};
	}
	evaluate_votes(op, now_us, out);
	assert(op->state != REDLOCK_VOTING);
	assert(op->state != REDLOCK_LEAVING);
}

/* A waiter wakes up: for another attempt, unless the wait is over. */
static void wake_waiter(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out)
{
	assert(op->state == REDLOCK_WAITING);
	assert(redlock_is_waiter(op));
	if (now_us >= op->wait_end_us || op->attempt == UINT16_MAX)
		redlock_attempt_begin_leaving(op, now_us, out);
	else
		redlock_attempt_begin(op, now_us, guess, out);
}

static void handle_timer(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	if (event->now_us < op->deadline_us)
		return; /* an early or a repeated timer */
	assert(op->state != REDLOCK_IDLE);
	assert(op->state != REDLOCK_DECIDED);
	if (op->state == REDLOCK_VOTING || op->state == REDLOCK_LEAVING) {
		close_voting(op, event->now_us, out);
	} else if (op->state == REDLOCK_RAISING) {
		redlock_fence_close_round(op);
		evaluate_round(op, event->now_us, out);
	} else if (op->state == REDLOCK_PAUSING) {
		redlock_attempt_begin(op, event->now_us, event->fence, out);
	} else if (op->state == REDLOCK_WAITING) {
		wake_waiter(op, event->now_us, event->fence, out);
	}
}

/* ---- other events ---- */

/* The notifications of a majority cause an attempt at once. Those that come during a vote count as well: the master may
 * have refused the attempt before it notified. */
static void handle_notified(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->master < op->params.masters);
	bool is_first = (op->notified & op->held_by) == 0;
	op->notified |= (uint16_t)(1U << event->master);
	if (op->state != REDLOCK_WAITING)
		return;
	if (redlock_tally_is_majority(op, op->notified))
		wake_waiter(op, event->now_us, event->fence, out);
	else if (is_first)
		redlock_waiting_set_deadline(op, event->now_us);
}

static void handle_start(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(op->state == REDLOCK_IDLE);
	assert(op->outstanding == 0);
	assert(op->attempt == 0);
	op->follows = event->has_earlier;
	if (redlock_is_waiter(op)) {
		op->arrival = op->params.arrival > 0 ? op->params.arrival : event->fence;
		op->wait_end_us = redlock_after_us(event->now_us, op->params.wait_us);
	}
	redlock_attempt_begin(op, event->now_us, event->fence, out);
}

static void handle_cancel(struct redlock *op, struct redlock_output *out)
{
	assert((op->state == REDLOCK_IDLE) == (op->attempt == 0));
	if (op->state == REDLOCK_DECIDED)
		return;
	if (op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING)
		redlock_attempt_release(op, out);
	else if (op->state == REDLOCK_WAITING)
		redlock_attempt_leave_queue(op, op->joined, out);
	struct redlock_result result = {.outcome = REDLOCK_CANCELLED, .tries = op->attempt};
	result.votes.masters = op->params.masters;
	result.votes.needed = redlock_majority(op->params.masters);
	redlock_attempt_finish(op, &result, out);
	assert(op->state == REDLOCK_DECIDED);
}

void redlock_step(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(event->kind <= REDLOCK_EARLIER);
	memset(out, 0, sizeof *out);
	switch (event->kind) {
	case REDLOCK_START: handle_start(op, event, out); break;
	case REDLOCK_REPLY: handle_reply(op, event, out); break;
	case REDLOCK_TIMER: handle_timer(op, event, out); break;
	case REDLOCK_CANCEL: handle_cancel(op, out); break;
	case REDLOCK_NOTIFIED: handle_notified(op, event, out); break;
	case REDLOCK_PASSED: redlock_waiting_handle_passed(op, event); break;
	case REDLOCK_FIRST: redlock_waiting_handle_first(op, event); break;
	case REDLOCK_LOOK: redlock_waiting_handle_look(op, event); break;
	case REDLOCK_EARLIER: redlock_waiting_handle_earlier(op, event); break;
	}
	assert((out->script == REDLOCK_SCRIPT_NONE) == (out->to == 0));
	out->finished = op->state == REDLOCK_DECIDED && op->outstanding == 0;
	redlock_state_check(op);
}
