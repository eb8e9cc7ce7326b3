/* Guesses for fences: a hybrid logical clock, the time of day in µs, but never behind a number that was seen or given.
 *
 * No safety hangs on it: a guess that is too low costs a second round (server/redlock/fence.c). One clock a worker, so
 * a worker alone never needs that round. A number far ahead of the clock is not learned, since ACQUIRE would then be
 * refused by every master; such a resource takes its numbers by RAISE. For the same reason a clock that was far ahead
 * and is set back is followed back. */
#include <time.h>

#include "lease_internal.h"

#define FENCE_AHEAD_MAX_US (3600 * UINT64_C(1000000))

static uint64_t time_of_day_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

uint64_t lease_fence_guess(struct leases *leases)
{
	uint64_t now = time_of_day_us();
	bool ahead = leases->fence_clock > now && leases->fence_clock - now > FENCE_AHEAD_MAX_US;
	leases->fence_clock = now > leases->fence_clock || ahead ? now : leases->fence_clock + 1;
	if (leases->fence_clock >= REDLOCK_FENCE_LIMIT)
		/* a clock beyond the year 2255: every master will refuse it */
		leases->fence_clock = REDLOCK_FENCE_LIMIT - 1;
	return leases->fence_clock;
}

void lease_fence_learn(struct leases *leases, uint64_t fence)
{
	if (fence > leases->fence_clock && fence < time_of_day_us() + FENCE_AHEAD_MAX_US)
		leases->fence_clock = fence;
}
