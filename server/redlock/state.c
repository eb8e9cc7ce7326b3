/* SPDX-License-Identifier: MIT */
/* The states of an operation: see redlock.c for the picture. */
#include <assert.h>

#include "redlock_internal.h"

#define TO(state) (1U << (state))

static const uint8_t allowed[] = {
	[REDLOCK_IDLE] = TO(REDLOCK_VOTING) | TO(REDLOCK_DECIDED),
	[REDLOCK_VOTING] = TO(REDLOCK_RAISING) | TO(REDLOCK_PAUSING) | TO(REDLOCK_WAITING) | TO(REDLOCK_DECIDED),
	[REDLOCK_RAISING] = TO(REDLOCK_RAISING) | TO(REDLOCK_PAUSING) | TO(REDLOCK_WAITING) | TO(REDLOCK_DECIDED),
	[REDLOCK_PAUSING] = TO(REDLOCK_VOTING) | TO(REDLOCK_DECIDED),
	[REDLOCK_WAITING] = TO(REDLOCK_VOTING) | TO(REDLOCK_LEAVING) | TO(REDLOCK_DECIDED),
	[REDLOCK_LEAVING] = TO(REDLOCK_DECIDED),
	[REDLOCK_DECIDED] = 0,
};

void redlock_state_set(struct redlock *op, enum redlock_state state)
{
	assert(op->state <= REDLOCK_DECIDED);
	assert(state <= REDLOCK_DECIDED);
	assert(allowed[op->state] & TO(state));
	op->state = state;
}

/* In a round of RAISE: each master that was asked is counted once at most. */
static void check_round(const struct redlock *op)
{
	uint16_t counted = op->raised | op->stale | op->failed;
	assert(op->params.kind == REDLOCK_ACQUIRE);
	assert(op->round > 0);
	assert(op->fence > 0);
	assert(op->fence < REDLOCK_FENCE_LIMIT);
	assert((op->asked & ~redlock_all_masters(op)) == 0);
	assert((counted & ~op->asked) == 0);
	assert((op->raised & op->stale) == 0);
	assert(((op->raised | op->stale) & op->failed) == 0);
}

void redlock_state_check(const struct redlock *op)
{
	switch (op->state) {
	case REDLOCK_IDLE:
	case REDLOCK_DECIDED: assert(op->deadline_us == REDLOCK_NEVER); return;
	case REDLOCK_VOTING: assert(op->round == 0); break;
	case REDLOCK_RAISING: check_round(op); break;
	case REDLOCK_PAUSING: assert(!redlock_is_waiter(op) && op->attempt < op->params.tries); break;
	case REDLOCK_WAITING: assert(redlock_is_waiter(op) && op->deadline_us <= op->wait_end_us); break;
	case REDLOCK_LEAVING: assert(redlock_is_waiter(op) && op->round == 1); break;
	}
	uint16_t used = op->sent | op->answered | op->joined | op->held_by | op->notified;
	assert((used & ~redlock_all_masters(op)) == 0);
	assert(op->attempt > 0);
	assert(op->state == REDLOCK_WAITING || op->deadline_us != REDLOCK_NEVER);
}
