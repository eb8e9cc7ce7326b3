/* The states of one master, and the only code that changes them: see guard.h for the picture.
 *
 * What leads from one state to the next is in guard.c (events and actions), guard_clock.c, guard_cluster.c and
 * guard_recovery.c, which all stand above this file. */
#include <assert.h>

#include "guard_internal.h"

void guard_state_set(struct guard_master *master, enum guard_state state)
{
	master->state = state;
}

/* splitmix64 */
uint64_t guard_state_random(struct guard *guard)
{
	uint64_t mixed;
	do {
		mixed = guard->random += UINT64_C(0x9e3779b97f4a7c15);
		mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
		mixed ^= mixed >> 31;
	} while (mixed == 0);
	return mixed;
}

bool guard_state_is_quarantined(const struct guard_master *master)
{
	return master->state == GUARD_WAITING || master->state == GUARD_RECOVERING ||
	       master->state == GUARD_WRITING_EPOCH;
}

/* ---- how long a quarantine lasts ---- */

uint64_t guard_longest_us(const struct guard *guard)
{
	uint64_t longest_us = guard->params.max_ttl_us;
	for (unsigned i = 0; i < guard->params.masters; i++)
		if (guard->masters[i].ttl_us > longest_us)
			longest_us = guard->masters[i].ttl_us;
	return longest_us;
}

static uint64_t quarantine_for_us(const struct guard *guard, uint64_t longest_us)
{
	if (MUTATED(MUTATION_NO_QUARANTINE))
		return 0;
	return longest_us + longest_us / 1000 * guard->params.drift_ppm / 1000 + guard->params.margin_us;
}

uint64_t guard_state_quarantine_us(const struct guard *guard)
{
	return quarantine_for_us(guard, guard_longest_us(guard));
}

/* A marker without a longest lease is waited out for the longest lease that there can be. This concerns the one master
 * alone: such a marker tells nothing about leases on the others. */
uint64_t guard_state_quarantine_end_us(const struct guard *guard, const struct guard_master *master)
{
	if (master->skip)
		return 0;
	return master->since_us +
	       quarantine_for_us(guard, master->ttl_unknown ? GUARD_TTL_MAX_US : guard_longest_us(guard));
}

/* ---- changes ---- */

static void set_kept(struct guard_master *master, bool kept, uint64_t now_us)
{
	if (!kept && !master->lost)
		master->lost_us = now_us;
	master->kept = kept;
	master->lost = !kept;
}

void guard_state_ask(struct guard_master *master)
{
	guard_state_set(master, GUARD_ASKING);
	master->epoch = 0;
}

void guard_state_vote(struct guard_master *master, uint64_t epoch)
{
	guard_state_set(master, GUARD_VOTING);
	master->reason = GUARD_NO_REASON;
	master->epoch = epoch;
	master->marker = 0;
	master->lost = master->kept = master->skip = false;
}

void guard_state_quarantine(struct guard_master *master, enum guard_reason reason, bool kept, uint64_t now_us)
{
	guard_state_set(master, GUARD_MARKING);
	master->reason = reason;
	set_kept(master, kept, now_us);
	master->skip = false;
	master->again = false;
}

void guard_state_quarantine_found(struct guard_master *master, uint64_t now_us)
{
	assert(master->found != GUARD_NO_REASON);
	guard_state_quarantine(master, master->found, master->found != GUARD_ROLLED_BACK, now_us);
}

void guard_state_wait(struct guard_master *master, uint64_t marker, bool kept, uint64_t now_us)
{
	guard_state_set(master, GUARD_WAITING);
	master->marker = marker;
	set_kept(master, kept, now_us);
	master->since_us = now_us;
	master->epoch = 0;
	master->skip = false;            /* it was for another wait: leases may have been given since */
	master->found = GUARD_NO_REASON; /* the wait makes up for it */
	/* A restored image can bring back the marker of an older quarantine. After a new wait it may become the
	 * epoch. */
	if (master->gone_epoch == marker)
		master->gone_epoch = 0;
}

void guard_state_wait_on(struct guard_master *master, bool kept, uint64_t now_us)
{
	if (!guard_state_is_quarantined(master))
		guard_state_set(master, GUARD_WAITING);
	set_kept(master, master->kept && kept, now_us); /* another redlockd may have found that fences are lost */
	master->found = GUARD_NO_REASON;                /* nothing was given here since the marker */
}

void guard_state_reject(struct guard_master *master, enum guard_reason reason, uint64_t now_us)
{
	guard_state_set(master, GUARD_REJECTED);
	master->reason = reason;
	set_kept(master, false, now_us); /* what it remembers is not ours */
}
