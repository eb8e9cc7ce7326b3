	-- Adds `entry` to the queue, unless it is there; the queue outlives the longest wait in it.
	redis.call('ZADD', queue, 'NX', string.sub(entry, 18, 33), entry)
	local keep_ms = wait_ms + 1000
	if redis.call('PTTL', queue) < keep_ms then
		redis.call('PEXPIRE', queue, keep_ms)
	end
	if now_us + keep_ms * 1000 > waited then
		waited = now_us + keep_ms * 1000
		redis.call('HSET', hash, 'waited', string.format('%.0f', waited))
	end
