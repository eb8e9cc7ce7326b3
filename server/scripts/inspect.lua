-- SPDX-License-Identifier: MIT
-- Inspect: the holder here, and the number of waiters. Its cost depends neither on the number of waiters nor on that of
-- holders, since clients may inspect as often as they like. Entries are counted, not read, so stale ones count until
-- they are removed. Reads only, unless the caller watches the resource, or some of several leases have ended.
--
-- An operation: watch_ms, list_max
--         watch_ms  for so long, changes of the holder are published on {prefix}redlockd:wake: "watch key"; 0: the
--                   caller does not watch
--         list_max  of several leases, at most so many are listed: those that end first. Up to three are listed by
--                   their values, more (of a forced release) by their tokens alone. 0 for a state of the lock: Lua and
--                   the formats of numbers take most of the time for a long list, so redlockd reads it by itself
--
-- Answers {0, now_us, remaining_ms, value, waiters}  held; remaining_ms -1: it never expires; value false: another type
--         {0, now_us, remaining_ms, value, waiters, count, digest, {value or token, ends_ms, …}}  held by several
--                 leases (lib/several.lua): of all of them, the value of the one that ends last
--         {-1, now_us, waiters}                      free
--include master.lua
--include value.lua

local seen = call('HMGET', hash, 'epoch', 'waited')
waited = tonumber(seen[2] or 0)
if not has_epoch(seen[1]) then
	return {-3, now_us}
end

-- Count, digest and list of several leases.
local function inspect_several(resource, list_max)
	--include several.lua

	local count, holders = several_live(resource), holders_of(resource)
	if call('ZCARD', resource) > count then
		several_prune(resource)
	end
	local after = string.format('(%.0f', now_ms)
	local listed = call('ZRANGEBYSCORE', resource, after, '+inf', 'WITHSCORES', 'LIMIT', 0, list_max)
	for i = 1, list_max <= 3 and #listed or 0, 2 do
		listed[i] = call('HGET', holders, listed[i])
	end
	return count, call('HGET', holders, 'digest') or '0', listed
end

return each_operation(2, function(at, from)
	local key, watch_ms, list_max = KEYS[from], ARGV[at], tonumber(ARGV[at + 1])
	local waiters = count_waiters(from, from)
	if watch_ms ~= '0' then
		local until_us = now_us + watch_ms * 1000
		call('SET', string.sub(hash, 1, -7) .. 'watch:' .. key, '', 'PX', watch_ms)
		if until_us > waited then
			waited = until_us
			call('HSET', hash, 'waited', string.format('%.0f', waited))
		end
	end
	local value, is_several = value_read(key)
	if not value then
		return {-1, now_us, waiters}
	end
	local remaining = call('PTTL', key)
	if not is_several then
		return {0, now_us, remaining, type(value) == 'string' and value, waiters}
	end
	return {0, now_us, remaining, value, waiters, inspect_several(key, list_max)}
end)
