	-- Deletes the lease of `token` on `key` if it is `own` (value_own.lua); `kind`: what stands behind the token in `value`
	-- where it is `shared`. Adds or removes the entry `wanted`, and keeps or takes a place (place.lua). Only if a lease or an
	-- entry was removed here, the next waiters are notified that may enter now.
	local shortened = false -- the other leases end before the one that was the last
	if own then
		if shared then
			redis.call('ZREM', key, token)
--include shared_remove.lua
--include shared_prune.lua
--include shared_last.lua
			shortened = last and ends > tonumber(last)
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
		local entry, wait_ms, place = string.match(wanted, '^(%S*) ?(%d*) ?(%x*)$')
		wait_ms = tonumber(wait_ms) or 0
		local base = string.sub(hash, 1, -7)
		local queue, first = base .. 'queue:' .. key
		local free = own and kind == '#' and '@' .. string.match(value, '^%x+#(%d+)') or ''
		local left, stale = 0, 0
		if place ~= '' then
--include place.lua
		end
		if wait_ms > 0 and entry ~= '' then
--include queue_join.lua
		elseif entry ~= '' then
			left = left + redis.call('ZREM', queue, entry)
		end
		if own or left > 0 then
--include queue_first.lua
--include queue_clean.lua
		end
		if first and first ~= entry then
--include queue_room.lua
			if wait_ms > 0 then -- an attempt that failed: nobody but the first can have waited for it to end
				room = math.min(room, 1)
			elseif room <= 0 then
				-- it was told a later end than that at which it may enter: when all leases end, not when the first one does
				local was_before = left > 0 and string.sub(entry, 17, 17) ~= '+' and its_kind == kind and
					string.sub(entry, 18, 33) < string.sub(first, 18, 33)
				room = (was_before or shortened and its_kind ~= kind) and 1 or 0
			end
			if room > 0 then
--include queue_tell.lua
			end
		end
	end
