/* SPDX-License-Identifier: MIT */
/* One attempt of an operation. The numbered steps are those of "The Redlock algorithm" in the specification. */
#include <assert.h>

#include "redlock_internal.h"

enum { ROUNDING_US = 1000 }; /* masters round the remaining time of a key down to whole ms */

uint64_t redlock_random(uint64_t *state)
{
	uint64_t mixed = (*state += UINT64_C(0x9e3779b97f4a7c15));
	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ mixed >> 31;
}

/* ---- what is sent ---- */

enum redlock_script redlock_attempt_script(enum redlock_kind kind)
{
	static const enum redlock_script scripts[] = {
		[REDLOCK_ACQUIRE] = REDLOCK_SCRIPT_ACQUIRE,
		[REDLOCK_EXTEND] = REDLOCK_SCRIPT_EXTEND,
		[REDLOCK_RELEASE] = REDLOCK_SCRIPT_RELEASE,
		[REDLOCK_INSPECT] = REDLOCK_SCRIPT_INSPECT,
	};
	assert(kind <= REDLOCK_INSPECT);
	return scripts[kind];
}

void redlock_attempt_send(struct redlock *op, enum redlock_script script, uint16_t to, struct redlock_output *out)
{
	assert(out->script == REDLOCK_SCRIPT_NONE);
	assert(script != REDLOCK_SCRIPT_NONE);
	assert((to & ~redlock_all_masters(op)) == 0);
	assert(op->outstanding <= UINT32_MAX - REDLOCK_MASTERS_MAX); /* each has a command in memory */
	assert(script != REDLOCK_SCRIPT_RAISE || to == op->asked);
	if (to == 0)
		return;
	out->script = script;
	out->to = to;
	out->attempt = op->attempt;
	out->round = script == REDLOCK_SCRIPT_RAISE || op->state == REDLOCK_LEAVING ? op->round : 0;
	out->fence = op->fence;
	op->outstanding += (unsigned)__builtin_popcount(to);
}

static void keep_entry(const struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(out->entry == REDLOCK_ENTRY_NONE);
	if (!redlock_is_waiter(op) || out->script == REDLOCK_SCRIPT_NONE)
		return;
	assert(out->script == REDLOCK_SCRIPT_ACQUIRE || out->script == REDLOCK_SCRIPT_RELEASE);
	out->entry = REDLOCK_ENTRY_KEEP;
	out->wait_left_us = op->wait_end_us > now_us ? op->wait_end_us - now_us : 1;
}

/* The longest time to collect votes: the master timeout, or the time after which no validity can be left if that is
 * shorter. */
static uint64_t voting_time_us(const struct redlock_params *params)
{
	if (params->kind != REDLOCK_ACQUIRE && params->kind != REDLOCK_EXTEND)
		return params->master_timeout_us;
	assert(params->ttl_us > params->drift_us);
	uint64_t useful_us = params->ttl_us - params->drift_us;
	return useful_us < params->master_timeout_us ? useful_us : params->master_timeout_us;
}

/* `start_us` is the start of this attempt, not of the request. */
void redlock_attempt_begin(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out)
{
	assert(op->attempt < UINT16_MAX);
	assert(op->params.kind != REDLOCK_ACQUIRE || (guess > 0 && guess < REDLOCK_FENCE_LIMIT));
	redlock_state_set(op, REDLOCK_VOTING);
	op->attempt++;
	op->start_us = now_us;
	op->deadline_us = now_us + voting_time_us(&op->params);
	assert(op->deadline_us > now_us);
	op->answered = 0;
	op->sent = redlock_all_masters(op);
	op->round = 0;
	op->fence = guess;
	op->highest = 0;
	op->notified = 0;
	op->again = false;
	op->passed_us = 0;
	redlock_attempt_send(op, redlock_attempt_script(op->params.kind), op->sent, out);
	keep_entry(op, now_us, out);
}

/* ---- what is released ---- */

void redlock_attempt_release(struct redlock *op, struct redlock_output *out)
{
	assert(op->attempt > 0);
	assert((op->joined == 0) || redlock_is_waiter(op));
	if (op->params.kind != REDLOCK_ACQUIRE)
		return;
	redlock_attempt_send(op, REDLOCK_SCRIPT_RELEASE, op->sent | op->joined, out);
	if (redlock_is_waiter(op) && out->script != REDLOCK_SCRIPT_NONE)
		out->entry = REDLOCK_ENTRY_LEAVE;
}

