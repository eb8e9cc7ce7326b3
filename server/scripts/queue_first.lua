	-- Into `first`: who is first in the line and whose redlockd lives. Those of dead ones are dropped on the way.
	repeat
		first = redis.call('ZRANGE', line, 0, 0)[1]
		local dead = first and redis.call('EXISTS', names .. 'alive:' .. string.sub(first, 1, 16)) == 0
		if dead then
			redis.call('ZREM', line, first)
		end
	until not dead
