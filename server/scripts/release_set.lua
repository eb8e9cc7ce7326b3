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
local mark, token, wanted = ';', ARGV[1], ARGV[2]
local deleted, which, holder, remaining, arrival
for i = 1, count do
	local value, key = nil, KEYS[i]
--include value_read.lua
	local kind = shared and string.sub(value, 41, 41)
--include value_own.lua
	own = own and string.match(value, '^[^\n]*\n[^\n]*\n[^\n]*\n(.*)$') == ARGV[5]
	if own then
		deleted = value
	elseif value then
		local left = redis.call('PTTL', key)
		if not which then
			which, holder, remaining = i, type(value) == 'string' and value, left
		elseif left < 0 or remaining >= 0 and left > remaining then
			remaining = left
		end
	end
--include lease_end.lua
end
if seen[1] ~= ARGV[3] and ARGV[3] ~= '----------------' then
	return {-3, now_us}
end
if arrival then
	return {2, now_us, arrival}
elseif which then
	return {0, now_us, remaining, holder, which - 1}
elseif deleted then
	return {1, now_us, deleted}
end
return {-1, now_us}
