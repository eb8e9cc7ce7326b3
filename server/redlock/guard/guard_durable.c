/* SPDX-License-Identifier: MIT */
/* Durable masters: a master that restarts with all that it answered votes at once.
 *
 * Such a master has each answer on its disk before it sends it, so after a restart it lacks only writes that were never
 * answered. The master cannot prove this. So a redlockd compares it with its state when the connection over which it
 * voted was lost. It must have the same epoch and no fewer heartbeats (an older image has fewer). Its clock must not
 * have jumped forward (locks would have run out early). If all of that holds, READ writes the new run_id beside the
 * epoch.
 *
 * A redlockd that has not seen the master vote cannot compare. It waits a moment for another redlockd that can, and
 * then quarantines the master. server/masters/master_durable.c reads the settings. The argument and its assumptions are
 * in docs/explanation/proofs.md. */
#include <assert.h>

#include "guard_internal.h"

#define SECOND_US UINT64_C(1000000)
#define CUT_OFF_S UINT64_C(3)
#define PATIENCE_US UINT64_C(3000000) /* by then the others are connected again */

void guard_durable_set_pace(struct guard_master *master, const struct guard_event *event)
{
	uint64_t passed_us = event->now_us - master->heard_us;
	assert(event->kind == GUARD_EPOCH);
	if (event->beat <= master->beat)
		return;
	uint64_t beats = event->beat - master->beat;
	if (passed_us >= SECOND_US / 2 && beats < UINT32_MAX)
		master->pace = (beats * SECOND_US + passed_us - 1) / passed_us;
	else if (passed_us < SECOND_US / 2 && beats > master->pace)
		master->pace = beats;
}

void guard_durable_set_last(struct guard_master *master)
{
	assert(master->state == GUARD_VOTING);
	assert(master->epoch != 0);
	master->last = (struct guard_last){.epoch = master->epoch,
					   .beat = master->beat,
					   .pace = master->pace,
					   .has_clock = master->has_clock,
					   .ahead_max_us = master->ahead_max_us,
					   .clock_us = master->clock_us};
}

/* True if more heartbeats were counted meanwhile than all redlockd send in CUT_OFF_S. So others saw the master while
 * this one was cut off, and this one knows too little of its clock and its data. */
static bool was_cut_off(const struct guard_last *last, const struct guard_event *event)
{
	assert(last->epoch != 0);
	return event->beat > last->beat && event->beat - last->beat > CUT_OFF_S * (last->pace + 1);
}

bool guard_durable_compare(const struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	const struct guard_last *last = &master->last;
	bool fits = event->epoch_run_id == master->run_id;
	assert(event->kind == GUARD_EPOCH);
	assert(last->epoch == 0 || master->state == GUARD_ASKING);
	if (!guard->params.durable || event->epoch == 0 || event->epoch != last->epoch)
		return false;
	/* Another redlockd that knew less may have let it keep its epoch. */
	if (event->beat < last->beat + fits)
		master->hazard = GUARD_ROLLED_BACK;
	else if (master->hazard == GUARD_NO_REASON && guard_clock_has_jumped(master, event->now_us))
		master->hazard = GUARD_CLOCK_FORWARD;
	return !fits && master->hazard == GUARD_NO_REASON && !was_cut_off(last, event);
}

bool guard_durable_waits(const struct guard *guard, const struct guard_master *master, const struct guard_event *event)
{
	bool restarted = event->epoch != 0 && event->epoch_run_id != master->run_id;
	assert(event->now_us >= master->connected_us);
	return guard->params.durable && restarted && master->state == GUARD_ASKING && master->busy == GUARD_NOTHING &&
	       master->hazard == GUARD_NO_REASON && event->now_us - master->connected_us < PATIENCE_US;
}
