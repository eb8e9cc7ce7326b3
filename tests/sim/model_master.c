/* The scripts of server/scripts/ in C, beside their Lua: see model_master.h. `now` and `now_us` of the Lua are the master's now_us
 * throughout; that every reply carries it is not said again beside each return. */
#include "model_master.h"

#include <assert.h>
#include <string.h>

#include "planted.h"

static uint64_t now_ms_of(const struct model_master *master)
{
	return master->now_us / 1000;
}

static bool has_run_out(const struct model_master *master, const struct model_key *key)
{
	return key->type != MODEL_NONE && key->expires_ms != 0 && now_ms_of(master) > key->expires_ms;
}

/* What Redis does before any command looks at a key: one whose end has passed is not there. */
static struct model_key *look_up(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	if (has_run_out(master, &master->keys[key]))
		model_drop(master, key);
	return &master->keys[key];
}

static int64_t pttl(const struct model_master *master, const struct model_key *key)
{
	return key->expires_ms == 0 ? -1 : (int64_t)(key->expires_ms - now_ms_of(master));
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* return {code, now_us} */
static void reply_code(const struct model_master *master, int code, struct model_reply *ret_reply)
{
	memset(ret_reply, 0, sizeof *ret_reply);
	ret_reply->code = code;
	ret_reply->now_us = master->now_us;
}

/* return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
static void reply_held(const struct model_master *master, const struct model_key *key, struct model_reply *ret_reply)
{
	reply_code(master, 0, ret_reply);
	ret_reply->remaining_ms = pttl(master, key);
	ret_reply->has_value = key->type == MODEL_STRING;
	if (ret_reply->has_value)
		ret_reply->value = key->value;
}

/* type(value) == 'string' and string.sub(value, 1, 40) == ARGV[1] */
static bool is_held_by(const struct model_key *key, uint64_t token)
{
	return key->type == MODEL_STRING && key->value.token == token;
}

/* now_us > tonumber(ARGV[…]) */
static bool is_late(const struct model_master *master, const struct model_command *command)
{
	return master->now_us > command->deadline_us && !PLANTED(PLANTED_LATE_ACCEPTED);
}

/* redis.call('HGET', KEYS[2], 'certificate') ~= ARGV[…] and ARGV[…] ~= '----------------' */
static bool is_other_certificate(const struct model_master *master, const struct model_command *command)
{
	assert(command->certificate != 0);
	return master->certificate != command->certificate && command->certificate != MODEL_ANY_CERTIFICATE && !PLANTED(PLANTED_CERTIFICATE_IGNORED);
}

/* ---- the lock ---- */

void model_acquire(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->bucket < MODEL_BUCKETS && command->token != 0);
	/* if now_us > tonumber(ARGV[8]) then */
	if (is_late(master, command)) {
		/* return {-2, now_us} */
		reply_code(master, -2, ret_reply);
		return;
	}
	/* local seen = redis.call('HMGET', KEYS[2], 'certificate', 'floor', ARGV[5])
	 * if seen[1] ~= ARGV[7] and ARGV[7] ~= '----------------' then */
	if (is_other_certificate(master, command)) {
		/* return {-3, now_us} */
		reply_code(master, -3, ret_reply);
		return;
	}
	/* local guess = tonumber(ARGV[6])
	 * if guess > now_us + 86400000000 then */
	if (command->fence > master->now_us + UINT64_C(86400000000)) {
		/* return {-4, now_us} */
		reply_code(master, -4, ret_reply);
		return;
	}
	/* local hold_until = ARGV[3] ~= '0' and math.floor(now_us / 1000) + ARGV[3] or 0 */
	uint64_t hold_until_ms = command->max_hold_ms != 0 ? now_ms_of(master) + command->max_hold_ms : 0;
	/* local value = string.format('%s:%.0f:%s:%s', ARGV[1], hold_until, ARGV[6], ARGV[4]) */
	struct model_value value = { command->token, hold_until_ms, command->fence, command->owner };
	struct model_key *key = look_up(master, command->key);
	/* if not redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then */
	if (key->type != MODEL_NONE) {
		/* local holder = redis.pcall('GET', KEYS[1])
		 * return {0, now_us, redis.call('PTTL', KEYS[1]), type(holder) == 'string' and holder} */
		reply_held(master, key, ret_reply);
		return;
	}
	*key = (struct model_key){ value, now_ms_of(master) + command->ttl_ms, MODEL_STRING };
	/* local old = math.max(tonumber(seen[2] or 0), tonumber(seen[3] or 0)) */
	uint64_t old = model_number(master, command->bucket);
	/* if guess > old then */
	if (command->fence > old)
		/* redis.call('HSET', KEYS[2], ARGV[5], ARGV[6]) */
		master->buckets[command->bucket] = command->fence;
	/* return {1, now_us, old} */
	reply_code(master, 1, ret_reply);
	ret_reply->old = old;
}

