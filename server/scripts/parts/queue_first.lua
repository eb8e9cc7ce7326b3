	-- Sets `first` to the first entry of the queue whose replica is alive, and `stale` to the number of entries before it,
	-- which queue_clean.lua removes. Nothing is written here: Redis never denies a removal, and after one it denies no
	-- other write of the script, whatever memory is left.
	local alive, last = {}, 0
	stale = 0
	repeat
		local entries = redis.call('ZRANGE', queue, stale, stale + last)
		last = 999
		for i = 1, #entries do
			local replica = string.sub(entries[i], 1, 16)
			if alive[replica] == nil then
				alive[replica] = redis.call('EXISTS', base .. 'alive:' .. replica) == 1
			end
			if alive[replica] then
				first = entries[i]
				break
			end
			stale = stale + 1
		end
	until first or #entries == 0
