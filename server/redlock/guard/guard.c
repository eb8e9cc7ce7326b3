/* SPDX-License-Identifier: MIT */
/* Events and actions of the guard, which move a master from one state to the next.
 *
 * guard_state.c has the states, guard_clock.c the clock of a master, guard_cluster.c its cluster. guard_other.c handles
 * masters of another version, guard_recovery.c the fences that a quarantined master needs, guard_durable.c durable
 * masters that restart. */
#include "guard.h"

#include <assert.h>
#include <string.h>

#include "guard_internal.h"

#define GAP_US UINT64_C(5000000) /* between two heartbeats: after a longer one the wait begins again */

void guard_init(struct guard *guard, const struct guard_params *params)
{
	assert(params->masters >= 1);
	assert(params->masters <= REDLOCK_MASTERS_MAX);
	assert(params->max_ttl_us >= 1000);
	assert(params->max_ttl_us <= GUARD_TTL_MAX_US);
	assert(params->digest != 0);
	assert(params->timeout_us <= GUARD_TTL_MAX_US);
	memset(guard, 0, sizeof *guard);
	guard->params = *params;
	guard->random = params->seed;
	guard->bootstrap_open = guard->take_over_open = params->bootstrap;
}

/* ---- the epoch ---- */

static void set_ttl(struct guard_master *master, const struct guard_event *event)
{
	assert(event->kind == GUARD_EPOCH || event->kind == GUARD_QUARANTINED);
	assert(master->state != GUARD_ABSENT);
	if (event->ttl_us > master->ttl_us)
		master->ttl_us = event->ttl_us;
	master->ttl_unknown = event->marker != 0 && event->ttl_us == 0;
}

/* The master is quarantined already, by us or by another redlockd. */
static void follow_marker(struct guard_master *master, const struct guard_event *event)
{
	assert(event->epoch == 0);
	assert(event->marker != 0);
	if (master->marker == event->marker) {
		guard_state_wait_on(master, event->kept, event->now_us);
		return;
	}
	if (master->reason == GUARD_NO_REASON || master->state == GUARD_REJECTED)
		master->reason = GUARD_NO_EPOCH;
	guard_state_wait(master, event->marker, event->kept && master->memory != GUARD_MEMORY_LOST, event->now_us);
}

static enum guard_reason reason_without_fit(const struct guard_master *master, const struct guard_event *event,
					    bool was_voting)
{
	assert(event->epoch == 0 || event->epoch_run_id != master->run_id);
	assert(master->hazard != GUARD_ROLLED_BACK);
	if (was_voting || master->reason == GUARD_BAD_EPOCH)
		return GUARD_BAD_EPOCH;
	return event->epoch != 0 || event->epoch_run_id != 0 ? GUARD_RESTARTED : GUARD_NO_EPOCH;
}

/* Each epoch is a new random number. If a trusted epoch disappears and comes back, the machine was restored from an
 * older image. */
static void set_epoch(struct guard_master *master, uint64_t epoch)
{
	if (master->epoch != 0 && epoch != master->epoch)
		master->gone_epoch = master->epoch;
	master->void_epoch = epoch;
}

/* Decides by the epoch that was read from the master. */
static void evaluate_epoch(const struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(master->busy != GUARD_QUARANTINE);
	assert(master->busy != GUARD_WRITE_EPOCH);
	assert(master->state != GUARD_ABSENT);
	assert(master->state != GUARD_WRITING_EPOCH);
	bool was_voting = master->state == GUARD_VOTING, keeps = guard_durable_compare(guard, master, event);
	bool fits = event->epoch != 0 && event->epoch_run_id == master->run_id;
	bool rolled_back = event->epoch != 0 && (event->epoch == master->gone_epoch ||
						 (master->state == GUARD_ASKING && event->epoch == master->epoch));
	if (fits && rolled_back)
		master->hazard = GUARD_ROLLED_BACK;
	if (master->hazard == GUARD_ROLLED_BACK || (fits && master->hazard != GUARD_NO_REASON))
		guard_state_quarantine_hazard(master, event->now_us);
	else if (fits)
		guard_state_vote(master, event->epoch);
	else if (keeps)
		master->keeps = true;
	else if (guard_durable_waits(guard, master, event))
		master->busy = GUARD_HELD_BACK;
	else if (event->epoch == 0 && event->marker != 0 && event->marker_run_id == master->run_id)
		follow_marker(master, event);
	else
		guard_state_quarantine(master, reason_without_fit(master, event, was_voting), false, event->now_us);
}

/* ---- bootstrap ---- */

/* The cluster is new, as the operator declared, if every master was read over a connection that still stands and none
 * ever had an epoch. A minority may be unusable. A master that does not answer may have an epoch, and prevents it. */
