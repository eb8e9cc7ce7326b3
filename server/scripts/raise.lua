-- Raise: a further round of the fence, if a guess was too low. Only for the token that holds the key, so that numbers
-- follow the order of the holders; only to a strictly larger number, so that no two attempts get the same one.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  token
-- ARGV[2]  bucket
-- ARGV[3]  fence    in decimal digits
-- ARGV[4]  epoch  ARGV[5]  deadline_us: as in acquire.lua
--
-- Returns {1, now_us}                          the bucket and the key's value have the number now
--         {2, now_us, old}                     held by the token, but bucket or floor is at `old`, not below the number
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1, now_us}                         gone; also where several others hold it
--         {-2, now_us}, {-3, now_us}           too late, another epoch: as in acquire.lua
local hash, key, deadline_us, epoch = KEYS[2], KEYS[1], ARGV[5], ARGV[4]
--include late.lua
local seen = redis.call('HMGET', hash, 'epoch', 'floor', ARGV[2], 'waited')
--include member.lua
local value, mark, token = nil, ':', ARGV[1]
--include value_read.lua
--include value_own.lua
if not value then
	return {-1, now_us}
end
if not own then
	return {0, now_us, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value}
end
local old = math.max(tonumber(seen[2] or 0), tonumber(seen[3] or 0))
if old >= tonumber(ARGV[3]) then
	return {2, now_us, old}
end
local first, last = string.match(value, '^([^:]*:%d+:)%d+(:.*)$')
value = first .. ARGV[3] .. last
redis.call('HSET', hash, ARGV[2], ARGV[3])
--include value_write.lua
local waited = tonumber(seen[4] or 0)
--include watch_tell.lua
return {1, now_us}