/* Releases the lock where this attempt may have been granted, and keeps the entry in the queue. A master that refused
 * the attempt never gets its token. */
static void release_and_keep_entry(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING);
	uint16_t refused = redlock_tally_voted(op, REDLOCK_VOTE_HELD) | redlock_tally_voted(op, REDLOCK_VOTE_QUEUED);
	redlock_attempt_send(op, REDLOCK_SCRIPT_RELEASE, op->sent & (uint16_t)~refused, out);
	keep_entry(op, now_us, out);
}

void redlock_attempt_leave_queue(struct redlock *op, uint16_t masters, struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(op->arrival > 0);
	redlock_attempt_send(op, REDLOCK_SCRIPT_RELEASE, masters, out);
	if (out->script == REDLOCK_SCRIPT_NONE)
		return;
	out->entry = REDLOCK_ENTRY_LEAVE;
	out->tokenless = true;
}

void redlock_attempt_leave_rest(struct redlock *op, struct redlock_output *out)
{
	assert(op->state == REDLOCK_VOTING || op->state == REDLOCK_RAISING);
	assert(redlock_is_waiter(op) || op->joined == 0);
	if (!redlock_is_waiter(op))
		return;
	uint16_t earlier = op->joined & (uint16_t)~op->sent; /* joined by an earlier attempt, not reached by this one */
	uint16_t ungranted = op->sent & op->answered & (uint16_t)~redlock_tally_voted(op, REDLOCK_VOTE_GRANTED);
	redlock_attempt_leave_queue(op, earlier | ungranted, out);
}

/* ---- what is repaired ---- */

enum { REPAIR_MIN_US = 1000, REPAIR_ROUND = 1 }; /* a key lasts for at least a ms */

/* A majority of extensions does not prove that this lease was the last one on a master that answers GONE: the other
 * masters may have answered long before. A second extension, sent after that answer, proves it
 * (docs/explanation/proofs.md). */
void redlock_attempt_confirm(struct redlock *op, uint64_t now_us, uint16_t gone, struct redlock_output *out)
{
	assert(op->params.kind == REDLOCK_EXTEND);
	assert((gone & ~op->sent) == 0);
	uint64_t until_us = now_us + voting_time_us(&op->params);
	if (gone == 0 || op->repair_to != 0 || op->lease_end_us < until_us + REPAIR_MIN_US)
		return;
	op->repair_to = gone;
	op->repair_until_us = until_us;
	redlock_attempt_send(op, REDLOCK_SCRIPT_EXTEND, redlock_tally_voted(op, REDLOCK_VOTE_GRANTED), out);
	out->round = REPAIR_ROUND;
}

/* The key must not outlive the extended ones on any clock. So its ttl is the validity that is left at the last moment
 * of the repair. */
void redlock_attempt_repair(struct redlock *op, const struct redlock_event *event, struct redlock_output *out)
{
	assert(op->params.kind == REDLOCK_EXTEND);
	assert(op->granted);
	uint16_t before = op->confirmed;
	if (event->round != REPAIR_ROUND || event->vote != REDLOCK_VOTE_GRANTED)
		return;
	op->confirmed |= (uint16_t)(1U << event->master);
	if (redlock_tally_is_majority(op, before) || !redlock_tally_is_majority(op, op->confirmed) ||
	    event->now_us >= op->repair_until_us)
		return;
	redlock_attempt_send(op, REDLOCK_SCRIPT_ACQUIRE, op->repair_to, out);
	out->repair = true;
	out->repair_until_us = op->repair_until_us;
	out->repair_ttl_us = op->lease_end_us - op->repair_until_us;
}

/* ---- how it ends ---- */

/* "Retry on failure": a random delay desynchronises clients that try at the same time. */
static uint64_t random_pause_us(struct redlock *op)
{
	assert(op->params.retry_min_us <= op->params.retry_max_us);
	uint64_t spread_us = op->params.retry_max_us - op->params.retry_min_us;
	assert(spread_us < UINT64_MAX);
	return op->params.retry_min_us + redlock_random(&op->random) % (spread_us + 1);
}

