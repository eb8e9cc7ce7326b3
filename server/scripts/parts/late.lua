	-- Sets `now_us`, this master's time, and ends the script if it is later than `deadline_us`.
	local now = redis.call('TIME')
	local now_us = now[1] * 1000000 + now[2]
	if now_us > tonumber(deadline_us) then
		return {-2, now_us}
	end
