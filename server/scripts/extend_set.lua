-- Extend set: extend.lua for a lease on several resources. All keys must have the token and the names of exactly these
-- resources: a part of a set cannot be extended.
--
-- KEYS     as in acquire_set.lua
-- ARGV[1]  token  ARGV[2]  ttl_ms  ARGV[3]  note  ARGV[4]  epoch  ARGV[5]  deadline_us: as in extend.lua
-- ARGV[6]  names  as in acquire_set.lua
-- ARGV[7]  bucket  of the first resource, and so on; after the last one may come until_s, as in acquire_set.lua
--
-- Returns as extend.lua; of several keys the one that ends first counts.
local count, hash, deadline_us = #KEYS - 1, KEYS[#KEYS], ARGV[5]
--include late.lua
if ARGV[4] ~= '----------------' and redis.call('HGET', hash, 'epoch') ~= ARGV[4] then
	return {-3, now_us}
end
local ours, gone, mark, token, hashes, left = false, false, ';', ARGV[1], {}, {}
local now_ms = math.floor(now_us / 1000)
for i = 1, count do
	local value, key = nil, KEYS[i]
--include value_read.lua
--include value_own.lua
	local remaining = shared and ends - 1 - now_ms or redis.call('PTTL', key)
	if not value then
		gone = true
	elseif not own or string.match(value, '^[^\n]*\n[^\n]*\n[^\n]*\n(.*)$') ~= ARGV[6] then
		return {0, now_us, remaining, type(value) == 'string' and value}
	else
		ours, hashes[i], left[i] = value, shared and holders, remaining
	end
end
if gone then
	local buckets = redis.call('HMGET', hash, unpack(ARGV, 7, count + 6))
	for i = 1, count do
		buckets[i] = buckets[i] or ''
	end
	return {-1, now_us, table.concat(buckets, ',')}
end
if ARGV[3] ~= '' then
	local first, last = string.match(ours, '^([^;]*;%d+:)%d+:[^:]*(:.*)$')
	ours = first .. ARGV[3] .. last
	for i = 1, count do
		local key, holders, value = KEYS[i], hashes[i], ours
--include value_write.lua
	end
end
local asked, until_s = tonumber(ARGV[2]), ARGV[count + 7]
--include lease_note.lua
local ttl, ends = asked, asked
local hold_until = tonumber(string.match(ours, '^[^;]*;(%d+):')) or 0
if hold_until > 0 then
	ttl = math.min(asked, hold_until - now_ms)
end
for i = 1, count do
	local key, holders, remaining = KEYS[i], hashes[i], left[i]
	if remaining >= 0 then -- else another program removed the expiry
		if ttl > remaining and holders then
			redis.call('ZADD', key, string.format('%.0f', now_ms + ttl + 1), ARGV[1])
--include shared_last.lua
		elseif ttl > remaining then
			redis.call('PEXPIRE', key, string.format('%.0f', ttl))
		end
		ends = math.min(ends, math.max(ttl, remaining))
	end
end
return {1, now_us, ends, ours}
