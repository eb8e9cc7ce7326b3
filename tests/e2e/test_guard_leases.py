# SPDX-License-Identifier: MIT
"""A quarantine as short as the leases that are out: what the other masters remember ends it (docs/explanation/proofs.md).

The scene is that of guard_fixtures.py: a master that forgets has one of two keys of a lease, and a rival wants the lock all the time.
"""

import json
import socket
import threading
import time

import pytest

from ctl import ctl
from guard_fixtures import LOCK, Scene, guarded, master_lines, number_of, state_of, take, wait_state
from harness import SLOW, read_response, wait_until
from waiting_fixtures import wait_for_queue

pytestmark = pytest.mark.slow

DEFAULT = ("--restart-guard", "on", "--bootstrap")
LEASE_MS = 8000
ALL_MS = 60000  # the longest lease
RESTARTS = 10


def restart(server):
    server.restart()


def flush(server):
    server.cli("FLUSHALL")


@pytest.mark.parametrize("cause", [restart, flush], ids=lambda cause: cause.__name__)
def test_nothing_is_out(lab, cause):
    """It votes again while the test waits, though leases may last for longer."""
    servers = lab.redises(3)
    service = guarded(lab, servers, *DEFAULT, ttl_ms=ALL_MS)
    service.wait_voting(3)
    cause(servers[1])
    wait_until(lambda: master_lines(service, "master-quarantined", servers[1]), what="quarantined, perhaps for a moment")
    wait_state(service, servers[1], "voting")
    lease = take(service, "after", ttl_ms=30000)
    wait_until(lambda: servers[1].cli("EXISTS", "after"), what="it takes part")
    service.release(lease)


@pytest.mark.parametrize("cause", [restart, flush], ids=lambda cause: cause.__name__)
def test_a_lease_is_out(lab, cause):
    """The rival does not get the lock before that, and long before the longest lease."""
    scene = Scene(lab, *DEFAULT, ttl_ms=LEASE_MS)
    scene.hold()
    cause(scene.victim)
    scene.caused()
    wait_state(scene.second, scene.victim, "quarantined")
    wait_state(scene.second, scene.victim, "voting", seconds=60)
    now = time.monotonic()
    assert now >= scene.until, f"votes again {scene.until - now:.3f} s before the lease is over"
    scene.check_not_given_twice()


def test_an_extension_counts(lab):
    servers = lab.redises(3)
    service = guarded(lab, servers, *DEFAULT, ttl_ms=ALL_MS)
    service.wait_voting(3)
    lease = take(service, ttl_ms=4000)
    until = time.monotonic() + 7.7
    assert service.curl("PUT", "/locks/the/lock", body={"token": lease["token"], "ttl_ms": 8000}).status == 200
    wait_until(lambda: all(number_of(server, "leases") > 0 for server in servers), what="noted")
    restart(servers[0])
    wait_state(service, servers[0], "quarantined")
    wait_state(service, servers[0], "voting")
    assert time.monotonic() >= until


def test_each_master_remembers(lab):
    """Also a lease with which redlockd tells no end, since it has told a later one before; and after the master has forgotten all that."""
    servers = lab.redises(3)
    service = guarded(lab, servers, *DEFAULT, ttl_ms=ALL_MS)

    def check(resource):
        for server in servers:
            wait_until(lambda server=server: server.cli("EXISTS", resource), what="the third vote")
            assert number_of(server, "leases") * 1000 >= int(server.cli("PEXPIRETIME", resource))
    for forgets in (False, True):
        if forgets:
            flush(servers[0])
            wait_until(lambda: master_lines(service, "master-quarantined", servers[0]), what="quarantined")
        service.wait_voting(3)
        for number, ttl_ms in enumerate((4000, 6500, 5000, 4900)):
            resource = f"remembered/{forgets}/{number}"
            lease = take(service, resource, ttl_ms=ttl_ms)
            check(resource)
            assert service.curl("PUT", f"/locks/{resource}", body={"token": lease["token"], "ttl_ms": ttl_ms + 3000}).status == 200
            check(resource)


def test_whole_waits_for_the_longest(lab):
    """Others may give leases of which no master remembers anything."""
    servers = lab.redises(3)
    service = guarded(lab, servers, ttl_ms=3000)
    service.wait_voting(3)
    since = time.monotonic()
    restart(servers[0])
    wait_state(service, servers[0], "quarantined")
    wait_state(service, servers[0], "voting")
    assert time.monotonic() - since >= 3 + 2


def test_two_of_three(lab):
    """One alone is too few to tell: the longest lease."""
    servers = lab.redises(3)
    service = guarded(lab, servers, *DEFAULT, ttl_ms=3000)
    service.wait_voting(3)
    since = time.monotonic()
    flush(servers[0])
    flush(servers[1])
    wait_state(service, servers[0], "quarantined")
    wait_state(service, servers[0], "voting")
    assert time.monotonic() - since >= 3 + 2
    assert state_of(service, servers[2])["state"] == "voting"


@pytest.mark.parametrize("wanted", [{"resource": LOCK}, {"resource": LOCK, "mode": "shared"}, {"resource": LOCK, "slots": 2}, {"resource": LOCK, "hold": True},
                                    {"resources": [LOCK, "the/other"]}], ids=["plain", "shared", "slots", "hold", "set"])
