-- Acquire: SET key value NX PX ttl, as in the specification ("Correct implementation with a single instance").
--
-- KEYS[1]  {prefix}{resource}
-- ARGV[1]  token    40 hex digits, new for every attempt
-- ARGV[2]  ttl_ms
-- ARGV[3]  max_hold_ms  0: no bound
-- ARGV[4]  owner    a label, may be empty
--
-- The value is token:hold_until_ms:owner, with hold_until_ms in this master's own time (0: no bound).
-- Returns {1}                          set here
--         {0, remaining_ms, value}     held by that value; remaining_ms -1: it never expires
--         {0, remaining_ms, false}     held by a key of another type
-- SET NX fails on a key of any type, so somebody's hash or list counts as held and never as an error.
local hold_until = 0
if ARGV[3] ~= '0' then
	local now = redis.call('TIME')
	hold_until = now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3]
end
local value = string.format('%s:%.0f:%s', ARGV[1], hold_until, ARGV[4])
if redis.call('SET', KEYS[1], value, 'NX', 'PX', ARGV[2]) then
	return {1}
end
local holder = redis.pcall('GET', KEYS[1])
return {0, redis.call('PTTL', KEYS[1]), type(holder) == 'string' and holder}