void model_raise(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->bucket < MODEL_BUCKETS && command->token != 0);
	/* if now_us > tonumber(ARGV[5]) then */
	if (is_late(master, command)) {
		/* return {-2, now_us} */
		reply_code(master, -2, ret_reply);
		return;
	}
	/* local seen = redis.call('HMGET', KEYS[2], 'certificate', 'floor', ARGV[2])
	 * if seen[1] ~= ARGV[4] and ARGV[4] ~= '----------------' then */
	if (is_other_certificate(master, command)) {
		/* return {-3, now_us} */
		reply_code(master, -3, ret_reply);
		return;
	}
	/* local value = redis.pcall('GET', KEYS[1]) */
	struct model_key *key = look_up(master, command->key);
	bool demands_token = !PLANTED(PLANTED_RAISE_NO_TOKEN);
	/* if not value then */
	if (demands_token && key->type == MODEL_NONE) {
		/* return {-1, now_us} */
		reply_code(master, -1, ret_reply);
		return;
	}
	/* if type(value) ~= 'string' or string.sub(value, 1, 40) ~= ARGV[1] then */
	if (demands_token && !is_held_by(key, command->token)) {
		/* return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
		reply_held(master, key, ret_reply);
		return;
	}
	/* local old = math.max(tonumber(seen[2] or 0), tonumber(seen[3] or 0)) */
	uint64_t old = model_number(master, command->bucket);
	/* if old >= tonumber(ARGV[3]) then */
	if (PLANTED(PLANTED_RAISE_NOT_STRICT) ? old > command->fence : old >= command->fence) {
		/* return {2, now_us, old} */
		reply_code(master, 2, ret_reply);
		ret_reply->old = old;
		return;
	}
	/* redis.call('HSET', KEYS[2], ARGV[2], ARGV[3]) */
	master->buckets[command->bucket] = command->fence;
	/* local first, last = string.match(value, '^(%x+:%d+:)%d+(:.*)$')
	 * redis.call('SET', KEYS[1], first .. ARGV[3] .. last, 'KEEPTTL') */
	if (is_held_by(key, command->token))
		key->value.fence = command->fence;
	/* return {1, now_us} */
	reply_code(master, 1, ret_reply);
}

/* return {1, now_us, ttl_ms, value} */
static void reply_extended(const struct model_master *master, const struct model_key *key, int64_t ttl_ms, struct model_reply *ret_reply)
{
	reply_code(master, 1, ret_reply);
	ret_reply->ttl_ms = (uint64_t)ttl_ms;
	ret_reply->has_value = true;
	ret_reply->value = key->value;
}

/* What the planted bug does where the key is gone: SET instead of a comparison. */
static void recreate(struct model_master *master, struct model_key *key, const struct model_command *command, struct model_reply *ret_reply)
{
	struct model_value value = { command->token, 0, command->fence, command->owner };
	*key = (struct model_key){ value, now_ms_of(master) + command->ttl_ms, MODEL_STRING };
	reply_extended(master, key, (int64_t)command->ttl_ms, ret_reply);
}

