	-- Removes the `stale` entries that queue_first.lua has passed over: in a script that grants, only after a write that
	-- Redis denies where there is no memory.
	if stale > 0 then
		redis.call('ZREMRANGEBYRANK', queue, 0, stale - 1)
	end
