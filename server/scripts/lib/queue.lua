-- SPDX-License-Identifier: MIT
-- The queue of a resource: {prefix}redlockd:queue:{key}, a sorted set of entries by arrival, so that all masters sort
-- alike. An entry is replica:arrival (16 hex digits, 16 decimal digits). A shared lease has a + in place of the colon,
-- and one on a slot a #; both end with :capacity (;capacity of a set): how many leases may hold the resource together.
-- A replica is alive as long as its key {prefix}redlockd:alive:{replica} exists.
--
-- Notifications go over the channel {prefix}redlockd:wake, from a command that removed a lease or an entry itself, and
-- to no more waiters than can enter: "entry key". One more kind goes to those that wait with the Idempotency-Key of a
-- new lease (extend.lua).

-- A key of the queues: {prefix}redlockd:{what}, and what follows.
local function queue_key(what, name)
	return string.sub(hash, 1, -7) .. what .. name
end

-- True if the replica of the entry is alive. `known`: the results of this command so far, by replica.
local function queue_is_alive(entry, known)
	local replica = string.sub(entry, 1, 16)
	if known[replica] == nil then
		known[replica] = call('EXISTS', queue_key('alive:', replica)) == 1
	end
	return known[replica]
end

-- The first entry whose replica is alive (nil: there is none), and the number of stale ones before it, which
-- queue_clean removes. Nothing is written here: Redis never denies a removal, and after one it denies no other write
-- of the script, whatever memory is left.
local function queue_first(name)
	local alive, stale, last = {}, 0, 0
	repeat
		local entries = call('ZRANGE', name, stale, stale + last)
		last = 999
		for i = 1, #entries do
			if queue_is_alive(entries[i], alive) then
				return entries[i], stale
			end
			stale = stale + 1
		end
	until #entries == 0
	return nil, stale
end

-- In a script that grants, only after a write that Redis denies if there is no memory.
local function queue_clean(name, stale)
	if stale > 0 then
		call('ZREMRANGEBYRANK', name, 0, stale - 1)
	end
end

-- The entry that a shared request waits for, or false. Without an entry of its own it is the first of all, else the
-- first before its own that is not shared and whose replica is alive. A request far from the head waits for the first
-- of all: it was not notified (queue_notify).
local function queue_before_shared(name, entry, first, stale)
	if first == entry then
		return false
	elseif not first or not entry or string.sub(first, 17, 17) ~= '+' then
		return first
	end
	local rank, alive = call('ZRANK', name, entry), {}
	if rank < stale then -- its own replica counts as dead
		rank = stale + 100
	elseif rank > stale + 100 then
		return first
	end
	for _, each in ipairs(call('ZRANGE', name, stale, rank - 1)) do
		if string.sub(each, 17, 17) ~= '+' and queue_is_alive(each, alive) then
			return each
		end
	end
	return false
end

-- Adds the entry, unless it is there; the queue outlives the longest wait in it. Returns how many entries are new.
local function queue_join(name, entry, wait_ms)
	local keep_ms = wait_ms + 1000
	local added = call('ZADD', name, 'NX', string.sub(entry, 18, 33), entry)
	if call('PTTL', name) < keep_ms then
		call('PEXPIRE', name, keep_ms)
	end
	if now_us + keep_ms * 1000 > waited then
		waited = now_us + keep_ms * 1000
		call('HSET', hash, 'waited', string.format('%.0f', waited))
	end
	return added
end

-- After a new entry was added: publishes "wanted key" if it is the only one and the holder asked for that (extend.lua).
-- Work happens only if somebody asked for it: after the end of the lease that asked, nothing is published. All others
-- that join publish nothing, so thousands of waiters cost one message.
local function queue_publish_wanted(key)
	local is_first = call('ZCARD', queue_key('queue:', key)) == 1
	local asked = is_first and redis.pcall('GETRANGE', queue_key('wanted:', key), '0', '39')
	if asked and asked ~= '' and (asked == '+' or redis.pcall('GETRANGE', key, '0', '39') == asked) then
		redis.pcall('PUBLISH', queue_key('wake', ''), 'wanted ' .. key)
	end
end