/* The second half of extend.lua: the key is the token's. */
static void extend_held(struct model_master *master, struct model_key *key, const struct model_command *command, struct model_reply *ret_reply)
{
	/* local remaining = redis.call('PTTL', KEYS[1])
	 * local asked = tonumber(ARGV[2]) */
	int64_t remaining = pttl(master, key), asked = (int64_t)command->ttl_ms;
	/* if remaining < 0 then */
	if (remaining < 0) {
		/* return {1, now_us, asked, value} */
		reply_extended(master, key, asked, ret_reply);
		return;
	}
	/* local ttl = asked
	 * local hold_until = tonumber(string.match(value, '^%x+:(%d+):')) or 0 */
	int64_t ttl = asked, hold_until_ms = (int64_t)key->value.hold_until_ms;
	/* if hold_until > 0 then
	 * 	ttl = math.min(asked, hold_until - math.floor(now_us / 1000)) */
	if (hold_until_ms > 0 && hold_until_ms - (int64_t)now_ms_of(master) < asked)
		ttl = hold_until_ms - (int64_t)now_ms_of(master);
	/* if ttl > remaining then */
	if (ttl > remaining || (PLANTED(PLANTED_EXTEND_SHORTENS) && ttl > 0)) {
		/* redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl))
		 * remaining = ttl */
		key->expires_ms = now_ms_of(master) + (uint64_t)ttl;
		remaining = ttl;
	}
	/* return {1, now_us, math.min(asked, remaining), value} */
	reply_extended(master, key, asked < remaining ? asked : remaining, ret_reply);
}

void model_extend(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->token != 0);
	/* if now_us > tonumber(ARGV[4]) then */
	if (is_late(master, command)) {
		/* return {-2, now_us} */
		reply_code(master, -2, ret_reply);
		return;
	}
	/* if ARGV[3] ~= '----------------' and redis.call('HGET', KEYS[2], 'certificate') ~= ARGV[3] then */
	if (is_other_certificate(master, command)) {
		/* return {-3, now_us} */
		reply_code(master, -3, ret_reply);
		return;
	}
	/* local value = redis.pcall('GET', KEYS[1]) */
	struct model_key *key = look_up(master, command->key);
	/* if not value then */
	if (key->type == MODEL_NONE) {
		/* return {-1, now_us} */
		reply_code(master, -1, ret_reply);
		if (PLANTED(PLANTED_EXTEND_RECREATES))
			recreate(master, key, command, ret_reply);
		return;
	}
	/* if type(value) ~= 'string' or string.sub(value, 1, 40) ~= ARGV[1] then */
	if (!is_held_by(key, command->token)) {
		/* return {0, now_us, remaining, type(value) == 'string' and value} */
		reply_held(master, key, ret_reply);
		return;
	}
	extend_held(master, key, command, ret_reply);
}

void model_release(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->token != 0);
	/* local value = redis.pcall('GET', KEYS[1])
	 * local ours = type(value) == 'string' and string.sub(value, 1, 40) == ARGV[1] */
	struct model_key *key = look_up(master, command->key);
	bool ours = is_held_by(key, command->token) || (PLANTED(PLANTED_DELETE_NO_COMPARE) && key->type != MODEL_NONE);
	/* if ours then */
	if (ours)
		/* redis.call('DEL', KEYS[1]) */
		model_drop(master, command->key);
	/* if ARGV[2] ~= '----------------' and redis.call('HGET', KEYS[2], 'certificate') ~= ARGV[2] then */
	if (is_other_certificate(master, command))
		/* return {-3, now_us} */
		reply_code(master, -3, ret_reply);
	/* if ours then */
	else if (ours)
		/* return {1, now_us} */
		reply_code(master, 1, ret_reply);
	/* elseif not value then */
	else if (key->type == MODEL_NONE)
		/* return {-1, now_us} */
		reply_code(master, -1, ret_reply);
	else
		/* return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
		reply_held(master, key, ret_reply);
}

void model_inspect(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	/* if ARGV[1] ~= '----------------' and redis.call('HGET', KEYS[2], 'certificate') ~= ARGV[1] then */
	if (is_other_certificate(master, command)) {
		/* return {-3, now_us} */
		reply_code(master, -3, ret_reply);
		return;
	}
	/* local value = redis.pcall('GET', KEYS[1]) */
	struct model_key *key = look_up(master, command->key);
	/* if not value then */
	if (key->type == MODEL_NONE)
		/* return {-1, now_us} */
		reply_code(master, -1, ret_reply);
	else
		/* return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value} */
		reply_held(master, key, ret_reply);
}

