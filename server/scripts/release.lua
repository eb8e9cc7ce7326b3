-- Release: compare and delete ("Correct implementation with a single instance").
-- Carried out however late, and whatever certificate this master has: what it deletes can only be the token's own. But
-- where the certificate is another one its word does not count.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  token
-- ARGV[2]  certificate: as in acquire.lua  ARGV[3]  deadline_us: not looked at
--
-- Returns {1, now_us}                          it was ours and is deleted
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1, now_us}                         gone
--         {-3, now_us}                         another certificate; if it was ours it is deleted
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local value = redis.pcall('GET', KEYS[1])
local ours = type(value) == 'string' and string.sub(value, 1, 40) == ARGV[1]
if ours then
	redis.call('DEL', KEYS[1])
end
if ARGV[2] ~= '----------------' and redis.call('HGET', KEYS[2], 'certificate') ~= ARGV[2] then
	return {-3, now_us}
end
if ours then
	return {1, now_us}
elseif not value then
	return {-1, now_us}
end
return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value}
