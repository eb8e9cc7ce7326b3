-- SPDX-License-Identifier: MIT
-- Raise: a further round of the fence, if a guess was too low. Only the token that holds all resources may raise, so
-- that numbers follow the order of the holders. The number must be strictly larger, so that no two attempts get the
-- same one: one fence is a strict increase of every bucket of a set.
--
-- An operation: token, buckets (acquire.lua), fence in decimal digits
--
-- Answers {1, now_us}                          the buckets and the values have the number now
--         {2, now_us, old}                     held by the token, but a bucket or the floor is at `old`, not below it
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1, now_us}                         gone; also if several others hold it
--include master.lua
--include value.lua
--include lease.lua

local seen = call('HMGET', hash, 'epoch', 'floor', 'waited')
waited = tonumber(seen[3] or 0)
if not has_epoch(seen[1]) then
	return {-3, now_us}
end

return each_operation(3, function(at, from, last)
	local token, buckets, fence = ARGV[at], ARGV[at + 1], ARGV[at + 2]
	local values, are_several, is_gone, names = {}, {}, false, set_names(from, last)
	for i = from, last do
		local found, is_several = value_read(KEYS[i])
		local is_own, value = lease_find(KEYS[i], token, names, found, is_several)
		if value and not is_own then
			return {0, now_us, call('PTTL', KEYS[i]), type(value) == 'string' and value}
		end
		is_gone = is_gone or not value
		values[i], are_several[i] = value, is_several
	end
	if is_gone then
		return {-1, now_us}
	end
	local old = tonumber(seen[2] or 0)
	for bucket in string.gmatch(buckets, '%d+') do
		old = math.max(old, tonumber(call('HGET', hash, bucket) or 0))
	end
	if old >= tonumber(fence) then
		return {2, now_us, old}
	end
	for bucket in string.gmatch(buckets, '%d+') do
		call('HSET', hash, bucket, fence)
	end
	for i = from, last do
		local first, rest = string.match(values[i], '^([^:;]*.%d+:)%d+(:.*)$')
		lease_write(KEYS[i], token, first .. fence .. rest, are_several[i])
		publish_change(KEYS[i])
	end
	return {1, now_us}
end)