/* Another slot may be free on a majority. */
static bool may_hop(struct redlock *op)
{
	struct redlock_tally tally = redlock_tally_count(op);
	bool may = redlock_tally_is_elsewhere(&tally) && op->hops < REDLOCK_HOPS_MAX;
	op->hops = may ? (uint8_t)(op->hops + 1) : 0;
	assert(op->hops <= REDLOCK_HOPS_MAX);
	assert(!may || op->params.kind == REDLOCK_ACQUIRE);
	return may;
}

void redlock_attempt_pause(struct redlock *op, uint64_t now_us)
{
	assert(op->attempt < op->params.tries);
	assert(!redlock_is_waiter(op));
	redlock_state_set(op, REDLOCK_PAUSING);
	op->deadline_us = may_hop(op) ? now_us : now_us + random_pause_us(op);
	assert(op->deadline_us >= now_us);
}

/* The masters whose notifications matter: those that named the holder or, if the holder has no majority, those that did
 * not grant. Any other master has the lock free: it would notify after every attempt, and so cause another one. */
static uint16_t find_held_by(const struct redlock *op, const struct redlock_result *result)
{
	assert(!result || result->outcome == REDLOCK_LOCKED);
	uint16_t held_by = result && result->has_holder ? redlock_tally_named(op, result->holder) : 0;
	uint16_t all = redlock_all_masters(op);
	assert((held_by & ~op->answered) == 0);
	if (redlock_tally_is_majority(op, held_by))
		return held_by;
	return result ? all & (uint16_t)~redlock_tally_voted(op, REDLOCK_VOTE_GRANTED) : all;
}

/* When the lock may be free, as far as this attempt knows. */
static uint64_t free_at_us(struct redlock *op, uint64_t now_us, const struct redlock_result *locked)
{
	assert(!locked || locked->outcome == REDLOCK_LOCKED);
	assert(op->state == REDLOCK_WAITING);
	if (op->paused)
		return redlock_after_us(now_us, random_pause_us(op));
	if (!locked)
		return REDLOCK_NEVER;
	return redlock_after_us(now_us, redlock_after_us(locked->retry_after_us, ROUNDING_US));
}

/* There is no pause if another library holds the lock: no waiter of redlockd needs the chance. */
void redlock_attempt_wait(struct redlock *op, uint64_t now_us, const struct redlock_result *locked,
			  struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(op->arrival > 0);
	bool other_library = redlock_tally_is_other_library(op);
	release_and_keep_entry(op, now_us, out);
	op->held_by = find_held_by(op, locked);
	redlock_state_set(op, REDLOCK_WAITING);
	op->joined |= op->sent;
	op->again |= may_hop(op);
	op->paused = !locked && !other_library && !op->again;
	op->free_us = free_at_us(op, now_us, locked);
	if (other_library)
		redlock_waiting_look_again(op, now_us);
	redlock_waiting_set_deadline(op, now_us);
	assert(op->deadline_us <= op->wait_end_us);
}

void redlock_attempt_begin_leaving(struct redlock *op, uint64_t now_us, struct redlock_output *out)
{
	assert(redlock_is_waiter(op));
	assert(now_us >= op->wait_end_us || op->attempt == UINT16_MAX);
	redlock_state_set(op, REDLOCK_LEAVING);
	op->answered = 0;
	op->round = 1;
	op->deadline_us = now_us + op->params.master_timeout_us;
	assert(op->deadline_us > now_us);
	op->sent = redlock_all_masters(op);
	redlock_attempt_leave_queue(op, op->sent, out);
}

void redlock_attempt_finish(struct redlock *op, const struct redlock_result *result, struct redlock_output *out)
{
	assert(!out->done);
	assert(result->outcome != REDLOCK_OK || op->params.kind >= REDLOCK_RELEASE || result->validity_us > 0);
	assert(result->outcome != REDLOCK_OK || op->params.kind != REDLOCK_ACQUIRE || result->fence > 0);
	assert(result->validity_us <= op->params.ttl_us);
	assert(op->params.kind != REDLOCK_ACQUIRE || result->fence < REDLOCK_FENCE_LIMIT);
	assert(result->tries == op->attempt);
	redlock_state_set(op, REDLOCK_DECIDED);
	op->granted = result->outcome == REDLOCK_OK;
	op->deadline_us = REDLOCK_NEVER;
	out->done = true;
	out->result = *result;
}
