# SPDX-License-Identifier: MIT
"""A master whose reply has no end, in every shape that a reply can have: its connection ends, which /masters and the metrics say, and redlockd stays as
small as it was and goes on. Two of three masters do it at once, through a proxy that replaces a true reply. The largest reply that redlockd asks for passes."""

import contextlib
import json
import os
import pathlib
import re
import socket
import ssl

import pytest

from harness import read_response, wait_until
from master_checks import master_of
from proxy import Proxy
from rediss_fixtures import tls  # noqa: F401
from test_memory import PROGRAM

RESIDENT_MAX = 50 << 20
FLOOD_MAX = 300 << 20  # of one connection: a defect is not to use up the memory of the machine
SANITIZED = b"__asan_" in PROGRAM or b"__tsan_" in PROGRAM
TTL_MS = 60000
TICKS = os.sysconf("SC_CLK_TCK")

MESSAGE = b"*3\r\n$7\r\nmessage\r\n$13\r\nredlockd:wake\r\n"
BULK = b"$60000\r\n" + b"x" * 60000 + b"\r\n"
# What comes first, and what comes behind it without an end.
SHAPES = {
    "bulk": (b"$4000000000\r\n", b"x" * 65536),
    "status": (b"+", b"x" * 65536),
    "error": (b"-ERR ", b"x" * 65536),
    "number": (b":", b"1" * 65536),
    "length": (b"$", b"1" * 65536),
    "carriage returns": (b"+", b"\r" * 65536),
    "byte by byte": (b"+", b"x"),
    "bulks in a list": (b"*16000\r\n", BULK),
    "numbers in lists": (b"*90000\r\n", b"*90000\r\n" + b":1\r\n" * 90000),
    "empty lists": (b"*90000\r\n", b"*90000\r\n" + b"*0\r\n" * 90000),
    "lists in lists": (b"", b"*1\r\n" * 16384),
}


