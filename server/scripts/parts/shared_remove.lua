	-- Removes what is known of `token`, which is one of several leases, from the hash of the values.
	local its = redis.call('HGET', holders, token) or ''
	redis.call('HDEL', holders, token, string.match(its, '^%x+(#%d+):') or '',
		string.match(its, '^[^:;]*.%d+:%d+:%??(%x+):') or '')
