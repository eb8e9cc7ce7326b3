/* SPDX-License-Identifier: MIT */
/* A master's clock against ours.
 *
 * An answer carries the master's TIME. It was read after the command was sent and before the answer was read. So "its
 * clock − our clock" lies between TIME − now and TIME − sent. Further answers narrow that interval; with time it grows
 * by the possible drift between two correct clocks (RATE). If the interval of an answer does not overlap the known one,
 * the clock has jumped. Delays of the network cannot cause that: they only widen intervals. The largest jump that can
 * stay unnoticed is the width of the known interval (the fastest round trip) + TOLERANCE + the drift. The validity
 * subtracts more than that: docs/explanation/proofs.md. */
#include <assert.h>

#include "guard_internal.h"

enum {
	RATE = 1000, /* 1/1000: two clocks drift apart by at most 1 ms in a second; NTP slews at half of that */
	/* Some servers read TIME in whole ms, and a command may see the time at which its round of the event loop
	 * began. */
	TOLERANCE_US = 1000
};

static void set_interval(struct guard_master *master, int64_t lower, int64_t upper, uint64_t now_us)
{
	assert(now_us >= master->clock_us || !master->has_clock);
	master->ahead_min_us = lower;
	master->ahead_max_us = upper;
	master->clock_us = now_us;
	master->has_clock = true;
}

static enum guard_clock jump(struct guard_master *master, int64_t by_us, int64_t lower, int64_t upper, uint64_t now_us)
{
	assert(by_us != 0);
	assert(master->has_clock);
	master->jump_us = by_us;
	set_interval(master, lower, upper, now_us);
	if (by_us < 0) {
		master->back_us = now_us;
		return GUARD_CLOCK_JUMPED_BACK; /* its locks last longer, which is safe */
	}
	guard_state_set_hazard(master, GUARD_CLOCK_FORWARD, now_us);
	return GUARD_CLOCK_JUMPED_FORWARD;
}

enum guard_clock guard_time(struct guard *guard, unsigned i, uint64_t sent_us, uint64_t now_us, uint64_t master_us)
{
	assert(i < guard->params.masters);
	assert(sent_us <= now_us);
	struct guard_master *master = &guard->masters[i];
	/* rounded up: the drift while the command was under way */
	int64_t flight_us = (int64_t)((now_us - sent_us) / RATE) + 1;
	int64_t lower = (int64_t)(master_us - now_us), upper = (int64_t)(master_us - sent_us) + flight_us;
	if (!master->has_clock) {
		set_interval(master, lower, upper, now_us);
		return GUARD_CLOCK_STEADY;
	}
	assert(now_us >= master->clock_us);
	int64_t drift_us = (int64_t)((now_us - master->clock_us) / RATE);
	int64_t known_lower = master->ahead_min_us - drift_us, known_upper = master->ahead_max_us + drift_us;
	if (lower > known_upper + TOLERANCE_US)
		return jump(master, lower - known_upper, lower, upper, now_us);
	if (upper < known_lower - TOLERANCE_US)
		return jump(master, upper - known_lower, lower, upper, now_us);
	if (lower > known_upper || upper < known_lower)
		/* Within the tolerance. The interval stays as it is, or small steps would add up unnoticed. */
		return GUARD_CLOCK_STEADY;
	/* clock_us keeps the rest of the division: without it the interval grows too slowly when answers are
	 * frequent. */
	set_interval(master, lower < known_lower ? known_lower : lower, upper > known_upper ? known_upper : upper,
		     master->clock_us + (uint64_t)drift_us * RATE);
	return GUARD_CLOCK_STEADY;
}

bool guard_clock_has_jumped(struct guard_master *master, uint64_t now_us)
{
	const struct guard_last *last = &master->last;
	assert(last->epoch != 0);
	if (!last->has_clock || !master->has_clock)
		return false;
	assert(now_us >= last->clock_us);
	int64_t known_upper = last->ahead_max_us + (int64_t)((now_us - last->clock_us) / RATE);
	if (master->ahead_min_us > known_upper + TOLERANCE_US)
		return true;
	/* small steps, one at each restart, must not add up unnoticed */
	if (master->ahead_max_us > known_upper)
		master->ahead_max_us = known_upper;
	if (master->ahead_min_us > known_upper)
		master->ahead_min_us = known_upper;
	return false;
}

uint64_t guard_master_time_us(const struct guard *guard, unsigned i, uint64_t at_us)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	if (!master->has_clock)
		return 0;
	uint64_t drift_us = at_us > master->clock_us ? (at_us - master->clock_us) / RATE : 0;
	return at_us + (uint64_t)master->ahead_max_us + drift_us + TOLERANCE_US;
}

uint64_t guard_deadline_us(const struct guard *guard, unsigned i, uint64_t at_us)
{
	uint64_t latest_us = guard_master_time_us(guard, i, at_us);
	const struct guard_master *master = &guard->masters[i];
	if (latest_us == 0)
		return 0;
	uint64_t drift_us = at_us > master->clock_us ? (at_us - master->clock_us) / RATE : 0;
	uint64_t known_us = at_us + (uint64_t)master->ahead_min_us - drift_us + GUARD_LATE_US;
	assert(master->has_clock);
	return known_us < latest_us ? known_us : latest_us;
}
