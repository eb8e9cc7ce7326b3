/* SPDX-License-Identifier: MIT */
/* When a waiter tries again. Nothing here sends a command.
 *
 * Nothing polls: a waiter sleeps until it is notified, and only the first one of a process wakes when the time of the
 * holder is up. The one exception is a holder of another library, whose release notifies nobody. */
#include <assert.h>

#include "redlock_internal.h"

uint64_t redlock_after_us(uint64_t now_us, uint64_t for_us)
{
	return for_us > REDLOCK_NEVER - now_us ? REDLOCK_NEVER : now_us + for_us;
}

static uint64_t earlier(uint64_t a_us, uint64_t b_us)
{
	return a_us < b_us ? a_us : b_us;
}

void redlock_waiting_set_deadline(struct redlock *op, uint64_t now_us)
{
	assert(op->params.wait_us > 0);
	if (op->state != REDLOCK_WAITING)
		return;
	uint64_t wake_us = op->paused || !op->follows ? op->free_us : REDLOCK_NEVER;
	if (op->again || redlock_tally_is_majority(op, op->notified))
		wake_us = now_us; /* FIRST or the notifications came while it voted */
	else if ((op->notified & op->held_by) != 0)
		wake_us = earlier(wake_us, now_us + op->params.master_timeout_us);
	op->deadline_us = earlier(wake_us, op->wait_end_us);
	assert(op->deadline_us <= op->wait_end_us);
}

void redlock_waiting_look_again(struct redlock *op, uint64_t now_us)
{
	assert(op->state == REDLOCK_WAITING);
	uint64_t share_us = op->params.wait_us / REDLOCK_LOOKS_MAX;
	uint64_t after_us = share_us > REDLOCK_LOOK_AGAIN_US ? share_us : REDLOCK_LOOK_AGAIN_US;
	uint16_t held = redlock_tally_voted(op, REDLOCK_VOTE_HELD);
	for (unsigned i = 0; i < op->params.masters; i++) /* `free_us` is a guess if a key has no expiry */
		if (redlock_has(held, i) && op->ballots[i].remaining_us == REDLOCK_NEVER)
			op->free_us = REDLOCK_NEVER;
	op->free_us = earlier(op->free_us, redlock_after_us(now_us, after_us));
	assert(op->free_us > now_us);
}

void redlock_waiting_handle_passed(struct redlock *op, const struct redlock_event *event)
{
	assert(event->master < op->params.masters);
	uint64_t now_us = event->now_us;
	if (op->state != REDLOCK_WAITING || op->paused || (op->notified & op->held_by) != 0 ||
	    !redlock_has(op->held_by, event->master))
		return;
	if (op->passed_us == 0)
		op->passed_us = now_us;
	assert(op->passed_us <= now_us);
	op->free_us = earlier(redlock_after_us(now_us, REDLOCK_ALIVE_US),
			      redlock_after_us(op->passed_us, REDLOCK_PASSED_MAX_US));
	redlock_waiting_set_deadline(op, now_us);
}

void redlock_waiting_handle_earlier(struct redlock *op, const struct redlock_event *event)
{
	assert(redlock_is_waiter(op));
	op->follows = true;
	redlock_waiting_set_deadline(op, event->now_us);
	assert(op->follows);
}

void redlock_waiting_handle_look(struct redlock *op, const struct redlock_event *event)
{
	assert(redlock_is_waiter(op));
	if (op->state == REDLOCK_WAITING && op->paused)
		return; /* it votes again soon, and others must be able to try first */
	op->again = true;
	redlock_waiting_set_deadline(op, event->now_us);
}

void redlock_waiting_handle_first(struct redlock *op, const struct redlock_event *event)
{
	bool at_once = event->remaining_us == 0;
	op->follows = false;
	op->again |= at_once;
	if (op->state != REDLOCK_WAITING || (op->paused && !at_once))
		return;
	if (event->remaining_us != REDLOCK_NEVER) /* else this waiter's own knowledge is better */
		op->free_us = redlock_after_us(event->now_us, event->remaining_us);
	redlock_waiting_set_deadline(op, event->now_us);
	assert(!at_once || op->deadline_us <= event->now_us);
}
