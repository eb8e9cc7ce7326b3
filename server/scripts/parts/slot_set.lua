	-- Sets the `digit` of `its_slot` in the field "slots" of the hash of the values.
	local digits = redis.call('HGET', holders, 'slots') or ''
	digits = digits .. string.rep('0', its_slot - #digits)
	redis.call('HSET', holders, 'slots', string.sub(digits, 1, its_slot) .. digit .. string.sub(digits, its_slot + 2))
