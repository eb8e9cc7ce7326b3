/* SPDX-License-Identifier: MIT */
/* The rounds that make a fence.
 *
 * A fence is valid if and only if each master of a majority raised the resource's bucket to exactly that number. The
 * bucket must have been strictly below, and the master must have held this attempt's token. The majorities of two valid
 * fences share a master, and there one increase came after the other. So the fences differ and are ordered, without any
 * clock.
 *
 * ACQUIRE carries a guess. If the lock is free, the script returns `old`, the largest number of the bucket and the
 * floor. It writes the guess if that is larger. If old < guess on a majority, these masters have made the strict
 * increase: one round is enough. Otherwise RAISE carries the largest number seen plus one to every master that holds
 * the token or may hold it. The script requires the token and a bucket strictly below. If a majority carries it out,
 * the number is the fence. If a master reports a higher number, another round follows while time is left. */
#include <assert.h>

#include "redlock_internal.h"

bool redlock_fence_guess_holds(const struct redlock *op)
{
	uint16_t increased = redlock_tally_voted(op, REDLOCK_VOTE_GRANTED);
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->round == 0);
	assert(op->fence > 0);
	for (unsigned i = 0; i < op->params.masters; i++)
		if (op->ballots[i].fence >= op->fence)
			increased &= (uint16_t) ~(1U << i);
	return redlock_tally_is_majority(op, increased);
}

static void store_highest(struct redlock *op, const struct redlock_event *event)
{
	assert(event->kind == REDLOCK_REPLY);
	bool acquired = event->script == REDLOCK_SCRIPT_ACQUIRE && event->vote == REDLOCK_VOTE_GRANTED;
	bool tells = acquired || event->vote == REDLOCK_VOTE_STALE;
	if (tells && event->fence > op->highest)
		op->highest = event->fence;
}

void redlock_fence_record(struct redlock *op, const struct redlock_event *event)
{
	assert(event->master < op->params.masters);
	assert(event->attempt == op->attempt);
	uint16_t bit = (uint16_t)(1U << event->master);
	store_highest(op, event);
	if (event->script != REDLOCK_SCRIPT_RAISE || event->round != op->round || !(op->asked & bit))
		return;
	assert(op->state == REDLOCK_RAISING);
	assert(event->vote <= REDLOCK_VOTE_QUEUED);
	if ((op->raised | op->stale | op->failed) & bit)
		return; /* its time is over, and it counts as failed */
	switch (event->vote) {
	case REDLOCK_VOTE_GRANTED: op->raised |= bit; break;
	case REDLOCK_VOTE_STALE: op->stale |= bit; break;
	default: op->failed |= bit; break;
	}
}

enum redlock_round redlock_fence_count(const struct redlock *op)
{
	assert(op->state == REDLOCK_RAISING);
	assert(op->round > 0);
	uint16_t pending = op->asked & (uint16_t) ~(op->raised | op->stale | op->failed);
	if (redlock_tally_is_majority(op, op->raised))
		return REDLOCK_ROUND_WON;
	if (redlock_tally_is_majority(op, op->raised | pending))
		return REDLOCK_ROUND_OPEN;
	return redlock_tally_is_majority(op, op->raised | op->stale | pending) ? REDLOCK_ROUND_STALE
									       : REDLOCK_ROUND_LOST;
}

/* The masters that hold this attempt's token or may hold it. */
static uint16_t may_hold(const struct redlock *op)
{
	assert((op->state == REDLOCK_RAISING) == (op->round > 0));
	assert((op->failed & ~redlock_all_masters(op)) == 0);
	uint16_t lost = op->round > 0 ? op->failed : 0;
	return op->sent & (uint16_t) ~(lost | redlock_tally_voted(op, REDLOCK_VOTE_HELD));
}

uint16_t redlock_fence_next_round(struct redlock *op, uint64_t now_us)
{
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(now_us >= op->start_us);
	assert(op->params.ttl_us > op->params.drift_us);
	uint64_t useful_until_us = op->start_us + op->params.ttl_us - op->params.drift_us;
	uint64_t top = op->highest > op->fence ? op->highest : op->fence;
	uint16_t to = may_hold(op);
	if (now_us >= useful_until_us || top + 1 >= REDLOCK_FENCE_LIMIT || op->round == UINT16_MAX ||
	    !redlock_tally_is_majority(op, to))
		return 0;
	uint64_t deadline_us = now_us + op->params.master_timeout_us;
	redlock_state_set(op, REDLOCK_RAISING);
	op->round++;
	op->fence = top + 1;
	op->asked = to;
	op->raised = op->stale = op->failed = 0;
	op->deadline_us = deadline_us < useful_until_us ? deadline_us : useful_until_us;
	assert(op->fence > op->highest);
	assert(op->fence < REDLOCK_FENCE_LIMIT);
	assert(op->deadline_us > now_us);
	return to;
}

void redlock_fence_close_round(struct redlock *op)
{
	assert(op->state == REDLOCK_RAISING);
	op->failed |= op->asked & (uint16_t) ~(op->raised | op->stale);
	assert((op->raised | op->stale | op->failed) == op->asked);
}
