-- SPDX-License-Identifier: MIT
-- Release: compare and delete ("Correct implementation with a single instance"), and notify the next waiter. Carried
-- out however late, and with any epoch: it can only delete the token's own keys. But with another epoch its vote does
-- not count. Of a set, it deletes each key that has the token and the names of exactly these resources.
--
-- With keep_ms, nobody gets what the lease had for so long: it is kept, under another token, in place of being deleted.
-- A majority keeps it, so no other majority can grant it (docs/explanation/proofs.md). Only a forced release knows the
-- other token, and whoever computes it from a token that it had.
--
-- An operation: token, entry, keep_ms
--         token  empty: there is no lock to release, only an entry to remove
--         entry  as in acquire.lua, in the queue of each resource: the caller keeps waiting; wait_ms 0: it leaves;
--                empty: it does not wait. After wait_ms and a blank may follow the 16 hex digits of a place: wait_ms 0
--                keeps it, else the caller takes it, and the arrival in `entry` has no effect (lib/queue.lua)
--         keep_ms  0: the lease is not kept
--
-- Answers {1, now_us, value}                   it was the token's and is deleted; to several, the value alone
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type). Of a set, about
--                                              the first one that is held, its resource blocking + 1: {…, value,
--                                              blocking}; remaining_ms: until all are free
--         {-1, now_us}                         gone; also if several others hold it
--         {2, now_us, arrival}                 the place is taken: this is its arrival
--         {-3, now_us}                         another epoch; if it was the token's it is deleted
--
-- If the resource is free then, or held by several leases, the next waiters that may enter are notified, but only if a
-- lease or an entry was removed here. If a lease is kept that would have ended later, the first waiter is notified, to
-- learn the new end.
--include master.lua
--include value.lua

local seen = call('HMGET', hash, 'epoch', 'waited')
waited = tonumber(seen[2] or 0)
local is_member = has_epoch(seen[1])

-- The answer to an operation that concerns nobody else; nil: it does, and nothing was done.
local function release_plain(at, from)
	local key, token = KEYS[from], ARGV[at]
	if mode ~= '' or ARGV[at + 1] ~= '' or ARGV[at + 2] ~= '0' or token == '' then
		return nil
	end
	local value, are_several = value_read(key)
	if are_several then
		value = call('ZSCORE', key, token) and value
	elseif type(value) == 'string' and string.find(value, token .. ':', 1, true) == 1 then
		if waited <= now_us then
			call('DEL', key)
			return is_member and value or {-3, now_us}
		end
	elseif type(value) == 'string' and string.sub(value, 41, 41) == '=' then -- it is kept
		value = string.sub(value, 1, 40) == token
	elseif value then
		local left_ms = call('PTTL', key)
		if is_member and left_ms ~= -2 then
			return {0, now_us, left_ms, type(value) == 'string' and value}
		end
		value = false
	end
	if not value then -- it is not the token's, as after an attempt that was refused
		return {is_member and -1 or -3, now_us}
	end
end

local plain = #ARGV == 7 and release_plain(5, 1)
if plain then
	return answer_alone(plain)
end

