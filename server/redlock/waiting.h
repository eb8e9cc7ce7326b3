/* When a waiter tries again. Private to the core: what happens in state WAITING without anything being sent.
 *
 * Nothing polls: a waiter sleeps until it is notified, and only the first one of a process wakes when the time of the
 * holder is up. The one exception is a holder of another library, whose release notifies nobody. */
#ifndef REDLOCK_WAITING_H
#define REDLOCK_WAITING_H

#include "redlock.h"

/* now + for, at most REDLOCK_NEVER. */
uint64_t redlock_after_us(uint64_t now_us, uint64_t for_us);

/* Sets the deadline: after a pause; when the lock may be free, for the first waiter of this process; some time after
 * the notifications of too few masters; and at the end of the wait. Without effect in other states. */
void redlock_waiting_set_deadline(struct redlock *op, uint64_t now_us);

/* Another library holds the lock: the waiter looks again after REDLOCK_LOOK_AGAIN_US, or when the time of the holder is
 * up if that is sooner. */
void redlock_waiting_look_again(struct redlock *op, uint64_t now_us);

/* PASSED: if nothing more is heard, the process whose turn it is may be dead. */
void redlock_waiting_handle_passed(struct redlock *op, const struct redlock_event *event);

/* FIRST: no other waiter of this process is before it any more. */
void redlock_waiting_handle_first(struct redlock *op, const struct redlock_event *event);

#endif
