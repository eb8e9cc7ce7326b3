-- The value of a lease: token:hold_until_ms:fence:key:owner\ncaller\nmetadata (empty parts at the end are left out,
-- with their line feeds). hold_until_ms is in this master's own time (0: no bound). `key` is 16 hex digits for caller
-- and Idempotency-Key, after a question mark until extend.lua confirms that the lease is granted; empty: none. The
-- characters after the token show the kind: a colon for one lease on one resource, `+:` for a shared one, `#N:` for one
-- on slot N. A set has a semicolon in place of the colon, all three lines, and then its names, a line each.
-- server/leases/lease_value.c reads it; sim_compare tests that with the values that these scripts write.

-- The value of `key`; false: it is free; a table: another type. A string is read up to the longest value of redlockd's,
-- since another program's may have any size. If several leases hold the key (several.lua), it is the value of the one
-- that ends last, and true.
local function value_read(key)
	local value = redis.pcall('GETRANGE', key, '0', '8191')
	if value == '' and call('EXISTS', key) == 0 then
		return false
	elseif type(value) == 'table' then
		local last = redis.pcall('ZRANGE', key, -1, -1)[1]
		local its = last and redis.pcall('HGET', string.sub(hash, 1, -7) .. 'holders:' .. key, last)
		if type(its) == 'string' then
			return its, true
		end
	end
	return value
end