static void try_bootstrap(struct guard *guard)
{
	unsigned ready = 0;
	if (!guard->bootstrap_open)
		return;
	for (unsigned i = 0; i < guard->params.masters; i++) {
		bool waits = guard->masters[i].state == GUARD_WAITING;
		if (!waits && !guard->masters[i].unusable)
			return;
		ready += waits;
	}
	if (ready < redlock_majority(guard->params.masters))
		return;
	assert(guard->params.bootstrap);
	assert(ready <= guard->params.masters);
	for (unsigned i = 0; i < guard->params.masters; i++)
		guard->masters[i].skip = guard->masters[i].state == GUARD_WAITING;
	guard->bootstrap_open = false;
}

/* ---- events ---- */

static bool is_former(const struct guard *guard, uint64_t run_id)
{
	bool known = false;
	for (unsigned i = 0; i < GUARD_FORMER_MAX; i++)
		known = known || (run_id != 0 && guard->former[i] == run_id);
	assert(!known || run_id != 0);
	return known;
}

/* The master votes, or may vote for another redlockd before we see it. From now on the server that it replaced misses
 * leases. */
static void set_member(struct guard *guard, struct guard_master *master)
{
	bool joins = master->state == GUARD_VOTING || guard_state_is_quarantined(master);
	assert(guard->former_next < GUARD_FORMER_MAX);
	if (!joins || master->member == master->run_id)
		return;
	if (master->member != 0 && !is_former(guard, master->member)) {
		guard->former[guard->former_next] = master->member;
		guard->former_next = (guard->former_next + 1) % GUARD_FORMER_MAX;
	}
	master->member = master->run_id;
}

static void handle_connected(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	bool same = master->seen && master->run_id == event->run_id;
	if (same && event->client_id <= master->client_id)
		master->hazard = GUARD_ROLLED_BACK;
	if (!same) {
		master->beat = 0;
		master->gone_epoch = 0;
		master->has_clock = false;
		master->hazard = is_former(guard, event->run_id) ? GUARD_ROLLED_BACK : GUARD_NO_REASON;
	}
	guard_state_ask(master);
	master->seen = true;
	master->run_id = event->run_id;
	master->client_id = event->client_id;
	master->reason = GUARD_NO_REASON;
	master->busy = GUARD_NOTHING;
	master->marker = 0;
	master->slice = 0;
	guard_state_end_connection(master);
	master->unusable = false;
	master->heard_us = master->connected_us = event->now_us;
	assert(!guard_state_is_quarantined(master));
	assert(master->epoch == 0);
}

/* Converts the time at which the floor was made of clocks from the master's clock to ours: the earliest possible
 * time. */
static void set_clocked(const struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(event->kind == GUARD_EPOCH);
	uint64_t there_us = guard_master_time_us(guard, event->master, event->now_us);
	uint64_t ago_us = event->clocked_us != 0 && there_us > event->clocked_us ? there_us - event->clocked_us
										 : UINT64_MAX;
	if (ago_us < event->now_us && event->now_us - ago_us > master->clocked_us)
		master->clocked_us = event->now_us - ago_us;
	assert(master->clocked_us <= event->now_us);
}

/* Stores the figures that only a hash of our digest has. */
static void store_heartbeat(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(!guard_other_wrote(guard, event));
	assert(master->heard_us == event->now_us);
	/* A hash without a cluster is new and counts from 1. Under another server's epoch nobody counts heartbeats. */
	bool counted = event->epoch == 0 || event->epoch_run_id == master->run_id;
	if (event->beat < master->beat + counted && event->cluster != 0)
		master->hazard = GUARD_ROLLED_BACK;
	master->beat = event->beat;
	set_ttl(master, event);
	if (event->epoch != 0)
		guard->take_over_open = false;
}

static void handle_epoch(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(event->now_us >= master->heard_us);
	bool other = guard_other_wrote(guard, event);
	if (master->read && !other)
		guard_durable_set_pace(master, event);
	if (event->now_us - master->heard_us > GAP_US) {
		master->since_us = event->now_us;
		guard_leases_forget(master);
	}
	master->heard_us = event->now_us;
	master->read = true;
	master->unusable = false;
	if (!other)
		store_heartbeat(guard, master, event);
	if (event->epoch != 0 || event->cluster != 0 || other)
		guard->bootstrap_open = false;
	if (master->busy == GUARD_QUARANTINE || master->busy == GUARD_WRITE_EPOCH)
		return; /* the epoch was read before that action: its answer is newer */
	if (master->busy == GUARD_READ || master->busy == GUARD_HELD_BACK)
		master->busy = GUARD_NOTHING;
	master->cluster = event->cluster;
	set_clocked(guard, master, event);
	set_epoch(master, event->epoch);
	if (other)
		guard_other_store(master, event);
	else
		evaluate_epoch(guard, master, event);
	guard_cluster_check(guard, event->now_us);
	/* The master's figures about leases of another cluster must not reach ours through guard_longest_us(). */
	if (master->state == GUARD_REJECTED)
		master->ttl_us = 0;
	assert(master->read);
	assert(master->busy != GUARD_READ);
}

