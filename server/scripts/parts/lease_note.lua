	-- Raises `leases` in the hash, from `leases_us`, to the second of this master's time, rounded up, by which a lease that
	-- ends at `ends_us` is over.
	if ends_us > leases_us then
		leases_us = math.ceil(ends_us / 1000000) * 1000000
		redis.call('HSET', hash, 'leases', string.format('%.0f', leases_us / 1000000))
	end
