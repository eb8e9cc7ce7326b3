# SPDX-License-Identifier: MIT
"""More connections than one daemon of libmicrohttpd has (api/http/daemon_pool.c): the connections after them are served
as all others. Those that have sent nothing are not added to libmicrohttpd yet (api/http/deferred.c)."""

import json
import re
import socket
import struct

import pytest

from harness import SLOW, connect_to, read_response, wait_until

MANY = 1100  # the third daemon


def ask(plain, method, path, body=None):
    text = json.dumps(body).encode() if body is not None else b""
    plain.sendall(b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (method.encode(), path.encode(), len(text), text))


def read_line(stream):
    line = stream.readline()
    assert line, "the stream has ended"
    return line


@pytest.fixture
def crowded(many_files, lab):
    service = lab.service(3)
    connections = [connect_to(service.address) for _ in range(MANY)]
    for plain in connections:
        ask(plain, "GET", "/healthz")
    for plain in connections:
        assert read_response(plain).status == 200
    yield service, connections
    for plain in connections:
        plain.close()


def test_acquire_wait_and_release_on_each_of_them(crowded):
    """One holds; the first, one in the middle and the last of all connections wait, and are granted in turn."""
    service, connections = crowded
    lease = service.acquire("many")
    waiting = [connections[i] for i in (0, 600, MANY - 1)]
    for number, plain in enumerate(waiting, 1):
        ask(plain, "POST", "/locks", {"resource": "many", "ttl_ms": 30000, "wait_ms": 20000})
        while service.curl("GET", "/locks/many").json["waiters"] < number:
            pass
    for plain in waiting:
        assert service.release(lease).status == 204
        plain.settimeout(10 * SLOW)
        granted = read_response(plain)
        assert granted.status == 201, granted
        lease = granted.json
    assert service.release(lease).status == 204


def test_a_lock_that_is_held_by_the_last_connection(crowded):
    service, connections = crowded
    plain = connections[-1]
    plain.settimeout(10 * SLOW)
    ask(plain, "POST", "/locks", {"resource": "held", "ttl_ms": 6000, "hold": True})
    with plain.makefile("rb") as stream:
        while b'"acquired"' not in read_line(stream):
            pass
        while b'"renewed"' not in read_line(stream):
            pass
    assert service.curl("GET", "/locks/held").json["held"]


def test_who_leaves_makes_room(crowded):
    """The slots of the first daemon are used again; and all that were in use end with redlockd (the fixture checks how
    it ends)."""
    service, connections = crowded
    for plain in connections[:MANY // 2]:
        plain.close()
    del connections[:MANY // 2]
    fresh = [connect_to(service.address) for _ in range(100)]
    for number, plain in enumerate(fresh):
        ask(plain, "POST", "/locks", {"resource": f"room/{number}"})
    assert [read_response(plain).status for plain in fresh] == [201] * len(fresh)
    connections += fresh


def memory_bytes(service):
    with open(f"/proc/{service.process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"^RssAnon:\s+(\d+) kB", status.read(), re.M)[1]) * 1024


def count_connections(service):
    return service.metrics()["redlockd_http_connections"]


@pytest.fixture
def deferred(many_files, lab):
    """Connections that have sent nothing."""
    service = lab.service(3)
    service.curl("GET", "/healthz")
    before = memory_bytes(service)
    connections = [connect_to(service.address) for _ in range(MANY)]
    wait_until(lambda: count_connections(service) == MANY + 1, what="all are there")
    yield service, connections, before
    for plain in connections:
        plain.close()


def test_a_deferred_connection_costs_little(deferred):
    """A kilobyte, where libmicrohttpd takes six, and 26 from the first request on. It is served when it sends a request. The others end with redlockd."""
    service, connections, before = deferred
    assert memory_bytes(service) - before < MANY * 1024 + 2**20
    for plain in (connections[0], connections[600], connections[-1]):
        ask(plain, "GET", "/healthz")
        assert read_response(plain).status == 200
    assert count_connections(service) == MANY + 1


def test_clients_that_leave_without_a_request(deferred):
    """Some close, others reset the connection."""
    service, connections, _ = deferred
    for number, plain in enumerate(connections[:MANY // 2]):
        if number % 2:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plain.close()
    wait_until(lambda: count_connections(service) == MANY - MANY // 2 + 1, what="they are gone")
