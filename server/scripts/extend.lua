-- Extend: only if the key still holds the token, and only to a later end ("Extending the lock").
-- Never SET: a lease that is gone must not come back to life. An older extension that arrives late must not shorten
-- what a newer one gave.
--
-- KEYS[1]  {prefix}{resource}
-- ARGV[1]  token
-- ARGV[2]  ttl_ms
--
-- Returns {1, ttl_ms, value}           it now lives for at least ttl_ms, which is less than asked for near hold_until_ms
--         {0, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1}                         gone
local value = redis.pcall('GET', KEYS[1])
if not value then
	return {-1}
end
local remaining = redis.call('PTTL', KEYS[1])
if type(value) ~= 'string' or string.sub(value, 1, 40) ~= ARGV[1] then
	return {0, remaining, type(value) == 'string' and value}
end
local asked = tonumber(ARGV[2])
if remaining < 0 then
	return {1, asked, value} -- somebody took the expiry away
end
local ttl = asked
local hold_until = tonumber(string.match(value, '^%x+:(%d+):')) or 0
if hold_until > 0 then
	local now = redis.call('TIME')
	ttl = math.min(asked, hold_until - now[1] * 1000 - math.floor(now[2] / 1000))
end
if ttl > remaining then
	redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl))
	remaining = ttl
end
return {1, math.min(asked, remaining), value}
