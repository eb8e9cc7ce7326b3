/* Those who wait on the modelled master, beside the Lua of server/scripts/line_*.lua: see model_master.h. */
#include <assert.h>
#include <string.h>

#include "model_internal.h"

/* What Redis does before any command looks at a key: one whose end has passed is not there. */
static struct model_queue *look_up_line(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	struct model_queue *line = &master->lines[key];
	if (line->count > 0 && model_has_ended(master, line->expires_ms))
		memset(line, 0, sizeof *line);
	return line;
}

static bool is_before(struct model_entry a, struct model_entry b)
{
	return a.arrival < b.arrival || (a.arrival == b.arrival && a.replica < b.replica);
}

/* ---- the line ---- */

void model_queue_add(struct model_master *master, unsigned key, struct model_entry place)
{
	struct model_queue *line = look_up_line(master, key);
	uint32_t at = 0;
	assert(place.replica != 0 && place.arrival < UINT64_C(1) << 53);
	while (at < line->count && is_before(line->places[at], place))
		at++;
	if (at < line->count && model_same_entry(line->places[at], place))
		return;
	assert(line->count < MODEL_ENTRIES);
	memmove(&line->places[at + 1], &line->places[at], (line->count - at) * sizeof *line->places);
	line->places[at] = place;
	line->count++;
}

bool model_queue_remove(struct model_master *master, unsigned key, struct model_entry place)
{
	struct model_queue *line = look_up_line(master, key);
	uint32_t at = 0;
	while (at < line->count && !model_same_entry(line->places[at], place))
		at++;
	if (at == line->count)
		return false;
	line->count--;
	memmove(&line->places[at], &line->places[at + 1], (line->count - at) * sizeof *line->places);
	memset(&line->places[line->count], 0, sizeof *line->places);
	if (line->count == 0)
		line->expires_ms = 0; /* an empty set is no key */
	return true;
}

struct model_entry model_queue_first(struct model_master *master, unsigned key)
{
	/* repeat
	 * 	first = redis.call('ZRANGE', line, 0, 0)[1]
	 * 	local dead = first and redis.call('EXISTS', names .. 'alive:' .. string.sub(first, 1, 16)) == 0
	 * 	if dead then redis.call('ZREM', line, first)
	 * until not dead */
	struct model_queue *line = look_up_line(master, key);
	while (line->count > 0 && !model_is_alive(master, line->places[0].replica))
		model_queue_remove(master, key, line->places[0]);
	return line->places[0];
}

void model_queue_join(struct model_master *master, unsigned key, struct model_entry place, uint32_t wait_ms)
{
	/* redis.call('ZADD', line, 'NX', string.sub(place, 18), place)
	 * local keep_ms = wait_ms + 1000 */
	model_queue_add(master, key, place);
	struct model_queue *line = &master->lines[key];
	uint64_t keep_ms = (uint64_t)wait_ms + 1000, until_us = master->now_us + keep_ms * 1000;
	/* if redis.call('PTTL', line) < keep_ms then */
	if (line->expires_ms < model_now_ms(master) + keep_ms)
		/* redis.call('PEXPIRE', line, keep_ms) */
		line->expires_ms = model_now_ms(master) + keep_ms;
	/* if now_us + keep_ms * 1000 > waited then
	 * 	redis.call('HSET', KEYS[2], 'waited', string.format('%.0f', now_us + keep_ms * 1000)) */
	master->waited_us = model_larger(master->waited_us, until_us);
}

const struct model_queue *model_waiting(const struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	const struct model_queue *line = &master->lines[key];
	return line->count > 0 && !model_has_ended(master, line->expires_ms) ? line : NULL;
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
	for (unsigned i = 0; i < MODEL_KEYS; i++)
		look_up_line(master, i);
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (model_has_ended(master, master->alive[i].expires_ms))
			memset(&master->alive[i], 0, sizeof master->alive[i]);
}

void model_evict_queue(struct model_master *master, unsigned key)
{
	struct model_queue *line = look_up_line(master, key);
	master->server_evicted += line->count > 0;
	memset(line, 0, sizeof *line);
}

void model_evict_alive(struct model_master *master, uint64_t replica)
{
	for (unsigned i = 0; i < MODEL_REPLICAS; i++)
		if (master->alive[i].replica == replica) {
			master->server_evicted += !model_has_ended(master, master->alive[i].expires_ms);
			memset(&master->alive[i], 0, sizeof master->alive[i]);
		}
}
