	-- Sets `live`: how many of several leases on `key` have not ended. Removes nothing (queue_first.lua says why).
	local live = redis.call('ZCOUNT', key, '(' .. string.format('%.0f', now_ms), '+inf')
