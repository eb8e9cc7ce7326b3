-- Raise set: raise.lua for a lease on several resources. Only if the token holds all of them, and only to a number above
-- each of their buckets: one fence is then a strict increase of every bucket of the set.
--
-- KEYS     as in acquire_set.lua
-- ARGV[1]  token  ARGV[2]  fence  ARGV[3]  epoch  ARGV[4]  deadline_us: as in raise.lua
-- ARGV[5]  bucket of the first resource, and so on
--
-- Returns as raise.lua; `old` is the largest number of all buckets and the floor.
local count, hash, deadline_us, epoch = #KEYS - 1, KEYS[#KEYS], ARGV[4], ARGV[3]
--include late.lua
local seen = redis.call('HMGET', hash, 'epoch', 'floor', 'waited', unpack(ARGV, 5))
--include member.lua
local values, hashes, old, gone, mark, token = {}, {}, tonumber(seen[2] or 0), false, ';', ARGV[1]
for i = 1, count do
	local value, key = nil, KEYS[i]
--include value_read.lua
--include value_own.lua
	if value and not own then
		return {0, now_us, redis.call('PTTL', KEYS[i]), type(value) == 'string' and value}
	end
	gone = gone or not value
	values[i], hashes[i] = value, holders or false
	old = math.max(old, tonumber(seen[i + 3] or 0))
end
if gone then
	return {-1, now_us}
end
if old >= tonumber(ARGV[2]) then
	return {2, now_us, old}
end
local waited = tonumber(seen[3] or 0)
for i = 1, count do
	local key, holders = KEYS[i], hashes[i]
--include watch_tell.lua
	local first, last = string.match(values[i], '^([^;]*;%d+:)%d+(:.*)$')
	local value = first .. ARGV[2] .. last
	redis.call('HSET', hash, ARGV[i + 4], ARGV[2])
--include value_write.lua
end
return {1, now_us}
