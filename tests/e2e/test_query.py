# SPDX-License-Identifier: MIT
"""Queries of any shape and length: each is answered, and the service goes on for all others. They come before Host,
Origin and keys are looked at."""

import os
import threading

import pytest

import harness
from certificates import Authority
from harness import connect_to, read_response, wait_until
from key_fixtures import Keyed

AMPERSANDS = (1, 376, 377, 378, 400, 1000, 2000)
HEADERS = (b"Host: localhost\r\n", b"Host: evil.test\r\n", b"Host: localhost\r\nOrigin: http://evil.test\r\n")
LISTENERS = ("tcp", "tls", "unix")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    """TCP, TLS and a Unix socket, and no request without a key is allowed."""
    authority = Authority(str(tmp_path_factory.mktemp("query")))
    server = authority.issue("server", "IP:127.0.0.1", "DNS:localhost", usage="serverAuth")
    with harness.Lab() as lab:
        listen = ("http://127.0.0.1:0", "https://127.0.0.1:0", f"unix:{os.path.join(lab.folder, 'socket')}")
        keyed = Keyed(lab, [], "--tls-cert", server.certificate, "--tls-key", server.key, listen=listen, trust=authority.certificate)
        yield keyed.wait_ready()


def ask(daemon, listener, content):
    plain = connect_to(daemon.addresses[LISTENERS.index(listener)], 10, daemon.tls if listener == "tls" else None)
    try:
        plain.sendall(content)
        return read_response(plain)
    finally:
        plain.close()


def acquire(keyed, results, wait_ms):
    results.append(keyed.call("operator", "POST", "/locks", body={"resource": "a", "wait_ms": wait_ms}))


def release(keyed, lease):
    assert keyed.call("operator", "DELETE", "/locks/a", headers={"Lock-Token": lease["token"]}).status == 204


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_query_of_many_parts_ends_nothing(keyed, listener):
    held, waited = [], []
    acquire(keyed, held, 0)
    waiter = threading.Thread(target=acquire, args=(keyed, waited, 15000))
    waiter.start()
    wait_until(lambda: keyed.call("operator", "GET", "/locks/a").json["waiters"] == 1, 20, "somebody waits")
    for path in ("/healthz", "/locks", "/nothing"):
        for count in AMPERSANDS:
            for headers in HEADERS:
                answer = ask(keyed.redlockd, listener, f"GET {path}?{'&' * count} HTTP/1.1\r\n".encode() + headers + b"\r\n")
                assert answer is not None, (path, count, headers)
                assert answer.headers["content-type"] == "application/problem+json" and answer.status in (400, 401, 403, 404, 414), answer
    assert waiter.is_alive()
    release(keyed, held[0].json)
    waiter.join(30)
    assert waited[0].status == 201
    release(keyed, waited[0].json)
    assert keyed.call(None, "GET", "/healthz").status == 200
    assert keyed.redlockd.process.poll() is None