class Flood(Proxy):
    """While `shape` is set, the next reply that has `within` in it is followed (`behind`) or replaced by one that does not end."""

    def __init__(self, folder, redis, certificate=None):
        self.shape, self.within, self.behind, self.floods = None, b"", False, 0
        self.certificate = certificate
        super().__init__(folder, redis)

    def _accept(self):
        if self.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate.certificate, self.certificate.key)
            self.listener.close()
            self.listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
            self.port = self.listener.getsockname()[1]
        super()._accept()

    @property
    def url(self):
        if not self.certificate:
            return super().url
        wait_until(lambda: hasattr(self, "port"), what="it listens")
        return f"rediss://127.0.0.1:{self.port}"

    def _replies(self, front, back):
        with contextlib.suppress(OSError):
            while data := back.recv(65536):
                if not self.shape or self.within not in data:
                    front.sendall(data)
                    continue
                head, piece = self.shape
                front.sendall(data + head if self.behind else head)
                self.floods += 1
                for _ in range(FLOOD_MAX // len(piece)):
                    front.sendall(piece)
                back.recv(1)  # nothing more, until it ends
        self._end(front, back)


def peak_resident(service):
    status = pathlib.Path(f"/proc/{service.process.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M)[1]) << 10


def check_small(service):
    assert SANITIZED or peak_resident(service) < RESIDENT_MAX, f"{peak_resident(service) >> 20} MiB resident"
    return True


def counted(service, flood):
    return service.metrics()[f'redlockd_master_errors_total{{master="{flood.url}",reason="protocol"}}']


def see_it_end(service, floods, times=3):
    """Until each of these masters has begun so many replies without an end, and for each connection an error of it is counted."""
    before = [flood.floods for flood in floods]

    def done():
        return check_small(service) and all(flood.floods >= number + times for flood, number in zip(floods, before))
    wait_until(done, 30, "the connection ends, and another one")
    for flood in floods:
        wait_until(lambda one=flood: counted(service, one) >= times, what="the errors are counted")


@pytest.fixture(name="floods")
def fixture_floods(lab):
    servers = lab.redises(3)
    floods = [lab.keep(Flood(lab.folder, server)) for server in servers[:2]]
    return floods, [*(flood.url for flood in floods), servers[2].url]


def flood_all(floods, shape, within=b"", behind=False):
    for flood in floods:
        flood.shape, flood.within, flood.behind = shape, within, behind


@pytest.mark.parametrize("shape", SHAPES)
def test_a_master_that_votes(lab, floods, shape):
    floods, urls = floods
    service = lab.redlockd(urls, "--restart-guard", "off")
    lease = service.acquire("kept", TTL_MS)
    flood_all(floods, SHAPES[shape])
    see_it_end(service, floods)
    for flood in floods:
        wait_until(lambda one=flood: master_of(service, one.url)["reason"].startswith("protocol: a reply of more than "), what="the reason")
    assert service.curl("GET", "/locks/kept").code == "no-quorum"
    flood_all(floods, None)
    for flood in floods:
        wait_until(lambda one=flood: master_of(service, one.url)["state"] == "voting", 30, "its vote")
    assert service.curl("PUT", "/locks/kept", body={"token": lease["token"], "ttl_ms": TTL_MS}).json["fence"] == lease["fence"]
    check_small(service)
    service.stop()


@pytest.mark.parametrize("shape", ["bulk", "status", "bulks in a list"])
def test_the_handshake(lab, floods, shape):
    floods, urls = floods
    flood_all(floods, SHAPES[shape])
    service = lab.redlockd(urls, "--restart-guard", "off", wait=False)
    see_it_end(service, floods)
    flood_all(floods, None)
    service.wait_voting(3)
    service.stop()


@pytest.mark.parametrize("shape", ["bulk", "status", "bulks in a list"])
def test_the_handshake_over_tls(lab, tls, shape):  # noqa: F811
    servers = lab.redises(3)
    floods = [lab.keep(Flood(lab.folder, server, tls.certificate)) for server in servers[:2]]
    flood_all(floods, SHAPES[shape])
    service = lab.redlockd([*(flood.url for flood in floods), servers[2].url], *tls.options, "--restart-guard", "off", wait=False)
    see_it_end(service, floods)
    flood_all(floods, None)
    service.wait_voting(3)
    service.stop()


@pytest.mark.parametrize("shape", [(MESSAGE + b"$4000000000\r\n", b"x" * 65536), (MESSAGE + b"*16000\r\n", BULK), (b"*3\r\n+", b"x" * 65536)],
                         ids=["bulk", "list", "line"])
def test_the_channel_of_notifications(lab, floods, shape):
    """The first connection has nothing to do with it: the masters keep their votes."""
    floods, urls = floods
    service = lab.redlockd(urls, "--restart-guard", "off")
    flood_all(floods, shape, b"subscribe", behind=True)
    with service.connect() as waiter:
        service.acquire("kept", TTL_MS)
        body = json.dumps({"resource": "kept", "wait_ms": TTL_MS}).encode()
        waiter.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        see_it_end(service, floods)
        assert all(master_of(service, flood.url)["state"] == "voting" for flood in floods)
    service.stop()


def test_the_largest_reply_passes(lab):
    """A hundred leases, each with all that a lease can have, share sixteen names: eight names are inspected by one command."""
    service = lab.service(3, "--key-prefix", "p" * 100)
    names = sorted(f"{i:02}" + "n" * 254 for i in range(16))
    metadata = {"m": "x" * (1024 - len('{"m":""}'))}
    client = service.client()
    for i in range(100):
        lease = client.call("POST", "/locks", {"resources": names, "mode": "shared", "owner": "o" * 128, "metadata": metadata, "ttl_ms": TTL_MS})
        assert lease.status == 201, (i, lease)
    plains = [service.connect() for _ in names]
    for plain, name in zip(plains, names):  # all at once: they go to the masters together
        plain.sendall(f"GET /locks/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    states = [read_response(plain) for plain in plains]
    assert [len(state.json["holders"]) for state in states] == [100] * 16
    for plain in plains:
        plain.close()
    assert service.metrics()[f'redlockd_master_errors_total{{master="{service.masters[0].url}",reason="protocol"}}'] == 0
    client.close()
    service.stop()
