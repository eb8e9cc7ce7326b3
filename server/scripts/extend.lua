-- SPDX-License-Identifier: MIT
-- Extend: only if all resources still have the token, and only to a later end ("Extending the lock"). Never SET: an
-- ended lease must not come back. An older extension that arrives late must not shorten the lease. A part of a set
-- cannot be extended.
--
-- An operation: token, ttl_ms, fence_key, buckets (acquire.lua), wanted
--         fence_key  "fence:key", written into the value: an acquisition with an Idempotency-Key was granted with that
--                    fence (server/leases/lease_keyed.c); empty: the value stays. If somebody waits for the resource,
--                    "confirmed:key name" is published on {prefix}redlockd:wake, since he may have the same key
--         wanted     1: until the lease ends, "wanted key" is published on {prefix}redlockd:wake when an empty queue
--                    gets an entry (queue_publish_wanted in lib/queue.lua); empty: the holder does not ask for that.
--                    {prefix}redlockd:wanted:{key} has the token, or + if several leases may hold the key
--
-- Answers {1, now_us, ttl_ms, value, waiters}  it ends in ttl_ms or later; less than requested near hold_until_ms.
--                                              waiters: the largest number over its resources
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1, now_us, seen}                   gone; also if several others hold it. `seen`: the numbers of the
--                                              buckets, separated by commas, for a repair (acquire.lua)
--include master.lua

local seen = call('HMGET', hash, 'epoch', 'waited')
waited = tonumber(seen[2] or 0)
if not has_epoch(seen[1]) then
	return {-3, now_us}
end

-- The ms that the lease may last from now on: asked_ms, or less because of hold_until_ms.
local function bound(asked_ms, value)
	local hold_until_ms = tonumber(string.match(value, '[:;](%d+):', 41)) or 0
	return hold_until_ms > 0 and math.min(asked_ms, hold_until_ms - now_ms) or asked_ms
end

-- The answer to an operation of a lease alone on its resource; nil: it is another one, and nothing was done.
local function extend_plain(at, from)
	local key, token, asked_ms = KEYS[from], ARGV[at], tonumber(ARGV[at + 1])
	local is_plain = mode == '' and ARGV[at + 2] == '' and ARGV[at + 4] == '' and until_s == 0
	local value = is_plain and redis.pcall('GETRANGE', key, '0', '8191')
	if type(value) ~= 'string' or string.find(value, token .. ':', 1, true) ~= 1 then
		return nil
	end
	local left_ms, ttl_ms = call('PTTL', key), bound(asked_ms, value)
	if left_ms >= 0 and ttl_ms > left_ms then -- below 0: another program removed the expiry
		call('PEXPIRE', key, string.format('%.0f', ttl_ms))
		left_ms = ttl_ms
	end
	if left_ms < 0 or left_ms > asked_ms then
		left_ms = asked_ms
	end
	return {1, now_us, left_ms, value, waited > now_us and count_waiters(from, from) or 0}
end

local plain = #ARGV == 9 and extend_plain(5, 1)
if plain then
	return plain
end

--include value.lua

-- Makes the function for all but plain operations.
local function make_others()
	--include lease.lua
	--include several.lua

	-- Stores for left_ms that the holder asks for messages of waiters.
	local function ask_for_wanted(key, token, is_several, left_ms)
		local name = string.sub(hash, 1, -7) .. 'wanted:' .. key
		if not is_several or call('PTTL', name) < left_ms then
			call('SET', name, is_several and '+' or token, 'PX', string.format('%.0f', left_ms))
		end
	end

	-- The numbers of the buckets, as in the answer.
	local function read_buckets(buckets)
		local numbers = {}
		for bucket in string.gmatch(buckets, '%d+') do
			numbers[#numbers + 1] = call('HGET', hash, bucket) or ''
		end
		return table.concat(numbers, ',')
	end

	return function(at, from, last)
		local token, asked_ms, fence_key = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
		local waiters = count_waiters(from, last)
		local value, are_several, left, is_gone, names = nil, {}, {}, false, set_names(from, last)
		for i = from, last do
			local found, is_several = value_read(KEYS[i])
			local is_own, its, ends_ms = lease_find(KEYS[i], token, names, found, is_several)
			left[i] = its and (is_several and ends_ms - 1 - now_ms or call('PTTL', KEYS[i]))
			if its and not is_own then
				return {0, now_us, left[i], type(its) == 'string' and its}
			end
			is_gone = is_gone or not its
			value, are_several[i] = its, is_several
		end
		if is_gone then
			return {-1, now_us, read_buckets(ARGV[at + 3])}
		end
		if fence_key ~= '' then
			local first, rest = string.match(value, '^([^:;]*.%d+:)%d+:[^:]*(:.*)$')
			local confirmed = first .. fence_key .. rest
			if value ~= confirmed and waiters > 0 then
				local message = 'confirmed:' .. string.match(fence_key, '%x+$') .. ' ' .. KEYS[from]
				redis.pcall('PUBLISH', string.sub(hash, 1, -7) .. 'wake', message)
			end
			value = confirmed
			for i = from, last do
				lease_write(KEYS[i], token, value, are_several[i])
			end
		end
		remember_leases()
		local ttl_ms, ends_in_ms = bound(asked_ms, value), asked_ms
		for i = from, last do
			if left[i] >= 0 then -- else another program removed the expiry
				if ttl_ms > left[i] and are_several[i] then
					call('ZADD', KEYS[i], string.format('%.0f', now_ms + ttl_ms + 1), token)
					several_expire(KEYS[i])
				elseif ttl_ms > left[i] then
					call('PEXPIRE', KEYS[i], string.format('%.0f', ttl_ms))
				end
				ends_in_ms = math.min(ends_in_ms, math.max(ttl_ms, left[i]))
			end
			if ARGV[at + 4] ~= '' then
				ask_for_wanted(KEYS[i], token, are_several[i], math.max(asked_ms, left[i]))
			end
		end
		return {1, now_us, ends_in_ms, value, waiters}
	end
end

local others

return each_operation(5, function(at, from, last)
	others = others or make_others()
	return others(at, from, last)
end, extend_plain)
