-- Inspect: the holder here, and the number of waiters. Its cost depends neither on the number of waiters nor on that of
-- holders, since clients may inspect as often as they like: entries are counted, not read, so stale ones count until they
-- are removed. Reads only, unless the caller watches the resource, or some of several leases have ended.
--
-- KEYS[1]  {prefix}{resource}      … and as many more as there are resources: those of one moment share a command
-- KEYS[n]  {prefix}redlockd:master
-- ARGV[1]  epoch     as in acquire.lua
-- ARGV[2]  watch_ms  for so long, changes of the holder are published (watch_tell.lua); 0: the caller does not watch
-- ARGV[3]  most      of several leases, at most so many are listed: those that end first. Of three or fewer their values,
--                    of more their tokens alone: Lua takes ten times as long for values as HMGET, which reads them then
-- … and two more for each further resource.
--
-- Returns {0, now_us, remaining_ms, value, waiters}  held; remaining_ms -1: it never expires; value false: another type
--         {0, now_us, remaining_ms, value, waiters, count, digest, {value or token, score, …}}  held by several leases
--                 (acquire_shared.lua, also of the score). digest: of their tokens (shared_add.lua)
--         {-1, now_us, waiters}                      free
--         {-3, now_us}                               another epoch, also for several
-- and for several {now_us, answer, …}, or the error of one.
local now, hash, epoch = redis.call('TIME'), KEYS[#KEYS], ARGV[1]
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', hash, 'epoch', 'waited')
--include member.lua
local waited, base = tonumber(seen[2] or 0), string.sub(hash, 1, -7)

local function one(i)
	local key, watch_ms, waiters, value = KEYS[i], ARGV[2 * i], 0
	local watch_until = now_us + watch_ms * 1000
	if waited > now_us then
		waiters = redis.call('ZCARD', base .. 'queue:' .. key)
	end
	if watch_until > now_us then
		redis.call('SET', base .. 'watch:' .. key, '', 'PX', watch_ms)
		if watch_until > waited then
			waited = watch_until
			redis.call('HSET', hash, 'waited', string.format('%.0f', waited))
		end
	end
--include value_read.lua
	if not value then
		return {-1, now_us, waiters}
	end
	local remaining = redis.call('PTTL', key)
	if not shared then
		return {0, now_us, remaining, type(value) == 'string' and value, waiters}
	end
	local now_ms, holders, most = (now_us - now_us % 1000) / 1000, base .. 'holders:' .. key, ARGV[2 * i + 1]
--include shared_prune.lua
--include shared_live.lua
	local listed =
		redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
	for at = 1, tonumber(most) <= 3 and #listed or 0, 2 do
		listed[at] = redis.call('HGET', holders, listed[at])
	end
	return {0, now_us, remaining, value, waiters, live, redis.call('HGET', holders, 'digest') or '0', listed}
end

--include each.lua
return answers
