	-- `place` into the line, unless it is there; the line outlives the longest wait in it.
	redis.call('ZADD', line, 'NX', string.sub(place, 18), place)
	local keep_ms = wait_ms + 1000
	if redis.call('PTTL', line) < keep_ms then
		redis.call('PEXPIRE', line, keep_ms)
	end
	if now_us + keep_ms * 1000 > waited then
		waited = now_us + keep_ms * 1000
		redis.call('HSET', hash, 'waited', string.format('%.0f', waited))
	end
