/* SPDX-License-Identifier: MIT */
/* The states of one master, and the only code that changes them: see guard.h for the picture.
 *
 * The reasons for a change are in guard.c (events and actions), guard_clock.c, guard_cluster.c and guard_recovery.c,
 * which use this file. This file uses guard_leases.c. */
#include <assert.h>

#include "guard_internal.h"

#define TO(state) (1U << (state))
#define ABSENT_OR_ASKING (TO(GUARD_ABSENT) | TO(GUARD_ASKING))
/* the states that may follow when an epoch was read */
#define EVALUATED (TO(GUARD_VOTING) | TO(GUARD_MARKING) | TO(GUARD_WAITING) | TO(GUARD_REJECTED))

static const uint8_t allowed[] = {
	[GUARD_ABSENT] = TO(GUARD_ASKING),
	[GUARD_ASKING] = ABSENT_OR_ASKING | EVALUATED,
	[GUARD_VOTING] = ABSENT_OR_ASKING | EVALUATED,
	[GUARD_MARKING] = ABSENT_OR_ASKING | EVALUATED,
	[GUARD_WAITING] = ABSENT_OR_ASKING | EVALUATED | TO(GUARD_RECOVERING),
	[GUARD_RECOVERING] = ABSENT_OR_ASKING | EVALUATED | TO(GUARD_WRITING_EPOCH),
	[GUARD_WRITING_EPOCH] = ABSENT_OR_ASKING | TO(GUARD_VOTING) | TO(GUARD_RECOVERING),
	[GUARD_REJECTED] = ABSENT_OR_ASKING | EVALUATED,
};

void guard_state_set(struct guard_master *master, enum guard_state state)
{
	assert(master->state <= GUARD_REJECTED);
	assert(state <= GUARD_REJECTED);
	assert(allowed[master->state] & TO(state));
	master->state = state;
	master->keeps = false;
	if (state != GUARD_VOTING) /* it may have lost its memory, and vote again under an epoch that it had before */
		master->remembers_s = 0;
	if (state >= GUARD_VOTING)
		master->last.epoch = 0; /* the master votes under a new epoch, or is no longer trusted */
}

void guard_state_check(const struct guard *guard, unsigned i)
{
	const struct guard_master *master = &guard->masters[i];
	assert(master->state == GUARD_ABSENT || master->seen);
	assert(master->state == GUARD_ABSENT || master->state == GUARD_ASKING || master->read);
	assert(master->busy == GUARD_NOTHING || master->state != GUARD_ABSENT);
	assert(master->busy != GUARD_QUARANTINE || master->state == GUARD_MARKING);
	assert((master->busy == GUARD_WRITE_EPOCH) == (master->state == GUARD_WRITING_EPOCH));
	assert(!guard_state_is_quarantined(master) || master->epoch == 0);
	assert(!guard_state_is_quarantined(master) || master->reason != GUARD_NO_REASON);
	assert(master->state != GUARD_VOTING ||
	       (master->reason == GUARD_NO_REASON && master->memory == GUARD_MEMORY_COMPLETE));
	assert(master->state != GUARD_MARKING || master->reason != GUARD_NO_REASON);
	assert((master->surveyed & ((1U << i) | ~((1U << guard->params.masters) - 1U))) == 0);
	assert(master->slice == 0 || master->slice < guard->params.slices);
	assert(!master->keeps || (master->state == GUARD_ASKING && master->last.epoch != 0));
}

uint64_t guard_state_random(struct guard *guard)
{
	uint64_t number = redlock_random(&guard->random);
	while (number == 0)
		number = redlock_random(&guard->random);
	return number;
}

bool guard_state_is_quarantined(const struct guard_master *master)
{
	return master->state == GUARD_WAITING || master->state == GUARD_RECOVERING ||
	       master->state == GUARD_WRITING_EPOCH;
}

/* ---- how long a quarantine lasts ---- */

static uint64_t quarantine_for_us(const struct guard *guard, uint64_t longest_us)
{
	assert(longest_us >= guard->params.max_ttl_us);
	return longest_us + longest_us / 1000 * guard->params.drift_ppm / 1000 + guard->params.margin_us;
}

uint64_t guard_state_quarantine_us(const struct guard *guard)
{
	return quarantine_for_us(guard, guard_longest_us(guard));
}

/* If the marker has no longest lease, the wait is for the longest possible one. This concerns only this master: such a
 * marker shows nothing about leases on the others. */
uint64_t guard_state_quarantine_end_us(const struct guard *guard, const struct guard_master *master, uint64_t now_us)
{
	assert(master->state == GUARD_WAITING || master->state == GUARD_RECOVERING);
	assert(!master->skip || guard->params.bootstrap);
	if (master->skip)
		return 0;
	uint64_t longest_end_us = master->since_us + quarantine_for_us(guard, master->ttl_unknown
										      ? GUARD_TTL_MAX_US
										      : guard_longest_us(guard));
	uint64_t end_us = guard_leases_end_us(guard, master, now_us);
	return end_us < longest_end_us ? end_us : longest_end_us;
}

