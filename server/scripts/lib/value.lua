-- The value of a lease: token:hold_until_ms:fence:key:owner\ncaller\nmetadata (what is empty at the end is left out,
-- with its line feed). hold_until_ms is in this master's own time (0: no bound). `key` stands for caller and
-- Idempotency-Key, in 16 hex digits, with a question mark before them until extend.lua notes that the lease is granted;
-- empty: there is none. The characters after the token tell the kind: a colon one lease on one resource, `+:` a shared
-- one, `#N:` one on slot N. A set has a semicolon in place of the colon, the three lines complete, and then its names,
-- a line each. server/leases/lease_answer.c reads it; sim_compare tries that on the values that these scripts write.

-- The value of the one of several leases (several.lua) that ends last; false: nobody holds it; nil: of another type.
local function value_of_several(key)
	local last = redis.pcall('ZRANGE', key, -1, -1)
	if not last.err and not last[1] then
		return false
	end
	local its = last[1] and redis.pcall('HGET', string.sub(hash, 1, -7) .. 'holders:' .. key, last[1])
	return type(its) == 'string' and its or nil
end

-- The value of `key`: of a string as much as a value of redlockd's may have, since another program's may be of any
-- size; of several leases the value of the one that ends last, and true; false: it is free; a table: another type.
-- are_likely: several leases are looked for first, since the error of GETRANGE takes as long as three commands.
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
