-- Acquire shared: acquire.lua for a lease that leaves room for others: a shared one, or one on a slot. Either up to `most`
-- shared leases hold a resource at once, or as many on slots, each of its own, or one exclusive lease: a majority of
-- each meets on a master, and there a key is either a string or a sorted set of leases of one kind.
--
-- KEYS[1]  {prefix}{resource}       a sorted set of the tokens of the leases, by the ms of this master's time at which
--                                   each is over; it expires with the last one, and its type makes every SET NX fail
-- KEYS[2]  {prefix}redlockd:master
-- ARGV[1]  token  ARGV[2]  ttl_ms  ARGV[3]  max_hold_ms  ARGV[4]  label  ARGV[5]  bucket  ARGV[6]  guess
-- ARGV[7]  entry  ARGV[8]  epoch  ARGV[9]  deadline_us: as in acquire.lua; in place of its colon the entry has the kind,
--                 and it ends with a colon and `most`
-- ARGV[10] most   leases at once
-- ARGV[11] kind   +: shared; #N: on slot N, 0 to most - 1
-- ARGV[12] until_s  may be left out: as in acquire.lua
--
-- The hash {prefix}redlockd:holders:{key} has the value of each token, the token of each slot (#N), the token of each key
-- (of the label), and what shared_add.lua says. The kind stands behind the token in the value: token+:hold_until_ms:…, token#N:….
-- Returns as acquire.lua for one resource, except
--         {0, now_us, remaining_ms, value, taken}  held: by an exclusive lease, by as many as may hold it, by the lease
--                                   with the key of the label, or there is room for one more, but not before an
--                                   exclusive waiter. Several leases: the value of that with the key, or of the one
--                                   that ends last. `taken`: a digit for each slot, 1 where a lease has it, or where
--                                   as many as `most` hold any slots; empty: none has slots. remaining_ms: until the first of several of the same kind
--                                   ends, if that makes room for the caller, else until all have
-- A shared request waits for all others that came before it and are not shared, and one on a slot for all.
local call, key, hash = redis.call, KEYS[1], KEYS[2]
local base = string.sub(hash, 1, -7)
local deadline_us, epoch = ARGV[9], ARGV[8]
--include late.lua
local seen = call('HMGET', hash, 'epoch', 'floor', 'waited', ARGV[5])
--include member.lua
local guess = tonumber(ARGV[6])
if guess > now_us + 86400000000 then
	return {-4, now_us}
end
local waited, most, slot, entry, wait_ms = tonumber(seen[3] or 0), tonumber(ARGV[10]), ARGV[11], false
local repair, hold_ms, buckets = string.byte(ARGV[7]) == 33, ARGV[3] -- !
if repair then
	hold_ms, buckets = string.match(ARGV[7], '^!(%d+) (%d*)$')
	if (seen[4] or '') ~= buckets then
		return {2, now_us, 0, ''}
	end
elseif ARGV[7] ~= '' then
	entry, wait_ms = string.match(ARGV[7], '^(%S+) (%d+)$')
end
local kind = string.sub(slot, 1, 1)
local queue, holders, stale, first = base .. 'queue:' .. key, base .. 'holders:' .. key, 0
local waits = waited > now_us and not repair
if waits then
	if entry then
		call('ZADD', queue, 'NX', string.sub(entry, 18, 33), entry)
	end
--include queue_first.lua
	if kind == '+' then
--include queue_shared.lua
	elseif first == entry then
		first = false
	end
end
local value
--include value_read.lua
local now_ms, its_key, room, its_holder = (now_us - now_us % 1000) / 1000, string.match(ARGV[4], '^%??(%x+):'), true
local several, is_full = shared, false
if several then
--include shared_live.lua
--include shared_same.lua
	is_full = live >= most -- also by slots of those that name a larger number
	room = not is_full
	if live == 0 then
		value, shared = false, false
	elseif kind == '#' and room then
		local its = call('HGET', holders, slot)
		room = not its or tonumber(call('ZSCORE', key, its) or 0) <= now_ms
	end
	its_holder = live > 0 and same
	room = room and not its_holder
end
room = room and (not value or shared and string.sub(value, 41, 41) == kind)
if not first and room then
	local hold_until = string.format('%.0f', hold_ms ~= '0' and now_ms + hold_ms or 0)
	call('ZADD', key, string.format('%.0f', now_ms + ARGV[2] + 1), ARGV[1])
	if not shared then
		call('DEL', holders) -- somebody may have deleted the key alone
	end
--include shared_prune.lua
	local token, its_slot = ARGV[1], tonumber(string.sub(slot, 2))
	value = token .. slot .. ':' .. hold_until .. ':' .. ARGV[6] .. ':' .. ARGV[4]
--include shared_add.lua
--include shared_last.lua
	local until_s = ARGV[12]
--include lease_note.lua
	local old = math.max(tonumber(seen[2] or 0), tonumber(seen[4] or 0))
	if guess > old then
		call('HSET', hash, ARGV[5], ARGV[6])
	end
--include watch_tell.lua
	if waits then
--include queue_clean.lua
		local removed = entry and stale + call('ZREM', queue, entry) or 0
		if kind == '+' then
			local is_new = not shared or #ended > 0
			if removed > 0 then
--include queue_next.lua
			end
		else
--include queue_first.lua
--include queue_clean.lua
			if first and string.sub(first, 17, 17) == '#' then
				local free, room = '', (tonumber(string.sub(first, 35)) or 1) - call('ZCARD', key)
				if room > 0 then -- the next one, too
--include queue_tell.lua
				end
			end
		end
	end
	return {1, now_us, old}
end
if waits then
--include queue_clean.lua
end
if entry then
--include queue_join.lua
end
if several then
--include shared_prune.lua
end
if not value then -- the next waiter may have missed its notification
	redis.pcall('PUBLISH', base .. 'wake', first .. ' ' .. key)
	return {2, now_us, call('PTTL', base .. 'alive:' .. string.sub(first, 1, 16)), first}
end
local taken = ''
if shared and string.sub(value, 41, 41) == '#' then
	taken = string.sub(call('HGET', holders, 'slots') or '', 1, most)
	taken = is_full and string.rep('1', most) or taken .. string.rep('0', most - #taken)
end
local left = call('PTTL', key)
if shared and not first and string.sub(value, 41, 41) == kind then -- there is room as soon as one of them ends
--include shared_first.lua
end
if its_holder then
	value = call('HGET', holders, its_holder) or value
end
return {0, now_us, left, type(value) == 'string' and value, taken}
