/* Which cluster the masters belong to. An epoch carries a cluster id: a master that remembers another cluster's leases
 * does not remember ours. The id is drawn when the first master of all has its epoch; there is nobody to ask who draws
 * it, so it is the redlockd that wins the compare-and-set on the master with the smallest run_id. */
#include "guard_internal.h"

#define CREATION_PATIENCE_US UINT64_C(3000000)
#define SIBLINGS 20 /* quarantines: masters that all restart do so one after the other */

/* The cluster id that most masters have; the smallest of those where several have as many; 0: none has one. */
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
	return best;
}

/* True if the master's cluster was made at about the same time as ours, of masters that had all forgotten: then two
 * redlockd that could not see each other's masters made two of one. */
static bool is_sibling(const struct guard *guard, const struct guard_master *master, uint64_t ours)
{
	uint64_t span_us = SIBLINGS * guard_quarantine_us(guard);
	for (unsigned i = 0; master->clocked_us != 0 && i < guard->params.masters; i++) {
		const struct guard_master *other = &guard->masters[i];
		bool near = other->clocked_us + span_us > master->clocked_us &&
			    master->clocked_us + span_us > other->clocked_us;
		if (other->cluster == ours && other->clocked_us != 0 && near)
			return true;
	}
	return false;
}

/* A master of another cluster does not remember our leases. Which one is the other, only all of them together say. */
void guard_check_clusters(struct guard *guard, uint64_t now_us)
{
	uint64_t ours = common_cluster(guard);
	for (unsigned i = 0; i < guard->params.masters; i++) {
		struct guard_master *master = &guard->masters[i];
		if (master->state == GUARD_VOTING && master->cluster != ours && is_sibling(guard, master, ours)) {
			master->void_epoch = master->epoch;
			guard_quarantine(master, GUARD_OTHER_CLUSTER, false, now_us);
		} else if (master->state == GUARD_VOTING && master->cluster != ours) {
			guard_refuse(master, GUARD_OTHER_CLUSTER, now_us);
		} else if (master->state == GUARD_FOREIGN && master->reason == GUARD_OTHER_CLUSTER &&
			   master->cluster == ours) {
			master->state = GUARD_ASKING;
			master->epoch = 0;
		}
	}
}

static bool is_there(const struct guard_master *master)
{
	return master->read && master->state != GUARD_FOREIGN;
}

/* How long after its quarantine a master waits where no cluster id is known and others cannot be seen: another redlockd
 * may see them, and draw one. */
uint64_t guard_creation_us(const struct guard *guard)
{
	bool all_there = true;
	for (unsigned i = 0; i < guard->params.masters; i++)
		/* also one that is unusable to us: another may have the right password */
		all_there = all_there && is_there(&guard->masters[i]);
	return all_there || common_cluster(guard) != 0 ? 0 : CREATION_PATIENCE_US;
}

/* The cluster id for a new epoch. Where no master has one yet, the master with the smallest run_id gets it first, so
 * that several redlockd that begin at once draw one between them: the others' compare-and-set fails there and they read
 * it. */
uint64_t guard_choose_cluster(struct guard *guard, const struct guard_master *master, uint64_t now_us)
{
	uint64_t cluster = common_cluster(guard);
	bool patient = now_us - master->recovery_us < guard_creation_us(guard);
	for (unsigned i = 0; cluster == 0 && i < guard->params.masters; i++) {
		const struct guard_master *other = &guard->masters[i];
		if (is_there(other) ? other->run_id < master->run_id : patient)
			return 0;
	}
	return cluster != 0 ? cluster : guard_draw(guard);
}
