-- Inspect: who holds it here. Reads only.
--
-- KEYS[1]  {prefix}{resource}
--
-- Returns {0, remaining_ms, value}     held; remaining_ms -1: it never expires; value false: a key of another type
--         {-1}                         free
local value = redis.pcall('GET', KEYS[1])
if not value then
	return {-1}
end
return {0, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value}
