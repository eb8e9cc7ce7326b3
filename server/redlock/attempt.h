/* One attempt of an operation: what it sends, and how it ends. Private to the core.
 *
 * The functions that send write the command into *out, which holds none yet. */
#ifndef REDLOCK_ATTEMPT_H
#define REDLOCK_ATTEMPT_H

#include "redlock.h"

/* The script with which an attempt begins. */
enum redlock_script redlock_attempt_script(enum redlock_kind kind);

/* Sends a script to a set of masters; nothing if the set is empty. */
void redlock_attempt_send(struct redlock *op, enum redlock_script script, uint16_t to, struct redlock_output *out);

/* Steps 1 and 2: note the time, send to all masters at once. `guess`: of the fence. */
void redlock_attempt_begin(struct redlock *op, uint64_t now_us, uint64_t guess, struct redlock_output *out);

/* Step 5: unlock all masters, including those that refused or were silent; a waiter leaves the queue with it. Masters
 * to which nothing was sent are left out: nothing can have happened there. Acquire only, else without effect. */
void redlock_attempt_release(struct redlock *op, struct redlock_output *out);

/* Leaves the queue on some masters, without a token to release. */
void redlock_attempt_leave_queue(struct redlock *op, uint16_t masters, struct redlock_output *out);

/* Granted: leaves the queue where the attempt was not granted, or where that is not known. The masters that have not
 * answered yet are handled when they do. */
void redlock_attempt_leave_rest(struct redlock *op, struct redlock_output *out);

/* The attempt is lost, and another one follows after a random pause. */
void redlock_attempt_pause(struct redlock *op, uint64_t now_us);

/* The attempt of a waiter is lost. It releases, and waits until the holder that `locked` names may have released it or,
 * if that is NULL, for a random pause. */
void redlock_attempt_wait(struct redlock *op, uint64_t now_us, const struct redlock_result *locked,
			  struct redlock_output *out);

/* The wait is over: leaves the queue on all masters, whose answers tell who holds the lock now. */
void redlock_attempt_begin_leaving(struct redlock *op, uint64_t now_us, struct redlock_output *out);

/* Ends the operation with *result. */
void redlock_attempt_finish(struct redlock *op, const struct redlock_result *result, struct redlock_output *out);

#endif
