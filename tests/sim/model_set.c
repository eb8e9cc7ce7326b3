/* The scripts for several resources in C, beside their Lua: see model_master.h and model_master.c. KEYS are sorted, as
 * the model's keys are by their numbers. */
#include <assert.h>
#include <string.h>

#include "model_internal.h"

/* i - 1 of KEYS[i] */
static uint8_t index_of(uint32_t names, unsigned key)
{
	return (uint8_t)__builtin_popcount(names & ((UINT32_C(1) << key) - 1));
}

static void assert_set(const struct model_command *command)
{
	assert(__builtin_popcount(command->names) >= 2 && command->names >> MODEL_KEYS == 0);
	MODEL_FOR_EACH_KEY (key, command->names)
		assert(command->buckets[key] < MODEL_BUCKETS);
}

/* math.max of the floor and all buckets of the set */
static uint64_t largest_number(const struct model_master *master, const struct model_command *command)
{
	uint64_t old = master->floor;
	MODEL_FOR_EACH_KEY (key, command->names)
		old = model_larger(old, master->buckets[command->buckets[key]]);
	return old;
}

/* call('EXISTS', unpack(KEYS, 1, count)) == 0 */
static bool are_free(struct model_master *master, uint32_t names)
{
	MODEL_FOR_EACH_KEY (key, names)
		if (model_look_up(master, key)->type != MODEL_NONE)
			return false;
	return true;
}

/* Adds to what is known of the keys that are held: the first of them, and until when all are. */
static void note_held(struct model_master *master, uint32_t names, unsigned key, struct model_reply *held)
{
	/* local left = call('PTTL', KEYS[i])
	 * if not which then which, value, remaining = i, …, left
	 * elseif left < 0 or remaining >= 0 and left > remaining then remaining = left */
	const struct model_key *found = &master->keys[key];
	int64_t left = model_pttl(master, found);
	if (held->code != 0) {
		model_reply_held(master, found, held);
		held->which = index_of(names, key);
	} else if (left < 0 || (held->remaining_ms >= 0 && left > held->remaining_ms)) {
		held->remaining_ms = left;
	}
}

/* ---- acquire_set.lua ---- */

/* All is free and it is the caller's turn in all queues: what follows. */
static void acquire_sets(struct model_master *master, const struct model_command *command, bool queued,
			 struct model_reply *ret_reply)
{
	/* local hold_until = ARGV[3] ~= '0' and … + ARGV[3] or 0
	 * local value = ARGV[1] .. ';' .. … .. ARGV[9] */
	uint64_t hold_until_ms = command->max_hold_ms != 0 ? model_now_ms(master) + command->max_hold_ms : 0;
	struct model_value value = {.token = command->token,
				    .hold_until_ms = hold_until_ms,
				    .fence = command->fence,
				    .owner = command->owner,
				    .key = command->noted,
				    .names = command->names};
	/* local old = tonumber(seen[2] or 0), and in the loop: old = math.max(old, tonumber(seen[i + 3] or 0)) */
	uint64_t old = largest_number(master, command);
	/* return {1, now_us, old} */
	model_reply_code(master, 1, ret_reply);
	ret_reply->old = old;
	MODEL_FOR_EACH_KEY (key, command->names) {
		/* call('SET', key, value, 'PX', ARGV[2])
		 * --include watch_tell.lua
		 * if entry and queued then call('ZREM', base .. 'queue:' .. KEYS[i], entry) */
		model_set(master, key, &value, command->ttl_ms);
		ret_reply->watched |= model_watch_tell(master, key);
		if (command->entry.replica != 0 && queued)
			model_queue_remove(master, key, command->entry);
		/* for i = 1, guess > old and count or 0 do call('HSET', hash, ARGV[i + 9], ARGV[5]) */
		if (command->fence > old)
			master->buckets[command->buckets[key]] = command->fence;
	}
}

