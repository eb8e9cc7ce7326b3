-- Acquire shared: acquire.lua for a shared lease. Any number of them, up to `most`, may hold a resource at once, or one
-- exclusive lease: a majority of each meets on a master, and there a key is either a string or a sorted set.
--
-- KEYS[1]  {prefix}{resource}       a sorted set of the tokens of the leases, by the ms of this master's time at which
--                                   each is over; it expires with the last one, and its type makes every SET NX fail
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  token  ARGV[2]  ttl_ms  ARGV[3]  max_hold_ms  ARGV[4]  label  ARGV[5]  bucket  ARGV[6]  guess
-- ARGV[7]  entry  ARGV[8]  epoch  ARGV[9]  deadline_us: as in acquire.lua; a plus sign stands between the parts of a
--                 shared entry
-- ARGV[10] most   shared leases at once
--
-- The values lie in the hash {prefix}redlockd:holders:{key}, by token. A plus sign stands behind the token.
-- Returns as acquire.lua for one resource. Held with a value: that of an exclusive lease, or of the shared one that ends
-- last; if there is room for one more, that of the exclusive waiter before the caller comes first.
-- A shared request waits for all exclusive ones that came before it, and for no shared one.
local call, key, hash = redis.call, KEYS[1], KEYS[2]
local base = string.sub(hash, 1, -7)
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]
if now_us > tonumber(ARGV[9]) then
	return {-2, now_us}
end
local seen = call('HMGET', hash, 'epoch', 'floor', 'waited', ARGV[5])
if seen[1] ~= ARGV[8] and ARGV[8] ~= '----------------' then
	return {-3, now_us}
end
local guess = tonumber(ARGV[6])
if guess > now_us + 86400000000 then
	return {-4, now_us}
end
local waited, entry, wait_ms = tonumber(seen[3] or 0), false
if ARGV[7] ~= '' then
	entry, wait_ms = string.sub(ARGV[7], 1, 33), tonumber(string.sub(ARGV[7], 35))
end
local queue, holders, first = base .. 'queue:' .. key, base .. 'holders:' .. key
local waits = waited > now_us
if waits then
	if entry then
		call('ZADD', queue, 'NX', string.sub(entry, 18), entry)
	end
--include queue_first.lua
--include queue_shared.lua
end
local value
--include value_read.lua
if shared then
--include shared_prune.lua
end
local count = shared and call('ZCARD', key)
if not value or count == 0 then
	value = false
	call('DEL', holders) -- somebody may have deleted the key alone
end
if not first and (not value or shared and count < tonumber(ARGV[10])) then
	local now_ms = (now_us - now_us % 1000) / 1000
	local hold_until = string.format('%.0f', ARGV[3] ~= '0' and now_ms + ARGV[3] or 0)
	if entry and waits then
		call('ZREM', queue, entry)
	end
	call('ZADD', key, string.format('%.0f', now_ms + ARGV[2] + 1), ARGV[1])
	call('HSET', holders, ARGV[1], ARGV[1] .. '+' .. hold_until .. ':' .. ARGV[6] .. ':' .. ARGV[4])
--include shared_last.lua
	local old = math.max(tonumber(seen[2] or 0), tonumber(seen[4] or 0))
	if guess > old then
		call('HSET', hash, ARGV[5], ARGV[6])
	end
--include watch_tell.lua
	return {1, now_us, old}
end
if entry then
--include queue_join.lua
end
if not value then -- the next waiter may have missed its notification
	redis.pcall('PUBLISH', base .. 'wake', first .. ' ' .. key)
	return {2, now_us, call('PTTL', base .. 'alive:' .. string.sub(first, 1, 16)), first}
end
return {0, now_us, call('PTTL', key), type(value) == 'string' and value}
