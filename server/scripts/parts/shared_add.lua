	-- Adds `value`, that of `token`, to the hash of the values; `its_key`: that of an Idempotency-Key, or nil; `its_slot`: the
	-- number of its slot, or nil. The field "digest" is the sum of the last nine digits of all tokens, so that nobody has to
	-- read them to know whether they are others; "slots" has a digit for each slot, 1 where it is taken.
	if redis.call('HSET', holders, token, value) == 1 then -- else it was repaired before its acquisition came
		redis.call('HINCRBY', holders, 'digest', string.format('%.0f', tonumber(string.sub(token, 32), 16)))
	end
	if its_key then
		redis.call('HSET', holders, its_key, token)
	end
	if its_slot then
		redis.call('HSET', holders, '#' .. its_slot, token)
		local digit = '1'
--include slot_set.lua
	end
