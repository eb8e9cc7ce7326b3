/* The states of an operation: see state.h, and redlock.c for the picture. */
#include "state.h"

#include <assert.h>

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
	assert(op->state <= REDLOCK_DECIDED && state <= REDLOCK_DECIDED);
	assert(allowed[op->state] & TO(state));
	op->state = state;
}

static void check_sets(const struct redlock *op)
{
	uint16_t counted = op->raised | op->behind | op->failed;
	uint16_t used = op->sent | op->answered | op->asked | op->joined | op->held_by | op->notified;
	assert((used & ~redlock_all_masters(op)) == 0);
	assert((counted & ~op->asked) == 0);
	assert((op->raised & op->behind) == 0 && ((op->raised | op->behind) & op->failed) == 0);
}

void redlock_state_check(const struct redlock *op)
{
	bool acquires = op->params.kind == REDLOCK_ACQUIRE, waits = redlock_is_waiter(op);
	bool rests = op->state == REDLOCK_IDLE || op->state == REDLOCK_DECIDED;
	check_sets(op);
	assert(!rests || op->deadline_us == REDLOCK_NEVER);
	assert(op->state != REDLOCK_RAISING || (acquires && op->round > 0));
	assert(op->state != REDLOCK_PAUSING || (acquires && !waits && op->attempt < op->params.tries));
	assert((op->state != REDLOCK_WAITING && op->state != REDLOCK_LEAVING) || waits);
	assert(rests || op->state == REDLOCK_WAITING || op->deadline_us != REDLOCK_NEVER);
	assert(rests || op->attempt > 0);
	assert(!acquires || op->fence < REDLOCK_FENCE_LIMIT);
}
