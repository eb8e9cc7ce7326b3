	-- Removes the shared leases that have ended.
	local now_ms = string.format('%.0f', (now_us - now_us % 1000) / 1000)
	for _, token in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', now_ms)) do
		redis.call('HDEL', holders, token)
	end
	redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms)
