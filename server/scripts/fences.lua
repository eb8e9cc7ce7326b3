-- SPDX-License-Identifier: MIT
-- Fences: the largest fence of a slice of this master's buckets, for another master that lost its own. All buckets at
-- once would block everybody else for 10 ms and more. Each slice compares the epoch, so that all slices are of one
-- memory. Numbers only grow under one epoch, so the largest of all slices is not below the fence of any lease that was
-- granted before the first slice.
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  epoch or marker that this master must have; a marker counts only if the buckets were kept
-- ARGV[2]  the first bucket of the slice       ARGV[3]  the last one
--
-- Returns {1, now_us, fence, ttl_ms, leases, timeout_ms}
--                 fence: the floor is included. ttl_ms: the longest lease ever granted. leases: the second of this
--                 master's time by which all leases granted here are over (lib/lease.lua). timeout_ms: the longest
--                 timeout of any redlockd that used this master
--         {-3, now_us}                         the master has another epoch
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[1], 'epoch', 'marker', 'kept', 'ttl_ms', 'leases', 'timeout_ms')
if seen[1] ~= ARGV[1] and (seen[2] ~= ARGV[1] or seen[3] ~= '1') then
	return {-3, now_us}
end
local slice = {}
for bucket = ARGV[2], ARGV[3] do
	slice[#slice + 1] = bucket
end
local fence = 0
for _, number in ipairs(redis.call('HMGET', KEYS[1], 'floor', unpack(slice))) do
	fence = math.max(fence, tonumber(number or 0))
end
return {1, now_us, fence, tonumber(seen[4] or 0), tonumber(seen[5] or 0), tonumber(seen[6] or 0)}
