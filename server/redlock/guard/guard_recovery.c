/* SPDX-License-Identifier: MIT */
/* Fence recovery: before a master that lost its fences votes again, it needs the largest fence of N−Q+1 other masters
 * (Q: the majority).
 *
 * The fence of every lease is on Q masters, and N−Q+1 others share one with each set of Q. They are asked after the
 * wait, not before: until then leases may be given without this master. If fewer than N−Q+1 masters can remember, the
 * floor is made of clocks and marked so (`clocked`). A master that cannot be reached may remember, so recovery waits
 * for it. */
#include <assert.h>

#include "guard_internal.h"

#define SURVEY_PATIENCE_US UINT64_C(2000000)

void guard_recovery_begin(struct guard_master *master, uint64_t now_us)
{
	assert(master->state == GUARD_WAITING);
	assert(now_us >= master->since_us);
	guard_state_set(master, GUARD_RECOVERING);
	master->recovery_us = now_us;
	master->surveyed = 0;
	master->top = 0;
}

/* True if its buckets are all there. */
static bool remembers(const struct guard_master *master)
{
	assert(master->state != GUARD_VOTING || master->memory == GUARD_MEMORY_COMPLETE);
	return master->state == GUARD_VOTING ||
	       (guard_state_is_quarantined(master) && master->memory == GUARD_MEMORY_KEPT);
}

/* True if a survey of master i that began at survey_us serves a recovering master. */
static bool is_useful(const struct guard *guard, unsigned i, uint64_t survey_us)
{
	assert(i < guard->params.masters);
	for (unsigned j = 0; j < guard->params.masters; j++) {
		const struct guard_master *master = &guard->masters[j];
		if (j != i && master->state == GUARD_RECOVERING && !redlock_has(master->surveyed, i) &&
		    master->recovery_us <= survey_us)
			return true;
	}
	return false;
}

bool guard_recovery_wants_survey(const struct guard *guard, unsigned i)
{
	assert(i < guard->params.masters);
	return remembers(&guard->masters[i]) && is_useful(guard, i, UINT64_MAX);
}

static void store_fences(struct guard *guard, unsigned reported_by, uint64_t asked_us, uint64_t fence)
{
	assert(reported_by < guard->params.masters);
	for (unsigned j = 0; j < guard->params.masters; j++) {
		struct guard_master *master = &guard->masters[j];
		if (j == reported_by || master->state != GUARD_RECOVERING || master->recovery_us > asked_us)
			continue;
		master->surveyed |= (uint16_t)(1U << reported_by);
		if (fence > master->top)
			master->top = fence;
		assert(redlock_has(master->surveyed, reported_by));
		assert(master->top >= fence);
	}
}

void guard_recovery_survey(struct guard *guard, unsigned i, uint64_t now_us, struct guard_action *ret_action)
{
	struct guard_master *master = &guard->masters[i];
	assert(remembers(master));
	assert(master->busy == GUARD_NOTHING);
	uint64_t epoch = master->memory == GUARD_MEMORY_KEPT ? master->marker : master->epoch;
	bool same = epoch == master->survey_epoch; /* under another one it may have lost what it reported */
	if (master->slice == 0 || !same || !is_useful(guard, i, master->survey_us)) {
		master->slice = 0;
		master->survey_top = 0;
		master->survey_us = now_us;
		master->survey_epoch = epoch;
	}
	master->asked_us = now_us;
	assert(now_us >= master->survey_us);
	*ret_action = (struct guard_action){.kind = GUARD_SURVEY, .epoch = epoch, .slice = master->slice};
}

/* All slices of a survey are read under one epoch, after survey_us. Fences only grow, so each fence given before
 * survey_us is covered. */
static void store_slice(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(event->now_us >= master->survey_us);
	assert(master->slice == 0 || master->slice < guard->params.slices);
	if (event->ttl_us > master->ttl_us)
		master->ttl_us = event->ttl_us;
	if (event->fence > master->survey_top)
		master->survey_top = event->fence;
	master->reported_us = event->now_us;
	if (++master->slice < guard->params.slices)
		return;
	master->slice = 0;
	store_fences(guard, event->master, master->survey_us, master->survey_top);
}

