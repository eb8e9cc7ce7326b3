	-- Removes those of several leases that have ended.
	local now_ms = string.format('%.0f', (now_us - now_us % 1000) / 1000)
	for _, token in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', now_ms)) do
--include shared_remove.lua
	end
	redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms)
