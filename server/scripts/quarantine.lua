-- Quarantine: removes the epoch, so that no redlockd lets this master vote, and writes a marker. If the marker is still
-- there at the end of the quarantine, nothing was granted or lost here in the meantime (epoch_write.lua). The longest
-- ttl is kept beside it: a redlockd with short leases that starts after everything else was lost must wait for others'
-- leases.
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  epoch    as the caller read it, empty: none. Another one by now: nothing is done
-- ARGV[2]  marker         a new random number, in 16 hex digits
-- ARGV[3]  run_id         of this server
-- ARGV[4]  kept           1: the numbers of the buckets are all there, 0: some may be lost
-- ARGV[5]  ttl_ms         the longest lease of any replica, as far as the caller knows
--
-- Returns {1, now_us, marker, kept, ttl_ms}    quarantined; the marker is an older one if this server had one already.
--                                              ttl_ms is empty beside a marker of a version that did not write it
--         {0, now_us}                          another epoch: read it again
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[1], 'epoch', 'marker', 'marker_run_id', 'kept', 'ttl_ms')
if (seen[1] or '') ~= ARGV[1] then
	return {0, now_us}
end
redis.call('HDEL', KEYS[1], 'epoch')
local marker, kept = ARGV[2], ARGV[4]
if seen[2] and seen[3] == ARGV[3] then
	marker = seen[2]
	kept = seen[4] == '1' and kept or '0'
end
redis.call('HSET', KEYS[1], 'marker', marker, 'marker_run_id', ARGV[3], 'kept', kept)
local ttl_ms = seen[5]
if (ttl_ms or not seen[2]) and tonumber(ARGV[5]) > tonumber(ttl_ms or 0) then
	ttl_ms = ARGV[5]
	redis.call('HSET', KEYS[1], 'ttl_ms', ttl_ms)
end
return {1, now_us, marker, kept, ttl_ms or ''}
