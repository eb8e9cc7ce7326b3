/* SPDX-License-Identifier: MIT */
/* Guesses for fences: a hybrid logical clock, the time of day in µs, but never below a number that was seen or given.
 *
 * Safety does not depend on it: a guess that is too low costs a second round (server/redlock/fence.c). Each worker has
 * one clock, so a single worker never needs that round. A number far ahead of the clock is not learned, because every
 * master would then refuse ACQUIRE; such a resource gets its numbers by RAISE. For the same reason the guesses follow a
 * clock that was far ahead and is set back. */
#include <assert.h>

#include "lease_internal.h"

#define FENCE_AHEAD_MAX_US (3600 * UINT64_C(1000000))

uint64_t lease_fence_guess(struct leases *leases)
{
	uint64_t now = clock_wall_us();
	bool ahead = leases->fence_clock > now && leases->fence_clock - now > FENCE_AHEAD_MAX_US;
	leases->fence_clock = now > leases->fence_clock || ahead ? now : leases->fence_clock + 1;
	if (leases->fence_clock >= REDLOCK_FENCE_LIMIT)
		/* the clock is beyond the year 2255: every master refuses the guess */
		leases->fence_clock = REDLOCK_FENCE_LIMIT - 1;
	assert(leases->fence_clock > 0 && leases->fence_clock < REDLOCK_FENCE_LIMIT);
	return leases->fence_clock;
}

void lease_fence_learn(struct leases *leases, uint64_t fence)
{
	if (fence > leases->fence_clock && fence < clock_wall_us() + FENCE_AHEAD_MAX_US)
		leases->fence_clock = fence;
}
