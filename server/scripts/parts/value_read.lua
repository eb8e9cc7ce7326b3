	-- Sets `value` to what `key` holds: of a string as much as a value of redlockd's may have, since another program's
	-- may be of any size; of several leases (acquire_shared.lua), which sets `shared`, the value of the one that ends
	-- last; false: it is free; a table: it is of another type.
	local shared = false
	value = redis.pcall('GETRANGE', key, '0', '8191')
	if value == '' and redis.call('EXISTS', key) == 0 then
		value = false
	elseif type(value) == 'table' then
		local last = redis.pcall('ZRANGE', key, -1, -1)[1]
		local its = last and redis.pcall('HGET', string.sub(hash, 1, -7) .. 'holders:' .. key, last)
		if type(its) == 'string' then
			value, shared = its, true
		end
	end