/* ---- the restart guard ---- */

void model_certificate(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	/* local seen = redis.call('HMGET', KEYS[1], 'certificate', 'run_id', 'cluster', 'digest', 'ttl_ms', 'marker', 'marker_run_id', 'kept',
	 * 	'clocked_us', 'evicted') */
	uint32_t evicted = master->evicted;
	/* if seen[1] and seen[4] == ARGV[1] and tonumber(ARGV[2]) > tonumber(seen[5] or 0) then */
	if (master->certificate != 0 && master->digest == command->digest && command->ttl_ms > master->ttl_ms)
		/* redis.call('HSET', KEYS[1], 'ttl_ms', ARGV[2])
		 * seen[5] = ARGV[2] */
		master->ttl_ms = (uint32_t)command->ttl_ms;
	/* if ARGV[3] ~= '' and ARGV[3] ~= seen[10] then */
	if (command->evicted != 0)
		/* redis.call('HSET', KEYS[1], 'evicted', ARGV[3]) */
		master->evicted = command->evicted;
	/* local reply = {1, now[1] * 1000000 + now[2], redis.call('HINCRBY', KEYS[1], 'beat', 1)}
	 * for i = 1, 10 do
	 * 	reply[i + 3] = seen[i] or '' */
	reply_code(master, 1, ret_reply);
	ret_reply->beat = ++master->beat;
	ret_reply->certificate = master->certificate;
	ret_reply->run_id = master->run_id;
	ret_reply->cluster = master->cluster;
	ret_reply->digest = master->digest;
	ret_reply->ttl_ms = master->ttl_ms;
	ret_reply->marker = master->marker;
	ret_reply->marker_run_id = master->marker_run_id;
	ret_reply->kept = master->kept;
	ret_reply->clocked_us = master->clocked_us;
	ret_reply->evicted = evicted;
}

void model_bar(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->marker != 0 && command->run_id != 0);
	/* local seen = redis.call('HMGET', KEYS[1], 'certificate', 'marker', 'marker_run_id', 'kept')
	 * if (seen[1] or '') ~= ARGV[1] then */
	if (master->certificate != command->certificate) {
		/* return {0, now_us} */
		reply_code(master, 0, ret_reply);
		return;
	}
	/* redis.call('HDEL', KEYS[1], 'certificate') */
	master->certificate = 0;
	/* local marker, kept = ARGV[2], ARGV[4] */
	uint64_t marker = command->marker;
	bool kept = command->kept;
	/* if seen[2] and seen[3] == ARGV[3] then */
	if (master->marker != 0 && master->marker_run_id == command->run_id) {
		/* marker = seen[2]
		 * kept = seen[4] == '1' and kept or '0' */
		marker = master->marker;
		kept = master->kept && kept;
	}
	/* redis.call('HSET', KEYS[1], 'marker', marker, 'marker_run_id', ARGV[3], 'kept', kept) */
	master->marker = marker;
	master->marker_run_id = command->run_id;
	master->kept = kept;
	/* return {1, now_us, marker, kept} */
	reply_code(master, 1, ret_reply);
	ret_reply->marker = marker;
	ret_reply->kept = kept;
}

