-- Fences: the largest fence that this master has ever counted to. For another master that forgot its own.
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  certificate or marker that this master must have; a marker counts only where the buckets were kept
--
-- Returns {1, now_us, fence, ttl_ms}           ttl_ms: the longest lease ever given
--         {-3, now_us}                         it has another one
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[1], 'certificate', 'marker', 'kept', 'ttl_ms')
if seen[1] ~= ARGV[1] and (seen[2] ~= ARGV[1] or seen[3] ~= '1') then
	return {-3, now_us}
end
local all = redis.call('HGETALL', KEYS[1])
local fence = 0
for i = 1, #all, 2 do
	if all[i] == 'floor' or string.find(all[i], '^%d+$') then
		fence = math.max(fence, tonumber(all[i + 1]))
	end
end
return {1, now_us, fence, tonumber(seen[4] or 0)}
