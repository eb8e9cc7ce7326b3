	-- The place of a wait that goes on in another request: an entry like all others, whose replica, made of its arrival, is
	-- alive for two seconds. {prefix}redlockd:place:{place} has the entry; `place` is 16 hex digits for the caller and the
	-- request with its Idempotency-Key. With `wait_ms` the request takes the place: `entry` becomes its own with the old
	-- arrival, and `arrival` is set; `entry` is empty if there is no place, or another request was first. Otherwise the place
	-- is kept instead of the `entry`, unless the queue is so long that places could delay all that follow.
	local name, its = base .. 'place:' .. place, entry
	if wait_ms > 0 then
		local kept = redis.call('GETRANGE', name, '0', '127')
		entry = ''
		if kept ~= '' and redis.call('ZREM', queue, kept) == 1 then
			entry = string.sub(its, 1, 17) .. string.sub(kept, 18, 33) .. string.sub(its, 34)
			arrival = tonumber(string.sub(kept, 18, 33))
		end
	else
		left = redis.call('ZREM', queue, entry)
		if (left == 1 or own) and redis.call('ZCARD', queue) < 10000 then
			local kept = string.sub(place, 1, 8) .. string.sub(entry, 26, 33)
			entry, wait_ms, left = kept .. string.sub(entry, 17), 2000, 1
--include queue_join.lua
			redis.call('SET', name, entry, 'PX', wait_ms)
			redis.call('SET', base .. 'alive:' .. kept, '', 'PX', wait_ms)
			if redis.call('ZCARD', queue) == 1 then
				redis.call('PEXPIRE', queue, keep_ms) -- it need not last for as long as the wait would have
			end
			entry, wait_ms = its, 0
		end
	end
