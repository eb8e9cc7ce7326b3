-- Acquire set: acquire.lua for one lease on several resources. All keys are set, or none: so no master ever holds a part
-- of a set. The entry is in the queue of each resource, and the set is granted only as the first of all of them. Shared,
-- it is one of several leases on each resource, as acquire_shared.lua says, and waits there for those that are not.
--
-- KEYS[1]  {prefix}{resource}      … and the others, sorted: all replicas say the same
-- KEYS[n]  {prefix}redlockd:master  the last one
-- ARGV[1]  token  ARGV[2]  ttl_ms  ARGV[3]  max_hold_ms  ARGV[4]  label  ARGV[5]  guess  ARGV[6]  entry
-- ARGV[7]  epoch  ARGV[8]  deadline_us: as in acquire.lua
-- ARGV[9]  names         of the resources, sorted, with a line feed between each two
-- ARGV[10] most          shared leases on each at once  ARGV[11] kind  +: shared; empty: not
-- ARGV[12] bucket        of the first resource, and so on; after the last one may come until_s, as in acquire.lua
--
-- The value of each key is token;hold_until_ms:fence:label and the names, each after a line feed: the semicolon tells it
-- from a single lease's. The label is completed to three lines. Shared, it is token+;…, in the hash of the values.
-- Returns as acquire.lua for one resource, except
--         {1, now_us, old}                  old is the largest number of all buckets and the floor; if the guess is
--                                           larger, each bucket was raised to it
--         {0, now_us, remaining_ms, value, which}  the first that is held is KEYS[which + 1], with that value;
--                                           remaining_ms: until all are free
--         {2, now_us, alive_ms, first, which}  all are free, but `first` is the next in the queue of that one
local call, count = redis.call, #KEYS - 1
local hash = KEYS[count + 1]
local base = string.sub(hash, 1, -7)
local deadline_us, epoch = ARGV[8], ARGV[7]
--include late.lua
local seen = call('HMGET', hash, 'epoch', 'floor', 'waited', unpack(ARGV, 12, count + 11))
--include member.lua
local guess = tonumber(ARGV[5])
if guess > now_us + 86400000000 then
	return {-4, now_us}
end
local waited, entry, wait_ms = tonumber(seen[3] or 0), false
local repair, hold_ms, buckets = string.byte(ARGV[6]) == 33, ARGV[3] -- !
if repair then
	hold_ms, buckets = string.match(ARGV[6], '^!(%d+) ([%d,]*)$')
	for i = 1, count do
		seen[i + 3] = seen[i + 3] or ''
	end
	if table.concat(seen, ',', 4, count + 3) ~= buckets then
		return {2, now_us, 0, '', 0}
	end
elseif ARGV[6] ~= '' then
	entry, wait_ms = string.match(ARGV[6], '^(%S+) (%d+)$')
end
local now_ms, kind, its_key = (now_us - now_us % 1000) / 1000, ARGV[11], string.match(ARGV[4], '^%??(%x+):')
local queued, stales, other, behind = waited > now_us and not repair, {}
for i = 1, queued and count or 0 do
	local queue, stale, first = base .. 'queue:' .. KEYS[i]
	if entry then
		call('ZADD', queue, 'NX', string.sub(entry, 18, 33), entry)
	end
--include queue_first.lua
	stales[i] = stale
	if kind == '+' then
--include queue_shared.lua
	end
	if first and first ~= entry and not other then
		other, behind = first, i
	end
end
local which, holder, remaining
for i = 1, call('EXISTS', unpack(KEYS, 1, count)) > 0 and count or 0 do
	local value, key, left = nil, KEYS[i]
--include value_read.lua
	if shared and kind == '+' and string.sub(value, 41, 41) == '+' then
		local holders = base .. 'holders:' .. key
--include shared_live.lua
--include shared_same.lua
		if not same and live < tonumber(ARGV[10]) then
			value = false
		elseif same then
			value = call('HGET', holders, same) or value
		end
		if not other and value then -- there is room as soon as one of them ends
--include shared_first.lua
		end
	end
	if value then
		left = left or call('PTTL', key)
		if not which then
			which, holder, remaining = i, type(value) == 'string' and value, left
		elseif left < 0 or remaining >= 0 and left > remaining then
			remaining = left
		end
	end
end
if not other and not which then
	local _, lines = string.gsub(ARGV[4], '\n', '')
	local hold_until = hold_ms ~= '0' and now_ms + hold_ms or 0
	local value = ARGV[1] .. kind .. ';' .. string.format('%.0f', hold_until) .. ':' .. ARGV[5] .. ':' .. ARGV[4] ..
		string.rep('\n', 3 - lines) .. ARGV[9]
	local until_s = ARGV[count + 12]
--include lease_note.lua
	local old, news = tonumber(seen[2] or 0), {}
	for i = 1, count do
		local key = KEYS[i]
		local holders = base .. 'holders:' .. key
		if kind == '+' then
			local is_new = call('EXISTS', key) == 0
			call('ZADD', key, string.format('%.0f', now_ms + ARGV[2] + 1), ARGV[1])
			if is_new then
				call('DEL', holders) -- somebody may have deleted the key alone
			end
--include shared_prune.lua
			news[i] = is_new or #ended > 0
			local token, its_slot = ARGV[1]
--include shared_add.lua
--include shared_last.lua
		else
			call('SET', key, value, 'PX', ARGV[2])
		end
--include watch_tell.lua
		if queued then
			local queue, stale = base .. 'queue:' .. key, stales[i]
--include queue_clean.lua
			local removed = entry and stale + call('ZREM', queue, entry) or 0
			if removed > 0 and kind == '+' then
				local is_new = news[i]
--include queue_next.lua
			end
		end
		old = math.max(old, tonumber(seen[i + 3]) or 0)
	end
	for i = 1, guess > old and count or 0 do
		call('HSET', hash, ARGV[i + 11], ARGV[5])
	end
	return {1, now_us, old}
end
for i = 1, count do
	local queue, stale = base .. 'queue:' .. KEYS[i], stales[i] or 0
--include queue_clean.lua
	if entry then
--include queue_join.lua
	end
end
if which then
	return {0, now_us, remaining, holder, which - 1}
end
redis.pcall('PUBLISH', base .. 'wake', other .. ' ' .. KEYS[behind]) -- it may have missed its notification
return {2, now_us, call('PTTL', base .. 'alive:' .. string.sub(other, 1, 16)), other, behind - 1}
