-- Release: compare and delete ("Correct implementation with a single instance"), and notify the next waiter. Carried
-- out however late, and with any epoch: it can only delete the token's own key. But with another epoch its vote does
-- not count.
--
-- KEYS[1]  {prefix}{resource}      … and as many more as there are resources: those of one moment share a command
-- KEYS[n]  {prefix}redlockd:master
-- ARGV[1]  epoch  as in acquire.lua
-- ARGV[2]  token  empty: there is no lock to release, only an entry to remove
-- ARGV[3]  entry  as in acquire.lua and acquire_shared.lua: the caller waits on with that entry; wait_ms 0: it leaves
--                 the queue; empty: it does not wait. Behind wait_ms, after a blank, may be 16 hex digits: with wait_ms 0
--                 the place is kept for them, else the caller takes that place, and the arrival in `entry` is void
-- … and two more for each further resource.
--
-- Returns {1, now_us, value}                   it was the token's and is deleted
--         {0, now_us, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1, now_us}                         gone; also where several others hold it
--         {2, now_us, arrival}                 the place is taken: this is its arrival
--         {-3, now_us}                         another epoch; if it was the token's it is deleted
-- and for several {now_us, answer, …}: value alone where it is deleted, else as above, or the error of this one.
-- If the resource is free then, or held by several leases, the next waiter is notified if it may come in
-- (queue_tell.lua). Watchers are told on the same channel: "watch key".
local now, hash = redis.call('TIME'), KEYS[#KEYS]
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', hash, 'epoch', 'waited')
local waited = tonumber(seen[2] or 0)
local is_member = seen[1] == ARGV[1] or ARGV[1] == '----------------'

local function one(i)
	local key, token, wanted, mark, value, arrival = KEYS[i], ARGV[2 * i], ARGV[2 * i + 1], ':'
--include value_read.lua
	local kind = shared and string.sub(value, 41, 41)
--include value_own.lua
--include lease_end.lua
	if not is_member then
		return {-3, now_us}
	end
	if arrival then
		return {2, now_us, arrival}
	elseif own then
		return value
	elseif not value then
		return {-1, now_us}
	end
	return {0, now_us, redis.call('PTTL', key), type(value) == 'string' and value}
end

if #KEYS == 2 then
	local answer = one(1)
	return type(answer) == 'string' and {1, now_us, answer} or answer
end
--include each.lua
return answers
