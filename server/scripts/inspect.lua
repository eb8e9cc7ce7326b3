-- Inspect: the holder here, and the number of waiters. Reads only. Its cost does not depend on the number of waiters,
-- since clients may inspect as often as they like: entries are counted, not read, so stale ones count until they are
-- removed.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  epoch: as in acquire.lua  ARGV[2]  deadline_us: not used
--
-- Returns {0, now_us, remaining_ms, value, waiters}  held; remaining_ms -1: it never expires; value false: another type
--         {-1, now_us, waiters}                      free
--         {-3, now_us}                               another epoch
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[2], 'epoch', 'waited')
if seen[1] ~= ARGV[1] and ARGV[1] ~= '----------------' then
	return {-3, now_us}
end
local waiters = 0
if tonumber(seen[2] or 0) > now_us then
	waiters = redis.call('ZCARD', string.sub(KEYS[2], 1, -7) .. 'queue:' .. KEYS[1])
end
local value = redis.pcall('GET', KEYS[1])
if not value then
	return {-1, now_us, waiters}
end
return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value, waiters}
