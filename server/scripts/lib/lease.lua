-- SPDX-License-Identifier: MIT
-- The lease of a token: finds and writes it, stores its end in the hash, and notifies watchers.

-- Raises `leases` in the hash, the second until which a lease may last here (guard_leases.c), to until_s.
local function remember_leases()
	if until_s > 0 and until_s > tonumber(call('HGET', hash, 'leases') or 0) then
		call('HSET', hash, 'leases', string.format('%.0f', until_s))
	end
	until_s = 0
end

-- Publishes that the holder of `key` changes, if it has watchers (inspect.lua).
local function publish_change(key)
	if waited > now_us and call('EXISTS', string.sub(hash, 1, -7) .. 'watch:' .. key) == 1 then
		redis.pcall('PUBLISH', string.sub(hash, 1, -7) .. 'wake', 'watch ' .. key)
	end
end

-- The names of KEYS[from] to KEYS[last] as the value of a set has them; false: it is no set.
local function set_names(from, last)
	if string.match(mode, '^%d') == nil then
		return false
	end
	local names = {}
	for i = from, last do
		names[#names + 1] = string.sub(KEYS[i], #hash - 14)
	end
	return table.concat(names, '\n')
end

-- True if the value is that of a lease that is kept.
local function lease_is_kept(value)
	return type(value) == 'string' and string.match(value, '^%x+[+#]?%d*=') ~= nil
end

-- True if value_read() found the lease of `token` (empty: nobody's), a set of exactly those names, or no set. Also
-- returns the value and, if several leases hold the key, the ms of this master's time at which that of `token` ends;
-- the value is then false if `token` has none of them. To a token a kept lease is nobody's, and its value false,
-- unless kept_too and it is that of `token`.
local function lease_find(key, token, names, value, is_several, kept_too)
	local mark, ends_ms, is_own = (kept_too and '=?' or '') .. (names and ';' or ':'), nil, false
	if is_several and token ~= '' then
		ends_ms = tonumber(call('ZSCORE', key, token) or 0)
		value = ends_ms * 1000 > now_us and call('HGET', string.sub(hash, 1, -7) .. 'holders:' .. key, token)
		is_own = value and string.match(value, '^%x+[+#]%d*' .. mark) ~= nil
	elseif type(value) == 'string' and token ~= '' then
		is_own = string.match(value, '^(%x+)' .. mark) == token
	end
	value = (is_own or token == '' or not lease_is_kept(value)) and value
	return is_own and (not names or string.match(value, '^[^\n]*\n[^\n]*\n[^\n]*\n(.*)$') == names), value, ends_ms
end

-- Writes the value of `token`, which holds the key.
local function lease_write(key, token, value, is_several)
	if is_several then
		call('HSET', string.sub(hash, 1, -7) .. 'holders:' .. key, token, value)
	else
		call('SET', key, value, 'KEEPTTL')
	end
end
