-- Fences: the largest fence that a slice of this master's buckets has ever counted to. For another master that forgot its own. In slices,
-- since all 16384 at once would hold up everybody else for 10 ms and more. The epoch is compared in each, so that all of them are
-- of one memory; numbers only grow under it, so the largest of all slices is at least what any lease before the first slice was given.
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  epoch or marker that this master must have; a marker counts only where the buckets were kept
-- ARGV[2]  the first bucket of the slice       ARGV[3]  the last one
--
-- Returns {1, now_us, fence, ttl_ms}           ttl_ms: the longest lease ever given. fence: the floor counts as well
--         {-3, now_us}                         it has another one
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[1], 'epoch', 'marker', 'kept', 'ttl_ms')
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
return {1, now_us, fence, tonumber(seen[4] or 0)}
