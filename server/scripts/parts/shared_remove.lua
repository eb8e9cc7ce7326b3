	-- Removes what is known of `token`, which is one of several leases, from the hash of the values: of its slot and its
	-- Idempotency-Key only where no other lease has them by now.
	local its = redis.call('HGET', holders, token)
	if its then
		local its_slot, its_key = string.match(its, '^%x+#(%d+):'), string.match(its, '^[^:;]*.%d+:%d+:%??(%x+):')
		redis.call('HDEL', holders, token)
		redis.call('HINCRBY', holders, 'digest', string.format('%.0f', 0 - tonumber(string.sub(token, 32), 16)))
		if its_key and redis.call('HGET', holders, its_key) == token then
			redis.call('HDEL', holders, its_key)
		end
		if its_slot and redis.call('HGET', holders, '#' .. its_slot) == token then
			redis.call('HDEL', holders, '#' .. its_slot)
			local digit = '0'
--include slot_set.lua
		end
	end
