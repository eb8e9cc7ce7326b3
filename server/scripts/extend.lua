-- Extend: only if the key still has the token, and only to a later end ("Extending the lock"). Never SET: an ended
-- lease must not come back. An older extension that arrives late must not shorten what a newer one gave.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  token
-- ARGV[2]  ttl_ms
-- ARGV[3]  note   "fence:key", written into the value: the lease is an acquisition's with an Idempotency-Key, which has
--                 been granted with that fence (server/leases/lease_keyed.c); empty: the value stays
-- ARGV[4]  epoch  ARGV[5]  deadline_us  ARGV[6]  until_s, may be left out: as in acquire.lua
--
-- Returns {1, now_us, ttl_ms, value}           it expires in ttl_ms or later; less than requested near hold_until_ms
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1, now_us}                         gone; also where several others hold it
--         {-2, now_us}, {-3, now_us}           too late, another epoch: as in acquire.lua
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
if now_us > tonumber(ARGV[5]) then
	return {-2, now_us}
end
if ARGV[4] ~= '----------------' and redis.call('HGET', KEYS[2], 'epoch') ~= ARGV[4] then
	return {-3, now_us}
end
local value, key, hash, mark = nil, KEYS[1], KEYS[2], ':'
--include value_read.lua
--include value_own.lua
if not value then
	return {-1, now_us}
end
local remaining = shared and ends - 1 - math.floor(now_us / 1000) or redis.call('PTTL', KEYS[1])
if not own then
	return {0, now_us, remaining, type(value) == 'string' and value}
end
if ARGV[3] ~= '' then
	local first, last = string.match(value, '^([^:]*:%d+:)%d+:[^:]*(:.*)$')
	value = first .. ARGV[3] .. last
	if shared then
		redis.call('HSET', holders, ARGV[1], value)
	else
		redis.call('SET', KEYS[1], value, 'KEEPTTL')
	end
end
local asked, until_s = tonumber(ARGV[2]), ARGV[6]
--include lease_note.lua
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
		redis.call('ZADD', key, string.format('%.0f', math.floor(now_us / 1000) + ttl + 1), ARGV[1])
--include shared_last.lua
	else
		redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl))
	end
	remaining = ttl
end
return {1, now_us, math.min(asked, remaining), value}
