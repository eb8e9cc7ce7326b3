# SPDX-License-Identifier: MIT
"""Inspections of one lock by many clients share what they ask the masters: one is under way, and the others share the next one."""

import contextlib

import pytest

from harness import read_response, wait_until
from key_fixtures import Key, Keyed
from proxy import Proxy
from test_modes import share

TTL_MS = 60000
TIMEOUT = ("--master-timeout-ms", "20000")
CLIENTS = 24


class Slow(Proxy):
    def asked(self, resource):
        return sum(command.count(resource) for command in self.commands("EVALSHA"))


class Slowly:
    """A redlockd whose masters answer when they are told to, and another one beside it."""

    def __init__(self, lab):
        servers = lab.redises(3)
        self.proxies = [lab.keep(Slow(lab.folder, server)) for server in servers]
        self.service = lab.redlockd([proxy.url for proxy in self.proxies], *TIMEOUT)
        self.other = lab.redlockd(servers)
        self.sockets = contextlib.ExitStack()

    def hold(self):
        wait_until(lambda: self.under_way() == 0, what="nothing is under way")
        for proxy in self.proxies:
            proxy.replies.clear()
        self.before = self.executed()

    def go(self):
        for proxy in self.proxies:
            proxy.replies.set()

    def get(self, resource, *headers):
        """Begins a GET and waits until it is under way."""
        before = self.under_way()
        plain = self.sockets.enter_context(self.service.connect())
        lines = [f"GET /locks/{resource} HTTP/1.1", "Host: localhost", *headers]
        plain.sendall("".join(line + "\r\n" for line in [*lines, ""]).encode())
        wait_until(lambda: self.under_way() == before + 1, what="it is under way")
        return plain

    def executed(self):
        return [proxy.redis.calls().get("evalsha", 0) for proxy in self.proxies]

    def wait_executed(self):
        """Until each master has carried out a command of a lease since hold()."""
        wait_until(lambda: all(now > before for now, before in zip(self.executed(), self.before)), what="the masters have answered")

    def under_way(self):
        return self.service.metrics()["redlockd_operations_in_flight"]

    def asked(self, resource):
        return [proxy.asked(resource) for proxy in self.proxies]


@pytest.fixture(name="slow")
def fixture_slow(lab):
    slow = Slowly(lab)
    with slow.sockets:
        yield slow


def held(answer):
    assert answer.status == 200, answer
    return answer.json["held"]


def test_many_clients_cost_the_masters_two_inspections(slow):
    slow.service.acquire("a", owner="somebody")
    asked = slow.asked("a")
    outcome = 'redlockd_lease_requests_total{op="inspect",outcome="ok"}'
    counted = slow.service.metrics()[outcome]
    slow.hold()
    clients = [slow.get("a") for _ in range(CLIENTS)]
    slow.go()
    answers = [read_response(client) for client in clients]
    assert [(answer.status, answer.json["owner"]) for answer in answers] == [(200, "somebody")] * CLIENTS
    assert len({answer.headers["x-request-id"] for answer in answers}) == CLIENTS
    assert max(now - before for now, before in zip(slow.asked("a"), asked)) == 2
    assert slow.service.metrics()[outcome] - counted == CLIENTS, "each request counts, and no other inspection"
    wait_until(lambda: slow.under_way() == 0, what="all have ended")


def test_clients_share_the_values_of_many_holders(slow):
    leases = [share(slow.service, "a", owner=str(number), ttl_ms=TTL_MS) for number in range(7)]
    reads = [len(proxy.commands("HMGET")) for proxy in slow.proxies]
    slow.hold()
    clients = [slow.get("a") for _ in range(CLIENTS)]
    slow.go()
    for answer in map(read_response, clients):
        assert [(one["owner"], one["fence"]) for one in answer.json["holders"]] == [(lease["owner"], lease["fence"]) for lease in leases]
    assert max(len(proxy.commands("HMGET")) - before for proxy, before in zip(slow.proxies, reads)) == 2


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_what_was_answered_before_a_request_is_in_its_answer(slow, mode):
    """An inspection that is under way may have read the lock before."""
    lease = slow.other.acquire("a", mode=mode)
    slow.hold()
    first = slow.get("a")
    slow.wait_executed()
    assert slow.other.release(lease).status == 204
    second = slow.get("a")
    slow.go()
    assert held(read_response(first)), "it was read before the release"
    assert not held(read_response(second)), "it is sent after the answer to the release"
    slow.hold()
    first = slow.get("a")
    slow.wait_executed()
    slow.other.acquire("a", mode=mode, owner="new")
    second = slow.get("a")
    slow.go()
    assert not held(read_response(first)) and "new" in read_response(second).body.decode()


def test_redlockd_ends_while_some_wait(slow):
    slow.service.acquire("a")
    slow.hold()
    for _ in range(4):
        slow.get("a")
    slow.service.process.terminate()
    wait_until(lambda: slow.service.log("draining"), what="the drain")
    slow.go()
    slow.service.stop()


def test_each_has_its_own_tag(slow):
    slow.service.acquire("a")
    tag = slow.service.curl("GET", "/locks/a").headers["etag"]
    slow.hold()
    first = slow.get("a")
    knows, other, none = slow.get("a", f"If-None-Match: {tag}"), slow.get("a", 'If-None-Match: "1"'), slow.get("a")
    slow.go()
    answers = [read_response(client) for client in (first, knows, other, none)]
    assert [answer.status for answer in answers] == [200, 304, 200, 200]
    assert {answer.headers["etag"] for answer in answers} == {tag}


def test_rights_are_checked_for_each(lab):
    keyed = Keyed(lab, [Key("billing", ["billing/"], ["inspect"]), Key("orders", ["orders/"], ["inspect"])]).wait_ready()
    with contextlib.ExitStack() as sockets:
        clients = []
        for name in ["operator", "billing", "orders"] * 4:
            plain = sockets.enter_context(keyed.redlockd.connect())
            plain.sendall(f"GET /locks/billing/1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {keyed.keys[name].secret}\r\n\r\n".encode())
            clients.append(plain)
        statuses = [read_response(plain).status for plain in clients]
    assert statuses == [200, 200, 403] * 4