/* ---- changes ---- */

static void set_kept(struct guard_master *master, bool kept, uint64_t now_us)
{
	assert(master->state != GUARD_VOTING);
	assert(master->state != GUARD_ABSENT);
	if (!kept && master->memory != GUARD_MEMORY_LOST)
		master->lost_us = now_us;
	master->memory = kept ? GUARD_MEMORY_KEPT : GUARD_MEMORY_LOST;
}

void guard_state_end_connection(struct guard_master *master)
{
	assert(master->memory <= GUARD_MEMORY_LOST);
	assert(master->state == GUARD_ABSENT || master->state == GUARD_ASKING);
	if (master->memory == GUARD_MEMORY_KEPT)
		master->memory = GUARD_MEMORY_COMPLETE;
	master->read = master->skip = false;
}

void guard_state_ask(struct guard_master *master)
{
	guard_state_set(master, GUARD_ASKING);
	master->epoch = 0;
}

void guard_state_vote(struct guard_master *master, uint64_t epoch)
{
	assert(master->hazard == GUARD_NO_REASON || master->state == GUARD_WRITING_EPOCH);
	assert(master->read);
	guard_state_set(master, GUARD_VOTING);
	master->reason = GUARD_NO_REASON;
	master->epoch = epoch;
	master->marker = 0;
	master->memory = GUARD_MEMORY_COMPLETE;
	master->skip = false;
}

void guard_state_quarantine(struct guard_master *master, enum guard_reason reason, bool kept, uint64_t now_us)
{
	assert(reason != GUARD_NO_REASON);
	assert(reason != GUARD_OTHER_DIGEST || master->state == GUARD_REJECTED);
	assert(master->busy != GUARD_QUARANTINE);
	assert(master->busy != GUARD_WRITE_EPOCH);
	guard_state_set(master, GUARD_MARKING);
	master->reason = reason;
	master->marker = 0; /* forgotten: if it is seen again later, the wait begins again */
	set_kept(master, kept, now_us);
	master->skip = false;
	if (master->busy == GUARD_HELD_BACK)
		master->busy = GUARD_NOTHING;
}

void guard_state_quarantine_hazard(struct guard_master *master, uint64_t now_us)
{
	assert(master->hazard == GUARD_CLOCK_FORWARD || master->hazard == GUARD_EVICTED ||
	       master->hazard == GUARD_ROLLED_BACK || master->hazard == GUARD_NOT_DURABLE);
	guard_state_quarantine(master, master->hazard, master->hazard != GUARD_ROLLED_BACK, now_us);
}

void guard_state_set_hazard(struct guard_master *master, enum guard_reason hazard, uint64_t now_us)
{
	assert(hazard == GUARD_CLOCK_FORWARD || hazard == GUARD_EVICTED || hazard == GUARD_NOT_DURABLE);
	if (master->hazard != GUARD_ROLLED_BACK)
		master->hazard = hazard;
	if (master->state == GUARD_VOTING) {
		master->void_epoch = master->epoch;
		guard_state_quarantine_hazard(master, now_us);
	}
	assert(master->state != GUARD_VOTING);
}

void guard_state_wait(struct guard_master *master, uint64_t marker, bool kept, uint64_t now_us)
{
	assert(master->busy != GUARD_QUARANTINE);
	assert(master->busy != GUARD_WRITE_EPOCH);
	guard_state_set(master, GUARD_WAITING);
	master->marker = marker;
	set_kept(master, kept, now_us);
	master->since_us = now_us;
	guard_leases_forget(master);
	master->epoch = 0;
	master->skip = false;             /* it was for another wait: leases may have been given since */
	master->hazard = GUARD_NO_REASON; /* the wait makes up for it */
	/* A restored image can bring back the marker of an older quarantine. After a new wait it may become the
	 * epoch. */
	if (master->gone_epoch == marker)
		master->gone_epoch = 0;
}

void guard_state_wait_on(struct guard_master *master, bool kept, uint64_t now_us)
{
	assert(master->marker != 0);
	assert(master->busy != GUARD_QUARANTINE);
	assert(master->busy != GUARD_WRITE_EPOCH);
	if (!guard_state_is_quarantined(master))
		guard_state_set(master, GUARD_WAITING);
	set_kept(master, master->memory == GUARD_MEMORY_KEPT && kept,
		 now_us);                 /* another redlockd may have found that fences are lost */
	master->hazard = GUARD_NO_REASON; /* nothing was given here since the marker */
}

void guard_state_reject(struct guard_master *master, enum guard_reason reason, uint64_t now_us)
{
	assert(reason == GUARD_OTHER_CLUSTER || reason == GUARD_OTHER_DIGEST);
	assert(master->busy != GUARD_QUARANTINE);
	assert(master->busy != GUARD_WRITE_EPOCH);
	guard_state_set(master, GUARD_REJECTED);
	master->reason = reason;
	set_kept(master, false, now_us); /* what it remembers is not ours */
}
