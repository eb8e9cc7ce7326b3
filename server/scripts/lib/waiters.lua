-- SPDX-License-Identifier: MIT
-- The number of waiters, for a script that has read `waited` from the hash. Nothing is counted while nobody waits, and
-- entries are not read.

-- How many wait for one of KEYS[from] to KEYS[last]: the largest number.
local function count_waiters(from, last)
	local waiters = 0
	for i = from, waited > now_us and last or 0 do
		local count = redis.pcall('ZCARD', string.sub(hash, 1, -7) .. 'queue:' .. KEYS[i])
		waiters = math.max(waiters, type(count) == 'number' and count or 0) -- a damaged queue costs no lease
	end
	return waiters
end
