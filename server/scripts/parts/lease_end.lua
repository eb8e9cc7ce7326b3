	-- Deletes the lease of `token` on `key` if it is `own` (value_own.lua); `kind`: what stands behind the token in `value`
	-- where it is `shared`. Adds or removes the entry `wanted`, and notifies the next waiter, if it may come in.
	if own then
		if shared then
			redis.call('ZREM', key, token)
--include shared_remove.lua
--include shared_prune.lua
--include shared_last.lua
		else
			redis.call('DEL', key)
		end
--include watch_tell.lua
	end
	local held = value and not own
	if shared then
		held = redis.call('EXISTS', key) == 1
	end
	if waited > now_us or wanted ~= '' then
		local entry, wait_ms = string.match(wanted, '^(%S*) ?(%d*)$')
		wait_ms = tonumber(wait_ms) or 0
		local base = string.sub(hash, 1, -7)
		local queue, first = base .. 'queue:' .. key
		local free = own and kind == '#' and '@' .. string.match(value, '^%x+#(%d+)') or ''
		local left, stale = 0, 0
		if wait_ms > 0 then
--include queue_join.lua
		elseif entry ~= '' then
			left = redis.call('ZREM', queue, entry)
		end
		-- without a change here there is nobody to notify
		if own or ((not held or shared) and (token ~= '' or left > 0)) then
--include queue_first.lua
--include queue_clean.lua
			local may_enter = first and first ~= entry and (not held or string.sub(first, 17, 17) == kind)
			if may_enter and held and kind == '#' and not own then
				local holders = base .. 'holders:' .. key
--include shared_prune.lua
--include slot_free.lua
				may_enter = is_free
			end
			if may_enter then
--include queue_tell.lua
			end
		end
	end
