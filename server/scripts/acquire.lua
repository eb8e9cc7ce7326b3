-- Acquire: SET key value NX PX ttl, as in the specification ("Correct implementation with a single instance"), the
-- first round of the fence, and the queue of the resource. For one resource, or for several at once: requests that come
-- at the same moment share the time, the epoch and the cost of a command, and nothing else.
--
-- KEYS[1]  {prefix}{resource}      … and as many more as there are resources
-- KEYS[n]  {prefix}redlockd:master  the last one. A hash: epoch, floor, and the fence buckets (MASTER_FENCE_BUCKETS)
-- ARGV[1]  epoch         that this master must have; sixteen dashes: any (--restart-guard off)
-- ARGV[2]  deadline_us   in this master's own time: after it nobody waits for the answer, or releases
-- ARGV[3]  max_hold_ms   0: no bound
-- ARGV[4]  token         40 hex digits, new for every attempt
-- ARGV[5]  ttl_ms
-- ARGV[6]  label         the end of the value, from the key on
-- ARGV[7]  bucket        of the resource
-- ARGV[8]  guess         for the fence, in decimal digits
-- ARGV[9]  entry         in the queue: "replica:arrival wait_ms" (16 hex digits, 16 decimal digits, the rest of the
--                        wait); empty: the request does not wait; "!hold_ms buckets": a repair
-- … and six more, from the token on, for each further resource.
-- ARGV[10] until_s       the last one of all, left out if redlockd knows that `leases` is as large: by that second of
--                        this master's own time each of these leases is over, however close to its deadline it is set
--
-- The value is token:hold_until_ms:fence:key:owner\ncaller\nmetadata (what is empty at the end is left out, with its
-- line feed), with hold_until_ms in this master's own time (0: no bound). `key` stands for caller and Idempotency-Key,
-- in 16 hex digits, with a question mark before them until extend.lua notes that the lease is granted; empty: there is
-- none. The value is read by server/leases/lease_answer.c, which sim_compare tries on the values that these scripts
-- write.
-- Returns for one resource
--         {1, now_us, old}                  set here; old is the largest number of bucket and floor before, and the
--                                           bucket was raised to the guess if that is larger
--         {0, now_us, remaining_ms, value}  held with that value (value_read.lua); remaining_ms -1: it never expires
--         {0, now_us, remaining_ms, false}  held by a key of another type
--         {2, now_us, alive_ms, first}      free, but `first` is the next entry; its replica is alive for alive_ms
--         {-2, now_us}                      too late: nothing was done
--         {-3, now_us}                      another epoch or none: this master may have lost locks; nothing was done
--         {2, now_us, 0, ''}                a repair: a bucket has another number by now; nothing was done
--         {-4, now_us}                      the guess is more than a day ahead of this master's clock: nothing was done
-- and for several {now_us, answer, …}: old alone where it is set, else as above, or the error of this one; -2 and -3
-- are the answer to all of them.
-- If the key is not set, the entry is added to the queue; if it is set, the entry is removed. SET NX fails on a key of
-- any type, so another program's hash or list counts as held and never as an error.
--
-- A repair gives a lease back that extend.lua found gone here while a majority extended it (docs/explanation/safety.md).
-- It waits for nobody, has the fence of the lease as its guess, and `hold_ms` in place of max_hold_ms. It is void unless
-- `buckets`, with a comma between each two, are those that extend.lua has named.
--
-- The queue is {prefix}redlockd:queue:{key}, a sorted set of "replica:arrival" by arrival: all masters sort alike. A
-- replica is alive as long as its key {prefix}redlockd:alive:{replica} exists. `waited` in the hash is the time until
-- which some queue may not be empty, or some resource is watched: after it no queue and no watch is looked up. `leases`
-- there is what a quarantined master needs to know of this one: guard_leases.c.
local call, args, count = redis.call, ARGV, #KEYS - 1
local hash = KEYS[count + 1]
local deadline_us, epoch = args[2], args[1]
--include late.lua
local seen
if count == 1 then
	seen = call('HMGET', hash, 'epoch', 'floor', 'waited', args[7])