static void handle_quarantined(struct guard_master *master, const struct guard_event *event)
{
	assert(master->busy == GUARD_QUARANTINE);
	assert(master->state == GUARD_MARKING);
	master->busy = GUARD_NOTHING;
	if (!event->done) {
		guard_state_ask(master);
		return;
	}
	set_ttl(master, event);
	guard_state_wait(master, event->marker, event->kept, event->now_us);
}

static void handle_epoch_written(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(master->busy == GUARD_WRITE_EPOCH);
	assert(master->state == GUARD_WRITING_EPOCH);
	assert(master->chosen_cluster != 0);
	master->busy = GUARD_NOTHING;
	if (!event->done) {
		guard_state_ask(master);
		return;
	}
	if (master->hazard != GUARD_ROLLED_BACK)
		master->hazard = GUARD_NO_REASON; /* while it was quarantined nothing could be lost */
	guard->bootstrap_open = guard->take_over_open = false;
	master->cluster = master->chosen_cluster;
	if (master->clocks)
		master->clocked_us = event->now_us;
	guard_state_vote(master, master->marker);
	guard_cluster_check(guard, event->now_us);
}

static void handle_failed(struct guard_master *master, enum guard_action_kind action)
{
	assert(action != GUARD_NOTHING);
	assert(action <= GUARD_WRITE_EPOCH);
	if (master->busy != action)
		return; /* a heartbeat, while an action is under way */
	master->busy = GUARD_HELD_BACK;
	if (master->state == GUARD_WRITING_EPOCH)
		guard_state_set(master, GUARD_RECOVERING);
}

/* Reads the epoch again before the quarantine: in the meantime another redlockd may have quarantined the master and
 * written its epoch. */
static void handle_mismatch(struct guard_master *master, const struct guard_event *event)
{
	assert(event->kind == GUARD_MISMATCH);
	if (master->state != GUARD_VOTING || event->epoch != master->epoch)
		return; /* the script was sent under an older epoch */
	guard_state_set(master, GUARD_ASKING);
	master->reason = GUARD_BAD_EPOCH;
}

static void handle_lost(struct guard_master *master)
{
	assert(master->seen);
	if (master->state == GUARD_VOTING)
		guard_durable_set_last(master);
	guard_state_set(master, GUARD_ABSENT);
	master->reason = GUARD_NO_REASON;
	master->busy = GUARD_NOTHING;
	guard_state_end_connection(master);
	master->epoch = 0;
}

void guard_event(struct guard *guard, const struct guard_event *event)
{
	assert(event->kind <= GUARD_LOST);
	assert(event->master < guard->params.masters);
	struct guard_master *master = &guard->masters[event->master];
	if (master->state == GUARD_ABSENT && event->kind != GUARD_CONNECTED && event->kind != GUARD_UNUSABLE)
		return; /* of a connection that is lost */
	switch (event->kind) {
	case GUARD_CONNECTED: handle_connected(guard, master, event); break;
	case GUARD_EPOCH: handle_epoch(guard, master, event); break;
	case GUARD_QUARANTINED: handle_quarantined(master, event); break;
	case GUARD_FENCES: guard_recovery_handle_fences(guard, master, event); break;
	case GUARD_EPOCH_WRITTEN: handle_epoch_written(guard, master, event); break;
	case GUARD_FAILED: handle_failed(master, event->action); break;
	case GUARD_MISMATCH: handle_mismatch(master, event); break;
	case GUARD_DROPPED_KEYS: guard_state_set_hazard(master, GUARD_EVICTED, event->now_us); break;
	case GUARD_WEAKENED: guard_state_set_hazard(master, GUARD_NOT_DURABLE, event->now_us); break;
	case GUARD_UNUSABLE: master->unusable = true; break;
	case GUARD_LOST: handle_lost(master); break;
	}
	set_member(guard, master);
	try_bootstrap(guard);
	guard_state_check(guard, event->master);
}

/* ---- actions ---- */

