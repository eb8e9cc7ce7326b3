# SPDX-License-Identifier: MIT
"""An inspection of a lock with several holders takes two rounds: the scripts list tokens, and the values are read after them. Masters that answer one round
and not the other, and leases that are gone in between."""

import concurrent.futures
import contextlib
import re

import pytest

from harness import wait_until
from proxy import Proxy
from test_modes import change, share, state

TTL_MS = 60000
HOLDERS = 7


class Deaf(Proxy):
    """While `deaf`, the first read of values and everything behind it do not arrive; `before` is called once instead, where it is set."""

    deaf, heard, before = False, 0, None

    def arrives(self, data):
        reads = b"HMGET" in data and b"redlockd:holders:" in data
        if reads and self.before:
            before, self.before = self.before, None
            before()
        self.heard += reads and self.deaf
        return not (reads and self.deaf)

    def hear(self):
        self.deaf = False
        self.cut()
        self.heal()


@pytest.fixture(name="deaf")
def fixture_deaf(lab):
    proxies = [lab.keep(Deaf(lab.folder, server)) for server in lab.redises(3)]
    return proxies, lab.redlockd([proxy.url for proxy in proxies], "--master-timeout-ms", "2000")


def test_one_master_that_does_not_tell_its_values_changes_nothing(deaf):
    proxies, service = deaf
    leases = [share(service, "a", owner=str(i), ttl_ms=TTL_MS) for i in range(5)]
    proxies[1].deaf = True
    seen = state(service, "a")
    assert [(one["owner"], one["fence"]) for one in seen["holders"]] == [(lease["owner"], lease["fence"]) for lease in leases]
    assert proxies[1].heard == 1 and seen["holder_count"] == 5
    proxies[1].hear()
    service.wait_voting(3)
    assert service.curl("DELETE", "/locks/a?force=true").status == 204
    assert not state(service, "a")["held"]


def test_two_masters_that_do_not_tell_their_values_are_no_quorum(deaf):
    proxies, service = deaf
    share(service, "a", ttl_ms=TTL_MS)
    for call in (("GET", "/locks/a"), ("DELETE", "/locks/a?force=true")):
        service.wait_voting(3)
        before = [proxy.heard for proxy in proxies]
        for proxy in proxies[:2]:
            proxy.deaf = True
        answer = service.curl(*call)
        assert (answer.status, answer.code) == (503, "no-quorum") and int(answer.headers["retry-after"]) >= 1
        assert [proxy.heard - number for proxy, number in zip(proxies, before)] == [1, 1, 0]
        for proxy in proxies[:2]:
            proxy.hear()
    service.wait_voting(3)
    assert state(service, "a")["holder_count"] == 1


def test_a_lease_that_ends_in_between_is_left_out(deaf):
    proxies, service = deaf
    leases = [share(service, "a", owner=str(i), ttl_ms=TTL_MS) for i in range(3)]
    removed = []

    def release():
        for proxy in proxies:
            for key in ("a", "redlockd:holders:a"):
                proxy.redis.cli("ZREM" if key == "a" else "HDEL", key, leases[1]["token"])
        removed.append(True)

    proxies[0].before = proxies[1].before = proxies[2].before = lambda: removed or release()
    seen = state(service, "a")
    assert removed and [one["owner"] for one in seen["holders"]] in (["0", "2"], ["0", "1", "2"])
    wait_until(lambda: [one["owner"] for one in state(service, "a")["holders"]] == ["0", "2"], what="the other two")
    assert state(service, "a")["holder_count"] == 2


def test_a_lease_lasts_as_long_as_a_majority_has_it(deaf):
    proxies, service = deaf
    lease = [share(service, "a", ttl_ms=TTL_MS) for _ in range(5)][2]

    def left_ms():
        return next(one["remaining_ms"] for one in state(service, "a")["holders"] if one["fence"] == lease["fence"])

    def lengthen(proxy):
        end_ms = float(proxy.redis.cli("ZSCORE", "a", lease["token"])) + 10 * TTL_MS
        proxy.redis.cli("ZADD", "a", f"{end_ms:.0f}", lease["token"])

    assert 0 < left_ms() <= TTL_MS
    lengthen(proxies[0])
    assert 0 < left_ms() <= TTL_MS
    lengthen(proxies[1])
    wait_until(lambda: left_ms() > TTL_MS, what="the end that two masters have")  # an answer of two may have the third's


def test_a_forced_release_whose_reads_are_slow_releases_all(deaf):
    proxies, service = deaf
    for _ in range(5):
        share(service, "a", ttl_ms=TTL_MS)
    for proxy in proxies:
        proxy.reply_delay = 0.05
    assert service.curl("DELETE", "/locks/a?force=true").status == 204
    assert not state(service, "a")["held"]


