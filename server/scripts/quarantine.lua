-- SPDX-License-Identifier: MIT
-- Quarantine: removes the epoch, so that no redlockd lets this master vote, and writes a marker. If the marker is still
-- there at the end of the quarantine, nothing was granted or lost here in the meantime (epoch_write.lua). The longest
-- ttl is kept beside it: a redlockd with short leases that starts after everything else was lost must wait for others'
-- leases.
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  epoch    as the caller read it, empty: none. Another one by now: nothing is done
-- ARGV[2]  marker         a new random number, in 16 hex digits
-- ARGV[3]  run_id         of this server
-- ARGV[4]  kept           1: the numbers of the buckets are all there, 0: some may be lost
-- ARGV[5]  ttl_ms         the longest lease of any replica, as far as the caller knows
-- ARGV[6]  digest         of the settings that all replicas must share. A hash with another one stays, unless
-- ARGV[7]  taken          is its digest: another version's hash is taken over. All zeros: it has none
--
-- A hash that is taken over is deleted, so that no script of the other version can find its epoch there. Every version
-- has the same names for the fields that are kept: the number of heartbeats, the cluster (without one, the marker
-- becomes its id, so that no redlockd takes it for new), the longest lease, and the largest fence as the floor. The
-- lower half of a digest is the number of buckets.
--
-- Returns {1, now_us, marker, kept, ttl_ms}    quarantined; the marker is an older one if this server had one already.
--                                              ttl_ms is empty if the replaced hash had none
--         {0, now_us}                          another epoch or digest: read it again
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[1], 'epoch', 'marker', 'marker_run_id', 'kept', 'ttl_ms', 'digest')
local digest = seen[6] or (seen[1] or seen[2]) and '0000000000000000' or ARGV[6]
local other = digest ~= ARGV[6]
if (seen[1] or '') ~= ARGV[1] or other and digest ~= ARGV[7] then
	return {0, now_us}
end
local marker, kept, ttl_ms = ARGV[2], ARGV[4], seen[5]
if other then
	local old = redis.call('HMGET', KEYS[1], 'beat', 'cluster', 'floor')
	local floor = tonumber(old[3] or 0)
	for first = 0, math.min(tonumber(string.sub(digest, 9), 16), 65536) - 1, 256 do
		local slice = {}
		for bucket = first, first + 255 do
			slice[#slice + 1] = bucket
		end
		for _, number in ipairs(redis.call('HMGET', KEYS[1], unpack(slice))) do
			floor = math.max(floor, tonumber(number or 0))
		end
	end
	redis.call('DEL', KEYS[1])
	redis.call('HSET', KEYS[1], 'floor', string.format('%.0f', floor), 'cluster', old[2] or marker)
	if old[1] then
		redis.call('HSET', KEYS[1], 'beat', old[1])
	end
elseif seen[2] and seen[3] == ARGV[3] then
	marker = seen[2]
	kept = seen[4] == '1' and kept or '0'
end
redis.call('HDEL', KEYS[1], 'epoch')
redis.call('HSET', KEYS[1], 'marker', marker, 'marker_run_id', ARGV[3], 'kept', kept, 'digest', ARGV[6])
if (ttl_ms or not seen[2] and not other) and tonumber(ARGV[5]) > tonumber(ttl_ms or 0) then
	ttl_ms = ARGV[5]
end
if ttl_ms then
	redis.call('HSET', KEYS[1], 'ttl_ms', ttl_ms)
end
return {1, now_us, marker, kept, ttl_ms or ''}
