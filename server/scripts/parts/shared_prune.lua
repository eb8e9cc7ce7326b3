	-- Removes those of several leases that have ended: 1,024 at most, which takes some milliseconds, so that a command leaves
	-- the rest to the next. In a script that grants, only after a write that Redis denies where there is no memory.
	local ended_ms = string.format('%.0f', (now_us - now_us % 1000) / 1000)
	local ended = redis.call('ZRANGEBYSCORE', key, '-inf', ended_ms, 'LIMIT', 0, 1024)
	for _, token in ipairs(ended) do
--include shared_remove.lua
	end
	if #ended > 0 then
		redis.call('ZREMRANGEBYRANK', key, 0, #ended - 1)
	end
