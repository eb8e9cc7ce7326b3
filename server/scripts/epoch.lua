-- SPDX-License-Identifier: MIT
-- Epoch: reads the hash in which this master stores the state of its memory, and counts a heartbeat there. Every worker
-- of every redlockd runs it once on each connection, and then every second.
--
-- KEYS[1]  {prefix}redlockd:master
-- ARGV[1]  digest    of the settings that all replicas must share
-- ARGV[2]  ttl_ms    the longest lease of any replica, as far as the caller knows
-- ARGV[3]  evicted   this server's evicted_keys, as the caller saw it last; empty: not known
-- ARGV[4]  compared  1: the caller has compared it with the stored one; 0: not yet, so it is stored only if none is
-- ARGV[5]  timeout_ms  how long a command of the caller may be under way
-- ARGV[6]  run_id    of this server. Under the epoch of another one no heartbeat is counted, so that each redlockd can
--                    compare the number with the last one that it saw
-- ARGV[7]  epoch     a durable master has restarted and keeps this epoch, which becomes that of run_id; empty: none
-- ARGV[8]  deadline_us  in this master's own time: after it the epoch is not kept
--
-- If the hash has another digest, or an epoch or a marker without one, another version wrote it: nothing is written.
-- The longest lease is written before any is granted, since a later quarantine of this master lasts as long. It is also
-- written beside a marker: the replica that waits there may not know of it. A marker without a longest lease replaced
-- the hash of another version whose longest lease is unknown, so none is added. The longest timeout is written in the
-- same way: after it, no older command is under way.
-- Returns {1, now_us, beat, epoch, run_id, cluster, digest, ttl_ms, marker, marker_run_id, kept, clocked_us, evicted}
--         strings except now_us and beat; empty if there is none. beat counts the heartbeats.
local now = redis.call('TIME')
local seen = redis.call('HMGET', KEYS[1], 'epoch', 'run_id', 'cluster', 'digest', 'ttl_ms', 'marker', 'marker_run_id',
	'kept', 'clocked_us', 'evicted', 'timeout_ms', 'beat')
local now_us = now[1] * 1000000 + now[2]
local reply = {1, now_us, tonumber(seen[12] or 0)}
local is_new = not seen[1] and not seen[6] and not seen[4]
if is_new or seen[4] == ARGV[1] then
	local has_longest = seen[1] or seen[6] and seen[5]
	if has_longest and tonumber(ARGV[2]) > tonumber(seen[5] or 0) then
		redis.call('HSET', KEYS[1], 'ttl_ms', ARGV[2])
		seen[5] = ARGV[2]
	end
	if has_longest and tonumber(ARGV[5]) > tonumber(seen[11] or 0) then
		redis.call('HSET', KEYS[1], 'timeout_ms', ARGV[5])
	end
	if ARGV[3] ~= '' and ARGV[3] ~= seen[10] and (ARGV[4] == '1' or not seen[10]) then
		redis.call('HSET', KEYS[1], 'evicted', ARGV[3])
	end
	if seen[1] and seen[1] == ARGV[7] and now_us <= tonumber(ARGV[8]) then
		redis.call('HSET', KEYS[1], 'run_id', ARGV[6])
		seen[2] = ARGV[6]
	end
	if not seen[1] or seen[2] == ARGV[6] then
		reply[3] = redis.call('HINCRBY', KEYS[1], 'beat', 1)
	end
end
for i = 1, 10 do
	reply[i + 3] = seen[i] or ''
end
return reply
