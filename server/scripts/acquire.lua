-- Acquire: SET key value NX PX ttl, as in the specification ("Correct implementation with a single instance"), and the
-- first round of the fence.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master   hash: floor, and a bucket for every 16384th resource
-- ARGV[1]  token    40 hex digits, new for every attempt
-- ARGV[2]  ttl_ms
-- ARGV[3]  max_hold_ms  0: no bound
-- ARGV[4]  owner    a label, may be empty
-- ARGV[5]  bucket   of the resource
-- ARGV[6]  guess    for the fence, in decimal digits
--
-- The value is token:hold_until_ms:fence:owner, with hold_until_ms in this master's own time (0: no bound).
-- Returns {1, old}                     set here; old is the largest number that the bucket or the floor held before, and the
--                                      bucket was raised to the guess if that is larger
--         {0, remaining_ms, value}     held by that value; remaining_ms -1: it never expires
--         {0, remaining_ms, false}     held by a key of another type
-- SET NX fails on a key of any type, so somebody's hash or list counts as held and never as an error.
-- A guess more than a day ahead of this master's clock would use up numbers for nothing: refused.
local now = redis.call('TIME')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
if tonumber(ARGV[6]) > (now_ms + 86400000) * 1000 then
	return redis.error_reply('FENCE the guess is more than a day ahead of this master')
end
local hold_until = ARGV[3] ~= '0' and now_ms + ARGV[3] or 0
local value = string.format('%s:%.0f:%s:%s', ARGV[1], hold_until, ARGV[6], ARGV[4])
if not redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then
	local holder = redis.pcall('GET', KEYS[1])
	return {0, redis.call('PTTL', KEYS[1]), type(holder) == 'string' and holder}
end
local seen = redis.call('HMGET', KEYS[2], 'floor', ARGV[5])
local old = math.max(tonumber(seen[1] or 0), tonumber(seen[2] or 0))
if tonumber(ARGV[6]) > old then
	redis.call('HSET', KEYS[2], ARGV[5], ARGV[6])
end
return {1, old}
