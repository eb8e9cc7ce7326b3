-- Raise: a further round of the fence, where a guess was too low.
-- Only for the token that holds the key, so that numbers follow the order of holding; only to a strictly larger number, so
-- that two attempts never get the same one.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  token
-- ARGV[2]  bucket
-- ARGV[3]  fence    in decimal digits
--
-- Returns {1}                          the bucket and the key's value now carry the number
--         {2, old}                     held by the token, but the bucket or the floor is at `old`, not below the number
--         {0, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1}                         gone
local value = redis.pcall('GET', KEYS[1])
if not value then
	return {-1}
end
if type(value) ~= 'string' or string.sub(value, 1, 40) ~= ARGV[1] then
	return {0, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value}
end
local seen = redis.call('HMGET', KEYS[2], 'floor', ARGV[2])
local old = math.max(tonumber(seen[1] or 0), tonumber(seen[2] or 0))
if old >= tonumber(ARGV[3]) then
	return {2, old}
end
local first, last = string.match(value, '^(%x+:%d+:)%d+(:.*)$')
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
redis.call('SET', KEYS[1], first .. ARGV[3] .. last, 'KEEPTTL')
return {1}
