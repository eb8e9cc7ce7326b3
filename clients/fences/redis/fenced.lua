-- SPDX-License-Identifier: MIT
-- Runs a command on a key if the fence is not smaller than the largest one of this key. Redis 6.2 or newer, Valkey.
-- KEYS: the key, the key that keeps its fence. ARGV: the fence, then a command without its key; without a command the
-- call only enters. load_function.sh makes a function of this script.
local given, seen = ARGV[1] or "", redis.call("GET", KEYS[2])
if not given:match("^[1-9]%d*$") or tonumber(given) >= 2 ^ 53 then
	return redis.error_reply("NOFENCE not a fence: " .. given)
end
if seen and tonumber(given) < tonumber(seen) then
	return redis.error_reply("LOCKLOST fence " .. given .. " is smaller than " .. seen)
end
redis.call("SET", KEYS[2], given)
if not ARGV[2] then
	return redis.status_reply("OK")
end
return redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
