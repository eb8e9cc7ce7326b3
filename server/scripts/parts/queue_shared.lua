	-- `first` is what queue_first.lua found. Sets it to the entry that a shared request waits for, or false: without an
	-- entry of its own the first of all, else the first before its `entry` that is not shared and whose replica is alive.
	-- One that is far behind waits for the first of all: nobody has notified it (queue_tell.lua).
	if first == entry then
		first = false
	elseif first and entry and string.sub(first, 17, 17) == '+' then
		local rank = redis.call('ZRANK', queue, entry)
		if rank < stale then -- its own replica counts as dead
			rank = stale + 100
		end
		if rank <= stale + 100 then
			first = false
			for _, each in ipairs(redis.call('ZRANGE', queue, stale, rank - 1)) do
				if string.sub(each, 17, 17) ~= '+' and redis.call('EXISTS', base .. 'alive:' .. string.sub(each, 1, 16)) == 1 then
					first = each
					break
				end
			end
		end
	end
