-- SPDX-License-Identifier: MIT
-- Acquire: SET key value NX PX ttl, as in the specification ("Correct implementation with a single instance"), the
-- first round of the fence, and the queue of the resource. It sets all resources of a set or none, so no master ever
-- holds a part of a set. A set has an entry in the queue of each resource, and must be the first in all of them.
--
-- If leases leave room for others, the mode is "kind capacity" (of sets "count kind capacity"). The kind is + for a
-- shared lease, or #N for slot N, 0 to capacity - 1; `capacity` leases may hold a resource together.
--
-- An operation: token, ttl_ms, label, buckets, guess, entry
--         token    40 hex digits, new for every attempt
--         label    the end of the value, from the key on (lib/value.lua)
--         buckets  the fields of the hash for the fences of the resources, separated by commas
--         guess    for the fence, in decimal digits
--         entry    "entry wait_ms": in the queue (lib/queue.lua), and how long it may still wait; empty: it does not
--                  wait. "!hold_ms seen": a repair
--
-- Answers {1, now_us, old}                  set here; old is the largest number of the buckets and the floor before,
--                                           and each bucket was raised to the guess if that is larger. To several: old
--                                           alone
--         {0, now_us, remaining_ms, value}  held with that value; remaining_ms -1: it never expires
--         {0, now_us, remaining_ms, false}  held by a key of another type
--         {0, now_us, remaining_ms, value, taken}  of one shared lease, or one on a slot: held by a lease of another
--                                           kind, by `capacity` leases, or by the lease with the key of the label (its
--                                           value); or there is room, but another waiter comes first. taken: a digit
--                                           for each slot, 1 if a lease has it; 1 alone: `capacity` leases have slots;
--                                           empty: none has slots. remaining_ms: until the first of several of the
--                                           same kind ends, if that makes room for the caller, else until all end
--         {0, now_us, remaining_ms, value, blocking}  of a set: its resource blocking + 1 is the first that is held;
--                                           remaining_ms: until all are free
--         {2, now_us, alive_ms, first}      free, but `first` is the next entry; its replica is alive for alive_ms. Of
--                                           a set with `blocking` as well
--         {2, now_us, 0, ''}                a repair: a bucket has another number by now; nothing was done
--         {-4, now_us}                      the guess is more than a day ahead of this master's clock: nothing was done
--
-- If the lease is not set, the entry is added to the queue; else the entry is removed. SET NX fails on a key of any
-- type, so another program's hash or list counts as held and never as an error. A resource is held either by one
-- lease or by several of one kind: two majorities meet on a master, and there a key is either a string or a sorted set.
-- A shared request waits for all earlier requests that are not shared; any other one waits for all earlier ones.
--
-- A repair sets a lease again that extend.lua found gone here while a majority extended it
-- (docs/explanation/proofs.md). It waits for nobody, has the fence of the lease as its guess, and a hold_ms of its own.
-- It does nothing unless the buckets have the numbers that extend.lua has seen, separated by commas.
--
-- `waited` in the hash is the time until which some queue may not be empty, or some resource is watched. After it, no
-- queue and no watch is looked up.
--include master.lua
--include value.lua

local seen, buckets -- the bucket of KEYS[i] (nil: there is only one); seen[i + 3] is its number
if #KEYS == 2 then
	seen = call('HMGET', hash, 'epoch', 'floor', 'waited', ARGV[8])
