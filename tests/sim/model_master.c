/* The scripts of server/scripts/ in C, beside their Lua: see model_master.h. */
#include "model_master.h"

#include <assert.h>
#include <string.h>

#include "planted.h"

static uint64_t now_ms_of(const struct model_master *master)
{
	return master->now_us / 1000;
}

/* What Redis does before any command looks at a key: one whose end has passed is not there. */
static struct model_key *look_up(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	struct model_key *found = &master->keys[key];
	if (found->type != MODEL_NONE && found->expires_ms != 0 && now_ms_of(master) > found->expires_ms)
		model_drop(master, key);
	return found;
}

static int64_t pttl(const struct model_master *master, const struct model_key *key)
{
	return key->expires_ms == 0 ? -1 : (int64_t)(key->expires_ms - now_ms_of(master));
}

/* return {0, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
static void reply_held(const struct model_master *master, const struct model_key *key, struct model_reply *ret_reply)
{
	*ret_reply = (struct model_reply){ .code = 0, .remaining_ms = pttl(master, key), .has_value = key->type == MODEL_STRING };
	if (ret_reply->has_value)
		ret_reply->value = key->value;
}

/* type(value) == 'string' and string.sub(value, 1, 40) == ARGV[1] */
static bool is_held_by(const struct model_key *key, uint64_t token)
{
	return key->type == MODEL_STRING && key->value.token == token;
}

void model_acquire(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->bucket < MODEL_BUCKETS && command->token != 0);
	/* local now = redis.call('TIME')
	 * local now_ms = now[1] * 1000 + math.floor(now[2] / 1000) */
	uint64_t now_ms = now_ms_of(master);
	/* if tonumber(ARGV[6]) > (now_ms + 86400000) * 1000 then */
	if (command->fence > (now_ms + 86400000) * 1000) {
		/* return redis.error_reply('FENCE the guess is more than a day ahead of this master') */
		*ret_reply = (struct model_reply){ .error = true };
		return;
	}
	/* local hold_until = ARGV[3] ~= '0' and now_ms + ARGV[3] or 0 */
	uint64_t hold_until_ms = command->max_hold_ms != 0 ? now_ms + command->max_hold_ms : 0;
	/* local value = string.format('%s:%.0f:%s:%s', ARGV[1], hold_until, ARGV[6], ARGV[4]) */
	struct model_value value = { command->token, hold_until_ms, command->fence, command->owner };
	struct model_key *key = look_up(master, command->key);
	/* if not redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then */
	if (key->type != MODEL_NONE) {
		/* local holder = redis.pcall('GET', KEYS[1])
		 * return {0, redis.call('PTTL', KEYS[1]), type(holder) == 'string' and holder} */
		reply_held(master, key, ret_reply);
		return;
	}
	*key = (struct model_key){ MODEL_STRING, value, now_ms + command->ttl_ms };
	/* local seen = redis.call('HMGET', KEYS[2], 'floor', ARGV[5])
	 * local old = math.max(tonumber(seen[1] or 0), tonumber(seen[2] or 0)) */
	uint64_t old = model_number(master, command->bucket);
	/* if tonumber(ARGV[6]) > old then */
	if (command->fence > old)
		/* redis.call('HSET', KEYS[2], ARGV[5], ARGV[6]) */
		master->buckets[command->bucket] = command->fence;
	/* return {1, old} */
	*ret_reply = (struct model_reply){ .code = 1, .old = old };
}

void model_raise(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->bucket < MODEL_BUCKETS && command->token != 0);
	/* local value = redis.pcall('GET', KEYS[1]) */
	struct model_key *key = look_up(master, command->key);
	bool demands_token = !PLANTED(PLANTED_RAISE_NO_TOKEN);
	/* if not value then */
	if (demands_token && key->type == MODEL_NONE) {
		/* return {-1} */
		*ret_reply = (struct model_reply){ .code = -1 };
		return;
	}
	/* if type(value) ~= 'string' or string.sub(value, 1, 40) ~= ARGV[1] then */
	if (demands_token && !is_held_by(key, command->token)) {
		/* return {0, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
		reply_held(master, key, ret_reply);
		return;
	}
	/* local seen = redis.call('HMGET', KEYS[2], 'floor', ARGV[2])
	 * local old = math.max(tonumber(seen[1] or 0), tonumber(seen[2] or 0)) */
	uint64_t old = model_number(master, command->bucket);
	/* if old >= tonumber(ARGV[3]) then */
	if (PLANTED(PLANTED_RAISE_NOT_STRICT) ? old > command->fence : old >= command->fence) {
		/* return {2, old} */
		*ret_reply = (struct model_reply){ .code = 2, .old = old };
		return;
	}
	/* redis.call('HSET', KEYS[2], ARGV[2], ARGV[3]) */
	master->buckets[command->bucket] = command->fence;
	/* local first, last = string.match(value, '^(%x+:%d+:)%d+(:.*)$')
	 * redis.call('SET', KEYS[1], first .. ARGV[3] .. last, 'KEEPTTL') */
	if (is_held_by(key, command->token))
		key->value.fence = command->fence;
	/* return {1} */
	*ret_reply = (struct model_reply){ .code = 1 };
}

void model_release(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->token != 0);
	/* local value = redis.pcall('GET', KEYS[1]) */
	struct model_key *key = look_up(master, command->key);
	/* if not value then */
	if (key->type == MODEL_NONE) {
		/* return {-1} */
		*ret_reply = (struct model_reply){ .code = -1 };
		return;
	}
	/* if type(value) == 'string' and string.sub(value, 1, 40) == ARGV[1] then */
	if (is_held_by(key, command->token) || PLANTED(PLANTED_DELETE_NO_COMPARE)) {
		/* redis.call('DEL', KEYS[1]) */
		model_drop(master, command->key);
		/* return {1} */
		*ret_reply = (struct model_reply){ .code = 1 };
		return;
	}
	/* return {0, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
	reply_held(master, key, ret_reply);
}

uint64_t model_token(const struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	return master->keys[key].type == MODEL_STRING ? master->keys[key].value.token : 0;
}

uint64_t model_number(const struct model_master *master, unsigned bucket)
{
	assert(bucket < MODEL_BUCKETS);
	return master->floor > master->buckets[bucket] ? master->floor : master->buckets[bucket];
}

void model_drop(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	memset(&master->keys[key], 0, sizeof master->keys[key]);
}
