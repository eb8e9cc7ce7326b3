	-- Sets `first` to the first entry of the queue whose replica is alive. Stale entries before it are removed, many at
	-- once: a dead replica may have left thousands.
	local alive, last, stale = {}, 0
	repeat
		local entries = redis.call('ZRANGE', queue, 0, last)
		first, stale, last = entries[1], 0, 999
		while first do
			local replica = string.sub(first, 1, 16)
			if alive[replica] == nil then
				alive[replica] = redis.call('EXISTS', base .. 'alive:' .. replica) == 1
			end
			if alive[replica] then
				break
			end
			stale = stale + 1
			first = entries[stale + 1]
		end
		if stale > 0 then
			redis.call('ZREM', queue, unpack(entries, 1, stale))
		end
	until first or stale == 0