else
	buckets = {}
	for at = 8, #ARGV, 6 do
		if mode == '' then
			buckets[#buckets + 1] = ARGV[at]
		else
			for bucket in string.gmatch(ARGV[at], '%d+') do
				buckets[#buckets + 1] = bucket
			end
		end
	end
	seen = call('HMGET', hash, 'epoch', 'floor', 'waited', unpack(buckets))
end
local floor = tonumber(seen[2] or 0)
waited = tonumber(seen[3] or 0)
if not has_epoch(seen[1]) then
	return {-3, now_us}
end

local waits = waited > now_us -- one of the resources may have waiters, or be watched
if waits and #KEYS > 2 then
	local names = {}
	for i = 1, #KEYS - 1 do
		names[2 * i - 1] = string.sub(hash, 1, -7) .. 'queue:' .. KEYS[i]
		names[2 * i] = string.sub(hash, 1, -7) .. 'watch:' .. KEYS[i]
	end
	waits = call('EXISTS', unpack(names)) > 0
end
local hold_ms = bounds ~= '' and string.match(bounds, ' (%d+)$') or '0'
local hold_until = (hold_ms ~= '0' and now_ms + hold_ms or 0) .. ':'
local raised, raises = {}, {} -- by bucket: numbers raised since the hash was read; the fields to write at the end
local held = {} -- by key: the answer to requests that do not wait

-- The answer to an operation that concerns nobody else; nil: it does, and nothing was done.
local function acquire_plain(at, from)
	local key, bucket, guess = KEYS[from], ARGV[at + 3], ARGV[at + 4]
	if waits or mode ~= '' or ARGV[at + 5] ~= '' or until_s > 0 then
		return nil
	end
	local number = tonumber(guess)
	if number > now_us + 86400000000 then
		return {-4, now_us}
	elseif held[key] then
		return held[key]
	end
	local value = ARGV[at] .. ':' .. hold_until .. guess .. ':' .. ARGV[at + 2]
	if not call('SET', key, value, 'NX', 'PX', ARGV[at + 1]) then
		value = value_read(key)
		held[key] = {0, now_us, call('PTTL', key), type(value) == 'string' and value}
		return held[key]
	end
	local old = raised[bucket] or tonumber(seen[from + 3] or 0)
	if old < floor then
		old = floor
	end
	if number > old then
		raised[bucket] = number
		raises[#raises + 1] = bucket
		raises[#raises + 1] = guess
	end
	return old
end

local plain = #ARGV == 10 and acquire_plain(5, 1)
if plain then
	if raises[1] then
		call('HSET', hash, raises[1], raises[2])
	end
	return answer_alone(plain)
end

local cleans = {} -- by queue: how many stale entries come before the first, to be removed at the end

-- Makes the function for all but plain operations.
local function make_others()
	--include lease.lua
	--include several.lua
	--include queue.lua

	buckets = buckets or {ARGV[8]}
	local slot, capacity = string.match(mode, '^%d* ?(%S*) ?(%d*)$')
	local kind, is_set = string.sub(slot, 1, 1), string.match(mode, '^%d') ~= nil
	capacity = tonumber(capacity)

	-- Adds the entry to the queues of KEYS[from] to KEYS[last]; false: the request does not wait, and comes after all that
	-- do. Returns the number of stale entries by key, whether the entry is new by key, and, if another entry comes before
	-- this one in some queue, that entry and the index of the first such key.
	local function find_turn(from, last, entry)
		local stales, added, other, other_at = {}, {}, nil, nil
		for i = from, last do
			local name = queue_key('queue:', KEYS[i])
			if entry then
				added[i] = call('ZADD', name, 'NX', string.sub(entry, 18, 33), entry)
			end
			local first, stale = queue_first(name)
			stales[i] = stale
			if kind == '+' then
				first = queue_before_shared(name, entry, first, stale)
			end
			if first and first ~= entry and not other then
				other, other_at = first, i
			end
		end
		return stales, added, other, other_at
	end

	-- The holder that blocks the lease on the key: its value (false: nobody), the ms until it may be gone, and how many
	-- of several leases have not ended (false: there are none). `other`: an entry that waits before the request.
	local function find_holder(key, its_key, other)
		local value, is_several = value_read(key, kind ~= '')
		local live = is_several and kind ~= '' and several_live(key)
		if live == 0 then
			return false, nil, 0 -- all end in this very ms
		elseif not live then
			return value, value and call('PTTL', key), false
		end
		local is_alike = string.sub(value, 41, 41) == kind
		local same = (is_alike or not is_set) and several_same(key, its_key)
		local has_room = is_alike and live < capacity and not same -- a larger capacity may have more live ones
		if has_room and kind == '#' then
			local its = call('HGET', holders_of(key), slot)
			has_room = not its or tonumber(call('ZSCORE', key, its) or 0) <= now_ms
		end
		if has_room and (is_set or not other) then
			return false, nil, live
		end
		local left_ms = is_alike and not other and several_first_end(key) or call('PTTL', key)
		return same and call('HGET', holders_of(key), same) or value, left_ms, live
	end

	-- The slots that `live` leases have, if they have any; the value is that of one of them.
	local function find_taken(key, value, live)
		if not live or string.sub(value, 41, 41) ~= '#' then
			return ''
		elseif live >= capacity then
			return '1'
		end
		local taken = string.sub(call('HGET', holders_of(key), 'slots') or '', 1, capacity)
		return taken .. string.rep('0', capacity - #taken)
	end

	-- Sets the key, which is free, or has room beside `live` leases. True if it had ended leases, or none.
	local function set(key, token, ttl_ms, value, its_key, live)
		if kind == '' then
			call('SET', key, value, 'PX', ttl_ms)
			return true
		end
		-- GT: a repair or a late acquisition may find the token, and must not end the lease earlier
		call('ZADD', key, 'GT', string.format('%.0f', now_ms + ttl_ms + 1), token)
		local is_first = not live or live == 0
		if is_first then
			call('DEL', holders_of(key)) -- somebody may have deleted the key alone
		end
		local ended = several_prune(key)
		several_add(key, token, value, its_key, tonumber(string.sub(slot, 2)))
		several_expire(key)
		return is_first or ended > 0
	end

	-- Removes the stale entries and its own from the queue of a key that it has set, and notifies others that may enter.
	local function leave_queue(key, entry, stale, is_first)
		local name = queue_key('queue:', key)
		queue_clean(name, stale)
		cleans[name] = nil
		local left = entry and stale + call('ZREM', name, entry) or 0
		if kind == '+' and left > 0 then
			queue_next_shared(key, is_first)
		elseif kind == '#' then
			queue_next_slot(key)
		end
	end

	-- The largest number that the buckets of KEYS[from] to KEYS[last] and the floor have; raises the buckets to the guess.
	local function raise_buckets(from, last, guess)
		local old = floor
		for i = from, last do
			old = math.max(old, raised[buckets[i]] or tonumber(seen[i + 3] or 0))
		end
		for i = from, tonumber(guess) > old and last or 0 do
			raised[buckets[i]] = tonumber(guess)
			raises[#raises + 1] = buckets[i]
			raises[#raises + 1] = guess
		end
		return old
	end

	-- True if the buckets of KEYS[from] to KEYS[last] have those numbers.
	local function has_numbers(from, last, numbers)
		local has = {}
		for i = from, last do
			if raised[buckets[i]] then
				return false
			end
			has[#has + 1] = seen[i + 3] or ''
		end
		return table.concat(has, ',') == numbers
	end

	return function(at, from, last)
		local token, ttl_ms, label, guess, entry = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 4], ARGV[at + 5]
		local key, hold, is_queued, wait_ms = KEYS[from], hold_until, waits, nil
		local stales, added, other, other_at = {}, {}, nil, nil
		if tonumber(guess) > now_us + 86400000000 then
			return {-4, now_us}
		elseif string.byte(entry) == 33 then -- !
			local its_ms, numbers = string.match(entry, '^!(%d+) ([%d,]*)$')
			if not has_numbers(from, last, numbers) then
				return {2, now_us, 0, '', is_set and 0 or nil}
			end
			hold = (its_ms ~= '0' and now_ms + its_ms or 0) .. ':'
			entry, is_queued = false, false
		elseif entry ~= '' then
			entry, wait_ms = string.match(entry, '^(%S+) (%d+)$')
		else
			entry = false
		end
		if held[key] and not entry and (not waits or cleans[queue_key('queue:', key)]) then
			return held[key]
		end
		if is_queued then
			stales, added, other, other_at = find_turn(from, last, entry)
		end

		local value = token .. slot .. (is_set and ';' or ':') .. hold .. guess .. ':' .. label
		local done, blocking, holder, remaining = false, nil, nil, nil
		local live, its_key -- by key: how many of several leases there are; false: none
		if is_set then
			local _, lines = string.gsub(label, '\n', '')
			value = value .. string.rep('\n', 3 - lines) .. set_names(from, last)
		elseif kind == '' then
			done = not other and call('SET', key, value, 'NX', 'PX', ttl_ms)
		end
		if kind ~= '' then
			its_key = string.match(label, '^%??(%x+):')
		end
		if not done and (not is_set or call('EXISTS', unpack(KEYS, from, last)) > 0) then
			live = {}
			for i = from, last do
				local found, left_ms
				found, left_ms, live[i] = find_holder(KEYS[i], its_key, other)
				if found and not blocking then
					blocking, holder, remaining = i - from, type(found) == 'string' and found, left_ms
				elseif found and (left_ms < 0 or remaining >= 0 and left_ms > remaining) then
					remaining = left_ms
				end
			end
		end
		if done or not other and not blocking then
			for i = from, last do
				local is_first = done or set(KEYS[i], token, ttl_ms, value, its_key, live and live[i])
				publish_change(KEYS[i])
				if is_queued then
					leave_queue(KEYS[i], entry, stales[i], is_first)
				end
			end
			remember_leases()
			return raise_buckets(from, last, guess)
		end

		for i = from, last do
			local name, stale = queue_key('queue:', KEYS[i]), stales[i] or 0
			if entry then
				queue_clean(name, stale)
				stale = 0
				if queue_join(name, entry, wait_ms) == 1 or added[i] == 1 then
					queue_publish_wanted(KEYS[i])
				end
			end
			cleans[name] = stale > 0 and stale or nil
			if live and live[i] and not is_set and call('ZCARD', KEYS[i]) > live[i] then
				several_prune(KEYS[i])
			end
		end
		waits = waits or entry ~= false
		if not blocking then
			if not queue_is_place(other) then -- the next waiter may have missed its notification
				redis.pcall('PUBLISH', queue_key('wake', ''), other .. ' ' .. KEYS[other_at])
			end
			local alive_ms = call('PTTL', queue_key('alive:', string.sub(other, 1, 16)))
			return {2, now_us, alive_ms, other, is_set and other_at - from or nil}
		end
		local answer = {0, now_us, remaining, holder}
		if is_set then
			answer[5] = blocking
		elseif kind ~= '' then
			answer[5] = find_taken(key, holder, live[from])
		else
			held[key] = answer
		end
		return answer
	end
end

local others

local answers = each_operation(6, function(at, from, last)
	others = others or make_others()
	return others(at, from, last)
end, acquire_plain)
if #raises > 0 then
	call('HSET', hash, unpack(raises))
end
for name, stale in pairs(cleans) do
	call('ZREMRANGEBYRANK', name, 0, stale - 1)
end
return answers
