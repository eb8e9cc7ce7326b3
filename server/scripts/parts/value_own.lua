	-- Sets `own`: what holds `key` is the lease of `token`, and `mark` stands in its value: a colon, for a set a semicolon.
	-- Where several leases hold it: `value` is that one's (false: it is not one of them), `ends` the ms of this master's
	-- time at which it is over, `holders` the hash of the values.
	local own, holders, ends = false
	if shared and token ~= '' then
		holders = string.sub(hash, 1, -7) .. 'holders:' .. key
		ends = tonumber(redis.call('ZSCORE', key, token) or 0)
		value = ends * 1000 > now_us and redis.call('HGET', holders, token)
		own = value and string.match(value, '^%x+[+#]%d*(.)') == mark
	elseif type(value) == 'string' and token ~= '' then
		own = string.sub(value, 1, 41) == token .. mark
	end
