-- SPDX-License-Identifier: MIT
-- The value of a lease: token:hold_until_ms:fence:key:owner\ncaller\nmetadata (empty parts at the end are left out,
-- with their line feeds). hold_until_ms is in this master's own time (0: no bound). `key` is 16 hex digits for caller
-- and Idempotency-Key, after a question mark until extend.lua confirms that the lease is granted; empty: none. The
-- characters after the token show the kind: a colon for one lease on one resource, `+:` for a shared one, `#N:` for one
-- on slot N. A set has a semicolon in place of the colon, all three lines, and then its names, a line each. An equals
-- sign before the colon or semicolon: the lease was released and is kept for a while (release.lua). The token is then
-- the SHA-1 of the one that the lease had, so that this one is dead; the key is empty.
-- server/leases/lease_value.c reads it; sim_compare tests that with the values that these scripts write.

-- The value of the one of several leases (several.lua) that ends last; false: nobody holds it; nil: of another type.
local function value_of_several(key)
	local last = redis.pcall('ZRANGE', key, -1, -1)
	if not last.err and not last[1] then
		return false
	end
	local its = last[1] and redis.pcall('HGET', string.sub(hash, 1, -7) .. 'holders:' .. key, last[1])
	return type(its) == 'string' and its or nil
end

-- The value of `key`; false: it is free; a table: another type. A string is read up to the longest value of redlockd's,
-- since another program's may have any size. If several leases hold the key (several.lua), it is the value of the one
-- that ends last, and true. are_likely: look for several leases first, since the error of GETRANGE takes as long
-- as three commands.
local function value_read(key, are_likely)
	local its = are_likely and value_of_several(key)
	if are_likely and its ~= nil then
		return its, its and true
	end
	local value = redis.pcall('GETRANGE', key, '0', '8191')
	if value == '' and call('EXISTS', key) == 0 then
		return false
	elseif type(value) == 'table' and not are_likely then
		its = value_of_several(key)
		if its then
			return its, true
		end
	end
	return value
end
