# SPDX-License-Identifier: MIT
"""Masters without memory grant nothing: Redis refuses a script's first write, so that write must be one that it refuses (maxmemory)."""

import time

import pytest

from harness import wait_until

MODES = {"exclusive": {}, "shared": {"mode": "shared"}, "slot": {"slots": 4}, "set": {"resources": ["a", "b"]},
         "shared-set": {"resources": ["a", "b"], "mode": "shared"}}
WAITS = {"at-once": {}, "waits": {"wait_ms": 1000}}


def body_of(mode, **more):
    members = {"ttl_ms": 60000, **MODES[mode], **more}
    return members if "resources" in members else {"resource": "a", **members}


def nothing(service):
    """A resource that nobody has used."""


def stale(service):
    """Entries of a redlockd that does not live any more, in the queue of each resource."""
    now_us = int(time.time() * 1e6)
    for master in service.masters:
        master.cli("HSET", "redlockd:master", "waited", now_us + 10**9)
        for name in ("a", "b"):
            master.cli("ZADD", f"redlockd:queue:{name}", 7, f"{'d' * 16}:{7:016d}", 8, f"{'d' * 16}:{8:016d}")


def left_behind(service):
    """The hash of the values is left where somebody deletes the key alone."""
    for master in service.masters:
        for name in ("a", "b"):
            master.cli("HSET", f"redlockd:holders:{name}", "e" * 40, f"{'e' * 40}+:0:7::me")


STATES = {"unused": nothing, "stale-entries": stale, "values-left": left_behind}


def set_maxmemory(service, limit):
    for master in service.masters:
        assert master.cli("CONFIG", "SET", "maxmemory", limit) == "OK"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_granted(lab, mode, wait, state):
    service = lab.service(3)
    STATES[state](service)
    set_maxmemory(service, "1")
    answers = [service.curl("POST", "/locks", body=body_of(mode, **WAITS[wait])) for _ in range(3)]
    assert [answer.status for answer in answers] == [503] * 3, answers
    for master in service.masters:
        assert master.cli("EXISTS", "a", "b") == 0
    set_maxmemory(service, "0")
    wait_until(lambda: service.curl("POST", "/locks", body=body_of(mode)).status == 201, what="granted with memory")


@pytest.mark.parametrize("mode", ["shared", "slot", "shared-set"])
def test_nothing_is_granted_beside_leases_that_have_ended(lab, mode):
    """Of two leases the one that ends first is still known to the masters when the other one goes on."""
    service = lab.service(3)
    first = service.curl("POST", "/locks", body=body_of(mode, ttl_ms=2000))
    second = service.curl("POST", "/locks", body=body_of(mode))
    assert (first.status, second.status) == (201, 201)
    wait_until(lambda: service.curl("GET", "/locks/a").json["holder_count"] == 1, what="the first one has ended")
    set_maxmemory(service, "1")
    answers = [service.curl("POST", "/locks", body=body_of(mode)) for _ in range(3)]
    assert [answer.status for answer in answers] == [503] * 3, answers
    for master in service.masters:
        assert master.cli("ZSCORE", "a", second.json["token"])