static void write_epoch(struct guard *guard, struct guard_master *master, uint64_t now_us, uint64_t wall_us,
			struct guard_action *ret_action)
{
	assert(master->state == GUARD_RECOVERING);
	assert(master->busy == GUARD_NOTHING);
	uint64_t cluster = guard_cluster_choose(guard, master, now_us);
	if (cluster == 0)
		return;
	*ret_action = (struct guard_action){.kind = GUARD_WRITE_EPOCH,
					    .marker = master->marker,
					    .cluster = cluster,
					    .ttl_us = guard_longest_us(guard)};
	guard_recovery_choose_floor(guard, master, now_us, wall_us, ret_action);
	assert(ret_action->ttl_us >= guard->params.max_ttl_us);
	master->clocks = ret_action->clocked;
	master->chosen_cluster = cluster; /* counts as the master's when WRITE_EPOCH is done */
	guard_state_set(master, GUARD_WRITING_EPOCH);
}

void guard_next(struct guard *guard, unsigned i, uint64_t now_us, uint64_t wall_us, struct guard_action *ret_action)
{
	assert(i < guard->params.masters);
	struct guard_master *master = &guard->masters[i];
	*ret_action = (struct guard_action){.kind = GUARD_NOTHING};
	if (master->state == GUARD_ABSENT || master->busy != GUARD_NOTHING)
		return;
	assert(now_us >= master->heard_us);
	/* Another master may have reported longer leases since the recovery began. */
	if (master->state == GUARD_RECOVERING && now_us < guard_state_quarantine_end_us(guard, master, now_us))
		guard_state_set(master, GUARD_WAITING);
	if (master->state == GUARD_WAITING && now_us >= guard_state_quarantine_end_us(guard, master, now_us))
		guard_recovery_begin(master, now_us);
	guard_other_take_over(guard, master);
	if (master->state == GUARD_ASKING)
		*ret_action = (struct guard_action){.kind = GUARD_READ,
						    .epoch = master->keeps ? master->last.epoch : 0};
	else if (master->state == GUARD_MARKING)
		*ret_action = (struct guard_action){.kind = GUARD_QUARANTINE,
						    .epoch = master->void_epoch,
						    .marker = guard_state_random(guard),
						    .kept = master->memory == GUARD_MEMORY_KEPT,
						    .ttl_us = guard_longest_us(guard),
						    .takes_over = master->reason == GUARD_OTHER_DIGEST,
						    .digest = master->other_digest};
	else if (guard_recovery_wants_survey(guard, i) || guard_leases_want_survey(guard, i, now_us))
		guard_recovery_survey(guard, i, now_us, ret_action);
	else if (master->state == GUARD_RECOVERING && guard_recovery_is_done(guard, i, now_us))
		write_epoch(guard, master, now_us, wall_us, ret_action);
	master->busy = ret_action->kind;
	guard_state_check(guard, i);
}

/* ---- questions ---- */

bool guard_may_vote(const struct guard *guard, unsigned i)
{
	assert(i < guard->params.masters);
	return guard->masters[i].state == GUARD_VOTING;
}

/* The end of the wait, or if that is not known yet, the time at which enough other masters can be asked. */
static uint64_t time_of_wait_us(const struct guard *guard, const struct guard_master *master, uint64_t now_us)
{
	uint64_t end_us = guard_state_quarantine_end_us(guard, master, now_us);
	uint64_t asked_us = guard_leases_asked_us(guard, master, now_us);
	assert(master->state == GUARD_WAITING);
	return asked_us > now_us && asked_us < end_us ? asked_us : end_us;
}

uint64_t guard_quarantine_left_us(const struct guard *guard, unsigned i, uint64_t now_us)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	if (master->state == GUARD_MARKING)
		return guard_state_quarantine_us(guard);
	uint64_t end_us = 0;
	if (master->state == GUARD_WAITING)
		end_us = time_of_wait_us(guard, master, now_us) + guard_cluster_patience_us(guard);
	else if (master->state == GUARD_RECOVERING && guard_cluster_patience_us(guard) > 0)
		end_us = master->recovery_us + guard_cluster_patience_us(guard);
	assert(master->state != GUARD_RECOVERING || now_us >= master->recovery_us);
	return end_us > now_us ? end_us - now_us : 0;
}

bool guard_in_motion(const struct guard *guard, unsigned i)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	if (master->busy == GUARD_HELD_BACK)
		return false;
	return master->state == GUARD_ASKING || master->state == GUARD_MARKING || guard_other_is_watched(guard, i) ||
	       master->state == GUARD_WRITING_EPOCH || master->busy == GUARD_SURVEY || master->skip ||
	       (master->state == GUARD_RECOVERING && guard_recovery_is_done(guard, i, master->recovery_us));
}

const char *guard_reason_name(enum guard_reason reason)
{
	static const char *const names[] = {"",        "no-epoch",    "restarted",   "bad-epoch", "clock-forward",
					    "evicted", "rolled-back", "not-durable", "digest",    "cluster"};
	assert((unsigned)reason < sizeof names / sizeof *names);
	return names[reason];
}
