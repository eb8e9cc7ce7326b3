/* A master's clock against ours.
 *
 * An answer carries the master's TIME. It was taken between the sending of the command and the reading of the answer,
 * so "its clock − our clock" lies between TIME − now and TIME − sent. All answers together narrow that interval; with
 * time it grows by what two honest clocks may part (RATE). An answer whose interval does not meet the one known before
 * is a jump, whatever the network did: delays only widen intervals. How large a jump can be and still escape: the width
 * of the known interval (the fastest round trip) + TOLERANCE + what the clocks may have parted. docs/safety.md shows
 * that the validity subtracts more than that. */
#include <assert.h>

#include "guard_internal.h"

enum {
	RATE = 1000, /* 1/1000: two clocks part by no more than 1 ms in a second; NTP slews at half of that */
	/* TIME is read in whole ms by some servers, and a command may see the time at which its round of the loop
	 * began */
	TOLERANCE_US = 1000
};

static void learn(struct guard_master *master, int64_t least, int64_t most, uint64_t now_us)
{
	master->ahead_min_us = least;
	master->ahead_max_us = most;
	master->clock_us = now_us;
	master->has_clock = true;
}

static enum guard_clock jump(struct guard_master *master, int64_t by_us, int64_t least, int64_t most, uint64_t now_us)
{
	master->jump_us = by_us;
	learn(master, least, most, now_us);
	if (by_us < 0)
		return GUARD_CLOCK_JUMPED_BACK; /* its locks last longer: nothing to be afraid of */
	if (master->found != GUARD_ROLLED_BACK)
		master->found = GUARD_CLOCK_FORWARD;
	if (master->state == GUARD_VOTING) {
		master->void_epoch = master->epoch;
		guard_quarantine_found(master, now_us);
	}
	return GUARD_CLOCK_JUMPED_FORWARD;
}

enum guard_clock guard_time(struct guard *guard, unsigned i, uint64_t sent_us, uint64_t now_us, uint64_t master_us)
{
	assert(i < guard->params.masters && sent_us <= now_us);
	struct guard_master *master = &guard->masters[i];
	/* what the clocks may have parted since it was sent */
	int64_t flight_us = (int64_t)((now_us - sent_us) / RATE) + 1;
	int64_t least = (int64_t)(master_us - now_us), most = (int64_t)(master_us - sent_us) + flight_us;
	if (!master->has_clock) {
		learn(master, least, most, now_us);
		return GUARD_CLOCK_STEADY;
	}
	int64_t parted = (int64_t)((now_us - master->clock_us) / RATE);
	int64_t known_least = master->ahead_min_us - parted, known_most = master->ahead_max_us + parted;
	if (least > known_most + TOLERANCE_US)
		return jump(master, least - known_most, least, most, now_us);
	if (most < known_least - TOLERANCE_US)
		return jump(master, most - known_least, least, most, now_us);
	if (least > known_most || most < known_least)
		/* within the tolerance: nothing is learned, or small steps would add up unseen */
		return GUARD_CLOCK_STEADY;
	/* The rest of the division stays in clock_us: without it the interval grows too slowly where answers are
	 * many. */
	learn(master, least < known_least ? known_least : least, most > known_most ? known_most : most,
	      master->clock_us + (uint64_t)parted * RATE);
	return GUARD_CLOCK_STEADY;
}

uint64_t guard_master_time_us(const struct guard *guard, unsigned i, uint64_t at_us)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	if (!master->has_clock)
		return 0;
	uint64_t parted = at_us > master->clock_us ? (at_us - master->clock_us) / RATE : 0;
	return at_us + (uint64_t)master->ahead_max_us + parted + TOLERANCE_US;
}
