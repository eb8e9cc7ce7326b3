	-- Sets `first` to the first entry of the queue whose replica is alive. Stale entries before it are removed.
	repeat
		first = redis.call('ZRANGE', queue, 0, 0)[1]
		local dead = first and redis.call('EXISTS', base .. 'alive:' .. string.sub(first, 1, 16)) == 0
		if dead then
			redis.call('ZREM', queue, first)
		end
	until not dead
