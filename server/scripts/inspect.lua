-- Inspect: who holds it here. Reads only.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  certificate: as in acquire.lua  ARGV[2]  deadline_us: not looked at
--
-- Returns {0, now_us, remaining_ms, value}     held; remaining_ms -1: it never expires; value false: a key of another type
--         {-1, now_us}                         free
--         {-3, now_us}                         another certificate
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
if ARGV[1] ~= '----------------' and redis.call('HGET', KEYS[2], 'certificate') ~= ARGV[1] then
	return {-3, now_us}
end
local value = redis.pcall('GET', KEYS[1])
if not value then
	return {-1, now_us}
end
return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value}
