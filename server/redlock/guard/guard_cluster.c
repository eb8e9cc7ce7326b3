/* SPDX-License-Identifier: MIT */
/* The cluster that the masters belong to.
 *
 * An epoch carries a cluster id, since a master that remembers the leases of another cluster does not remember ours.
 * The id is made with the epoch of the first master. Several redlockd agree on it without talking to each other: the
 * one that wins the compare-and-set on the master with the smallest run_id makes it. */
#include <assert.h>

#include "guard_internal.h"

#define CREATION_PATIENCE_US UINT64_C(3000000)
#define SIBLINGS 20 /* in quarantine times: masters may restart one after the other */

/* The cluster id that the most masters have, the smallest of equals; 0: none has one. */
static uint64_t common_cluster(const struct guard *guard)
{
	uint64_t best = 0;
	unsigned best_count = 0;
	for (unsigned i = 0; i < guard->params.masters; i++) {
		uint64_t cluster = guard->masters[i].cluster;
		unsigned count = 0;
		for (unsigned j = 0; j < guard->params.masters; j++)
			count += guard->masters[j].cluster == cluster;
		bool more = count > best_count || (count == best_count && cluster < best);
		if (cluster != 0 && more) {
			best = cluster;
			best_count = count;
		}
	}
	assert((best == 0) == (best_count == 0));
	assert(best_count <= guard->params.masters);
	return best;
}

/* True if the master's cluster was made at about the same time as ours. This happens after all masters have lost their
 * memory, if two redlockd that cannot reach each other's masters make a cluster each. */
static bool is_sibling(const struct guard *guard, const struct guard_master *master, uint64_t ours)
{
	assert(master->cluster != ours);
	assert(master->state == GUARD_VOTING);
	uint64_t span_us = SIBLINGS * guard_state_quarantine_us(guard);
	for (unsigned i = 0; master->clocked_us != 0 && i < guard->params.masters; i++) {
		const struct guard_master *other = &guard->masters[i];
		bool near = other->clocked_us + span_us > master->clocked_us &&
			    master->clocked_us + span_us > other->clocked_us;
		if (other->cluster == ours && other->clocked_us != 0 && near)
			return true;
	}
	return false;
}

/* Compares all masters each time, since all of them together decide which cluster is ours. */
void guard_cluster_check(struct guard *guard, uint64_t now_us)
{
	uint64_t ours = common_cluster(guard);
	for (unsigned i = 0; i < guard->params.masters; i++) {
		struct guard_master *master = &guard->masters[i];
		if (master->state == GUARD_VOTING && master->cluster != ours && is_sibling(guard, master, ours)) {
			master->void_epoch = master->epoch;
			guard_state_quarantine(master, GUARD_OTHER_CLUSTER, false, now_us);
		} else if (master->state == GUARD_VOTING && master->cluster != ours) {
			guard_state_reject(master, GUARD_OTHER_CLUSTER, now_us);
		} else if (master->state == GUARD_REJECTED && master->reason == GUARD_OTHER_CLUSTER &&
			   master->cluster == ours) {
			guard_state_ask(master);
		}
		assert(master->state != GUARD_VOTING || master->cluster == ours);
	}
}

static bool is_readable(const struct guard_master *master)
{
	assert(!master->read || master->state != GUARD_ABSENT);
	return master->read && master->state != GUARD_REJECTED;
}

/* If no cluster id is known and some masters cannot be read, another redlockd may read them and make one. An
 * unusable master counts as well: another redlockd may have the right password. */
uint64_t guard_cluster_patience_us(const struct guard *guard)
{
	bool all_readable = true;
	for (unsigned i = 0; i < guard->params.masters; i++)
		all_readable = all_readable && is_readable(&guard->masters[i]);
	return all_readable || common_cluster(guard) != 0 ? 0 : CREATION_PATIENCE_US;
}

/* While no master has an id, the master with the smallest run_id gets it first. So several redlockd that begin at once
 * make only one id: the compare-and-set of all others fails on that master, and they read the id there. */
uint64_t guard_cluster_choose(struct guard *guard, const struct guard_master *master, uint64_t now_us)
{
	uint64_t cluster = common_cluster(guard);
	assert(master->state == GUARD_RECOVERING);
	assert(now_us >= master->recovery_us);
	bool patient = now_us - master->recovery_us < guard_cluster_patience_us(guard);
	for (unsigned i = 0; cluster == 0 && i < guard->params.masters; i++) {
		const struct guard_master *other = &guard->masters[i];
		if (is_readable(other) ? other->run_id < master->run_id : patient)
			return 0;
	}
	return cluster != 0 ? cluster : guard_state_random(guard);
}
