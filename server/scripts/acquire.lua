-- Acquire: SET key value NX PX ttl, as in the specification ("Correct implementation with a single instance"), the
-- first round of the fence, and the line of those who wait for the resource. For one resource, or for several at once: requests
-- that come in the same moment share the time, the epoch and what a command costs, and nothing else.
--
-- KEYS[1]  {prefix}{resource}      … and as many more as there are resources
-- KEYS[n]  {prefix}redlockd:master  the last one. A hash: epoch, floor, and a bucket for every 16384th resource
-- ARGV[1]  token    40 hex digits, new for every attempt
-- ARGV[2]  ttl_ms
-- ARGV[3]  max_hold_ms  0: no bound
-- ARGV[4]  owner    a label, may be empty
-- ARGV[5]  bucket   of the resource
-- ARGV[6]  guess    for the fence, in decimal digits
-- ARGV[7]  place    in the line: "replica:arrival wait_ms" (16 hex digits, 16 decimal digits, what is left of the wait); empty: waits for nobody
-- ARGV[8]  epoch  that this master must have; sixteen dashes: any (--restart-guard off)
-- ARGV[9]  deadline_us  in this master's own time: later than that nobody waits for the answer, nor releases
-- … and nine more for each further resource.
--
-- The value is token:hold_until_ms:fence:owner, with hold_until_ms in this master's own time (0: no bound).
-- Returns for one resource
--         {1, now_us, old}                     set here; old is the largest number that the bucket or the floor held before,
--                                              and the bucket was raised to the guess if that is larger
--         {0, now_us, remaining_ms, value}     held by that value; remaining_ms -1: it never expires
--         {0, now_us, remaining_ms, false}     held by a key of another type
--         {2, now_us, alive_ms, first}         free, but it is the turn of `first` in the line, whose redlockd counts as alive for alive_ms
--         {-2, now_us}                         too late: nothing was done
--         {-3, now_us}                         another epoch or none: this master may have forgotten locks; nothing was done
--         {-4, now_us}                         the guess is more than a day ahead of this master's clock: nothing was done
-- and for several {now_us, answer, …}: old alone where it is set, else as above, or the error that this one met.
-- Where it is not set the place is taken in the line; where it is set the place is given up.
-- SET NX fails on a key of any type, so somebody's hash or list counts as held and never as an error.
--
-- The line is {prefix}redlockd:queue:{key}, a sorted set of "replica:arrival" by arrival: every master sorts alike. A replica lives as long as
-- its key {prefix}redlockd:alive:{replica}. `waited` in the hash says until when some line may not be empty: nobody looks for one after that.
local call, args, count = redis.call, ARGV, #KEYS - 1
local hash = KEYS[count + 1]
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen
if count == 1 then
	seen = call('HMGET', hash, 'epoch', 'floor', 'waited', args[5])
else
	local fields = {'HMGET', hash, 'epoch', 'floor', 'waited'}
	for i = 1, count do
		fields[i + 5] = args[9 * i - 4]
	end
	seen = call(unpack(fields))
end
local epoch, floor, waited = seen[1], tonumber(seen[2] or 0), tonumber(seen[3] or 0)
local waits = waited > now_us -- somebody may wait for one of these
if waits and count > 1 then
	local lines = {'EXISTS'}
	for i = 1, count do
		lines[i + 1] = string.sub(hash, 1, -7) .. 'queue:' .. KEYS[i]
	end
	waits = call(unpack(lines)) > 0
end
local given = {} -- by buckets: what is raised here, since the hash was read
local deadline, late, max_hold, hold_until -- of the resource before, as a rule the same

local function acquire(i)
	local at, key = 9 * i - 9, KEYS[i]
	if args[at + 9] ~= deadline then
		deadline = args[at + 9]
		late = now_us > tonumber(deadline)
	end
	if late then
		return {-2, now_us}
	end
	if epoch ~= args[at + 8] and args[at + 8] ~= '----------------' then
		return {-3, now_us}
	end
	local bucket, guess = args[at + 5], tonumber(args[at + 6])
	if guess > now_us + 86400000000 then
		return {-4, now_us}
	end
	local place, wait_ms, names, line, first = false
	if args[at + 7] ~= '' then
		place, wait_ms = string.sub(args[at + 7], 1, 33), tonumber(string.sub(args[at + 7], 35))
	end
	if waits then
		names = string.sub(hash, 1, -7)
		line = names .. 'queue:' .. key
		if place then
			call('ZADD', line, 'NX', string.sub(place, 18), place)
		end
--include queue_first.lua
	end
	if args[at + 3] ~= max_hold then
		max_hold = args[at + 3]
		hold_until = max_hold ~= '0' and (now_us - now_us % 1000) / 1000 + max_hold or 0
		hold_until = ':' .. hold_until .. ':'
	end
	local value = args[at + 1] .. hold_until .. args[at + 6] .. ':' .. args[at + 4]
	if (not first or first == place) and call('SET', key, value, 'NX', 'PX', args[at + 2]) then
		if first then
			call('ZREM', line, place)
		end
		local old = given[bucket] or tonumber(seen[i + 3] or 0)
		if old < floor then
			old = floor
		end
		if guess > old then
			given[bucket] = guess
			call('HSET', hash, bucket, args[at + 6])
		end
		return old
	end
	if place then
		names = string.sub(hash, 1, -7)
		line = names .. 'queue:' .. key
--include queue_join.lua
		waits = true
	end
	local holder = redis.pcall('GET', key)
	if not holder then -- whose turn it is may have missed that
		redis.pcall('PUBLISH', names .. 'wake', first .. ' ' .. key)
		return {2, now_us, call('PTTL', names .. 'alive:' .. string.sub(first, 1, 16)), first}
	end
	return {0, now_us, call('PTTL', key), type(holder) == 'string' and holder}
end

if count == 1 then
	local answer = acquire(1)
	return type(answer) == 'number' and {1, now_us, answer} or answer
end
local answers = {now_us}
for i = 1, count do -- an error of one is none of the others'
	local done, answer = pcall(acquire, i)
	answers[i + 1] = done and answer or type(answer) == 'table' and answer or {err = answer}
end
return answers
