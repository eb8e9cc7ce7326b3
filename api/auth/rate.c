/* A bound per second, by the generic cell rate algorithm (a leaky bucket that needs one number). See auth.h.
 *
 * Each event takes a share of time, 1 s / per_second. The shares follow each other without gaps: `next_ns` is the end
 * of the last one, and lies in the past when nothing was taken lately. It may lie one second ahead of now, so that
 * `per_second` events can come at once; an event that would put it further ahead is rejected and changes nothing.
 * Shares are rounded up to whole ns, so no stretch of time has more than per_second a second and one burst.
 *
 * The clocks of threads differ a little: a thread whose clock is behind gets less, never more. The number only grows.
 * When a reload changes the bound of a key, what was taken before counts for a second at most. */
#include <assert.h>
#include <stddef.h>

#include "auth.h"

enum { NS_PER_US = 1000, NS_PER_MS = 1000000 };

#define NS_PER_S UINT64_C(1000000000)
#define NOW_US_MAX (UINT64_C(500) * 366 * 86400 * 1000000)

bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
{
	assert(ret_retry_ms && now_us < NOW_US_MAX);
	if (per_second == 0)
		return true;

	uint64_t share_ns = (NS_PER_S + per_second - 1) / per_second;
	uint64_t now_ns = now_us * NS_PER_US, latest_ns = now_ns + share_ns * per_second;
	uint64_t next_ns = atomic_load_explicit(&rate->next_ns, memory_order_relaxed), end_ns;

	do {
		end_ns = (next_ns > now_ns ? next_ns : now_ns) + share_ns;
		if (end_ns > latest_ns) {
			/* rounded up: earlier would be too early */
			uint64_t ms = (end_ns - latest_ns - 1) / NS_PER_MS + 1;
			*ret_retry_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&rate->next_ns, &next_ns, end_ns, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

bool rate_is_rested(const struct rate *rate, uint64_t now_us)
{
	assert(rate && now_us < NOW_US_MAX);
	return atomic_load_explicit(&rate->next_ns, memory_order_relaxed) <= now_us * NS_PER_US;
}
