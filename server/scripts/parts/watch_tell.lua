	-- Tells the watchers of `key`, if there are any (inspect.lua), that its holder changes.
	if waited > now_us and redis.call('EXISTS', string.sub(hash, 1, -7) .. 'watch:' .. key) == 1 then
		redis.pcall('PUBLISH', string.sub(hash, 1, -7) .. 'wake', 'watch ' .. key)
	end
