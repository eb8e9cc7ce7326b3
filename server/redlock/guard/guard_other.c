/* SPDX-License-Identifier: MIT */
/* Masters whose hash was written by another version of redlockd, or with another number of masters. The digest differs,
 * so nothing else in the hash can be relied on.
 *
 * Such a master is REJECTED, and nothing is written there. With --bootstrap it is taken over if nobody has counted a
 * heartbeat in its hash for STILL_US: QUARANTINE replaces the hash, and the longest lease is waited out as ever. Safety
 * does not depend on the heartbeats: QUARANTINE removes the epoch that the other version's scripts compare, and the
 * wait begins then. They keep an operator from stopping a cluster that works.
 *
 * A redlockd takes over only while it has seen no epoch of its own digest: --bootstrap applies to the start. */
#include <assert.h>

#include "guard_internal.h"

#define STILL_US UINT64_C(3000000) /* each redlockd counts a heartbeat a second */

/* Every version stores its digest in the hash. From layout 3 on, a hash without an epoch or a marker has it, too. */
bool guard_other_wrote(const struct guard *guard, const struct guard_event *event)
{
	bool empty = event->digest == 0 && event->epoch == 0 && event->marker == 0;
	assert(event->kind == GUARD_EPOCH);
	assert(guard->params.digest != 0);
	return !empty && event->digest != guard->params.digest;
}

void guard_other_store(struct guard_master *master, const struct guard_event *event)
{
	bool watched = master->state == GUARD_REJECTED && master->reason == GUARD_OTHER_DIGEST;
	bool same = watched && master->other_digest == event->digest;
	assert(master->state != GUARD_ABSENT);
	if (!same || master->other_beat != event->beat)
		master->still_us = event->now_us;
	master->other_runs = same && (master->other_beat != event->beat ||
				      (master->other_runs && event->now_us - master->still_us < STILL_US));
	master->other_digest = event->digest;
	master->other_beat = event->beat;
	guard_state_reject(master, GUARD_OTHER_DIGEST, event->now_us);
	assert(master->still_us <= event->now_us);
}

static bool may_take_over(const struct guard *guard, const struct guard_master *master)
{
	assert(!guard->take_over_open || guard->params.bootstrap);
	return guard->take_over_open && master->state == GUARD_REJECTED && master->reason == GUARD_OTHER_DIGEST;
}

void guard_other_take_over(struct guard *guard, struct guard_master *master)
{
	assert(master->state != GUARD_ABSENT);
	if (!may_take_over(guard, master) || master->heard_us - master->still_us < STILL_US)
		return;
	assert(master->read);
	guard_state_quarantine(master, GUARD_OTHER_DIGEST, false, master->heard_us);
}

bool guard_other_is_watched(const struct guard *guard, unsigned i)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	return may_take_over(guard, master) && !master->other_runs;
}

bool guard_other_runs(const struct guard *guard, unsigned i)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	return master->state == GUARD_REJECTED && master->reason == GUARD_OTHER_DIGEST && master->other_runs;
}
