/* The scripts of the restart guard in C, line for line beside their Lua: see model_master.h. */
#include <assert.h>
#include <string.h>

#include "model_internal.h"

void model_note_lease(struct model_master *master, const struct model_command *command)
{
	/* if until_s and tonumber(until_s) > tonumber(redis.call('HGET', hash, 'leases') or 0) then
	 *	redis.call('HSET', hash, 'leases', until_s) */
	if (command->until_s > master->leases)
		master->leases = command->until_s;
}

static void count_heartbeat(struct model_master *master, const struct model_command *command)
{
	/* local noted = seen[1] or seen[6] and seen[5] */
	bool noted = master->epoch != 0 || (master->marker != 0 && master->ttl_ms != 0);
	/* if noted and tonumber(ARGV[2]) > tonumber(seen[5] or 0) then */
	if (noted && command->ttl_ms > master->ttl_ms)
		/* redis.call('HSET', KEYS[1], 'ttl_ms', ARGV[2])
		 * seen[5] = ARGV[2] */
		master->ttl_ms = (uint32_t)command->ttl_ms;
	/* if noted and tonumber(ARGV[5]) > tonumber(seen[11] or 0) then
	 * 	redis.call('HSET', KEYS[1], 'timeout_ms', ARGV[5]) */
	if (noted && command->timeout_ms > master->timeout_ms)
		master->timeout_ms = command->timeout_ms;
	/* if ARGV[3] ~= '' and ARGV[3] ~= seen[10] and (ARGV[4] == '1' or not seen[10]) then */
	if (command->evicted != 0 && (command->compared || master->evicted == 0))
		/* redis.call('HSET', KEYS[1], 'evicted', ARGV[3]) */
		master->evicted = command->evicted;
	/* if seen[1] and seen[1] == ARGV[7] and now_us <= tonumber(ARGV[8]) then */
	if (master->epoch != 0 && master->epoch == command->epoch && master->now_us <= command->deadline_us)
		/* redis.call('HSET', KEYS[1], 'run_id', ARGV[6])
		 * seen[2] = ARGV[6] */
		master->run_id = command->run_id;
	/* if not seen[1] or seen[2] == ARGV[6] then
	 *	reply[3] = redis.call('HINCRBY', KEYS[1], 'beat', 1) */
	if (master->epoch == 0 || master->run_id == command->run_id)
		master->beat++;
}

void model_epoch(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	/* local seen = redis.call('HMGET', KEYS[1], 'epoch', 'run_id', 'cluster', 'digest', 'ttl_ms', 'marker',
	 * 	'marker_run_id', 'kept', 'clocked_us', 'evicted', 'timeout_ms', 'beat') */
	uint32_t evicted = master->evicted;
	/* local is_new = not seen[1] and not seen[6] and not seen[4] */
	bool is_new = master->epoch == 0 && master->marker == 0 && master->digest == 0;
	/* if is_new or seen[4] == ARGV[1] then */
	if (is_new || master->digest == command->digest)
		count_heartbeat(master, command);
	/* local reply = {1, now[1] * 1000000 + now[2], tonumber(seen[12] or 0)}
	 * for i = 1, 10 do
	 * 	reply[i + 3] = seen[i] or '' */
	model_reply_code(master, 1, ret_reply);
	ret_reply->beat = master->beat;
	ret_reply->epoch = master->epoch;
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

static void take_over(struct model_master *master, uint64_t digest, uint64_t marker)
{
	/* local old = redis.call('HMGET', KEYS[1], 'beat', 'cluster', 'floor')
	 * local floor = tonumber(old[3] or 0) */
	uint64_t floor = master->floor;
	/* for first = 0, math.min(tonumber(string.sub(digest, 9), 16), 65536) - 1, 256 do
	 * 	… floor = math.max(floor, tonumber(number or 0)) */
	for (unsigned i = 0; (uint32_t)digest > 0 && i < MODEL_BUCKETS; i++)
		floor = model_larger(floor, master->buckets[i]);
	/* redis.call('DEL', KEYS[1])
	 * redis.call('HSET', KEYS[1], 'floor', string.format('%.0f', floor), 'cluster', old[2] or marker)
	 * if old[1] then redis.call('HSET', KEYS[1], 'beat', old[1]) */
	memset(master->buckets, 0, sizeof master->buckets);
	master->floor = floor;
	master->cluster = master->cluster != 0 ? master->cluster : marker;
	master->run_id = master->clocked_us = master->leases = master->waited_us = 0;
	master->timeout_ms = master->evicted = 0;
}

void model_quarantine(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->marker != 0 && command->run_id != 0);
	/* local seen = redis.call('HMGET', KEYS[1], 'epoch', 'marker', 'marker_run_id', 'kept', 'ttl_ms', 'digest')
	 * local digest = seen[6] or (seen[1] or seen[2]) and '0000000000000000' or ARGV[6] */
	bool empty = master->digest == 0 && master->epoch == 0 && master->marker == 0;
	uint64_t digest = empty ? command->digest : master->digest;
	/* local other = digest ~= ARGV[6]
	 * if (seen[1] or '') ~= ARGV[1] or other and digest ~= ARGV[7] then */
	bool other = digest != command->digest, may_replace = command->takes_over && digest == command->taken;
	if (master->epoch != command->epoch || (other && !may_replace)) {
		/* return {0, now_us} */
		model_reply_code(master, 0, ret_reply);
		return;
	}
	/* local marker, kept, ttl_ms = ARGV[2], ARGV[4], seen[5] */
	uint64_t marker = command->marker;
	bool kept = command->kept, has_marker = master->marker != 0;
	/* if other then … elseif seen[2] and seen[3] == ARGV[3] then */
	if (other) {
		take_over(master, digest, marker);
	} else if (master->marker != 0 && master->marker_run_id == command->run_id) {
		/* marker = seen[2]
		 * kept = seen[4] == '1' and kept or '0' */
		marker = master->marker;
		kept = master->kept && kept;
	}
	/* redis.call('HDEL', KEYS[1], 'epoch') */
	master->epoch = 0;
	/* redis.call('HSET', KEYS[1], 'marker', marker, 'marker_run_id', ARGV[3], 'kept', kept, 'digest', ARGV[6]) */
	master->marker = marker;
	master->marker_run_id = command->run_id;
	master->kept = kept;
	master->digest = command->digest;
	/* if (ttl_ms or not seen[2] and not other) and tonumber(ARGV[5]) > tonumber(ttl_ms or 0) then */
	if ((master->ttl_ms != 0 || (!has_marker && !other)) && command->ttl_ms > master->ttl_ms)
		/* ttl_ms = ARGV[5]
		 * redis.call('HSET', KEYS[1], 'ttl_ms', ttl_ms) */
		master->ttl_ms = (uint32_t)command->ttl_ms;
	/* return {1, now_us, marker, kept, ttl_ms or ''} */
	model_reply_code(master, 1, ret_reply);
	ret_reply->marker = marker;
	ret_reply->kept = kept;
	ret_reply->ttl_ms = master->ttl_ms;
}