void model_acquire_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_entry entry = command->entry, other = {0};
	struct model_reply held = {.code = -1}; /* no key is held */
	unsigned behind = 0;
	assert_set(command);
	assert(command->token != 0);
	if (!model_acquire_begins(master, command, ret_reply))
		return;
	/* local queued, other, behind = waited > now_us
	 * for i = 1, queued and count or 0 do */
	bool queued = master->waited_us > master->now_us;
	MODEL_FOR_EACH_KEY (key, queued ? command->names : 0) {
		/* if entry then call('ZADD', queue, 'NX', …) */
		if (entry.replica != 0)
			model_queue_add(master, key, entry);
		/* --include queue_first.lua
		 * if first and first ~= entry and not other then other, behind = first, i */
		struct model_entry first = model_queue_first(master, key);
		if (first.replica != 0 && !model_same_entry(first, entry) && other.replica == 0) {
			other = first;
			behind = key;
		}
	}
	/* if not other and call('EXISTS', unpack(KEYS, 1, count)) == 0 then */
	if (other.replica == 0 && are_free(master, command->names)) {
		acquire_sets(master, command, queued, ret_reply);
		return;
	}
	/* for i = 1, entry and count or 0 do --include queue_join.lua */
	MODEL_FOR_EACH_KEY (key, entry.replica != 0 ? command->names : 0)
		model_queue_join(master, key, entry, command->wait_ms);
	/* for i = 1, count do value = redis.pcall('GETRANGE', KEYS[i], 0, 8191) */
	MODEL_FOR_EACH_KEY (key, command->names)
		if (model_look_up(master, key)->type != MODEL_NONE)
			note_held(master, command->names, key, &held);
	/* if which then return {0, now_us, remaining, value, which - 1} */
	if (held.code == 0) {
		*ret_reply = held;
		return;
	}
	/* redis.pcall('PUBLISH', base .. 'wake', other .. ' ' .. KEYS[behind])
	 * return {2, now_us, call('PTTL', base .. 'alive:' .. string.sub(other, 1, 16)), other, behind - 1} */
	model_reply_code(master, 2, ret_reply);
	ret_reply->remaining_ms = model_alive_pttl(master, other.replica);
	ret_reply->first = ret_reply->notified[behind] = other;
	ret_reply->which = index_of(command->names, behind);
}

/* ---- raise_set.lua ---- */

void model_raise_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	bool gone = false;
	assert_set(command);
	assert(command->token != 0);
	/* if now_us > tonumber(ARGV[4]) then return {-2, now_us}
	 * if seen[1] ~= ARGV[3] and ARGV[3] ~= '----------------' then return {-3, now_us} */
	if (model_refuses(master, command, ret_reply))
		return;
	MODEL_FOR_EACH_KEY (key, command->names) {
		/* if value and (type(value) ~= 'string' or string.sub(value, 1, 41) ~= ARGV[1] .. ';') then
		 *	return {0, now_us, redis.call('PTTL', KEYS[i]), …}
		 * gone = gone or not value */
		const struct model_key *found = model_look_up(master, key);
		if (found->type != MODEL_NONE && !model_is_held_by(found, command)) {
			model_reply_held(master, found, ret_reply);
			return;
		}
		gone = gone || found->type == MODEL_NONE;
	}
	/* if gone then return {-1, now_us} */
	model_reply_code(master, gone ? -1 : 1, ret_reply);
	if (gone)
		return;
	/* if old >= tonumber(ARGV[2]) then return {2, now_us, old} */
	uint64_t old = largest_number(master, command);
	if (old >= command->fence) {
		ret_reply->code = 2;
		ret_reply->old = old;
		return;
	}
	MODEL_FOR_EACH_KEY (key, command->names) {
		/* --include watch_tell.lua
		 * redis.call('HSET', hash, ARGV[i + 4], ARGV[2])
		 * redis.call('SET', KEYS[i], first .. ARGV[2] .. last, 'KEEPTTL') */
		ret_reply->watched |= model_watch_tell(master, key);
		master->buckets[command->buckets[key]] = command->fence;
		master->keys[key].value.fence = command->fence;
	}
}

/* ---- extend_set.lua ---- */

/* True if the key has the token and the names of exactly these resources. */
static bool is_whole(const struct model_key *key, const struct model_command *command)
{
	return model_is_held_by(key, command) && key->value.names == command->names;
}

