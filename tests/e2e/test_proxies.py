# SPDX-License-Identifier: MIT
"""redlockd behind HAProxy and nginx, as docs/how-to/operate.md sets them up: leases outlive the proxy's connections, clients that leave are noticed, streams pass at once."""

import json
import signal
import socket
import struct

import pytest

from harness import SLOW, curl, quote, read_response, starved_seconds, wait_until
from proxies import PROXIES
from waiting_fixtures import Waiter, wait_for_queue

WATCH_MS = 1200


@pytest.fixture(params=sorted(PROXIES))
def proxied(lab, request):
    """A proxy before a redlockd; its `other` is a second redlockd over the same masters, reached without it."""
    service = lab.service(3)
    made = PROXIES[request.param](lab, service)
    made.service, made.other = service, lab.redlockd(service.masters)
    return made


def leave(plain, how):
    if how == "reset":
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()


def acquire_over(proxied, resource, earlier=False):
    """On a connection of its own, which is left open; `earlier`: after another request."""
    client = proxied.client()
    if earlier:
        assert client.call("GET", "/healthz").status == 200
    answer = client.call("POST", "/locks", {"resource": resource, "ttl_ms": 60000})
    assert answer.status == 201, answer
    return client, answer.json


def check_stays(proxied, leases):
    watchers = [Waiter(proxied.other, lease["resource"], wait_ms=WATCH_MS) for lease in leases]
    assert [watcher.answer().status for watcher in watchers] == [409] * len(watchers)
    for watcher, lease in zip(watchers, leases):
        watcher.leave()
        answer = proxied.other.curl("PUT", "/locks/" + quote(lease["resource"]), body={"token": lease["token"]})
        assert answer.status == 200 and answer.json["fence"] == lease["fence"], answer


# ---- leases ----


def check_clients_may_leave(proxied, resource):
    leases = []
    for i in range(40):
        client, lease = acquire_over(proxied, f"{resource}/{i}", earlier=i % 4 >= 2)
        if i >= 30:
            assert client.call("GET", f"/locks/{quote(lease['resource'])}").json["held"]
        leave(client.connection.sock, "reset" if i % 2 else "close")
        leases.append(lease)
    check_stays(proxied, leases)


def test_clients_leave(proxied, resource):
    check_clients_may_leave(proxied, resource)


@pytest.mark.parametrize("mode", ["never", "safe", "aggressive", "always"])
def test_clients_leave_whatever_haproxy_does_with_its_connections(lab, resource, mode):
    """With `never` it resets a connection to redlockd as soon as its client has gone."""
    service = lab.service(3)
    proxied = PROXIES["haproxy"](lab, service, {"backend redlockd\n": f"backend redlockd\n    http-reuse {mode}\n"})
    proxied.other = lab.redlockd(service.masters)
    check_clients_may_leave(proxied, resource)


def test_redlockd_ends_behind_it(proxied, resource):
    held = [acquire_over(proxied, f"{resource}/{i}", earlier=i % 2) for i in range(10)]
    proxied.service.stop(signal.SIGTERM)
    check_stays(proxied, [lease for _, lease in held])
    for client, _ in held:
        client.close()


# ---- waiters ----


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_waiter_leaves(proxied, resource, how):
    holder = proxied.other.acquire(resource)
    for earlier in (False, True):  # on a new connection, and on one that has carried a request
        waiter = proxied.connect()
        if earlier:
            waiter.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_response(waiter).status == 200
        body = json.dumps({"resource": resource, "wait_ms": 60000})
        waiter.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_for_queue(proxied.masters, resource, 1)
        leave(waiter, how)
        wait_for_queue(proxied.masters, resource, 0, 2)
    assert proxied.other.release(holder).status == 204


def test_a_waiter_is_granted(proxied, resource):
    holder = proxied.other.acquire(resource)
    waiter = Waiter(proxied, resource)
    wait_for_queue(proxied.masters, resource, 1)
    assert proxied.other.release(holder).status == 204
    waiter.granted()
    waiter.release()
    waiter.leave()


# ---- holds ----


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_hold(proxied, resource, how):
    """Lines pass as they are written, and the lock is free soon after its client has left: long before the next line is due."""
    ttl_ms = round(9000 * SLOW)
    plain = proxied.connect(60)
    body = json.dumps({"resource": resource, "ttl_ms": ttl_ms, "hold": True})
    plain.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    text, starved = b"", starved_seconds()
    while b'"renewed"' not in text:
        more = plain.recv(65536)
        assert more, text
        text += more
        if b'"acquired"' in text and b'"renewed"' not in text:
            left_ms = min(server.cli("PTTL", resource) for server in proxied.masters)
            assert left_ms > ttl_ms * 3 // 4 - 1000 * (starved_seconds() - starved), f"the first line came {ttl_ms - left_ms} ms after the grant, with the next one"
    leave(plain, how)
    wait_until(lambda: not proxied.other.curl("GET", "/locks/" + quote(resource)).json["held"], 2, "the lock is free")


# ---- Host ----


def test_nginx_needs_the_header_host(lab):
    service = lab.service(1)
    bare = PROXIES["nginx"](lab, service, {"        proxy_set_header Host $host;\n": ""})
    answer = bare.curl("POST", "/locks", body={"resource": "x"})
    assert (answer.status, answer.code) == (403, "forbidden") and "Host" in answer.json["detail"]
    assert PROXIES["nginx"](lab, service).curl("POST", "/locks", body={"resource": "x"}).status == 201


def test_the_name_that_callers_use(lab):
    """It passes through both, and redlockd on a loopback address must know it."""
    service = lab.service(1, "--allow-host", "locks.example.com")
    for kind in PROXIES.values():
        address = kind(lab, service).address
        assert curl(address, "GET", "/version", headers={"Host": "locks.example.com"}).status == 200
        assert curl(address, "GET", "/version", headers={"Host": "evil.example.com"}).status == 403


def test_haproxy_asks_whether_it_is_ready(lab):
    """Its check is HTTP/1.0 without a Host."""
    service = lab.service(1, "--log-level", "debug")
    before = len(service.log("request"))
    PROXIES["haproxy"](lab, service)
    checks = wait_until(lambda: [line for line in service.log("request")[before:] if line.get("route") == "readyz"][1:], 20, "two checks")
    assert all(line["status"] == "200" for line in checks), checks
