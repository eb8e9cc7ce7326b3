	-- Raises `leases` in the hash, which says until when a lease may last here, to the second `until_s`; nil: redlockd
	-- knows that it is as large.
	if until_s and tonumber(until_s) > tonumber(redis.call('HGET', hash, 'leases') or 0) then
		redis.call('HSET', hash, 'leases', until_s)
	end