def test_a_client_that_leaves_in_between_costs_nothing(deaf):
    proxies, service = deaf
    lease = share(service, "a", ttl_ms=TTL_MS)
    for proxy in proxies:
        proxy.deaf = True
    with service.connect() as plain:
        plain.sendall(b"GET /locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: all(proxy.heard for proxy in proxies), what="the values are asked for")
    for proxy in proxies:
        proxy.hear()
    service.wait_voting(3)
    change(service, "DELETE", lease, 204)
    assert service.process.poll() is None


def many(service, locks, holders):
    """The names of so many locks, each with so many holders: inspections of one lock would read together."""
    names = [f"many/{number}" for number in range(locks)]
    for name in names:
        for _ in range(holders):
            share(service, name, owner="somebody", ttl_ms=TTL_MS)
    return names


@pytest.mark.parametrize("ends", [False, True], ids=["clients leave", "redlockd ends"])
def test_inspections_that_wait_for_their_turn_end_with_all(deaf, ends):
    proxies, service = deaf
    names = many(service, 8, 5)
    for proxy in proxies:
        proxy.deaf = True
    with contextlib.ExitStack() as clients:
        for name in names:
            clients.enter_context(service.connect()).sendall(f"GET /locks/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: all(proxy.heard for proxy in proxies), what="the values are asked for")
        if ends:
            service.stop()
    if not ends:
        for proxy in proxies:
            proxy.hear()
        service.wait_voting(3)
        assert {state(service, name)["holder_count"] for name in names} == {5}


@pytest.mark.slow
def test_a_forced_release_of_many_long_sets(lab, resource):
    """Together they are larger than a reply may be."""
    service = lab.service(3, "--max-shared", "10000", "--master-timeout-ms", "10000", "--max-ttl-ms", str(10 * TTL_MS))
    names = [f"{resource}/{i:02}/".ljust(256, "x") for i in range(16)]
    client = service.client()
    for _ in range(1600):
        assert client.call("POST", "/locks", {"resources": names, "mode": "shared", "ttl_ms": 10 * TTL_MS}).status == 201
    client.close()
    assert state(service, names[0])["holder_count"] == 1600
    assert service.curl("DELETE", f"/locks/{names[0]}?force=true").status == 204
    for name in names:  # while the slowest master still releases, an inspection may have no quorum: no answer is no state
        found = wait_until(lambda: [answer for answer in [state(service, name)] if "held" in answer], 30, "an inspection")[0]
        assert not found["held"], found


class Counting(Proxy):
    """Counts the reads of values that no majority has answered. Some masters may be slow at times: what others have answered is over."""

    def __init__(self, folder, redis):
        super().__init__(folder, redis)
        self.reads_before, self.stream, self.most, self.all = 0, b"", 0, [self]

    @property
    def answered(self):
        return len(re.findall(rb"\*%d\r\n\$(?!13\r|40\r)" % HOLDERS, self.stream))  # not of ends and of tokens, which have as many elements

    @property
    def sent(self):
        return len(self.commands("HMGET")) - self.reads_before

    def changed(self, data):
        self.most = max(self.most, max(one.sent for one in self.all) - sorted(one.answered for one in self.all)[len(self.all) // 2])
        self.stream += data
        return data

    def begin(self):
        self.reads_before, self.stream, self.most = len(self.commands("HMGET")), b"", 0
        self.reply_delay = 0.01


def test_few_inspections_read_values_at_once(lab):
    """However many clients ask: otherwise what they read would hold up everybody's acquisitions."""
    proxies = [lab.keep(Counting(lab.folder, server)) for server in lab.redises(3)]
    service = lab.redlockd([proxy.url for proxy in proxies], "--master-timeout-ms", "10000")
    names = many(service, 16, HOLDERS)
    for proxy in proxies:
        proxy.all = proxies
        proxy.begin()
    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        seen = sum(clients.map(lambda name: [state(service, name) for _ in range(4)], names), [])
    assert [one["holder_count"] for one in seen] == [HOLDERS] * 64
    assert all([holder["owner"] for holder in one["holders"]] == ["somebody"] * HOLDERS for one in seen)
    wait_until(lambda: [proxy.answered for proxy in proxies] == [64] * 3, what="the answers that nobody waited for")
    # two at once; 11 where all read at once
    assert 1 <= max(proxy.most for proxy in proxies) <= 4


def test_inspections_that_wait_for_others_fail_with_them(deaf):
    """When too few masters answer, the first ones say so after the timeout, and those that wait for their turn at once."""
    proxies, service = deaf
    names = many(service, 12, 5)
    for proxy in proxies[:2]:
        proxy.deaf = True
    with concurrent.futures.ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda name: service.curl("GET", f"/locks/{name}"), names))
    assert {answer.status for answer in answers} == {503}
    for proxy in proxies[:2]:
        proxy.hear()
    service.wait_voting(3)
    assert {state(service, name)["holder_count"] for name in names} == {5}
