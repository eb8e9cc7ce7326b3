-- SPDX-License-Identifier: MIT
-- The beginning of each script of leases: this master's time, and the arguments that all operations share.
--
-- KEYS     {prefix}{resource} of each operation, and of each of its resources if it is a set; the last one is
--          {prefix}redlockd:master, the hash of the restart guard, the fences, and data about all locks here
-- ARGV[1]  epoch        that this master must have; sixteen dashes: any (--restart-guard off)
-- ARGV[2]  deadline_us  in this master's own time: after it nobody waits for the answer
-- ARGV[3]  mode         empty: one resource each; "count": each is a set of so many; acquire.lua has more
-- ARGV[4]  bounds       empty, or "until_s hold_ms"; 0: none. until_s: the second of this master's own time by which
--                       each lease that is granted or extended here ends, even if it is set close to its deadline; 0
--                       if redlockd knows that `leases` is as large. hold_ms: how old a granted lease may get
-- ARGV[5]… the arguments of each operation, as its script describes them
--
-- The answer to one operation is a table: its number, this master's time in µs, and the result. The answer to several
-- is {now_us, answer, …}. An operation that succeeded may then answer its result alone, without the number and the
-- time; an error of one does not affect the others.
--         {-2, now_us}  too late: nothing was done
--         {-3, now_us}  another epoch or none, so this master may have lost locks: nothing was done
--
-- A plain operation, on one resource without waiters, is carried out before the functions that others need are made,
-- which takes about a twentieth of its time.
local call, hash = redis.call, KEYS[#KEYS]
local epoch, deadline_us, mode, bounds = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now = call('TIME')
local now_us = now[1] * 1000000 + now[2]
if now_us > tonumber(deadline_us) then
	return {-2, now_us}
end
local now_ms = (now_us - now_us % 1000) / 1000
local until_s = bounds ~= '' and tonumber(string.match(bounds, '^%d+')) or 0
local waited = 0 -- the field of that name: until then some queue may not be empty, or somebody watches

-- True if the caller's epoch is `its_epoch`, that of this master.
local function has_epoch(its_epoch)
	return its_epoch == epoch or epoch == '----------------'
end

-- The answer of the script to its only operation, which is answered with a table or a result.
local function answer_alone(answer)
	return type(answer) == 'table' and answer or {1, now_us, answer}
end

-- The answer of the script: calls one(at, from, last) for each operation. Its `width` arguments begin with ARGV[at],
-- and its resources are KEYS[from] to KEYS[last]. One of several is tried by plain(at, from), if there is such a
-- function; the only one has been.
local function each_operation(width, one, plain)
	if #ARGV == 4 + width then
		return answer_alone(one(5, 1, #KEYS - 1))
	end
	local answers, resources = {now_us}, tonumber(string.match(mode, '^%d+')) or 1
	local from = 1
	for at = 5, #ARGV, width do
		local done, answer = true, nil
		if plain then
			done, answer = pcall(plain, at, from)
		end
		if not answer then
			done, answer = pcall(one, at, from, from + resources - 1)
		end
		answers[#answers + 1] = done and answer or type(answer) == 'table' and answer or {err = answer}
		from = from + resources
	end
	return answers
end

-- How many wait for one of KEYS[from] to KEYS[last]: the largest number. Nothing is counted while nobody waits, and
-- entries are not read.
local function count_waiters(from, last)
	local waiters = 0
	for i = from, waited > now_us and last or 0 do
		local count = redis.pcall('ZCARD', string.sub(hash, 1, -7) .. 'queue:' .. KEYS[i])
		waiters = math.max(waiters, type(count) == 'number' and count or 0) -- a damaged queue costs no lease
	end
	return waiters
end
