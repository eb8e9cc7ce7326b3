	-- After a grant of a shared lease on `key` that removed an entry of the queue: notifies the next shared waiters if there is
	-- room for them. So they enter in waves: the first one after others notifies the second, `is_new`, and then each eighth.
	if is_new or redis.call('ZCARD', queue) % 8 == 0 then
		local first, stale = nil, 0
--include queue_first.lua
--include queue_clean.lua
--include shared_live.lua
		local room = first and string.sub(first, 17, 17) == '+' and (tonumber(string.sub(first, 35)) or 1) - live or 0
		if room > 0 then
			local free = ''
--include queue_tell.lua
		end
	end
