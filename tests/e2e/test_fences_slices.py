# SPDX-License-Identifier: MIT
"""Fence recovery reads the buckets of other masters in slices, so that no command holds up the callers of a master that votes."""

from guard_fixtures import HASH, quarantine_seconds, guarded, hold, number_of
from harness import SLOW, wait_until

BUCKETS, SLICE = 16384, 256
TOP = 2**53 - 1000


def fill(server):
    """All buckets have a number; the largest is in the last one."""
    for first in range(0, BUCKETS, 1024):
        server.cli("HSET", HASH, *(word for bucket in range(first, first + 1024) for word in (str(bucket), str(TOP - BUCKETS + bucket))))


def slices_of(server):
    """[(first, last)] of the commands that read buckets, in their order."""
    entries = server.cli("SLOWLOG", "GET", "100000")
    commands = [entry[3] for entry in reversed(entries)]
    scripts = [words for words in commands if words[0] == "EVAL" and words[1].startswith("-- Fences")]
    assert scripts, "nobody asked for fences"
    assert all(len(words) == 7 for words in scripts), f"all buckets in one command: {[words[2:] for words in scripts]}"
    return [(int(words[5]), int(words[6])) for words in scripts]


def test_fence_recovery_reads_in_slices(lab):
    servers = lab.redises(3)
    service = guarded(lab, servers)
    hold(service)
    for server in servers[1:]:
        fill(server)
        server.cli("CONFIG", "SET", "slowlog-max-len", "100000")
        server.cli("CONFIG", "SET", "slowlog-log-slower-than", "0")
    servers[0].restart()
    wait_until(lambda: number_of(servers[0], "floor") == TOP - 1, quarantine_seconds() + 5 * SLOW, "the floor")
    for server in servers[1:]:
        slices = slices_of(server)
        assert {last - first + 1 for first, last in slices} == {SLICE}, slices
        assert slices[:BUCKETS // SLICE] == [(first, first + SLICE - 1) for first in range(0, BUCKETS, SLICE)], slices
        assert "cmdstat_hgetall" not in server.cli("INFO", "commandstats"), "the whole hash is read"
    service.wait_voting(3)