else
	local fields = {'HMGET', hash, 'epoch', 'floor', 'waited'}
	for i = 1, count do
		fields[i + 5] = args[6 * i + 1]
	end
	seen = call(unpack(fields))
end
--include member.lua
local floor, waited = tonumber(seen[2] or 0), tonumber(seen[3] or 0)
local until_s = args[6 * count + 4]
local waits = waited > now_us -- one of these may have waiters
if waits and count > 1 then
	local queues = {'EXISTS'}
	for i = 1, count do
		queues[i + 1] = string.sub(hash, 1, -7) .. 'queue:' .. KEYS[i]
	end
	waits = call(unpack(queues)) > 0
end
local hold_until = args[3] ~= '0' and (now_us - now_us % 1000) / 1000 + args[3] or 0
hold_until = ':' .. hold_until .. ':'
local raised, raises = {}, {'HSET', hash} -- by bucket: the numbers since the hash was read; the command that writes them
local held = {} -- by key: what those are told that do not wait
local cleans = {} -- by queue: stale entries before its first, which are removed when nothing is granted any more

local function one(i)
	local at, key = 6 * i - 2, KEYS[i]
	local bucket, guess = args[at + 3], tonumber(args[at + 4])
	if guess > now_us + 86400000000 then
		return {-4, now_us}
	end
	local entry, wait_ms, base, queue, first, stale = false
	local repair, hold = false, hold_until
	if string.byte(args[at + 5]) == 33 then -- !
		local hold_ms, buckets = string.match(args[at + 5], '^!(%d+) (%d*)$')
		if raised[bucket] or (seen[i + 3] or '') ~= buckets then
			return {2, now_us, 0, ''}
		end
		repair = true
		hold = ':' .. (hold_ms ~= '0' and (now_us - now_us % 1000) / 1000 + hold_ms or 0) .. ':'
	elseif args[at + 5] ~= '' then
		entry, wait_ms = string.sub(args[at + 5], 1, 33), tonumber(string.sub(args[at + 5], 35))
	end
	if held[key] and not entry and (not waits or cleans[string.sub(hash, 1, -7) .. 'queue:' .. key]) then
		return held[key]
	end
	local queued = waits and not repair
	if queued then
		base = string.sub(hash, 1, -7)
		queue = base .. 'queue:' .. key
		if entry then
			call('ZADD', queue, 'NX', string.sub(entry, 18), entry)
		end
--include queue_first.lua
	end
	local value = args[at] .. hold .. args[at + 4] .. ':' .. args[at + 2]
	if (not first or first == entry) and call('SET', key, value, 'NX', 'PX', args[at + 1]) then
		if queued then
--include queue_clean.lua
			cleans[queue] = nil
		end
		if first then
			call('ZREM', queue, entry)
		end
--include lease_note.lua
		until_s = nil
		local old = raised[bucket] or tonumber(seen[i + 3] or 0)
		if old < floor then
			old = floor
		end
		if guess > old then
			raised[bucket] = guess
			raises[#raises + 1] = bucket
			raises[#raises + 1] = args[at + 4]
		end
--include watch_tell.lua
		return old
	end
	if entry then
		base = string.sub(hash, 1, -7)
		queue = base .. 'queue:' .. key
		if waits then
--include queue_clean.lua
			cleans[queue] = nil
		end
--include queue_join.lua
		waits = true
	elseif queued and stale > 0 then
		cleans[queue] = stale
	end
--include value_read.lua
	if not value then -- the next waiter may have missed its notification
		redis.pcall('PUBLISH', base .. 'wake', first .. ' ' .. key)
		return {2, now_us, call('PTTL', base .. 'alive:' .. string.sub(first, 1, 16)), first}
	end
	held[key] = {0, now_us, call('PTTL', key), type(value) == 'string' and value}
	return held[key]
end

local function clean()
	for queue, stale in pairs(cleans) do
--include queue_clean.lua
	end
end

if count == 1 then
	local answer = one(1)
	if #raises > 2 then
		call('HSET', hash, raises[3], raises[4])
	end
	clean()
	return type(answer) == 'number' and {1, now_us, answer} or answer
end
--include each.lua
if #raises > 2 then
	call(unpack(raises))
end
clean()
return answers
