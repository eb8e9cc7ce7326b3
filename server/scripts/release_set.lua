-- Release set: release.lua for a lease on several resources. Deletes each key that has the token and the names of
-- exactly these resources, and notifies the next waiter of each.
--
-- KEYS     as in acquire_set.lua
-- ARGV[1]  token  ARGV[2]  entry  ARGV[3]  epoch  ARGV[4]  deadline_us: as in release.lua; the entry is in all queues
-- ARGV[5]  names  as in acquire_set.lua
--
-- Returns as release.lua, except
--         {0, now_us, remaining_ms, value, which}  as in acquire_set.lua
local count, hash = #KEYS - 1, KEYS[#KEYS]
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', hash, 'epoch', 'waited')
local waited = tonumber(seen[2] or 0)
local entry, wait_ms = string.match(ARGV[2], '^(%S*) ?(%d*)$')
wait_ms = tonumber(wait_ms) or 0
local base, queued = string.sub(hash, 1, -7), waited > now_us or ARGV[2] ~= ''
local mark, token = ';', ARGV[1]
local deleted, which, held, remaining
for i = 1, count do
	local value, key = nil, KEYS[i]
--include value_read.lua
	local kind = shared and string.sub(value, 41, 41)
--include value_own.lua
	local ours = own and string.match(value, '^[^\n]*\n[^\n]*\n[^\n]*\n(.*)$') == ARGV[5]
	if ours then
		if shared then
			redis.call('ZREM', key, token)
--include shared_remove.lua
--include shared_prune.lua
--include shared_last.lua
		else
			redis.call('DEL', key)
		end
--include watch_tell.lua
		deleted = value
	elseif value then
		local left = redis.call('PTTL', KEYS[i])
		if not which then
			which, held, remaining = i, type(value) == 'string' and value, left
		elseif left < 0 or remaining >= 0 and left > remaining then
			remaining = left
		end
	end
	if queued then
		local queue, free, first = base .. 'queue:' .. KEYS[i], ''
		local left = 0
		if wait_ms > 0 then
--include queue_join.lua
		elseif entry ~= '' then
			left = redis.call('ZREM', queue, entry)
		end
		local still = value and not ours
		if shared then
			still = redis.call('EXISTS', key) == 1
		end
		if ours or ((not still or shared) and (ARGV[1] ~= '' or left > 0)) then -- as in release.lua
--include queue_first.lua
			local may_enter = first and first ~= entry and (not still or string.sub(first, 17, 17) == kind)
			if may_enter and still and kind == '#' then
				local holders = base .. 'holders:' .. key
--include shared_prune.lua
--include slot_free.lua
				may_enter = is_free
			end
			if may_enter then
--include queue_tell.lua
			end
		end
	end
end
if seen[1] ~= ARGV[3] and ARGV[3] ~= '----------------' then
	return {-3, now_us}
end
if which then
	return {0, now_us, remaining, held, which - 1}
elseif deleted then
	return {1, now_us, deleted}
end
return {-1, now_us}
