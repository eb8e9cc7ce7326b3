/* The states of an operation, and which may follow which. Private to the core; below all its other files. */
#ifndef REDLOCK_STATE_H
#define REDLOCK_STATE_H

#include "redlock.h"

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

#endif
