-- SPDX-License-Identifier: MIT
-- Epoch write: the quarantine is over, and this master may vote again. Compare-and-set: the marker becomes the epoch
-- only if it is still the one that the caller saw, so that nothing was granted and lost since.
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  marker      ARGV[2]  run_id     of this server
-- ARGV[3]  cluster     ARGV[4]  digest     of the settings that all replicas must share
-- ARGV[5]  ttl_ms      the longest lease ever granted, for which the caller has waited
-- ARGV[6]  floor       no fence below it is given here, in decimal digits
-- ARGV[7]  clocked     1: the floor rests on clocks, since too few masters had their fences
-- ARGV[8]  timeout_ms  as in epoch.lua
-- ARGV[9]  deadline_us in this master's own time: after it others have decided without this answer
--
-- Returns {1, now_us}                          written
--         {0, now_us}                          another marker, digest or server, or none, or longer leases are
--                                              stored: read it again
--         {-2, now_us}                         too late: nothing was done
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
if now_us > tonumber(ARGV[9]) then
	return {-2, now_us}
end
local seen = redis.call('HMGET', KEYS[1], 'marker', 'marker_run_id', 'floor', 'ttl_ms', 'timeout_ms', 'digest')
if seen[1] ~= ARGV[1] or seen[2] ~= ARGV[2] or seen[6] ~= ARGV[4] then
	return {0, now_us}
end
if math.min(tonumber(seen[4] or 0), 86400000) > tonumber(ARGV[5]) then -- more than a day is an error
	return {0, now_us}
end
local floor = ARGV[6]
if tonumber(seen[3] or 0) > tonumber(floor) then
	floor = seen[3]
end
local timeout_ms = math.max(tonumber(seen[5] or 0), tonumber(ARGV[8]))
redis.call('HDEL', KEYS[1], 'marker', 'marker_run_id', 'kept')
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'run_id', ARGV[2], 'cluster', ARGV[3], 'digest', ARGV[4],
	'ttl_ms', ARGV[5], 'floor', floor, 'timeout_ms', string.format('%.0f', timeout_ms))
if ARGV[7] == '1' then
	redis.call('HSET', KEYS[1], 'clocked_us', string.format('%.0f', now_us))
end
return {1, now_us}
