	-- `first` waits for a slot of `key`, of which those that have ended are removed. Sets `is_free`: false if all of its
	-- slots are taken.
	local its_most, its_slots = tonumber(string.sub(first, 35)), {}
	local is_free = redis.call('ZCARD', key) < its_most
	for i = 1, is_free and 0 or its_most do -- the leases may be on higher ones
		its_slots[i] = '#' .. i - 1
	end
	local its_holders = string.sub(hash, 1, -7) .. 'holders:' .. key
	for _, token in ipairs(its_slots[1] and redis.call('HMGET', its_holders, unpack(its_slots)) or {}) do
		is_free = is_free or not token
	end
