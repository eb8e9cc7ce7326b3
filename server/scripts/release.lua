-- Release: compare and delete ("Correct implementation with a single instance").
--
-- KEYS[1]  {prefix}{resource}
-- ARGV[1]  token
--
-- Returns {1}                          it was ours and is deleted
--         {0, remaining_ms, value}     another holder's (value false: a key of another type)
--         {-1}                         gone
local value = redis.pcall('GET', KEYS[1])
if not value then
	return {-1}
end
if type(value) == 'string' and string.sub(value, 1, 40) == ARGV[1] then
	redis.call('DEL', KEYS[1])
	return {1}
end
return {0, redis.call('PTTL', KEYS[1]), type(value) == 'string' and value}
