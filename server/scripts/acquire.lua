-- Acquire: SET key value NX PX ttl, as in the specification ("Correct implementation with a single instance"), the
-- first round of the fence, and the line of those who wait for the resource.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master   hash: certificate, floor, and a bucket for every 16384th resource
-- ARGV[1]  token    40 hex digits, new for every attempt
-- ARGV[2]  ttl_ms
-- ARGV[3]  max_hold_ms  0: no bound
-- ARGV[4]  owner    a label, may be empty
-- ARGV[5]  bucket   of the resource
-- ARGV[6]  guess    for the fence, in decimal digits
-- ARGV[7]  place    in the line: "replica:arrival wait_ms" (16 hex digits, 16 decimal digits, what is left of the wait); empty: waits for nobody
-- ARGV[8]  certificate  that this master must have; sixteen dashes: any (--restart-guard off)
-- ARGV[9]  deadline_us  in this master's own time: later than that nobody waits for the answer, nor releases
--
-- The value is token:hold_until_ms:fence:owner, with hold_until_ms in this master's own time (0: no bound).
-- Returns {1, now_us, old}                     set here; old is the largest number that the bucket or the floor held before,
--                                              and the bucket was raised to the guess if that is larger
--         {0, now_us, remaining_ms, value}     held by that value; remaining_ms -1: it never expires
--         {0, now_us, remaining_ms, false}     held by a key of another type
--         {2, now_us, alive_ms, first}         free, but it is the turn of `first` in the line, whose redlockd counts as alive for alive_ms
--         {-2, now_us}                         too late: nothing was done
--         {-3, now_us}                         another certificate or none: this master may have forgotten locks; nothing was done
--         {-4, now_us}                         the guess is more than a day ahead of this master's clock: nothing was done
-- Where it is not set the place is taken in the line; where it is set the place is given up.
-- SET NX fails on a key of any type, so somebody's hash or list counts as held and never as an error.
--
-- The line is {prefix}redlockd:queue:{key}, a sorted set of "replica:arrival" by arrival: every master sorts alike. A replica lives as long as
-- its key {prefix}redlockd:alive:{replica}. `waited` in the hash says until when some line may not be empty: nobody looks for one after that.
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
if now_us > tonumber(ARGV[9]) then
	return {-2, now_us}
end
local seen = redis.call('HMGET', KEYS[2], 'certificate', 'floor', ARGV[5], 'waited')
if seen[1] ~= ARGV[8] and ARGV[8] ~= '----------------' then
	return {-3, now_us}
end
local guess = tonumber(ARGV[6])
if guess > now_us + 86400000000 then
	return {-4, now_us}
end
local waited = tonumber(seen[4] or 0)
local place, wait_ms, names, line, first = false
if ARGV[7] ~= '' then
	place, wait_ms = string.sub(ARGV[7], 1, 33), tonumber(string.sub(ARGV[7], 35))
end
if waited > now_us then
	names = string.sub(KEYS[2], 1, -7)
	line = names .. 'queue:' .. KEYS[1]
	if place then
		redis.call('ZADD', line, 'NX', string.sub(place, 18), place)
	end
--include line_first.lua
end
local hold_until = ARGV[3] ~= '0' and math.floor(now_us / 1000) + ARGV[3] or 0
local value = string.format('%s:%.0f:%s:%s', ARGV[1], hold_until, ARGV[6], ARGV[4])
if (not first or first == place) and redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then
	if first then
		redis.call('ZREM', line, place)
	end
	local old = math.max(tonumber(seen[2] or 0), tonumber(seen[3] or 0))
	if guess > old then
		redis.call('HSET', KEYS[2], ARGV[5], ARGV[6])
	end
	return {1, now_us, old}
end
if place then
	names = string.sub(KEYS[2], 1, -7)
	line = names .. 'queue:' .. KEYS[1]
--include line_join.lua
end
local holder = redis.pcall('GET', KEYS[1])
if not holder then -- whose turn it is may have missed that
	redis.pcall('PUBLISH', names .. 'wake', first .. ' ' .. KEYS[1])
	return {2, now_us, redis.call('PTTL', names .. 'alive:' .. string.sub(first, 1, 16)), first}
end
return {0, now_us, redis.call('PTTL', KEYS[1]), type(holder) == 'string' and holder}
