	-- Sets `is_free`: one of the `its_most` slots is free. Leases that have ended were removed before.
	local digits = redis.call('HGET', holders, 'slots') or ''
	local is_free = (string.find(digits, '0', 1, true) or #digits + 1) <= its_most
