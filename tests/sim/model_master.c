/* The scripts of the lock in C, and what happens to a master: see model_master.h. */
#include <assert.h>
#include <string.h>

#include "model_internal.h"

uint64_t model_now_ms(const struct model_master *master)
{
	return master->now_us / 1000;
}

bool model_has_ended(const struct model_master *master, uint64_t expires_ms)
{
	return expires_ms != 0 && model_now_ms(master) > expires_ms;
}

static bool has_run_out(const struct model_master *master, const struct model_key *key)
{
	return key->type != MODEL_NONE && model_has_ended(master, key->expires_ms);
}

struct model_key *model_look_up(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	if (has_run_out(master, &master->keys[key]))
		model_drop(master, key);
	return &master->keys[key];
}

void model_set(struct model_master *master, unsigned key, const struct model_value *value, uint64_t ttl_ms)
{
	struct model_key *found = model_look_up(master, key);
	*found = (struct model_key){.value = *value, .type = MODEL_STRING};
	found->expires_ms = model_now_ms(master) + ttl_ms;
}

int64_t model_pttl(const struct model_master *master, const struct model_key *key)
{
	return key->expires_ms == 0 ? -1 : (int64_t)(key->expires_ms - model_now_ms(master));
}

void model_reply_code(const struct model_master *master, int code, struct model_reply *ret_reply)
{
	memset(ret_reply, 0, sizeof *ret_reply);
	ret_reply->code = code;
	ret_reply->now_us = master->now_us;
}

void model_reply_held(const struct model_master *master, const struct model_key *key, struct model_reply *ret_reply)
{
	model_reply_code(master, 0, ret_reply);
	ret_reply->remaining_ms = model_pttl(master, key);
	ret_reply->has_value = key->type == MODEL_STRING || key->type == MODEL_SHARED;
	if (ret_reply->has_value)
		ret_reply->value = key->value;
}

bool model_is_held_by(const struct model_key *key, const struct model_command *command)
{
	return key->type == MODEL_STRING && key->value.token == command->token &&
	       (key->value.names != 0) == (command->names != 0);
}

bool model_is_watched(const struct model_master *master, unsigned key)
{
	return master->watched_ms[key] != 0 && !model_has_ended(master, master->watched_ms[key]);
}

uint32_t model_watch_tell(const struct model_master *master, unsigned key)
{
	return master->waited_us > master->now_us && model_is_watched(master, key) ? UINT32_C(1) << key : 0;
}

bool model_is_late(const struct model_master *master, const struct model_command *command)
{
	return master->now_us > command->deadline_us;
}

bool model_is_other_epoch(const struct model_master *master, const struct model_command *command)
{
	assert(command->epoch != 0);
	return master->epoch != command->epoch && command->epoch != MODEL_ANY_EPOCH;
}

bool model_refuses(const struct model_master *master, const struct model_command *command,
		   struct model_reply *ret_reply)
{
	bool late = model_is_late(master, command), refuses = late || model_is_other_epoch(master, command);
	if (refuses)
		model_reply_code(master, late ? -2 : -3, ret_reply);
	return refuses;
}

/* ---- the lock ---- */

bool model_acquire_begins(const struct model_master *master, const struct model_command *command,
			  struct model_reply *ret_reply)
{
	if (model_refuses(master, command, ret_reply))
		return false;
	if (command->fence > master->now_us + UINT64_C(86400000000)) {
		model_reply_code(master, -4, ret_reply);
		return false;
	}
	return true;
}

/* The lock is free and it is the caller's turn: what follows on SET. */
static void acquire_sets(struct model_master *master, const struct model_command *command,
			 struct model_reply *ret_reply)
{
	uint64_t hold_until_ms = command->max_hold_ms != 0 ? model_now_ms(master) + command->max_hold_ms : 0;
	struct model_value value = {.token = command->token,
				    .hold_until_ms = hold_until_ms,
				    .fence = command->fence,
				    .owner = command->owner,
				    .key = command->noted,
				    .noted = command->is_noted};
	model_set(master, command->key, &value, command->ttl_ms);
	model_note_lease(master, command);
	uint64_t old = model_number(master, command->bucket);
	if (command->fence > old)
		master->buckets[command->bucket] = command->fence;
	model_reply_code(master, 1, ret_reply);
	ret_reply->old = old;
	ret_reply->watched = model_watch_tell(master, command->key);
}

