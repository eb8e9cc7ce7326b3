	-- Sets `room`: how many waiters like `first` may enter beside those that hold `key` after this command: nobody, or where it
	-- is `held`, and `shared`, several of `kind`. `free` names the slot that this command has made free.
	local its_kind, its_most = string.sub(first, 17, 17), tonumber(string.sub(first, 35)) or 1
	local room = held and 0 or its_kind == '+' and its_most or 1
	if held and shared and its_kind == kind then
		local holders, now_ms = base .. 'holders:' .. key, (now_us - now_us % 1000) / 1000
--include shared_prune.lua
		value = redis.call('EXISTS', key) == 1 and value
		if kind == '+' then
--include shared_live.lua
			room = its_most - live
		elseif free ~= '' and tonumber(string.sub(free, 2)) < its_most then
			room = 1
		else
--include slot_free.lua
			room = is_free and 1 or 0
		end
	end
