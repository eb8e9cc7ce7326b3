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
	struct model_queue *queue = look_up_queue(master, key);
	while (queue->count > 0 && !model_is_alive(master, queue->entries[0].replica))
		model_queue_remove(master, key, queue->entries[0]);
	return queue->entries[0];
}

void model_queue_join(struct model_master *master, unsigned key, struct model_entry entry, uint32_t wait_ms)
{
	model_queue_add(master, key, entry);
	struct model_queue *queue = &master->queues[key];
	uint64_t keep_ms = (uint64_t)wait_ms + 1000, until_us = master->now_us + keep_ms * 1000;
	if (queue->expires_ms < model_now_ms(master) + keep_ms)
		queue->expires_ms = model_now_ms(master) + keep_ms;
	master->waited_us = model_larger(master->waited_us, until_us);
}

const struct model_queue *model_waiting(const struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	const struct model_queue *queue = &master->queues[key];
	return queue->count > 0 && !model_has_ended(master, queue->expires_ms) ? queue : NULL;
}

/* ---- places ---- */

/* string.sub(place, 1, 8) .. string.sub(entry, 26, 33): the last digits of the arrival, read as hex digits */
static uint64_t replica_of_place(uint64_t place, uint64_t arrival)
{
	uint64_t replica = place >> 32;
	for (uint64_t unit = 10000000; unit > 0; unit /= 10)
		replica = replica << 4 | arrival / unit % 10;
	return replica;
}

bool model_is_place(struct model_entry entry)
{
	return entry.replica == replica_of_place(entry.replica, entry.arrival);
}

void model_reply_turn(struct model_entry first, unsigned key, struct model_reply *ret_reply)
{
	ret_reply->first = first;
	if (!model_is_place(first)) /* nobody listens for it */
		ret_reply->notified[key] = first;
}

/* Its own, or else the one that ends first: one that is free or has ended, as a rule. */
static struct model_place *find_place(struct model_master *master, uint64_t place)
{
	struct model_place *free_one = NULL;
	for (struct model_place *one = master->places; one < master->places + MODEL_PLACES; one++) {
		if (one->place == place)
			return one;
		if (!free_one || one->expires_ms < free_one->expires_ms)
			free_one = one;
	}
	return free_one;
}

/* SET {prefix}redlockd:alive:{replica} '' PX … */
static void set_kept(struct model_master *master, uint64_t replica, uint64_t expires_ms)
{
	struct model_alive *free_one = NULL;
	for (struct model_alive *one = master->keepers; one < master->keepers + MODEL_PLACES; one++)
		if (!free_one || free_one->replica != replica)
			free_one = one->replica == replica || !free_one || one->expires_ms < free_one->expires_ms
					   ? one
					   : free_one;
	*free_one = (struct model_alive){replica, expires_ms};
}

struct model_entry model_place_take(struct model_master *master, const struct model_command *command, unsigned key,
				    uint64_t *ret_arrival)
{
	const struct model_place *place = find_place(master, command->place);
	struct model_entry entry = command->entry;
	if (place->place != command->place || model_has_ended(master, place->expires_ms) ||
	    !model_queue_remove(master, key, place->entry))
		return (struct model_entry){0};
	entry.arrival = *ret_arrival = place->entry.arrival;
	return entry;
}

uint64_t model_place_ms(struct model_master *master, unsigned key)
{
	enum { KEPT_MS = 2000 };
	const struct model_queue *queue = &master->queues[key];
	struct model_entry first = {0};
	for (uint32_t i = 0; i < queue->count && first.replica == 0; i++)
		if (model_is_alive(master, queue->entries[i].replica))
			first = queue->entries[i];
	if (first.replica == 0 || !model_is_place(first) || model_room(master, key, first) == 0)
		return KEPT_MS;
	int64_t left_ms = model_alive_pttl(master, first.replica);
	return left_ms >= 0 && left_ms < KEPT_MS ? (uint64_t)left_ms : KEPT_MS;
}

bool model_place_keep(struct model_master *master, const struct model_command *command, unsigned key, bool own,
		      uint64_t kept_ms)
{
	struct model_entry kept = command->entry;
	bool left = model_queue_remove(master, key, command->entry);
	if ((!left && !own) || kept_ms == 0)
		return left;
	uint64_t expires_ms = model_now_ms(master) + kept_ms;
	kept.replica = replica_of_place(command->place, kept.arrival);
	model_queue_join(master, key, kept, (uint32_t)kept_ms);
	*find_place(master, command->place) = (struct model_place){command->place, kept, expires_ms};
	set_kept(master, kept.replica, expires_ms);
	if (master->queues[key].count == 1)
		master->queues[key].expires_ms = expires_ms + 1000;
	return true;
}

/* ---- who lives ---- */

static const struct model_alive *find_alive(const struct model_master *master, uint64_t replica)
{
	assert(replica != 0);
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (master->alive[i].replica == replica && !model_has_ended(master, master->alive[i].expires_ms))
			return &master->alive[i];
	for (unsigned i = 0; i < MODEL_PLACES; i++)
		if (master->keepers[i].replica == replica && !model_has_ended(master, master->keepers[i].expires_ms))
			return &master->keepers[i];
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
	for (unsigned i = 0; i < MODEL_PLACES; i++) {
		if (model_has_ended(master, master->keepers[i].expires_ms))
			memset(&master->keepers[i], 0, sizeof master->keepers[i]);
		if (model_has_ended(master, master->places[i].expires_ms))
			memset(&master->places[i], 0, sizeof master->places[i]);
	}
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
