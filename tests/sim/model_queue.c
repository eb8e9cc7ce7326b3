/* The queues of the modelled master, beside the Lua of server/scripts/parts/: see model_master.h. */
#include <assert.h>
#include <string.h>

#include "model_internal.h"

/* As Redis does before any command reads a key: removes one whose end has passed. */
static struct model_queue *look_up_queue(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	struct model_queue *queue = &master->queues[key];
	if (queue->count > 0 && model_has_ended(master, queue->expires_ms))
		memset(queue, 0, sizeof *queue);
	return queue;
}

bool model_is_before(struct model_entry a, struct model_entry b)
{
	if (a.arrival == b.arrival && a.replica == b.replica)
		return a.kind > b.kind || /* '#' < '+' < ':' < ';' */
		       (a.kind == b.kind && (a.of_set < b.of_set || (a.of_set == b.of_set && a.most < b.most)));
	return a.arrival < b.arrival || (a.arrival == b.arrival && a.replica < b.replica);
}

/* ---- the queue ---- */

void model_queue_add(struct model_master *master, unsigned key, struct model_entry entry)
{
	struct model_queue *queue = look_up_queue(master, key);
	uint32_t at = 0;
	assert(entry.replica != 0 && entry.arrival < UINT64_C(1) << 53);
	while (at < queue->count && model_is_before(queue->entries[at], entry))
		at++;
	if (at < queue->count && model_same_entry(queue->entries[at], entry))
		return;
	assert(queue->count < MODEL_ENTRIES);
	memmove(&queue->entries[at + 1], &queue->entries[at], (queue->count - at) * sizeof *queue->entries);
	queue->entries[at] = entry;
	queue->count++;
}

bool model_queue_remove(struct model_master *master, unsigned key, struct model_entry entry)
{
	struct model_queue *queue = look_up_queue(master, key);
	uint32_t at = 0;
	while (at < queue->count && !model_same_entry(queue->entries[at], entry))
		at++;
	if (at == queue->count)
		return false;
	queue->count--;
	memmove(&queue->entries[at], &queue->entries[at + 1], (queue->count - at) * sizeof *queue->entries);
	memset(&queue->entries[queue->count], 0, sizeof *queue->entries);
	if (queue->count == 0)
		queue->expires_ms = 0; /* an empty set is no key */
	return true;
}

struct model_entry model_queue_first(struct model_master *master, unsigned key)
{
	/* repeat
	 * 	first = redis.call('ZRANGE', queue, 0, 0)[1]
	 * 	local dead = first and redis.call('EXISTS', names .. 'alive:' .. string.sub(first, 1, 16)) == 0
	 * 	if dead then redis.call('ZREM', queue, first)
	 * until not dead */
	struct model_queue *queue = look_up_queue(master, key);
	while (queue->count > 0 && !model_is_alive(master, queue->entries[0].replica))
		model_queue_remove(master, key, queue->entries[0]);
	return queue->entries[0];
}

void model_queue_join(struct model_master *master, unsigned key, struct model_entry entry, uint32_t wait_ms)
{
	/* redis.call('ZADD', queue, 'NX', string.sub(entry, 18), entry)
	 * local keep_ms = wait_ms + 1000 */
	model_queue_add(master, key, entry);
	struct model_queue *queue = &master->queues[key];
	uint64_t keep_ms = (uint64_t)wait_ms + 1000, until_us = master->now_us + keep_ms * 1000;
	/* if redis.call('PTTL', queue) < keep_ms then */
	if (queue->expires_ms < model_now_ms(master) + keep_ms)
		/* redis.call('PEXPIRE', queue, keep_ms) */
		queue->expires_ms = model_now_ms(master) + keep_ms;
	/* if now_us + keep_ms * 1000 > waited then
	 * 	redis.call('HSET', KEYS[2], 'waited', string.format('%.0f', now_us + keep_ms * 1000)) */
	master->waited_us = model_larger(master->waited_us, until_us);
}

const struct model_queue *model_waiting(const struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	const struct model_queue *queue = &master->queues[key];
	return queue->count > 0 && !model_has_ended(master, queue->expires_ms) ? queue : NULL;
}

/* ---- who lives ---- */

static const struct model_alive *find_alive(const struct model_master *master, uint64_t replica)
{
	assert(replica != 0);
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (master->alive[i].replica == replica && !model_has_ended(master, master->alive[i].expires_ms))
			return &master->alive[i];
	return NULL;
}

bool model_is_alive(const struct model_master *master, uint64_t replica)
{
	return find_alive(master, replica) != NULL;
}

int64_t model_alive_pttl(const struct model_master *master, uint64_t replica)
{
	const struct model_alive *alive = find_alive(master, replica);
	return alive ? (int64_t)(alive->expires_ms - model_now_ms(master)) : -2;
}

/* The replica's own entry, or else one that is free or has ended. */
static struct model_alive *entry_for(struct model_master *master, uint64_t replica)
{
	struct model_alive *free_one = NULL;
	for (unsigned i = 0; i < MODEL_REPLICAS; i++) {
		struct model_alive *alive = &master->alive[i];
		if (alive->replica == replica)
			return alive;
		if (!free_one && (alive->replica == 0 || model_has_ended(master, alive->expires_ms)))
			free_one = alive;
	}
	return free_one;
}

bool model_alive_set(struct model_master *master, uint64_t replica, uint64_t ttl_ms, bool only_if_there)
{
	bool was_there = model_is_alive(master, replica);
	assert(ttl_ms > 0);
	if (was_there || !only_if_there) {
		struct model_alive *alive = entry_for(master, replica);
		assert(alive);
		*alive = (struct model_alive){replica, model_now_ms(master) + ttl_ms};
	}
	return was_there;
}

/* ---- what happens to it ---- */

void model_queue_sweep(struct model_master *master)
{
	for (unsigned i = 0; i < MODEL_KEYS; i++) {
		look_up_queue(master, i);
		if (model_has_ended(master, master->watched_ms[i]))
			master->watched_ms[i] = 0;
	}
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (model_has_ended(master, master->alive[i].expires_ms))
			memset(&master->alive[i], 0, sizeof master->alive[i]);
}

void model_evict_queue(struct model_master *master, unsigned key)
{
	struct model_queue *queue = look_up_queue(master, key);
	master->server_evicted += queue->count > 0;
	memset(queue, 0, sizeof *queue);
}

void model_evict_alive(struct model_master *master, uint64_t replica)
{
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (master->alive[i].replica == replica) {
			master->server_evicted += !model_has_ended(master, master->alive[i].expires_ms);
			memset(&master->alive[i], 0, sizeof master->alive[i]);
		}
}
