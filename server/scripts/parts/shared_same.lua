	-- Sets `same`: the token of the lease on `key` that has the Idempotency-Key `its_key` and has not ended; else false.
	local same = its_key and redis.call('HGET', holders, its_key)
	same = same and tonumber(redis.call('ZSCORE', key, same) or 0) > now_ms and same
