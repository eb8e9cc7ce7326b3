/* When an operation that waits in the line tries again. Private to the core: what happens in state WAITING without
 * anything being sent. */
#ifndef REDLOCK_WAITING_H
#define REDLOCK_WAITING_H

#include "redlock.h"

/* now + for, REDLOCK_NEVER if that is beyond all time. */
uint64_t redlock_after_us(uint64_t now_us, uint64_t for_us);

/* When it wants its timer: after a pause; when the lock may be free, if it is the first of this process; when a call of
 * too few masters has stood for long enough; and at the end of the wait. Without effect in other states. */
void redlock_waiting_set_deadline(struct redlock *op, uint64_t now_us);

/* The holder is not redlockd's: it looks again in REDLOCK_LOOK_AGAIN_US, or when the holder's time is up if that is
 * sooner. */
void redlock_waiting_look_again(struct redlock *op, uint64_t now_us);

/* The lock goes by, to a waiter of another process: if nothing more is heard of it, that one may be dead. */
void redlock_waiting_pass(struct redlock *op, const struct redlock_event *event);

/* FIRST: none of this process is before it any more. */
void redlock_waiting_be_first(struct redlock *op, const struct redlock_event *event);

#endif