-- Makes the function for all but plain operations.
local function make_others()
	--include lease.lua
	--include several.lua
	--include queue.lua

	-- Keeps the lease of the token for keep_ms. True: it would have ended later. It is removed first: after that, Redis
	-- denies no write, whatever memory is left.
	local function keep(key, token, value, is_several, keep_ms)
		local kind, middle, rest = string.match(value, '^%x+([+#]?%d*)([:;]%d+:%d+:)[^:]*(:.*)$')
		local slot, its_token = string.match(kind, '^#(%d+)'), redis.sha1hex(token)
		local left_ms = is_several and call('ZSCORE', key, token) - 1 - now_ms or call('PTTL', key)
		value = its_token .. kind .. '=' .. middle .. rest
		if is_several then
			call('ZREM', key, token)
			several_forget(key, token)
			several_prune(key)
			call('ZADD', key, string.format('%.0f', now_ms + keep_ms + 1), its_token)
			several_add(key, its_token, value, nil, tonumber(slot))
			several_expire(key)
		else
			call('DEL', key)
			call('SET', key, value, 'PX', string.format('%.0f', keep_ms))
		end
		until_s = math.ceil((now_ms + keep_ms) / 1000) + 1
		remember_leases()
		publish_change(key)
		return left_ms < 0 or keep_ms < left_ms
	end

	-- Deletes the lease of the token. True: the other leases end before the one that was the last.
	local function delete(key, token, is_several, ends_ms)
		local is_shorter = false
		if is_several then
			call('ZREM', key, token)
			several_forget(key, token)
			several_prune(key)
			local last = several_expire(key)
			is_shorter = last and ends_ms > last
		else
			call('DEL', key)
		end
		publish_change(key)
		return is_shorter
	end

	local kept_ms -- of the operation: how long the place is kept in all queues of a set

	-- Adds or removes the entry `wanted`, keeps or takes its place, and notifies those that may enter. `kind`: of the
	-- leases on the key, if they are several; `slot`: released here, or nil; `is_earlier`: a kept lease ends before the
	-- one that it was. Returns the arrival of a place that it took.
	local function serve_queue(key, wanted, is_own, is_held, kind, slot, is_shorter, is_earlier)
		local name, first, arrival = queue_key('queue:', key), nil, nil
		local entry, wait_ms, place = string.match(wanted, '^(%S*) ?(%d*) ?(%x*)$')
		local left = 0 -- entries that left
		wait_ms = tonumber(wait_ms) or 0
		if place ~= '' and wait_ms > 0 then
			entry, arrival = queue_take_place(name, place, entry)
		elseif place ~= '' then
			kept_ms = math.min(kept_ms, queue_place_ms(key, is_held, kind))
			left = queue_keep_place(name, place, entry, is_own, kept_ms)
		end
		if entry ~= '' and wait_ms > 0 then
			queue_join(name, entry, wait_ms)
		elseif entry ~= '' then
			left = left + call('ZREM', name, entry)
		end
		if is_own or left > 0 then
			local stale
			first, stale = queue_first(name)
			queue_clean(name, stale)
		end
		if not first or first == entry then
			return arrival
		end
		local room, its_kind = queue_room(key, first, is_held, kind), string.sub(first, 17, 17)
		if wait_ms > 0 then -- an attempt that failed: nobody but the first can have waited for it to end
			room = math.min(room, 1)
		elseif room <= 0 then
			-- its last answer had too late an end: that of all leases, not that of the first one
			local was_before = left > 0 and string.sub(entry, 17, 17) ~= '+' and its_kind == kind and
				string.sub(entry, 18, 33) < string.sub(first, 18, 33)
			room = (was_before or is_earlier or is_shorter and its_kind ~= kind) and 1 or 0
		end
		if room > 0 then
			queue_notify(key, first, room, slot)
		end
		return arrival
	end

	return function(at, from, last)
		local token, wanted, keep_ms, names = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), set_names(from, last)
		local deleted, holder, blocking, remaining, arrival
		kept_ms = 2000
		for i = from, last do
			local key = KEYS[i]
			local found, is_several = value_read(key)
			local kind = is_several and string.sub(found, 41, 41)
			local is_own, value, ends_ms = lease_find(key, token, names, found, is_several, true)
			local keeps = is_own and keep_ms > 0 and not lease_is_kept(value)
			local is_earlier = keeps and keep(key, token, value, is_several, keep_ms)
			local is_shorter = is_own and not keeps and delete(key, token, is_several, ends_ms)
			if waited > now_us or wanted ~= '' then
				local is_held = keeps or found and not is_own
				if is_several then
					is_held = call('EXISTS', key) == 1
				end
				local slot = is_own and not keeps and kind == '#' and string.match(value, '^%x+#(%d+)')
				arrival = serve_queue(key, wanted, is_own, is_held, kind, slot, is_shorter, is_earlier) or arrival
			end
			local left_ms = value and not is_own and call('PTTL', key)
			if is_own then
				deleted = value
			elseif left_ms and left_ms ~= -2 then
				if not blocking then
					holder, blocking, remaining = type(value) == 'string' and value, i - from, left_ms
				elseif left_ms < 0 or remaining >= 0 and left_ms > remaining then
					remaining = left_ms
				end
			end
		end
		if not is_member then
			return {-3, now_us}
		elseif arrival then
			return {2, now_us, arrival}
		elseif blocking then
			return {0, now_us, remaining, holder, names and blocking or nil}
		end
		return deleted or {-1, now_us}
	end
end

local others

return each_operation(3, function(at, from, last)
	others = others or make_others()
	return others(at, from, last)
end, release_plain)
