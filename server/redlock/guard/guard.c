/* The states of a master and what moves it from one to the next: see guard.h. The clock of a master is in
 * guard_clock.c, the cluster that it belongs to in guard_cluster.c, what a quarantined master must know before it votes
 * again in guard_recovery.c. */
#include "guard.h"

#include <assert.h>
#include <string.h>

#include "guard_internal.h"
#include "server/redlock/mutations.h"

#define GAP_US UINT64_C(5000000) /* between two heartbeats: longer, and the wait begins anew */

void guard_init(struct guard *guard, const struct guard_params *params)
{
	assert(params->masters >= 1 && params->masters <= REDLOCK_MASTERS_MAX);
	assert(params->max_ttl_us >= 1000 && params->digest != 0);
	memset(guard, 0, sizeof *guard);
	guard->params = *params;
	guard->random = params->seed;
	guard->bootstrap_open = params->bootstrap;
}

/* splitmix64; never 0, which stands for "none". */
uint64_t guard_draw(struct guard *guard)
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

bool guard_is_quarantined(const struct guard_master *master)
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

/* The longest lease, its drift, 2 s. */
static uint64_t quarantine_for_us(const struct guard *guard, uint64_t longest_us)
{
	if (MUTATED(MUTATION_NO_QUARANTINE))
		return 0;
	return longest_us + longest_us / 1000 * guard->params.drift_ppm / 1000 + guard->params.margin_us;
}

uint64_t guard_quarantine_us(const struct guard *guard)
{
	return quarantine_for_us(guard, guard_longest_us(guard));
}

/* A marker that says nothing of leases is waited out by itself for the longest that there can be: it says nothing of
 * other masters. */
static uint64_t quarantine_end_us(const struct guard *guard, const struct guard_master *master)
{
	return master->skip
		       ? 0
		       : master->since_us + quarantine_for_us(guard, master->ttl_unknown ? GUARD_TTL_MAX_US
											 : guard_longest_us(guard));
}

static void note_ttl(struct guard_master *master, const struct guard_event *event)
{
	if (event->ttl_us > master->ttl_us)
		master->ttl_us = event->ttl_us;
	master->ttl_unknown = event->marker != 0 && event->ttl_us == 0 && !MUTATED(MUTATION_MARKER_NO_TTL);
}

/* ---- the epoch ---- */

/* Whether its buckets are all there. */
static void set_kept(struct guard_master *master, bool kept, uint64_t now_us)
{
	if (!kept && !master->lost)
		master->lost_us = now_us;
	master->kept = kept;
	master->lost = !kept;
}

/* QUARANTINE is to be sent. `kept`: its buckets are all there, only locks may be gone. */
void guard_quarantine(struct guard_master *master, enum guard_reason reason, bool kept, uint64_t now_us)
{
	master->state = GUARD_MARKING;
	master->reason = reason;
	set_kept(master, kept, now_us);
	master->skip = false;
	master->again = false;
}

void guard_quarantine_found(struct guard_master *master, uint64_t now_us)
{
	assert(master->found != GUARD_NO_REASON);
	guard_quarantine(master, master->found, master->found != GUARD_ROLLED_BACK, now_us);
}

void guard_refuse(struct guard_master *master, enum guard_reason reason, uint64_t now_us)
{
	master->state = GUARD_FOREIGN;
	master->reason = reason;
	set_kept(master, false, now_us); /* what it remembers is not ours */
}

static void authorize(struct guard_master *master, uint64_t epoch)
{
	master->state = GUARD_VOTING;
	master->reason = GUARD_NO_REASON;
	master->epoch = epoch;
	master->marker = 0;
	master->lost = master->kept = master->skip = false;
}

/* From now on the wait counts: nothing before was seen over this connection and under this marker. */
static void wait_from(struct guard_master *master, uint64_t marker, bool kept, uint64_t now_us)
{
	master->state = GUARD_WAITING;
	master->marker = marker;
	set_kept(master, kept, now_us);
	master->since_us = now_us;
	master->epoch = 0;
	master->skip = false;            /* of another wait: leases may have been given since */
	master->found = GUARD_NO_REASON; /* whatever it was, the wait makes up for it */
	if (master->gone_epoch == marker)
		/* an image from the time of an older quarantine brought its marker back: whoever waits it out may use
		 * it */
		master->gone_epoch = 0;
}

