-- SPDX-License-Identifier: MIT
-- Several leases on one resource, shared or on slots. Its key is a sorted set of their tokens by the ms of this
-- master's time at which each is over. The key expires with the last one, and its type makes every SET NX fail.
--
-- The hash {prefix}redlockd:holders:{key} has the value of each token, and the token of each slot (#N) and of each
-- Idempotency-Key. "digest" is the sum of the last nine digits of all tokens, which shows a change. "slots" has a digit
-- for each slot, 1 if it is taken.

local function holders_of(key)
	return string.sub(hash, 1, -7) .. 'holders:' .. key
end

-- How many have not ended. Removes nothing; queue_first has the reason.
local function several_live(key)
	return call('ZCOUNT', key, '(' .. string.format('%.0f', now_ms), '+inf')
end

-- The token of the lease with that Idempotency-Key (nil: there is none) that has not ended; else false.
local function several_same(key, its_key)
	local same = its_key and call('HGET', holders_of(key), its_key)
	return same and tonumber(call('ZSCORE', key, same) or 0) > now_ms and same
end

-- The ms until the first one ends, of those that have not.
local function several_first_end(key)
	local ends = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
	return ends[2] - now_ms
end

local function set_slot(holders, slot, digit)
	local slots = call('HGET', holders, 'slots') or ''
	slots = slots .. string.rep('0', slot - #slots)
	call('HSET', holders, 'slots', string.sub(slots, 1, slot) .. digit .. string.sub(slots, slot + 2))
end

-- Stores the value of a token that the key has already, and its slot (nil: none).
local function several_add(key, token, value, its_key, slot)
	local holders = holders_of(key)
	if call('HSET', holders, token, value) == 1 then -- else it was repaired before its acquisition came
		call('HINCRBY', holders, 'digest', string.format('%.0f', tonumber(string.sub(token, 32), 16)))
	end
	if its_key then
		call('HSET', holders, its_key, token)
	end
	if slot then
		call('HSET', holders, '#' .. slot, token)
		set_slot(holders, slot, '1')
	end
end

-- Removes the data of a token; its slot and its Idempotency-Key only if no other lease has them by now.
local function several_forget(key, token)
	local holders = holders_of(key)
	local value = call('HGET', holders, token)
	if not value then
		return
	end
	local slot, its_key = string.match(value, '^%x+#(%d+)'), string.match(value, '^[^:;]*.%d+:%d+:%??(%x+):')
	call('HDEL', holders, token)
	call('HINCRBY', holders, 'digest', string.format('%.0f', 0 - tonumber(string.sub(token, 32), 16)))
	if its_key and call('HGET', holders, its_key) == token then
		call('HDEL', holders, its_key)
	end
	if slot and call('HGET', holders, '#' .. slot) == token then
		call('HDEL', holders, '#' .. slot)
		set_slot(holders, slot, '0')
	end
end

-- Removes leases that have ended, and returns how many: 1,024 at most, which takes some milliseconds; the next command
-- removes the rest. In a script that grants, only after a write that Redis denies if there is no memory.
local function several_prune(key)
	local ended = call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', now_ms), 'LIMIT', 0, 1024)
	for _, token in ipairs(ended) do
		several_forget(key, token)
	end
	if #ended > 0 then
		call('ZREMRANGEBYRANK', key, 0, #ended - 1)
	end
	return #ended
end

-- Lets both keys expire with the lease that ends last. Returns its ms; nil: no lease is left, and the keys are gone.
local function several_expire(key)
	local last = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
	if last then
		call('PEXPIREAT', key, last)
		call('PEXPIREAT', holders_of(key), last)
	else
		call('DEL', holders_of(key))
	end
	return tonumber(last)
end