/* Its second half: all keys are the token's. `ours`: the value of the last. */
static void extend_held(struct model_master *master, const struct model_command *command, struct model_value ours,
			struct model_reply *ret_reply)
{
	/* if ARGV[3] ~= '' then … redis.call('SET', KEYS[i], ours, 'KEEPTTL') */
	if (command->noted != 0) {
		ours.fence = command->fence;
		ours.key = command->noted;
		ours.noted = true;
		MODEL_FOR_EACH_KEY (key, command->names)
			master->keys[key].value = ours;
	}
	/* local asked = tonumber(ARGV[2])
	 * local ttl, ends = asked, asked
	 * if hold_until > 0 then ttl = math.min(asked, hold_until - math.floor(now_us / 1000)) */
	int64_t asked = (int64_t)command->ttl_ms, ttl = asked, ends = asked,
		hold_until_ms = (int64_t)ours.hold_until_ms;
	if (hold_until_ms > 0 && hold_until_ms - (int64_t)model_now_ms(master) < asked)
		ttl = hold_until_ms - (int64_t)model_now_ms(master);
	MODEL_FOR_EACH_KEY (key, command->names) {
		/* local remaining = redis.call('PTTL', KEYS[i])
		 * if remaining >= 0 then
		 *	if ttl > remaining then redis.call('PEXPIRE', KEYS[i], …); remaining = ttl
		 *	ends = math.min(ends, remaining) */
		struct model_key *found = &master->keys[key];
		int64_t remaining = model_pttl(master, found);
		if (remaining < 0)
			continue;
		if (ttl > remaining) {
			found->expires_ms = model_now_ms(master) + (uint64_t)ttl;
			remaining = ttl;
		}
		ends = remaining < ends ? remaining : ends;
	}
	/* return {1, now_us, ends, ours} */
	struct model_key last = {.value = ours, .type = MODEL_STRING};
	model_reply_extended(master, &last, ends, ret_reply);
}

void model_extend_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_value ours = {0};
	bool gone = false;
	assert_set(command);
	assert(command->token != 0);
	/* if now_us > tonumber(ARGV[5]) then return {-2, now_us}
	 * if ARGV[4] ~= '----------------' and redis.call('HGET', KEYS[count + 1], 'epoch') ~= ARGV[4] then */
	if (model_refuses(master, command, ret_reply))
		return;
	MODEL_FOR_EACH_KEY (key, command->names) {
		/* if not value then gone = true
		 * elseif … ~= ARGV[6] then return {0, now_us, redis.call('PTTL', KEYS[i]), …}
		 * else ours = value */
		const struct model_key *found = model_look_up(master, key);
		gone = gone || found->type == MODEL_NONE;
		if (found->type != MODEL_NONE && !is_whole(found, command)) {
			model_reply_held(master, found, ret_reply);
			return;
		}
		ours = found->type != MODEL_NONE ? found->value : ours;
	}
	/* if gone then return {-1, now_us} */
	if (gone)
		model_reply_code(master, -1, ret_reply);
	else
		extend_held(master, command, ours, ret_reply);
}

/* ---- release_set.lua ---- */

void model_release_set(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_reply held = {.code = -1}, told = {0};
	struct model_value deleted = {0};
	assert_set(command);
	assert(command->token != 0 || command->entry.replica != 0);
	/* local base, queued = string.sub(hash, 1, -7), waited > now_us or ARGV[2] ~= '' */
	bool queued = master->waited_us > master->now_us || command->entry.replica != 0;
	MODEL_FOR_EACH_KEY (key, command->names) {
		const struct model_key *found = model_look_up(master, key);
		bool ours = command->token != 0 && is_whole(found, command);
		/* if ours then redis.call('DEL', key) --include watch_tell.lua
		 * elseif value then … */
		if (ours) {
			deleted = found->value;
			model_drop(master, key);
			told.watched |= model_watch_tell(master, key);
		} else if (found->type != MODEL_NONE) {
			note_held(master, command->names, key, &held);
		}
		if (queued)
			model_release_queue(master, command, key, ours, &told);
	}
	/* if seen[1] ~= ARGV[3] and ARGV[3] ~= '----------------' then return {-3, now_us}
	 * if which then return {0, now_us, remaining, held, which - 1}
	 * elseif deleted then return {1, now_us, deleted}
	 * return {-1, now_us} */
	if (model_is_other_epoch(master, command))
		model_reply_code(master, -3, ret_reply);
	else if (held.code == 0)
		*ret_reply = held;
	else
		model_reply_code(master, deleted.token != 0 ? 1 : -1, ret_reply);
	if (ret_reply->code == 1) {
		ret_reply->has_value = true;
		ret_reply->value = deleted;
	}
	memcpy(ret_reply->notified, told.notified, sizeof told.notified);
	ret_reply->runs = told.runs;
	ret_reply->watched = told.watched;
}