def test_a_waiter_tries_when_the_third_votes_again(lab, wanted):
    """The key of a lease is left on one master of two. Nobody releases it, and no connection breaks: with the third, a majority has the lock free."""
    servers = lab.redises(3)
    service = guarded(lab, servers, *DEFAULT, ttl_ms=ALL_MS)
    service.wait_voting(3)
    take(service, ttl_ms=round(4000 * SLOW))
    flush(servers[2])
    wait_state(service, servers[2], "quarantined")
    assert (servers[0].cli("PEXPIRE", LOCK, ALL_MS), servers[1].cli("DEL", LOCK)) == (1, 1)
    waiter = service.connect()
    body = json.dumps({**wanted, "ttl_ms": 1000, "wait_ms": ALL_MS * 5 // 6})  # a longer lease would delay the vote
    waiter.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    wait_for_queue(servers[:2], LOCK, 1)
    wait_state(service, servers[2], "quarantined")
    wait_state(service, servers[2], "voting", seconds=60)
    status = b"HTTP/1.1 201"
    assert waiter.recv(len(status), socket.MSG_WAITALL) == status
    waiter.close()


def is_in_time(since, ttl_ms):
    """Whether a lease that was asked for at that time is not over yet."""
    return (time.monotonic() - since) * 1000 < ttl_ms * 0.9


class User(threading.Thread):
    """Acquires, extends and releases locks of its own, one after the other. Each is extended once, when half of it is over."""

    def __init__(self, service, number, ttl_ms):
        super().__init__()
        self.service, self.number, self.ttl_ms = service, number, ttl_ms
        self.end, self.leases, self.refused = threading.Event(), 0, []

    def call(self, connection, since, method, path, **members):
        """`since`: when the lease was asked for last. An answer that comes when it may be over proves nothing."""
        body = json.dumps(members)
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = read_response(connection)
        if answer.status not in (200, 201, 204) and is_in_time(since, self.ttl_ms):
            self.refused.append((method, answer.status, answer.body))
        return answer

    def run(self):
        connection = self.service.connect()
        while not self.end.is_set():
            path, began = f"/locks/user/{self.number}/{self.leases}", time.monotonic()
            granted = self.call(connection, began, "POST", "/locks", resource=path[7:], ttl_ms=self.ttl_ms)
            if granted.status == 201:
                self.leases += 1
                self.end.wait(self.ttl_ms / 2000)
                self.call(connection, began, "PUT", path, token=granted.json["token"], ttl_ms=self.ttl_ms)
                self.call(connection, began, "DELETE", path, token=granted.json["token"])
        connection.close()


class Holder(threading.Thread):
    """Holds locks for the whole test: one thread extends each of them when a third of it is over."""

    def __init__(self, service, count, ttl_ms):
        super().__init__()
        self.ttl_ms, self.end, self.refused = ttl_ms, threading.Event(), []
        self.connection, self.leases, self.extended = service.client(), [None] * count, [0.0] * count
        for number in range(count):
            self.take(number)
            assert self.leases[number], number

    def take(self, number):
        began, answer = time.monotonic(), self.connection.call("POST", "/locks", {"resource": f"holder/{number}", "ttl_ms": self.ttl_ms})
        if answer.status == 201:
            self.extended[number], self.leases[number] = began, answer.json

    def extend(self, number):
        lease, since, now = self.leases[number], self.extended[number], time.monotonic()
        answer = self.connection.call("PUT", "/locks", {"resource": lease["resource"], "token": lease["token"], "ttl_ms": self.ttl_ms})
        if answer.status == 200 and answer.json["fence"] == lease["fence"]:
            self.extended[number] = now
        elif is_in_time(since, self.ttl_ms):
            self.refused.append(answer)
        else:  # it may have been over: the machine is busy
            self.take(number)

    def run(self):
        while not self.end.wait(self.ttl_ms / 3000):
            for number in range(len(self.leases)):
                self.extend(number)
        self.connection.close()


def test_masters_restarted_in_turn(lab):
    """As docs/how-to/operate.md says ("Restart masters"), over and over: nobody is refused anything, and no lease is lost."""
    ttl_ms = round(3000 * SLOW)
    servers = lab.redises(3)
    # The key of a repair ends earlier than the others, by this timeout.
    service = guarded(lab, servers, *DEFAULT, "--master-timeout-ms", str(round(500 * SLOW)), ttl_ms=ALL_MS)
    service.wait_voting(3)
    holder = Holder(service, 24, ttl_ms)
    users = [User(service, i, ttl_ms) for i in range(12)]
    for thread in [holder, *users]:
        thread.start()
    try:
        for number in range(RESTARTS):
            server = servers[number % 3]
            before = len(master_lines(service, "master-quarantined", server))
            restart(server)
            wait_until(lambda: len(master_lines(service, "master-quarantined", server)) > before, what="the restart is noticed")  # noqa: B023
            wait_until(lambda: ctl("health", "--restart-safe", server=service).returncode == 0, 300, "the next master may be restarted")
    finally:
        for thread in [holder, *users]:
            thread.end.set()
        for thread in [holder, *users]:
            thread.join()
    assert holder.refused == [] and [user.refused for user in users] == [[]] * len(users)
    assert all(user.leases > 3 for user in users)