void model_acquire(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->bucket < MODEL_BUCKETS && command->token != 0);
	if (!model_acquire_begins(master, command, ret_reply) || !model_repair_begins(master, command, ret_reply))
		return;
	struct model_entry entry = command->entry, first = {0};
	if (master->waited_us > master->now_us && !command->repair) {
		if (entry.replica != 0)
			model_queue_add(master, command->key, entry);
		first = model_queue_first(master, command->key);
	}
	struct model_key *key = model_look_up(master, command->key);
	bool may_set = first.replica == 0 || model_same_entry(first, entry);
	if (may_set && key->type == MODEL_NONE) {
		if (first.replica != 0)
			model_queue_remove(master, command->key, entry);
		acquire_sets(master, command, ret_reply);
		return;
	}
	if (entry.replica != 0)
		model_queue_join(master, command->key, entry, command->wait_ms);
	if (key->type == MODEL_NONE) {
		model_reply_code(master, 2, ret_reply);
		ret_reply->remaining_ms = model_alive_pttl(master, first.replica);
		model_reply_turn(first, command->key, ret_reply);
		return;
	}
	model_reply_held(master, key, ret_reply);
}

void model_raise(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->bucket < MODEL_BUCKETS && command->token != 0);
	if (model_refuses(master, command, ret_reply))
		return;
	struct model_key *key = model_look_up(master, command->key);
	struct model_holder *own = model_shared_own(master, key, command);
	const struct model_holder *found = model_shared_find(master, key, command);
	if (key->type == MODEL_NONE || (key->type == MODEL_SHARED && !found)) {
		model_reply_code(master, -1, ret_reply);
		return;
	}
	if (!own && !model_is_held_by(key, command)) {
		model_reply_held(master, key, ret_reply);
		if (found)
			ret_reply->value = found->value;
		return;
	}
	uint64_t old = model_number(master, command->bucket);
	if (old >= command->fence) {
		model_reply_code(master, 2, ret_reply);
		ret_reply->old = old;
		return;
	}
	master->buckets[command->bucket] = command->fence;
	if (own)
		own->value.fence = command->fence;
	if (!own || own->value.token == key->value.token)
		key->value.fence = command->fence;
	model_reply_code(master, 1, ret_reply);
	if (own)
		ret_reply->value = own->value;
	ret_reply->watched = model_watch_tell(master, command->key);
}

void model_reply_extended(const struct model_master *master, const struct model_key *key, int64_t ttl_ms,
			  struct model_reply *ret_reply)
{
	model_reply_code(master, 1, ret_reply);
	ret_reply->ttl_ms = (uint64_t)ttl_ms;
	ret_reply->has_value = true;
	ret_reply->value = key->value;
}

/* The second half of extend.lua: the key is the token's. */
static void extend_held(struct model_master *master, struct model_key *key, const struct model_command *command,
			struct model_reply *ret_reply)
{
	if (command->noted != 0) {
		key->value.fence = command->fence;
		key->value.key = command->noted;
		key->value.noted = true;
	}
	int64_t remaining = model_pttl(master, key), asked = (int64_t)command->ttl_ms;
	if (remaining < 0) {
		model_reply_extended(master, key, asked, ret_reply);
		return;
	}
	int64_t ttl = asked, hold_until_ms = (int64_t)key->value.hold_until_ms;
	if (hold_until_ms > 0 && hold_until_ms - (int64_t)model_now_ms(master) < asked)
		ttl = hold_until_ms - (int64_t)model_now_ms(master);
	if (ttl > remaining) {
		key->expires_ms = model_now_ms(master) + (uint64_t)ttl;
		remaining = ttl;
	}
	model_reply_extended(master, key, asked < remaining ? asked : remaining, ret_reply);
}

/* The same of a shared lease, as if it had the key alone; then the end of the key is that of the last one. */
static void extend_shared(struct model_master *master, struct model_key *key, struct model_holder *own,
			  const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_key alone = model_shared_alone(own);
	extend_held(master, &alone, command, ret_reply);
	own->value = alone.value;
	own->ends_ms = alone.expires_ms + 1;
	model_shared_last(key);
}

void model_extend(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->token != 0);
	if (model_refuses(master, command, ret_reply))
		return;
	struct model_key *key = model_look_up(master, command->key);
	struct model_holder *own = model_shared_own(master, key, command);
	const struct model_holder *found = model_shared_find(master, key, command);
	if (key->type == MODEL_NONE || (key->type == MODEL_SHARED && !found)) {
		model_reply_code(master, -1, ret_reply);
		ret_reply->gone = UINT32_C(1) << command->key;
		ret_reply->buckets[command->key] = master->buckets[command->bucket];
		return;
	}
	if (!own && !model_is_held_by(key, command)) {
		model_reply_held(master, key, ret_reply);
		if (found) {
			ret_reply->value = found->value;
			ret_reply->remaining_ms = (int64_t)(found->ends_ms - 1 - model_now_ms(master));
		}
		return;
	}
	model_note_lease(master, command);
	if (own)
		extend_shared(master, key, own, command, ret_reply);
	else
		extend_held(master, key, command, ret_reply);
}

