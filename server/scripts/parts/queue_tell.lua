	-- Notifies `first` on the channel {prefix}redlockd:wake: "replica:arrival key"; where it is shared, all shared ones
	-- before the next exclusive one, alive or not: "+arrival key", the arrival of that one, or of nobody. `free`: "@N",
	-- appended for a waiter that wants a slot: N is one that has just become free; or empty.
	local told = first
	if string.sub(first, 17, 17) == '#' then
		told = first .. free
	end
	if string.sub(first, 17, 17) == '+' then
		local at, next = 0
		repeat
			local entries = redis.call('ZRANGE', queue, at, at + 99)
			for _, each in ipairs(entries) do
				next = next or string.sub(each, 17, 17) ~= '+' and each
			end
			at = at + #entries
		until next or #entries == 0
		told = '+' .. (next and string.sub(next, 18, 33) or '')
	end
	redis.pcall('PUBLISH', base .. 'wake', told .. ' ' .. key)