/* Quarantined already, by us or by another redlockd. */
static void follow_marker(struct guard_master *master, const struct guard_event *event)
{
	if (master->marker == event->marker) { /* the wait goes on, also where it was read once more for a doubt */
		if (!guard_is_quarantined(master))
			master->state = GUARD_WAITING;
		/* another redlockd may have found worse */
		set_kept(master, master->kept && event->kept, event->now_us);
		master->found = GUARD_NO_REASON; /* nothing was given here since the marker */
		return;
	}
	if (master->reason == GUARD_NO_REASON)
		master->reason = GUARD_NO_EPOCH;
	wait_from(master, event->marker, event->kept, event->now_us);
}

static enum guard_reason reason_without_fit(const struct guard_master *master, const struct guard_event *event,
					    bool was_voting)
{
	if (was_voting || master->reason == GUARD_BAD_EPOCH)
		return GUARD_BAD_EPOCH;
	return event->epoch != 0 || event->epoch_run_id != 0 ? GUARD_RESTARTED : GUARD_NO_EPOCH;
}

/* What the epoch says about the master that it was read from. */
static void assess(struct guard_master *master, const struct guard_params *params, const struct guard_event *event)
{
	bool was_voting = master->state == GUARD_VOTING;
	bool fits = event->epoch != 0 && event->epoch_run_id == master->run_id;
	/* One that was trusted and was gone never comes again by right: whoever writes its epoch draws a new one. */
	if (master->epoch != 0 && event->epoch != master->epoch)
		master->gone_epoch = master->epoch;
	bool refuted = event->epoch != 0 && (event->epoch == master->gone_epoch ||
					     (master->state == GUARD_ASKING && event->epoch == master->epoch));
	master->void_epoch = event->epoch;
	if (fits && refuted)
		master->found = GUARD_ROLLED_BACK; /* it went away and came back */
	if (event->epoch != 0 && event->digest != params->digest)
		guard_refuse(master, GUARD_OTHER_DIGEST, event->now_us);
	else if (master->found == GUARD_ROLLED_BACK || (fits && master->found != GUARD_NO_REASON))
		guard_quarantine_found(master, event->now_us);
	else if (fits)
		authorize(master, event->epoch);
	else if (event->epoch == 0 && event->marker != 0 && event->marker_run_id == master->run_id)
		follow_marker(master, event);
	else
		guard_quarantine(master, reason_without_fit(master, event, was_voting), false, event->now_us);
}

/* ---- bootstrap ---- */

/* All masters were seen, over connections that still stand, and none ever had an epoch: new, as we were told. A
 * minority may answer without being of any use; one that does not answer may have an epoch. */
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
	for (unsigned i = 0; i < guard->params.masters; i++)
		guard->masters[i].skip = guard->masters[i].state == GUARD_WAITING;
	guard->bootstrap_open = false;
}

/* ---- events ---- */

static void take_connected(struct guard_master *master, const struct guard_event *event)
{
	bool same = master->seen && master->run_id == event->run_id;
	if (same && event->client_id <= master->client_id)
		master->found = GUARD_ROLLED_BACK;
	if (!same) {
		master->beat = 0;
		master->gone_epoch = 0;
		master->has_clock = false;
		master->found = GUARD_NO_REASON;
	}
	master->seen = true;
	master->run_id = event->run_id;
	master->client_id = event->client_id;
	master->state = GUARD_ASKING;
	master->reason = GUARD_NO_REASON;
	master->busy = GUARD_NOTHING;
	master->epoch = master->marker = 0;
	master->slice = 0;
	master->read = master->again = master->kept = master->skip = master->unusable = false;
	master->heard_us = event->now_us;
}

/* When its floor was made of clocks, on our clock: from its own time, at the earliest. */
static void note_clocked(const struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	uint64_t there_us = guard_master_time_us(guard, event->master, event->now_us);
	uint64_t ago_us = event->clocked_us != 0 && there_us > event->clocked_us ? there_us - event->clocked_us
										 : UINT64_MAX;
	if (ago_us < event->now_us && event->now_us - ago_us > master->clocked_us)
		master->clocked_us = event->now_us - ago_us;
}

