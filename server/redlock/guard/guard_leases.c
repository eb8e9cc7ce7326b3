/* SPDX-License-Identifier: MIT */
/* The end of the leases that a quarantined master may have forgotten: after the longest lease, or earlier if the other
 * masters remember shorter ones.
 *
 * Each lease is on Q masters (the majority), so any N−Q+1 others include one that granted it and remembers its end
 * (remember_leases() in lib/lease.lua). They are asked once no command from before the quarantine can run any more.
 * Only a witness counts: a master that votes under the epoch with which it answered, and whose clock is known. The
 * argument is in docs/explanation/proofs.md.
 *
 * A master raises that end once in a second, not with each lease. The new end is that of a lease granted at the
 * deadline of the command, the last moment. Commands with earlier ends need not raise it again. */
#include <assert.h>

#include "guard_internal.h"

enum {
	RATE = 1000,          /* as in guard_clock.c */
	KNOWN_US = 200000,    /* a witness's clock is known to within this */
	TOLERANCE_US = 50000, /* more than an interval and its tolerance can hide beyond KNOWN_US */
	SECOND_US = 1000000,
	TIMEOUT_DRIFT = 500 /* two clocks drift apart by at most 1/500 of a timeout */
};

uint64_t guard_longest_us(const struct guard *guard)
{
	uint64_t longest_us = guard->params.max_ttl_us;
	for (unsigned i = 0; i < guard->params.masters; i++)
		if (guard->masters[i].ttl_us > longest_us)
			longest_us = guard->masters[i].ttl_us;
	assert(longest_us >= guard->params.max_ttl_us);
	return longest_us;
}

unsigned guard_leases_needed(const struct guard *guard)
{
	unsigned majority = redlock_majority(guard->params.masters);
	assert(majority <= guard->params.masters);
	return guard->params.masters - majority + 1U;
}

uint64_t guard_leases_until_s(const struct guard *guard, unsigned i, uint64_t deadline_us, uint64_t ttl_us)
{
	assert(i < guard->params.masters);
	assert(deadline_us <= UINT64_MAX - ttl_us - SECOND_US);
	uint64_t until_s = (deadline_us + ttl_us + SECOND_US - 1) / SECOND_US;
	return guard->masters[i].remembers_s >= until_s ? 0 : until_s;
}

void guard_leases_remember(struct guard *guard, unsigned i, uint64_t until_s)
{
	assert(i < guard->params.masters);
	struct guard_master *master = &guard->masters[i];
	assert(master->state == GUARD_VOTING);
	if (master->remembers_s < until_s)
		master->remembers_s = until_s;
}

static uint64_t with_drift(const struct guard *guard, uint64_t us)
{
	return us + us / 1000 * guard->params.drift_ppm / 1000;
}

/* The time from which master i may be asked about the leases that *lost may have forgotten. By then it can no longer
 * carry out a command of a round that began before the quarantine was seen. */
static uint64_t askable_us(const struct guard *guard, const struct guard_master *lost, unsigned i)
{
	uint64_t timeout_us = guard->params.timeout_us;
	assert(lost->state == GUARD_WAITING);
	if (guard->masters[i].timeout_us > timeout_us)
		timeout_us = guard->masters[i].timeout_us;
	return lost->since_us + timeout_us + timeout_us / TIMEOUT_DRIFT + GUARD_LATE_US + KNOWN_US + TOLERANCE_US;
}

/* A master whose clock went back is no witness: it may carry out commands after their deadline. */
static bool is_witness(const struct guard *guard, unsigned i, uint64_t now_us)
{
	const struct guard_master *master = &guard->masters[i];
	assert(i < guard->params.masters);
	if (master->state != GUARD_VOTING || !master->has_clock || now_us < master->clock_us)
		return false;
	int64_t parted_us = (int64_t)((now_us - master->clock_us) / RATE);
	bool went_back = master->back_us != 0 && now_us - master->back_us < with_drift(guard, guard_longest_us(guard));
	return !went_back && master->ahead_max_us - master->ahead_min_us + 2 * parted_us <= KNOWN_US;
}

