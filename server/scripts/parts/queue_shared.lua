	-- `first` is what queue_first.lua found. Sets it to the entry that a shared request waits for, or false: without an
	-- entry of its own the first of all, else the first exclusive one whose replica is alive before its `entry`.
	if first and entry and first ~= entry and string.sub(first, 17, 17) == '+' then
		local at = stale
		first = nil
		repeat
			local entries = redis.call('ZRANGE', queue, at, at + 99)
			for _, each in ipairs(entries) do
				local is_exclusive = string.sub(each, 17, 17) ~= '+'
				if each == entry then
					first = false
				elseif is_exclusive and redis.call('EXISTS', base .. 'alive:' .. string.sub(each, 1, 16)) == 1 then
					first = each
				end
				if first ~= nil then
					break
				end
			end
			at = at + #entries
		until first ~= nil or #entries == 0
	elseif first == entry then
		first = false
	end
