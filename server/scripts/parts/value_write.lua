	-- Writes `value` as that of `token`, which holds `key`; `holders` as of value_own.lua.
	if holders then
		redis.call('HSET', holders, token, value)
	else
		redis.call('SET', key, value, 'KEEPTTL')
	end
