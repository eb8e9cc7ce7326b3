/* The clock for all measured times: CLOCK_BOOTTIME. It cannot be set, and it counts the sleep of a suspended machine,
 * as the clocks of the masters do. The time of day is for the log, and for numbers that should rise over restarts. */
#ifndef CLOCK_H
#define CLOCK_H

#include <assert.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_us(void)
{
	struct timespec now;
	int failed = clock_gettime(CLOCK_BOOTTIME, &now);
	assert(!failed);
	return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

/* The time of day. */
static inline uint64_t clock_wall_us(void)
{
	struct timespec now;
	int failed = clock_gettime(CLOCK_REALTIME, &now);
	assert(!failed);
	return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

#endif
