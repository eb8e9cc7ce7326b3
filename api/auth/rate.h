/* A bound on how often something may happen in a second: one number, shared by all workers without a lock. */
#ifndef RATE_H
#define RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A bound per second. All zeros: nothing has been taken yet. */
struct rate {
	_Atomic uint64_t next_ns; /* when the last share ends: see rate.c */
};

/* Takes one of `per_second` (0: no bound), which may also come all at once. `now_us` is a clock that does not go back,
 * less than 500 years old. False: it would be one too many, nothing is taken, and after *ret_retry_ms (at least 1) one
 * can be taken. From any thread. */
bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* True if it has the effect of all zeros, and can be forgotten. */
bool rate_is_rested(const struct rate *rate, uint64_t now_us);

#endif