void guard_recovery_handle_fences(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(master->busy == GUARD_SURVEY);
	assert(master == &guard->masters[event->master]);
	master->busy = GUARD_NOTHING;
	if (event->done) {
		guard_leases_store(guard, master->asked_us, event);
		store_slice(guard, master, event);
	} else {
		master->slice = 0;
		if (master->state == GUARD_VOTING)
			master->reason = GUARD_BAD_EPOCH;
		guard_state_ask(master); /* its epoch or marker is not the one that SURVEY carried */
	}
}

/* True if both lost their memory together and *other has a floor of clocks since: it remembers no more than
 * *master. */
static bool lost_with(const struct guard_master *master, const struct guard_master *other)
{
	assert(master != other);
	return master->memory == GUARD_MEMORY_LOST && other->clocked_us > master->lost_us;
}

/* Counts the masters other than i that reported their fences, and those that did so or still may. */
static void count_reported(const struct guard *guard, unsigned i, unsigned *ret_reported, unsigned *ret_may)
{
	const struct guard_master *master = &guard->masters[i];
	assert(i < guard->params.masters);
	*ret_reported = *ret_may = 0;
	for (unsigned j = 0; j < guard->params.masters; j++) {
		const struct guard_master *other = &guard->masters[j];
		bool reported = redlock_has(master->surveyed, j);
		if (j == i || lost_with(master, other))
			continue;
		*ret_reported += reported;
		*ret_may += reported || other->memory != GUARD_MEMORY_LOST;
	}
	assert(*ret_reported <= *ret_may);
	assert(*ret_may < guard->params.masters);
}

/* True while a connected master may still report. Too few can for a safe floor, but each report improves it. */
static bool is_worth_waiting(const struct guard *guard, unsigned i, uint64_t now_us)
{
	const struct guard_master *master = &guard->masters[i];
	assert(master->state == GUARD_RECOVERING);
	assert(now_us >= master->recovery_us);
	for (unsigned j = 0; j < guard->params.masters; j++) {
		const struct guard_master *other = &guard->masters[j];
		uint64_t since_us = other->reported_us > master->recovery_us ? other->reported_us : master->recovery_us;
		bool may_report = j != i && remembers(other) && !redlock_has(master->surveyed, j);
		if (may_report && now_us - since_us < SURVEY_PATIENCE_US)
			return true;
	}
	return false;
}

/* True if it lost at most locks, or no fence was ever given: it is as good as a master that was down for a while. */
static bool needs_nothing(const struct guard_master *master)
{
	assert(master->state != GUARD_VOTING);
	return master->memory == GUARD_MEMORY_KEPT || master->skip;
}

bool guard_recovery_is_done(const struct guard *guard, unsigned i, uint64_t now_us)
{
	unsigned reported, may;
	assert(i < guard->params.masters);
	assert(guard->masters[i].state == GUARD_RECOVERING);
	if (needs_nothing(&guard->masters[i]))
		return true;
	count_reported(guard, i, &reported, &may);
	return reported >= guard_leases_needed(guard) ||
	       (may < guard_leases_needed(guard) && !is_worth_waiting(guard, i, now_us));
}

unsigned guard_fences_missing(const struct guard *guard, unsigned i)
{
	unsigned reported, may;
	assert(i < guard->params.masters);
	count_reported(guard, i, &reported, &may);
	bool waits = guard->masters[i].state == GUARD_RECOVERING && !needs_nothing(&guard->masters[i]);
	return waits && reported < guard_leases_needed(guard) && may >= guard_leases_needed(guard)
		       ? guard_leases_needed(guard) - reported
		       : 0;
}

void guard_recovery_choose_floor(const struct guard *guard, const struct guard_master *master, uint64_t now_us,
				 uint64_t wall_us, struct guard_action *ret_action)
{
	unsigned reported, may;
	count_reported(guard, (unsigned)(master - guard->masters), &reported, &may);
	assert(guard_state_is_quarantined(master));
	assert(ret_action->kind == GUARD_WRITE_EPOCH);
	ret_action->fence = master->top;
	if (reported >= guard_leases_needed(guard) || needs_nothing(master))
		return;
	ret_action->clocked = true;
	if (wall_us > ret_action->fence && wall_us < REDLOCK_FENCE_LIMIT)
		ret_action->fence = wall_us;
	for (unsigned j = 0; j < guard->params.masters; j++) {
		uint64_t time_us = guard_master_time_us(guard, j, now_us);
		if (time_us > ret_action->fence && time_us < REDLOCK_FENCE_LIMIT)
			ret_action->fence = time_us;
	}
	assert(ret_action->fence >= master->top);
}
