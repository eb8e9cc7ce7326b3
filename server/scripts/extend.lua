-- Extend: only if the key still has the token, and only to a later end ("Extending the lock"). Never SET: an ended
-- lease must not come back. An older extension that arrives late must not shorten what a newer one gave.
--
-- KEYS[1]  {prefix}{resource}      … and as many more as there are resources: those of one moment share a command
-- KEYS[n]  {prefix}redlockd:master
-- ARGV[1]  epoch  ARGV[2]  deadline_us: as in acquire.lua
-- ARGV[3]  token
-- ARGV[4]  ttl_ms
-- ARGV[5]  note   "fence:key", written into the value: the lease is an acquisition's with an Idempotency-Key, which has
--                 been granted with that fence (server/leases/lease_keyed.c); empty: the value stays
-- ARGV[6]  bucket  of the resource
-- … and four more for each further resource.
-- ARGV[7]  until_s, the last one of all, may be left out: as in acquire.lua
--
-- Returns {1, now_us, ttl_ms, value}           it expires in ttl_ms or later; less than requested near hold_until_ms
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1, now_us, bucket}                 gone; also where several others hold it. What the bucket has, empty: nothing:
--                                              the lease can be repaired (acquire.lua)
--         {-2, now_us}, {-3, now_us}           too late, another epoch: as in acquire.lua, also for several
-- and for several {now_us, answer, …}, or the error of one.
local hash, deadline_us = KEYS[#KEYS], ARGV[2]
--include late.lua
if ARGV[1] ~= '----------------' and redis.call('HGET', hash, 'epoch') ~= ARGV[1] then
	return {-3, now_us}
end
local until_s = ARGV[4 * #KEYS - 1]

local function one(i)
	local value, key, mark, token = nil, KEYS[i], ':', ARGV[4 * i - 1]
--include value_read.lua
--include value_own.lua
	if not value then
		return {-1, now_us, redis.call('HGET', hash, ARGV[4 * i + 2]) or ''}
	end
	local remaining = shared and ends - 1 - math.floor(now_us / 1000) or redis.call('PTTL', key)
	if not own then
		return {0, now_us, remaining, type(value) == 'string' and value}
	end
	local note = ARGV[4 * i + 1]
	if note ~= '' then
		local first, last = string.match(value, '^([^:]*:%d+:)%d+:[^:]*(:.*)$')
		value = first .. note .. last
--include value_write.lua
	end
	local asked = tonumber(ARGV[4 * i])
--include lease_note.lua
	until_s = nil
	if remaining < 0 and not shared then
		return {1, now_us, asked, value} -- another program removed the expiry
	end
	local ttl = asked
	local hold_until = tonumber(string.match(value, '^[^:]*:(%d+):')) or 0
	if hold_until > 0 then
		ttl = math.min(asked, hold_until - math.floor(now_us / 1000))
	end
	if ttl > remaining then
		if shared then
			redis.call('ZADD', key, string.format('%.0f', math.floor(now_us / 1000) + ttl + 1), token)
--include shared_last.lua
		else
			redis.call('PEXPIRE', key, string.format('%.0f', ttl))
		end
		remaining = ttl
	end
	return {1, now_us, math.min(asked, remaining), value}
end

--include each.lua
return answers
