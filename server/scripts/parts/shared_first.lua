	-- Sets `left`: the ms until the first of several leases on `key` ends, of those that have not.
	left = redis.call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] - now_ms
