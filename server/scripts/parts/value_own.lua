	-- Where shared leases hold `key`: sets `value` to that of ARGV[1] (false: it is not one of them), `ends` to the ms
	-- of this master's time at which it is over, and `holders` to the hash of the values.
	local holders, ends
	if shared and ARGV[1] ~= '' then
		holders = string.sub(hash, 1, -7) .. 'holders:' .. key
		ends = tonumber(redis.call('ZSCORE', key, ARGV[1]) or 0)
		value = ends * 1000 > now_us and redis.call('HGET', holders, ARGV[1])
	end
