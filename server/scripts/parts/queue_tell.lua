	-- Notifies on the channel {prefix}redlockd:wake that `room` waiters may enter: "entry key", `first` alone; if it is shared,
	-- "entry>arrival key": all shared ones up to that arrival, too. At most 16, since each of them tries on all masters; their
	-- grants notify the next (queue_next.lua). Of the first 100 entries those of dead replicas and of sets, which may wait
	-- for another resource, take nobody's place. `free`: "@N", appended for a slot that has just become free; or empty.
	local told, last, live = first, first, {}
	if string.sub(first, 17, 17) == '#' then
		told = first .. free
	end
	local is_run = string.sub(first, 17, 17) == '+' and (room > 1 or string.sub(first, 34, 34) == ';')
	local others = is_run and redis.call('ZRANGE', queue, 0, 99) or {}
	local places = math.min(room, 16)
	for i = 1, #others do
		local replica = string.sub(others[i], 1, 16)
		if live[replica] == nil then
			live[replica] = redis.call('EXISTS', base .. 'alive:' .. replica) == 1
		end
		if live[replica] then
			if string.sub(others[i], 17, 17) ~= '+' or places == 0 then
				break
			end
			last = others[i]
			places = string.sub(last, 34, 34) == ':' and places - 1 or places
		end
	end
	if last ~= first then
		told = first .. '>' .. string.sub(last, 18, 33)
	end
	redis.pcall('PUBLISH', base .. 'wake', told .. ' ' .. key)