void model_release(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->token != 0 || command->entry.replica != 0);
	struct model_key *key = model_look_up(master, command->key);
	struct model_reply notified = {.code = 0};
	uint64_t kept_ms = UINT64_MAX;
	struct model_holder *own = command->token != 0 ? model_shared_own(master, key, command) : NULL;
	const struct model_holder *found = command->token != 0 ? model_shared_find(master, key, command) : NULL;
	struct model_value value = found ? found->value : key->value;
	bool ours = own || (command->token != 0 && model_is_held_by(key, command));
	bool was_shared = key->type == MODEL_SHARED;
	bool shortened = false;
	if (own) {
		shortened = model_shared_release(master, key, own);
	} else if (ours) {
		model_drop(master, command->key);
	}
	uint32_t watched = ours ? model_watch_tell(master, command->key) : 0;
	if (master->waited_us > master->now_us || command->entry.replica != 0)
		model_release_queue(master, command, command->key, ours ? &value : NULL, shortened, &kept_ms,
				    &notified);
	if (model_is_other_epoch(master, command)) {
		model_reply_code(master, -3, ret_reply);
	} else if (notified.arrival != 0) {
		model_reply_code(master, 2, ret_reply); /* return {2, now_us, arrival} */
		ret_reply->arrival = notified.arrival;
	} else if (ours) {
		model_reply_code(master, 1, ret_reply);
		ret_reply->has_value = true;
		ret_reply->value = value;
	} else if (key->type == MODEL_NONE || (was_shared && command->token != 0 && !found)) {
		model_reply_code(master, -1, ret_reply);
	} else {
		model_reply_held(master, key, ret_reply);
		ret_reply->value = value;
	}
	ret_reply->notified[command->key] = notified.notified[command->key];
	ret_reply->free[command->key] = notified.free[command->key];
	ret_reply->last[command->key] = notified.last[command->key];
	ret_reply->watched = watched;
}

void model_inspect(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	if (model_is_other_epoch(master, command)) {
		model_reply_code(master, -3, ret_reply);
		return;
	}
	uint32_t waiters = 0;
	const struct model_queue *queue = master->waited_us > master->now_us ? model_waiting(master, command->key)
									     : NULL;
	if (queue)
		waiters = queue->count;
	if (command->ttl_ms > 0) {
		master->watched_ms[command->key] = model_now_ms(master) + command->ttl_ms;
		master->waited_us = model_larger(master->waited_us, master->now_us + command->ttl_ms * 1000);
	}
	struct model_key *key = model_look_up(master, command->key);
	if (key->type == MODEL_NONE)
		model_reply_code(master, -1, ret_reply);
	else
		model_reply_held(master, key, ret_reply);
	model_shared_list(master, key, command->most, ret_reply);
	if (key->type == MODEL_SHARED)
		model_shared_prune(master, key);
	ret_reply->waiters = waiters;
}

/* ---- what happens to a master ---- */

/* All that is not data. */
static struct model_master bare_server(const struct model_master *master)
{
	return (struct model_master){.now_us = master->now_us,
				     .server_run_id = master->server_run_id,
				     .server_evicted = master->server_evicted};
}

void model_flushall(struct model_master *master)
{
	*master = bare_server(master);
}

void model_restart(struct model_master *master, const struct model_master *data, uint64_t run_id)
{
	uint64_t now_us = master->now_us;
	assert(run_id != 0 && run_id != master->server_run_id);
	if (data)
		*master = *data;
	else
		model_flushall(master);
	model_clock_set(master, now_us);
	master->server_run_id = run_id;
	master->server_evicted = 0;
}

void model_evict_key(struct model_master *master, unsigned key)
{
	if (model_look_up(master, key)->type == MODEL_NONE)
		return;
	model_drop(master, key);
	master->server_evicted++;
}

void model_evict_hash(struct model_master *master)
{
	struct model_master left = bare_server(master);
	left.server_evicted += master->beat != 0; /* it existed: every writer has read it before */
	memcpy(left.keys, master->keys, sizeof left.keys);
	memcpy(left.queues, master->queues, sizeof left.queues);
	memcpy(left.alive, master->alive, sizeof left.alive);
	memcpy(left.places, master->places, sizeof left.places);
	memcpy(left.keepers, master->keepers, sizeof left.keepers);
	memcpy(left.watched_ms, master->watched_ms, sizeof left.watched_ms);
	*master = left;
}

void model_clock_set(struct model_master *master, uint64_t now_us)
{
	master->now_us = now_us;
	for (unsigned i = 0; i < MODEL_KEYS; i++)
		model_look_up(master, i);
	model_queue_sweep(master);
}

void model_drop(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	memset(&master->keys[key], 0, sizeof master->keys[key]);
}

/* ---- for looking at ---- */

uint64_t model_token(const struct model_master *master, unsigned key)
{
	return model_token_of(master, key, 0);
}

uint64_t model_number(const struct model_master *master, unsigned bucket)
{
	assert(bucket < MODEL_BUCKETS);
	return model_larger(master->floor, master->buckets[bucket]);
}