static void take_epoch(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	if (event->now_us - master->heard_us > GAP_US)
		master->since_us = event->now_us;
	if (event->beat <= master->beat && event->cluster != 0) /* a hash that is new begins to count anew */
		master->found = GUARD_ROLLED_BACK;
	master->heard_us = event->now_us;
	master->beat = event->beat;
	master->read = true;
	master->again = master->unusable = false;
	note_ttl(master, event);
	if (event->epoch != 0 || event->cluster != 0)
		guard->bootstrap_open = false;
	if (master->busy == GUARD_QUARANTINE || master->busy == GUARD_WRITE_EPOCH)
		return; /* read before, told after: those answers say more */
	if (master->busy == GUARD_READ)
		master->busy = GUARD_NOTHING;
	master->cluster = event->cluster;
	note_clocked(guard, master, event);
	assess(master, &guard->params, event);
	guard_check_clusters(guard, event->now_us);
	if (master->state == GUARD_FOREIGN)
		master->ttl_us = 0; /* others' leases: what is noted here would be told to all our masters */
}

static void ask_again(struct guard_master *master)
{
	master->state = GUARD_ASKING;
	master->epoch = 0;
}

static void take_quarantined(struct guard_master *master, const struct guard_event *event)
{
	assert(master->busy == GUARD_QUARANTINE);
	master->busy = GUARD_NOTHING;
	if (!event->done) {
		ask_again(master);
		return;
	}
	note_ttl(master, event);
	wait_from(master, event->marker, event->kept, event->now_us);
}

static void take_epoch_written(struct guard *guard, struct guard_master *master, const struct guard_event *event)
{
	assert(master->busy == GUARD_WRITE_EPOCH && master->state == GUARD_WRITING_EPOCH);
	master->busy = GUARD_NOTHING;
	if (!event->done) {
		ask_again(master);
		return;
	}
	if (master->found != GUARD_ROLLED_BACK)
		master->found = GUARD_NO_REASON; /* while it was quarantined nothing could be lost */
	guard->bootstrap_open = false;
	master->cluster = master->chosen_cluster;
	if (master->clocks)
		master->clocked_us = event->now_us;
	authorize(master, master->marker);
	guard_check_clusters(guard, event->now_us);
}

static void take_failed(struct guard_master *master, enum guard_action_kind action)
{
	if (master->busy != action)
		return; /* a heartbeat, while an action is under way */
	master->busy = GUARD_NOTHING;
	master->again = true;
	if (master->state == GUARD_WRITING_EPOCH)
		master->state = GUARD_RECOVERING;
}

/* Read once more before it is quarantined: another redlockd may have waited and written its epoch in the meantime. */
static void take_mismatch(struct guard_master *master, const struct guard_event *event)
{
	if (master->state != GUARD_VOTING || event->epoch != master->epoch)
		return; /* sent under an older one */
	master->state = GUARD_ASKING;
	master->reason = GUARD_BAD_EPOCH;
}

static void take_dropped_keys(struct guard_master *master, uint64_t now_us)
{
	if (master->found != GUARD_ROLLED_BACK)
		master->found = GUARD_EVICTED;
	if (master->state == GUARD_VOTING) {
		master->void_epoch = master->epoch;
		guard_quarantine_found(master, now_us);
	}
}

static void take_lost(struct guard_master *master)
{
	master->state = GUARD_ABSENT;
	master->reason = GUARD_NO_REASON;
	master->busy = GUARD_NOTHING;
	master->read = master->again = master->kept = master->skip = false;
	master->epoch = 0;
}

void guard_event(struct guard *guard, const struct guard_event *event)
{
	assert(event->master < guard->params.masters);
	struct guard_master *master = &guard->masters[event->master];
	if (master->state == GUARD_ABSENT && event->kind != GUARD_CONNECTED && event->kind != GUARD_UNUSABLE)
		return; /* of a connection that is gone */
	switch (event->kind) {
	case GUARD_CONNECTED: take_connected(master, event); break;
	case GUARD_EPOCH: take_epoch(guard, master, event); break;
	case GUARD_QUARANTINED: take_quarantined(master, event); break;
	case GUARD_FENCES: guard_take_fences(guard, master, event); break;
	case GUARD_EPOCH_WRITTEN: take_epoch_written(guard, master, event); break;
	case GUARD_FAILED: take_failed(master, event->action); break;
	case GUARD_MISMATCH: take_mismatch(master, event); break;
	case GUARD_DROPPED_KEYS: take_dropped_keys(master, event->now_us); break;
	case GUARD_UNUSABLE: master->unusable = true; break;
	case GUARD_LOST: take_lost(master); break;
	}
	try_bootstrap(guard);
}

/* ---- actions ---- */

