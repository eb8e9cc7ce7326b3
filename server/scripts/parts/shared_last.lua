	-- The keys of several leases expire with the one that ends last, or go with the last one.
	local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
	if last then
		redis.call('PEXPIREAT', key, last)
		redis.call('PEXPIREAT', holders, last)
	else
		redis.call('DEL', holders)
	end
