	-- Sets `room`: how many waiters like `first` may enter beside those that hold `key` after this command: nobody, or where it
	-- is `held`, and `shared`, several of `kind`. Where fewer than `its_most` hold slots, one below that number is free.
	local its_kind, its_most = string.sub(first, 17, 17), tonumber(string.sub(first, 35)) or 1
	local room = held and 0 or its_kind == '+' and its_most or 1
	if held and shared and its_kind == kind then
		local holders, now_ms = base .. 'holders:' .. key, (now_us - now_us % 1000) / 1000
--include shared_prune.lua
		value = redis.call('EXISTS', key) == 1 and value
--include shared_live.lua
		room = its_most - live
	end
