# SPDX-License-Identifier: MIT
"""Waiters (`wait_ms`) as the masters know them: while the faults go on, and once all is healed.

A queue is a sorted set of entries, {replica}:{arrival}, that runs out a second after the longest wait in it; a replica
lives as long as its key (server/scripts/acquire.lua). Under all faults a stale entry must not stay in front of others,
no key may be left when there is no waiter, and then each redlockd must receive the notifications of each master again.
"""

import json

import harness
import cluster as parts

LINES = """
local found = {}
for _, key in ipairs(redis.call('KEYS', 'redlockd:queue:*')) do
	local first = redis.call('ZRANGE', key, 0, 0)[1]
	local alive = redis.call('EXISTS', 'redlockd:alive:' .. string.sub(first, 1, 16))
	found[#found + 1] = {key, first, alive, redis.call('PTTL', key), redis.call('ZCARD', key)}
end
return found
"""

CLOCK_BACK_MS = 5500  # a clock that is moved back makes keys last longer, see nemesis.py
LONGEST_MS = parts.WAIT_MS[1] + 1000 + CLOCK_BACK_MS
# A stale entry stays in front while its redlockd is cut off (5 s at most) and another client has the lock.
STALE_ENTRY_US = (parts.WAIT_MS[1] * 1000 + 10 * parts.SECOND) * harness.SLOW


def lines_of(master, timeout):
    """Each line of a master: its key, who is first in it, whether that one's redlockd counts as alive, what is left of the key, its length."""
    return master.redis.cli("EVAL", LINES, "0", timeout=timeout)


class Heads:
    """The first entry of each queue and how long it was first, as far as it was seen."""

    def __init__(self):
        self.since = {}    # (master, key): place, when it was seen first
        self.longest_us = 0
        self.findings = {}  # by place or key: told once

    def look_at(self, master):
        try:
            lines = lines_of(master, 0.2) if master.state() in ("S", "R") else None
        except (OSError, harness.RedisError):
            return
        if lines is None:
            return
        now, gone = parts.now_us(), {name for name in self.since if name[0] == master.number}
        for key, first, alive, left_ms, count in lines:
            gone.discard((master.number, key))
            if not 0 <= left_ms <= LONGEST_MS:
                self.findings[key] = f"{master.name}: {key} with {count} places lasts for {left_ms} ms"
            place, since = self.since.get((master.number, key), (None, now))
            if place != first or not alive:
                self.since[master.number, key] = first, now
                continue
            self.longest_us = max(self.longest_us, now - since)
            if now - since > STALE_ENTRY_US:
                self.findings[place] = f"{master.name}: {place} has been the first of {key} for {(now - since) / 1e6:.1f} s, seen last at {now}"
        for name in gone:
            del self.since[name]


def what_is_left(cluster):
    """When no client waits any more: queues that are left, and redlockds that count waiters; None if all is well."""
    patience_s = (LONGEST_MS / 1000 + 2) * harness.SLOW
    try:
        harness.wait_until(lambda: not any(lines_of(master, 2) for master in cluster.masters), LONGEST_MS / 1000 + 2, "empty lines")
    except AssertionError:
        left = {master.name: lines_of(master, 2) for master in cluster.masters}
        return f"nobody has waited for {patience_s:.1f} s, and there is still {json.dumps(left)}"
    for daemon in cluster.daemons:
        answer = daemon.call("GET", "/metrics")
        waiters = [line for line in answer.body.decode().splitlines() if line.startswith("redlockd_waiters ")] if answer else None
        if waiters != ["redlockd_waiters 0"]:
            return f"nobody waits, and {daemon.name} says: {waiters}"
    return None


# ------------------------------------------------------------------------------------------------- handing over


class Waiter:
    """One request that waits, on a connection of its own."""

    def __init__(self, daemon, resource, ttl_ms, wait_ms):
        body = json.dumps({"resource": resource, "ttl_ms": ttl_ms, "wait_ms": wait_ms}).encode()
        self.plain = harness.connect_to(daemon.address, wait_ms / 1000 + 3)
        self.plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    def answer(self):
        with self.plain:
            return harness.read_response(self.plain)


def hand_over(giver, taker, resource):
    """Takes a lock through one redlockd, waits for it through another, and gives it back. None if the waiter was called: it had the lock before
    the first lease would have run out. Else what happened."""
    ttl_ms = min(parts.TTL_MS[1], giver.options["max-ttl-ms"], taker.options["max-ttl-ms"])
    begin, lease = parts.now_us(), giver.call("POST", "/locks", {"resource": resource, "ttl_ms": ttl_ms})
    if lease is None or lease.status != 201:
        return f"not taken: {lease}"
    waiter = Waiter(taker, resource, ttl_ms, 2 * parts.TTL_MS[1])
    try:
        harness.wait_until(lambda: giver.call("GET", "/locks/" + resource).json.get("waiters") == 1, ttl_ms / 3000, "a place in the line")
    except AssertionError as error:
        waiter.plain.close()
        return str(error)
    released = giver.call("DELETE", "/locks/" + resource, {"token": lease.json["token"]})
    answer, took_ms = waiter.answer(), (parts.now_us() - begin) / 1000
    if answer is not None and answer.status == 201:
        taker.call("DELETE", "/locks/" + resource, {"token": answer.json["token"]})
    if released is not None and released.status == 204 and answer is not None and answer.status == 201 and took_ms < 0.9 * ttl_ms:
        return None
    return f"released: {released}, the waiter after {took_ms:.0f} ms: {answer}"


def who_is_not_called(cluster, seconds):
    """Hands a lock from each redlockd to each; None, or those that it never worked between until the time was over."""
    deadline = parts.now_us() + round(seconds * parts.SECOND)
    todo = [(giver, taker) for giver in cluster.daemons for taker in cluster.daemons]
    last = {}
    while todo and parts.now_us() < deadline:
        pair = todo.pop(0)
        wrong = hand_over(*pair, f"handed/{pair[0].number}-{pair[1].number}")
        if wrong:
            last[pair] = wrong
            todo.append(pair)
    return None if not todo else "\n".join(f"{giver.name} to {taker.name}: {last.get((giver, taker), 'not tried')}" for giver, taker in todo)