static void write_epoch(struct guard *guard, struct guard_master *master, uint64_t now_us, uint64_t wall_us,
			struct guard_action *ret)
{
	uint64_t cluster = guard_choose_cluster(guard, master, now_us);
	if (cluster == 0)
		return;
	*ret = (struct guard_action){.kind = GUARD_WRITE_EPOCH,
				     .marker = master->marker,
				     .cluster = cluster,
				     .ttl_us = guard_longest_us(guard)};
	guard_choose_floor(guard, master, now_us, wall_us, ret);
	master->clocks = ret->clocked;
	master->chosen_cluster = cluster; /* its own, and an example to the others, when WRITE_EPOCH has won */
	master->state = GUARD_WRITING_EPOCH;
}

void guard_next(struct guard *guard, unsigned i, uint64_t now_us, uint64_t wall_us, struct guard_action *ret_action)
{
	assert(i < guard->params.masters);
	struct guard_master *master = &guard->masters[i];
	*ret_action = (struct guard_action){.kind = GUARD_NOTHING};
	if (master->state == GUARD_ABSENT || master->busy != GUARD_NOTHING || master->again)
		return;
	if (master->state == GUARD_RECOVERING && now_us < quarantine_end_us(guard, master))
		master->state = GUARD_WAITING; /* another master told of longer leases */
	if (master->state == GUARD_WAITING && now_us >= quarantine_end_us(guard, master))
		guard_begin_recovery(guard, master, now_us);
	if (master->state == GUARD_ASKING)
		ret_action->kind = GUARD_READ;
	else if (master->state == GUARD_MARKING)
		*ret_action = (struct guard_action){.kind = GUARD_QUARANTINE,
						    .epoch = master->void_epoch,
						    .marker = guard_draw(guard),
						    .kept = master->kept,
						    .ttl_us = guard_longest_us(guard)};
	else if (guard_wants_survey(guard, i))
		guard_ask_fences(guard, i, now_us, ret_action);
	else if (master->state == GUARD_RECOVERING && guard_recovery_done(guard, i, now_us))
		write_epoch(guard, master, now_us, wall_us, ret_action);
	master->busy = ret_action->kind;
}

/* ---- questions ---- */

bool guard_may_vote(const struct guard *guard, unsigned i)
{
	assert(i < guard->params.masters);
	return guard->masters[i].state == GUARD_VOTING;
}

uint64_t guard_quarantine_left_us(const struct guard *guard, unsigned i, uint64_t now_us)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	if (master->state == GUARD_MARKING)
		return guard_quarantine_us(guard);
	uint64_t end_us = 0;
	if (master->state == GUARD_WAITING)
		end_us = quarantine_end_us(guard, master) + guard_creation_us(guard);
	else if (master->state == GUARD_RECOVERING && guard_creation_us(guard) > 0)
		end_us = master->recovery_us + guard_creation_us(guard);
	return end_us > now_us ? end_us - now_us : 0;
}

bool guard_in_motion(const struct guard *guard, unsigned i)
{
	assert(i < guard->params.masters);
	const struct guard_master *master = &guard->masters[i];
	if (master->again)
		return false;
	return master->state == GUARD_ASKING || master->state == GUARD_MARKING ||
	       master->state == GUARD_WRITING_EPOCH || master->busy == GUARD_SURVEY || master->skip ||
	       (master->state == GUARD_RECOVERING && guard_recovery_done(guard, i, master->recovery_us));
}

uint64_t guard_deadline_us(const struct guard *guard)
{
	uint64_t deadline_us = REDLOCK_NEVER;
	for (unsigned i = 0; i < guard->params.masters; i++) {
		const struct guard_master *master = &guard->masters[i];
		uint64_t end_us = master->state == GUARD_WAITING && !master->again ? quarantine_end_us(guard, master)
										   : REDLOCK_NEVER;
		if (master->state == GUARD_RECOVERING && !master->again && guard_creation_us(guard) > 0)
			end_us = master->recovery_us + guard_creation_us(guard);
		if (end_us < deadline_us)
			deadline_us = end_us;
	}
	return deadline_us;
}

const char *guard_reason_name(enum guard_reason reason)
{
	static const char *const names[] = {"",        "no-epoch",    "restarted", "bad-epoch", "clock-forward",
					    "evicted", "rolled-back", "digest",    "cluster"};
	assert((unsigned)reason < sizeof names / sizeof *names);
	return names[reason];
}
