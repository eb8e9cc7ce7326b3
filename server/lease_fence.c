/* Guesses for fences: a hybrid logical clock, the time of day in µs, but never behind a number that was seen or given.
 *
 * No safety hangs on it: a guess that is too low costs a second round (server/redlock/fence.c). One clock a worker, so a worker
 * alone never needs that round. A number far ahead of the clock is not learned, since ACQUIRE would then be refused by every
 * master; such a resource takes its numbers by RAISE. */
#include <time.h>

#include "lease_internal.h"

enum { FENCE_AHEAD_MAX_S = 3600 };

static uint64_t time_of_day_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

uint64_t lease_fence_guess(struct leases *leases)
{
	uint64_t now = time_of_day_us();
	leases->fence_clock = now > leases->fence_clock ? now : leases->fence_clock + 1;
	return leases->fence_clock;
}

void lease_fence_learn(struct leases *leases, uint64_t fence)
{
	if (fence > leases->fence_clock && fence < time_of_day_us() + FENCE_AHEAD_MAX_S * UINT64_C(1000000))
		leases->fence_clock = fence;
}