void model_fences(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->epoch != 0 && command->last_bucket < MODEL_BUCKETS);
	/* local seen = redis.call('HMGET', KEYS[1], 'epoch', 'marker', 'kept', 'ttl_ms', 'leases', 'timeout_ms')
	 * if seen[1] ~= ARGV[1] and (seen[2] ~= ARGV[1] or seen[3] ~= '1') then */
	if (master->epoch != command->epoch && (master->marker != command->epoch || !master->kept)) {
		/* return {-3, now_us} */
		model_reply_code(master, -3, ret_reply);
		return;
	}
	/* for bucket = ARGV[2], ARGV[3] do
	 * 	slice[#slice + 1] = bucket
	 * local fence = 0
	 * for _, number in ipairs(redis.call('HMGET', KEYS[1], 'floor', unpack(slice))) do
	 * 	fence = math.max(fence, tonumber(number or 0)) */
	uint64_t fence = master->floor;
	for (unsigned i = command->bucket; i <= command->last_bucket; i++)
		fence = model_larger(fence, master->buckets[i]);
	/* return {1, now_us, fence, tonumber(seen[4] or 0), tonumber(seen[5] or 0), tonumber(seen[6] or 0)} */
	model_reply_code(master, 1, ret_reply);
	ret_reply->fence = fence;
	ret_reply->leases = master->leases;
	ret_reply->timeout_ms = master->timeout_ms;
	ret_reply->ttl_ms = master->ttl_ms;
}

void model_write_epoch(struct model_master *master, const struct model_command *command, struct model_reply *ret_reply)
{
	assert(command->marker != 0 && command->run_id != 0);
	/* if now_us > tonumber(ARGV[9]) then */
	if (model_is_late(master, command)) {
		/* return {-2, now_us} */
		model_reply_code(master, -2, ret_reply);
		return;
	}
	/* local seen = redis.call('HMGET', KEYS[1], 'marker', 'marker_run_id', 'floor', 'ttl_ms', 'timeout_ms',
	 * 	'digest')
	 * if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] or seen[6] ~= ARGV[4] then */
	if (master->marker != command->marker || master->marker_run_id != command->run_id ||
	    master->digest != command->digest) {
		/* return {0, now_us} */
		model_reply_code(master, 0, ret_reply);
		return;
	}
	/* if math.min(tonumber(seen[4] or 0), 86400000) > tonumber(ARGV[5]) then */
	if (master->ttl_ms > command->ttl_ms) {
		/* return {0, now_us} */
		model_reply_code(master, 0, ret_reply);
		return;
	}
	/* redis.call('HDEL', KEYS[1], 'marker', 'marker_run_id', 'kept') */
	master->marker = master->marker_run_id = 0;
	master->kept = false;
	/* redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'run_id', ARGV[2], 'cluster', ARGV[3], 'digest', ARGV[4], … */
	master->epoch = command->marker;
	master->run_id = command->run_id;
	master->cluster = command->cluster;
	master->digest = command->digest;
	/* 'ttl_ms', ARGV[5], … 'timeout_ms', math.max(tonumber(seen[5] or 0), tonumber(ARGV[8])) */
	master->ttl_ms = (uint32_t)command->ttl_ms;
	master->timeout_ms = command->timeout_ms > master->timeout_ms ? command->timeout_ms : master->timeout_ms;
	/* local floor = ARGV[6]
	 * if tonumber(seen[3] or 0) > tonumber(floor) then floor = seen[3] … 'floor', floor) */
	master->floor = model_larger(master->floor, command->fence);
	/* if ARGV[7] == '1' then */
	if (command->clocked)
		/* redis.call('HSET', KEYS[1], 'clocked_us', string.format('%.0f', now_us)) */
		master->clocked_us = master->now_us;
	/* return {1, now_us} */
	model_reply_code(master, 1, ret_reply);
}
