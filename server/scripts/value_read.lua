	-- Sets `value` to what `key` holds: of a string as much as a value of redlockd's may have, since another program's
	-- may be of any size; false: it is free; a table: it is of another type.
	value = redis.pcall('GETRANGE', key, 0, 8191)
	if value == '' and redis.call('EXISTS', key) == 0 then
		value = false
	end