void model_fences(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->certificate != 0);
	/* local seen = redis.call('HMGET', KEYS[1], 'certificate', 'marker', 'kept', 'ttl_ms')
	 * if seen[1] ~= ARGV[1] and (seen[2] ~= ARGV[1] or seen[3] ~= '1') then */
	if (master->certificate != command->certificate && (master->marker != command->certificate || !master->kept)) {
		/* return {-3, now_us} */
		reply_code(master, -3, ret_reply);
		return;
	}
	/* local all = redis.call('HGETALL', KEYS[1])
	 * local fence = 0
	 * for i = 1, #all, 2 do
	 * 	if all[i] == 'floor' or string.find(all[i], '^%d+$') then
	 * 		fence = math.max(fence, tonumber(all[i + 1])) */
	uint64_t fence = master->floor;
	for (unsigned i = 0; i < MODEL_BUCKETS; i++)
		fence = larger(fence, master->buckets[i]);
	/* return {1, now_us, fence, tonumber(seen[4] or 0)} */
	reply_code(master, 1, ret_reply);
	ret_reply->fence = fence;
	ret_reply->ttl_ms = master->ttl_ms;
}

void model_certify(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->marker != 0 && command->run_id != 0);
	/* if now_us > tonumber(ARGV[8]) then */
	if (is_late(master, command)) {
		/* return {-2, now_us} */
		reply_code(master, -2, ret_reply);
		return;
	}
	/* local seen = redis.call('HMGET', KEYS[1], 'marker', 'marker_run_id', 'floor', 'ttl_ms')
	 * if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] then */
	if (master->marker != command->marker || master->marker_run_id != command->run_id) {
		/* return {0, now_us} */
		reply_code(master, 0, ret_reply);
		return;
	}
	/* redis.call('HDEL', KEYS[1], 'marker', 'marker_run_id', 'kept') */
	master->marker = master->marker_run_id = 0;
	master->kept = false;
	/* redis.call('HSET', KEYS[1], 'certificate', ARGV[1], 'run_id', ARGV[2], 'cluster', ARGV[3], 'digest', ARGV[4], … */
	master->certificate = command->marker;
	master->run_id = command->run_id;
	master->cluster = command->cluster;
	master->digest = command->digest;
	/* local floor, ttl_ms = ARGV[6], ARGV[5]
	 * if tonumber(seen[4] or 0) > tonumber(ttl_ms) then ttl_ms = seen[4] … 'ttl_ms', ttl_ms, … */
	master->ttl_ms = (uint32_t)larger(master->ttl_ms, command->ttl_ms);
	/* if tonumber(seen[3] or 0) > tonumber(floor) then floor = seen[3] … 'floor', floor) */
	master->floor = larger(master->floor, command->fence);
	/* if ARGV[7] == '1' then */
	if (command->clocked)
		/* redis.call('HSET', KEYS[1], 'clocked_us', string.format('%.0f', now_us)) */
		master->clocked_us = master->now_us;
	/* return {1, now_us} */
	reply_code(master, 1, ret_reply);
}

/* ---- what happens to a master ---- */

/* What is not data. */
static struct model_master bare_server(const struct model_master *master)
{
	return (struct model_master){ .now_us = master->now_us, .server_run_id = master->server_run_id, .server_evicted = master->server_evicted };
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
	if (look_up(master, key)->type == MODEL_NONE)
		return;
	model_drop(master, key);
	master->server_evicted++;
}

void model_evict_hash(struct model_master *master)
{
	struct model_master left = bare_server(master);
	left.server_evicted += master->beat != 0; /* it was there: whoever writes there has read before */
	memcpy(left.keys, master->keys, sizeof left.keys);
	*master = left;
}

void model_clock_set(struct model_master *master, uint64_t now_us)
{
	master->now_us = now_us;
	for (unsigned i = 0; i < MODEL_KEYS; i++)
		look_up(master, i);
}

void model_drop(struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	memset(&master->keys[key], 0, sizeof master->keys[key]);
}

/* ---- for looking at ---- */

uint64_t model_token(const struct model_master *master, unsigned key)
{
	assert(key < MODEL_KEYS);
	const struct model_key *found = &master->keys[key];
	return found->type == MODEL_STRING && !has_run_out(master, found) ? found->value.token : 0;
}

uint64_t model_number(const struct model_master *master, unsigned bucket)
{
	assert(bucket < MODEL_BUCKETS);
	return larger(master->floor, master->buckets[bucket]);
}
