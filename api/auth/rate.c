/* A bound per second, by the generic cell rate algorithm (a leaky bucket that needs one number). See rate.h.
 *
 * Each taking costs a share of time, 1 s / per_second, and the shares are put one behind the other on a line of time:
 * `next_ns` is where the last one ends, or in the past where nothing was taken lately. It may lie ahead of now by the
 * shares of one second, so that `per_second` can come at once; what would put it further ahead is refused and leaves it
 * as it was. Shares are rounded up to whole ns, so in any time there are at most per_second a second and one burst
 * beside them.
 *
 * Threads read clocks a little apart: who is behind is measured against what others took and gets less, never more. The
 * number only grows. Where the bound of a key changes on a reload, what was taken is worked off within a second, as the
 * old bound's line was no longer than that. */
#include "rate.h"

#include <assert.h>
#include <stddef.h>

enum { NS_PER_US = 1000, NS_PER_MS = 1000000 };

#define NS_PER_S UINT64_C(1000000000)
#define NOW_US_MAX (UINT64_C(500) * 366 * 86400 * 1000000)

static uint32_t ms_until(uint64_t ns)
{
	uint64_t ms = (ns + NS_PER_MS - 1) / NS_PER_MS; /* earlier would be in vain */

	return ms < 1 ? 1 : ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

bool rate_take(struct rate *rate, uint32_t per_second, uint64_t now_us, uint32_t *ret_retry_ms)
{
	assert(ret_retry_ms != NULL && now_us < NOW_US_MAX);
	if (per_second == 0)
		return true;

	uint64_t share_ns = (NS_PER_S + per_second - 1) / per_second;
	uint64_t now_ns = now_us * NS_PER_US, latest_ns = now_ns + share_ns * per_second;
	uint64_t next_ns = atomic_load_explicit(&rate->next_ns, memory_order_relaxed), end_ns;

	do {
		end_ns = (next_ns > now_ns ? next_ns : now_ns) + share_ns;
		if (end_ns > latest_ns) {
			*ret_retry_ms = ms_until(end_ns - latest_ns);
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&rate->next_ns, &next_ns, end_ns, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

bool rate_is_rested(const struct rate *rate, uint64_t now_us)
{
	assert(now_us < NOW_US_MAX);
	return atomic_load_explicit(&rate->next_ns, memory_order_relaxed) <= now_us * NS_PER_US;
}
