-- Bar: takes the certificate away, so that no redlockd lets this master vote, and leaves a marker. If the marker is still there
-- when the bar is over, nothing was granted or forgotten here in the meantime (certify.lua).
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  certificate    as the caller read it, empty: none. Another one by now: nothing is done
-- ARGV[2]  marker         a new random number, in 16 hex digits
-- ARGV[3]  run_id         of this server
-- ARGV[4]  kept           1: the numbers of the buckets are all there, 0: some may be forgotten
--
-- Returns {1, now_us, marker, kept}            barred; the marker is an older one if this very server had one already
--         {0, now_us}                          another certificate: read it again
local now = redis.call('TIME')
local now_us = now[1] * 1000000 + now[2]
local seen = redis.call('HMGET', KEYS[1], 'certificate', 'marker', 'marker_run_id', 'kept')
if (seen[1] or '') ~= ARGV[1] then
	return {0, now_us}
end
redis.call('HDEL', KEYS[1], 'certificate')
local marker, kept = ARGV[2], ARGV[4]
if seen[2] and seen[3] == ARGV[3] then
	marker = seen[2]
	kept = seen[4] == '1' and kept or '0'
end
redis.call('HSET', KEYS[1], 'marker', marker, 'marker_run_id', ARGV[3], 'kept', kept)
return {1, now_us, marker, kept}