/* True if the memory of others cannot shorten the wait. An older version, which left the marker, stores no leases. */
static bool waits_for_longest(const struct guard *guard, const struct guard_master *master)
{
	return guard->params.waits_longest || master->ttl_unknown;
}

static bool has_reported(const struct guard *guard, const struct guard_master *lost, unsigned i)
{
	return lost->reported_epoch[i] != 0 && lost->reported_epoch[i] == guard->masters[i].epoch;
}

void guard_leases_forget(struct guard_master *master)
{
	for (unsigned i = 0; i < REDLOCK_MASTERS_MAX; i++)
		master->reported_epoch[i] = 0;
}

/* True if master i is to be asked for *lost, at once or later. */
static bool may_ask(const struct guard *guard, const struct guard_master *lost, unsigned i, uint64_t now_us)
{
	return lost != &guard->masters[i] && lost->state == GUARD_WAITING && !waits_for_longest(guard, lost) &&
	       !has_reported(guard, lost, i) && is_witness(guard, i, now_us);
}

bool guard_leases_want_survey(const struct guard *guard, unsigned i, uint64_t now_us)
{
	assert(i < guard->params.masters);
	for (unsigned j = 0; j < guard->params.masters; j++)
		if (may_ask(guard, &guard->masters[j], i, now_us) && askable_us(guard, &guard->masters[j], i) <= now_us)
			return true;
	return false;
}

void guard_leases_store(struct guard *guard, uint64_t asked_us, const struct guard_event *event)
{
	struct guard_master *witness = &guard->masters[event->master];
	assert(event->kind == GUARD_FENCES);
	assert(asked_us <= event->now_us);
	if (event->timeout_us > witness->timeout_us)
		witness->timeout_us = event->timeout_us;
	for (unsigned j = 0; j < guard->params.masters; j++) {
		struct guard_master *lost = &guard->masters[j];
		if (!may_ask(guard, lost, event->master, event->now_us) ||
		    asked_us < askable_us(guard, lost, event->master))
			continue;
		lost->reported_epoch[event->master] = witness->epoch;
		lost->reported_end_us[event->master] = event->now_us + with_drift(guard, event->leases_us);
		assert(lost->reported_end_us[event->master] >= event->now_us);
	}
}

/* The n-th smallest of `count` values, which are changed. */
static uint64_t nth_smallest(uint64_t *values, unsigned count, unsigned n)
{
	assert(n >= 1);
	assert(n <= count);
	for (unsigned k = 0; k < n; k++) {
		unsigned least = k;
		for (unsigned i = k + 1; i < count; i++)
			least = values[i] < values[least] ? i : least;
		uint64_t value = values[least];
		values[least] = values[k];
		values[k] = value;
	}
	return values[n - 1];
}

uint64_t guard_leases_end_us(const struct guard *guard, const struct guard_master *lost, uint64_t now_us)
{
	uint64_t ends_us[REDLOCK_MASTERS_MAX];
	unsigned reported = 0;
	for (unsigned i = 0; i < guard->params.masters; i++)
		if (lost != &guard->masters[i] && has_reported(guard, lost, i) && is_witness(guard, i, now_us))
			ends_us[reported++] = lost->reported_end_us[i];
	assert(reported < guard->params.masters);
	if (waits_for_longest(guard, lost))
		return UINT64_MAX;
	return reported < guard_leases_needed(guard) ? UINT64_MAX
						     : nth_smallest(ends_us, reported, guard_leases_needed(guard));
}

uint64_t guard_leases_asked_us(const struct guard *guard, const struct guard_master *lost, uint64_t now_us)
{
	uint64_t asked_us[REDLOCK_MASTERS_MAX];
	unsigned count = 0;
	for (unsigned i = 0; i < guard->params.masters; i++) {
		if (may_ask(guard, lost, i, now_us))
			asked_us[count++] = askable_us(guard, lost, i);
		else if (lost != &guard->masters[i] && has_reported(guard, lost, i))
			asked_us[count++] = 0;
	}
	assert(count < guard->params.masters);
	return count < guard_leases_needed(guard) ? UINT64_MAX
						  : nth_smallest(asked_us, count, guard_leases_needed(guard));
}