-- Notifies that `room` waiters may enter: `first` alone, followed by "@N" if slot `free` has just become free (nil:
-- none). If it is shared, "entry>arrival key" notifies all shared ones up to that arrival, too. At most 16, since each
-- of them tries on all masters; their grants notify the next (queue_next_shared). Among the first 100 entries, those of
-- dead replicas and of sets, which may wait for another resource, do not count.
local function queue_notify(key, first, room, free)
	local message, last, alive = first, first, {}
	if free and string.sub(first, 17, 17) == '#' then
		message = first .. '@' .. free
	end
	local is_run = string.sub(first, 17, 17) == '+' and (room > 1 or string.sub(first, 34, 34) == ';')
	local others = is_run and call('ZRANGE', queue_key('queue:', key), 0, 99) or {}
	local places = math.min(room, 16)
	for i = 1, #others do
		if queue_is_alive(others[i], alive) then
			if string.sub(others[i], 17, 17) ~= '+' or places == 0 then
				break
			end
			last = others[i]
			places = string.sub(last, 34, 34) == ':' and places - 1 or places
		end
	end
	if last ~= first then
		message = first .. '>' .. string.sub(last, 18, 33)
	end
	redis.pcall('PUBLISH', queue_key('wake', ''), message .. ' ' .. key)
end

-- How many leases of its kind may hold the resource together, by the entry.
local function capacity_of(entry)
	return tonumber(string.sub(entry, 35)) or 1
end

-- After a grant of a shared lease that removed an entry of the queue: notifies the next shared waiters if there is
-- room. So they enter in waves: the first one after others (is_first) notifies the second, and then each eighth.
local function queue_next_shared(key, is_first)
	local name = queue_key('queue:', key)
	if is_first or call('ZCARD', name) % 8 == 0 then
		local first, stale = queue_first(name)
		queue_clean(name, stale)
		local room = first and string.sub(first, 17, 17) == '+' and capacity_of(first) - several_live(key) or 0
		if room > 0 then
			queue_notify(key, first, room)
		end
	end
end

-- After a grant of a lease on a slot: the next one may come, too, if there is room.
local function queue_next_slot(key)
	local name = queue_key('queue:', key)
	local first, stale = queue_first(name)
	queue_clean(name, stale)
	if first and string.sub(first, 17, 17) == '#' and capacity_of(first) > call('ZCARD', key) then
		queue_notify(key, first, 1)
	end
end

-- How many waiters like `first` may enter: none while the key is held, unless several leases of its kind hold it. If
-- fewer than its capacity hold slots, a slot below that number is free.
local function queue_room(key, first, is_held, kind)
	local its_kind = string.sub(first, 17, 17)
	if not is_held then
		return its_kind == '+' and capacity_of(first) or 1
	elseif its_kind ~= kind then
		return 0
	end
	several_prune(key)
	return capacity_of(first) - several_live(key)
end

-- True for a place. Nobody receives its notification, so all other waiters would wait in vain.
local function queue_is_place(entry)
	return string.sub(entry, 9, 16) == string.sub(entry, 26, 33)
end

-- A place belongs to a wait that continues in another request. It is an entry like all others; its replica is made of
-- its arrival, and is alive while the place is kept. {prefix}redlockd:place:{place} has the entry; `place` is 16 hex
-- digits for the caller and its Idempotency-Key. Takes the place: returns the entry with the old arrival, and that
-- arrival. The entry is empty if there is no place, or another request took it first.
local function queue_take_place(name, place, entry)
	local kept = call('GETRANGE', queue_key('place:', place), '0', '127')
	if kept == '' or call('ZREM', name, kept) == 0 then
		return ''
	end
	local arrival = string.sub(kept, 18, 33)
	return string.sub(entry, 1, 17) .. arrival .. string.sub(entry, 34), tonumber(arrival)
end

-- How long the place of a wait that ends is kept: two seconds, but no longer than a place that blocks a free resource
-- already. Otherwise short waits with new keys, each of which leaves a place, would keep the resource free for ever.
local function queue_place_ms(key, is_held, kind)
	local first = queue_first(queue_key('queue:', key))
	if first and queue_is_place(first) and queue_room(key, first, is_held, kind) > 0 then
		return math.min(2000, call('PTTL', queue_key('alive:', string.sub(first, 1, 16))))
	end
	return 2000
end

-- Removes the entry and keeps its place for kept_ms, unless the queue is so long that places could delay all that
-- follow. Returns how many entries left: 1, too, if its lease ends here.
local function queue_keep_place(name, place, entry, is_own, kept_ms)
	local left = call('ZREM', name, entry)
	if (left == 1 or is_own) and kept_ms > 0 and call('ZCARD', name) < 10000 then
		local replica = string.sub(place, 1, 8) .. string.sub(entry, 26, 33)
		local kept = replica .. string.sub(entry, 17)
		queue_join(name, kept, kept_ms)
		call('SET', queue_key('place:', place), kept, 'PX', kept_ms)
		call('SET', queue_key('alive:', replica), '', 'PX', kept_ms)
		if call('ZCARD', name) == 1 then
			call('PEXPIRE', name, kept_ms + 1000) -- it need not last for as long as the wait would have
		end
		left = 1
	end
	return left
end
