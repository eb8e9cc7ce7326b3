/* How often something may happen in a second: one number, shared by all workers without a lock. */
#ifndef RATE_H
#define RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A bound per second. All zeros: nothing has been taken yet. See rate.c. */
struct rate {
	_Atomic uint64_t next_ns; /* when all that was taken will have been worked off */
};

/* Takes one from what `rate` allows. `per_second` is how many there may be in a second (0: no bound); as many may come
 * at once. `now_us` is a clock that does not go back, less than 500 years old. False: it would be one too many, nothing
 * is taken, and *ret_retry_ms is after how many ms (at least 1) one is to be had. From any thread. */
bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
	__attribute__((warn_unused_result));

/* True if nothing is to be remembered of it: it could as well be all zeros. */
bool rate_is_rested(const struct rate *rate, uint64_t now_us);

#endif
