-- Inspect: the holder here, and the number of waiters. Its cost does not depend on the number of waiters, since clients
-- may inspect as often as they like: entries are counted, not read, so stale ones count until they are removed. Reads
-- only, unless the caller watches the resource.
--
-- KEYS[1]  {prefix}{resource}
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  watch_ms  for so long, changes of the holder are published (watch_tell.lua); 0: the caller does not watch
-- ARGV[2]  most      of several leases, at most so many are listed: those that end first
-- ARGV[3]  epoch: as in acquire.lua  ARGV[4]  deadline_us: not used
--
-- Returns {0, now_us, remaining_ms, value, waiters}  held; remaining_ms -1: it never expires; value false: another type
--         {0, now_us, remaining_ms, value, waiters, count, digest, {value, remaining_ms, …}}  held by several leases
--                 (acquire_shared.lua). digest: the sum of the last nine digits of each token
--         {-1, now_us, waiters}                      free
--         {-3, now_us}                               another epoch
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[2], 'epoch', 'waited')
if seen[1] ~= ARGV[3] and ARGV[3] ~= '----------------' then
	return {-3, now_us}
end
local waiters, base = 0, string.sub(KEYS[2], 1, -7)
local waited, watch_until = tonumber(seen[2] or 0), now_us + ARGV[1] * 1000
if waited > now_us then
	waiters = redis.call('ZCARD', base .. 'queue:' .. KEYS[1])
end
if watch_until > now_us then
	redis.call('SET', base .. 'watch:' .. KEYS[1], '', 'PX', ARGV[1])
	if watch_until > waited then
		redis.call('HSET', KEYS[2], 'waited', string.format('%.0f', watch_until))
	end
end
local value, key, hash = nil, KEYS[1], KEYS[2]
--include value_read.lua
if not value then
	return {-1, now_us, waiters}
end
local remaining = redis.call('PTTL', key)
if not shared then
	return {0, now_us, remaining, type(value) == 'string' and value, waiters}
end
local now_ms, most, listed, digest = (now_us - now_us % 1000) / 1000, tonumber(ARGV[2]), {}, 0
local tokens = redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now_ms), '+inf', 'WITHSCORES')
for i = 1, #tokens, 2 do
	digest = digest + tonumber(string.sub(tokens[i], 32), 16)
	if i < 2 * most then
		listed[i] = redis.call('HGET', base .. 'holders:' .. key, tokens[i])
		listed[i + 1] = tokens[i + 1] - 1 - now_ms
	end
end
return {0, now_us, remaining, value, waiters, #tokens / 2, string.format('%.0f', digest), listed}
