# SPDX-License-Identifier: MIT
"""A lease outlives the connection on which it was granted.

A grant is given back only where its client is found gone before the answer is written. From then on only the token, a forced release, the lease's age
or its time ends it: not the end of the connection, whoever ends it and however, and whether or not the client has read the answer. Each lease here is
watched by a request of another client through another redlockd, which waits for it in vain, and is then extended with its token.
"""

import contextlib
import json
import re
import signal
import socket
import ssl
import struct

import pytest

import harness
from ctl import Run
from harness import SLOW, connect_to, freeze, quote, read_response, wait_until
from proxy import Proxy
from waiting_fixtures import Waiter, line

WATCH_MS = 1200  # longer than any socket of an ended connection is looked at
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
TRANSPORTS = ["tcp", "unix", "tls 1.2", "tls 1.3"]


def post(resource, *headers, more=""):
    body = f'{{"resource":"{resource}","ttl_ms":60000{more}}}'
    return "\r\n".join(["POST /locks HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", body]).encode()


class Site:
    """One redlockd that is tried on every transport, and another one over the same masters, through which its leases are watched."""

    def __init__(self, lab, authority, *options, masters=None):
        certificate = authority.issue("server", "IP:127.0.0.1", "DNS:localhost", usage="serverAuth")
        self.servers = masters or lab.redises(3)
        self.other = lab.redlockd(self.servers)
        listen = ("http://127.0.0.1:0", "https://127.0.0.1:0", f"unix:{lab.folder}/listen")
        self.service = lab.redlockd(self.servers, "--tls-cert", certificate.certificate, "--tls-key", certificate.key, *options, listen=listen)
        self.authority = authority

    def connect(self, transport):
        plain, tls, unix = self.service.addresses
        if not transport.startswith("tls"):
            return connect_to(plain if transport == "tcp" else unix)
        context = ssl.create_default_context(cafile=self.authority.certificate)
        context.minimum_version = context.maximum_version = ssl.TLSVersion["TLSv" + transport[4:].replace(".", "_")]
        return connect_to(tls, tls=context)

    def connections(self):
        """Besides the one that asks."""
        return self.service.metrics()["redlockd_http_connections"] - 1

    def wait_for_ends(self):
        wait_until(lambda: self.connections() == 0, what="all connections are closed")

    def log_of(self, resource):
        """Waits for the log line of an acquisition."""
        return wait_until(lambda: [line for line in self.service.log("request") if line.get("resource") == resource], what="its line in the log")[0]


class Holder:
    """A keep-alive connection, over which a lease has come after `earlier` other requests."""

    def __init__(self, site, transport, resource, earlier=0):
        self.plain = site.connect(transport)
        for _ in range(earlier):
            self.plain.sendall(GET)
            assert read_response(self.plain).status == 200
        self.plain.sendall(post(resource))
        answer = read_response(self.plain, "POST")
        assert answer.status == 201, answer
        self.lease = answer.json

    def close(self):
        self.plain.close()


def read_bodies(plain, count):
    """The bodies of so many answers, which may have come together."""
    text, bodies = b"", []
    while len(bodies) < count:
        head = re.match(rb"HTTP/1\.1 20[01] .*?Content-Length: (\d+).*?\r\n\r\n", text, re.S)
        if head and len(text) >= head.end() + int(head[1]):
            bodies.append(text[head.end():head.end() + int(head[1])])
            text = text[head.end() + int(head[1]):]
            continue
        more = plain.recv(65536)
        assert more, f"closed after {len(bodies)} answers: {text}"
        text += more
    return bodies


def reset(plain):
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()


def say_goodbye(plain):
    """close_notify where there is TLS; then close."""
    if isinstance(plain, ssl.SSLSocket):
        plain.setblocking(False)
        with contextlib.suppress(OSError):
            plain.unwrap()
    plain.close()


def half_close(plain):
    socket.socket.shutdown(plain, socket.SHUT_WR)


def check_stays(other, leases):
    """No other client gets any of them for a while. Then each is on all masters under its token, and can be
    extended."""
    watchers = [Waiter(other, lease["resource"], wait_ms=WATCH_MS) for lease in leases]
    taken = [watcher.resource for watcher in watchers if watcher.answer(10).status != 409]
    for watcher in watchers:
        watcher.leave()
    assert not taken, f"{len(taken)} of {len(leases)} were given to somebody else: {taken}"
    for lease in leases:
        on = [(server.cli("GET", lease["resource"]) or "")[:40] for server in other.masters]
        assert on == [lease["token"]] * len(on), (lease, on)
        answer = other.curl("PUT", "/locks/" + quote(lease["resource"]), body={"token": lease["token"]})
        assert answer.status == 200 and answer.json["fence"] == lease["fence"], answer


@pytest.fixture(scope="module")
def site(authority):
    with harness.Lab() as lab:
        yield Site(lab, authority)


# ---- the client ends the connection ----


@pytest.mark.parametrize("earlier", [0, 1, 3])
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.slow
def test_a_client_that_has_its_lease_may_leave_in_any_way(site, resource, transport, earlier):
    leases, half = [], []
    for leave in (reset, socket.socket.close, say_goodbye, half_close):
        for i in range(10):
            holder = Holder(site, transport, f"{resource}/{leave.__name__}/{i}", earlier)
            leave(holder.plain)
            leases.append(holder.lease)
            half += [holder.plain] if leave is half_close else []
    site.wait_for_ends()
    for plain in half:
        plain.close()
    check_stays(site.other, leases)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_answer_that_was_written_and_never_read(site, resource, transport):
    """Whether a client reads its answer cannot be known: the lease ends with its TTL, or is released with the token."""
    names = []
    for leave in (reset, socket.socket.close, half_close):
        plain, name = site.connect(transport), f"{resource}/{leave.__name__}"
        plain.sendall(post(name))
        assert site.log_of(name)["status"] == "201"
        leave(plain)
        names.append(name)
    site.wait_for_ends()
    wait_until(lambda: all(server.cli("GET", name) for server in site.servers for name in names), what="on all masters")
    check_stays(site.other, [{"resource": name, "token": site.servers[0].cli("GET", name)[:40], "fence": int(site.servers[0].cli("GET", name).split(":")[2])}
                             for name in names])


@pytest.mark.parametrize("leave", [reset, socket.socket.close, half_close])
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.slow
def test_grants_among_pipelined_requests(site, resource, transport, leave):
    """Several leases and other answers from one packet; the first, one in the middle, the last."""
    names = [f"{resource}/{i}" for i in range(4)]
    plain = site.connect(transport)
    plain.sendall(post(names[0]) + GET + post(names[1]) + post(names[2]) + GET + GET + post(names[3]))
    bodies = read_bodies(plain, 7)
    leases = [json.loads(body) for body in bodies if b'"token"' in body]
    assert [lease["resource"] for lease in leases] == names, bodies
    leave(plain)
    site.wait_for_ends()
    plain.close()
    check_stays(site.other, leases)


# ---- redlockd ends the connection ----


def holders_on_all(site, resource):
    return [Holder(site, transport, f"{resource}/{transport.replace(' ', '')}/{earlier}/{i}", earlier)
            for transport in TRANSPORTS for earlier in (0, 1) for i in range(5)]


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_redlockd_ends(lab, authority, resource, signal_number):
    site = Site(lab, authority)
    holders = holders_on_all(site, resource)
    if signal_number == signal.SIGKILL:
        site.service.kill()
    else:
        site.service.stop(signal_number)
    check_stays(site.other, [holder.lease for holder in holders])
    for holder in holders:
        holder.close()


def test_redlockd_ends_with_requests_under_way(lab, authority, resource):
    """A lock granted during the shutdown is answered or released; one that was answered before stays."""
    site = Site(lab, authority)
    held = site.other.acquire(f"{resource}/held", ttl_ms=60000)
    holders = [Holder(site, transport, f"{resource}/{i}") for i, transport in enumerate(TRANSPORTS)]
    for holder in holders:
        holder.plain.sendall(post(held["resource"], more=',"wait_ms":30000'))
    wait_until(lambda: len(line(site.servers[0], held["resource"])) == len(TRANSPORTS), what="all wait")
    site.service.stop(signal.SIGTERM)
    assert [read_response(holder.plain).status for holder in holders] == [503] * len(TRANSPORTS)
    check_stays(site.other, [held, *(holder.lease for holder in holders)])
    assert site.other.release(held).status == 204
    wait_until(lambda: not site.other.curl("GET", "/locks/" + quote(held["resource"])).json["held"], what="nobody has it")
    for holder in holders:
        holder.close()


def test_an_idle_connection_is_closed(lab, authority, resource):
    site = Site(lab, authority, "--idle-timeout-ms", "4000")
    holders = holders_on_all(site, resource)
    site.wait_for_ends()
    assert site.service.metrics()['redlockd_http_timeouts_total{phase="idle"}'] >= len(holders)
    check_stays(site.other, [holder.lease for holder in holders])
    for holder in holders:
        holder.close()


def test_the_last_request_of_a_connection(lab, authority, resource):
    """The grant is the last answer that the connection may carry; more requests lie behind it."""
    site = Site(lab, authority, "--max-requests-per-connection", "2")
    leases = []
    for i, transport in enumerate(TRANSPORTS * 5):
        plain = site.connect(transport)
        plain.sendall(GET + post(f"{resource}/{i}") + GET * (i % 3))
        leases.append(json.loads(read_bodies(plain, 2)[1]))
        with contextlib.suppress(ConnectionError):
            assert plain.recv(1) == b"", "it is closed"
        plain.close()
    check_stays(site.other, leases)


@pytest.mark.slow
def test_jobs_over_restarts_of_their_server(lab, resource):
    """redlockctl run, which asks one server alone: at the first restart the grant was the last answer on its connection, then there were extensions."""
    servers = lab.redises(3)
    service, other = lab.redlockd(servers), lab.redlockd(servers)
    runs = [Run(lab, f"{resource}/{i}", command="echo $REDLOCK_TOKEN >token; until [ -e go ]; do sleep 0.02; done", servers=[service],
                ttl_ms=round(15000 * SLOW)) for i in range(5)]
    tokens = [run.file("token") for run in runs]
    watchers = [Waiter(other, f"{resource}/{i}") for i in range(len(runs))]
    for _ in range(2):
        service.stop(signal.SIGTERM)
        extended = [len(run.events("extended")) for run in runs]
        service = lab.redlockd(servers, listen=[service.address])
        for run, count in zip(runs, extended):
            wait_until(lambda run=run, count=count: len(run.events("extended")) > count or run.events("lost"), 20, "the next extension")
        assert not [event for run in runs for event in run.events("lost")]
        assert not any(watcher.is_answered() for watcher in watchers), "somebody else has the lock of a job that runs"
        for i, token in enumerate(tokens):
            assert [server.cli("GET", f"{resource}/{i}")[:40] for server in servers] == [token] * 3
    for run, watcher in zip(runs, watchers):
        (run.folder / "go").touch()
        assert run.wait() == 0 and not run.events("lost")
        watcher.granted()
        watcher.leave()


# ---- the client is gone before the answer is written ----


@pytest.mark.parametrize("behind", [b"", GET], ids=["alone", "with a request behind"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_grant_for_nobody_is_released(lab, authority, resource, transport, behind):
    """The answers of the masters come after the client has left."""
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    site = Site(lab, authority, "--master-timeout-ms", "30000", masters=proxies)
    clients, names = [], []
    for leave in (reset, socket.socket.close, say_goodbye, half_close):
        for earlier in (0, 1):
            plain, name = site.connect(transport), f"{resource}/{leave.__name__}/{earlier}"
            if earlier:
                plain.sendall(GET)
                assert read_response(plain).status == 200
            clients.append((plain, leave))
            names.append(name)
    for proxy in proxies:
        proxy.replies.clear()
    for (plain, _), name in zip(clients, names):
        plain.sendall(post(name))
    wait_until(lambda: all(server.cli("EXISTS", *names) == len(names) for server in servers), what="granted on all masters")
    for plain, leave in clients:
        if behind:
            with contextlib.suppress(OSError):
                plain.sendall(behind)
        leave(plain)
    for proxy in proxies:
        proxy.heal()
    wait_until(lambda: all(server.cli("EXISTS", *names) == 0 for server in servers), what="all are given back")
    for name in names:
        assert "status" not in site.log_of(name) and site.log_of(name)["ended"] == "client-gone"
    assert site.service.metrics()["redlockd_leases_abandoned_total"] == len(names)
    for plain, _ in clients:
        plain.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_client_that_left_while_redlockd_was_stopped(site, resource, transport):
    clients, names = [], []
    for leave in (reset, socket.socket.close, say_goodbye, half_close):
        clients.append((site.connect(transport), leave))
        names.append(f"{resource}/{leave.__name__}")
        clients[-1][0].sendall(GET)
        assert read_response(clients[-1][0]).status == 200
    freeze(site.service.process)
    for (plain, leave), name in zip(clients, names):
        plain.sendall(post(name))
        leave(plain)
    site.service.process.send_signal(signal.SIGCONT)
    site.wait_for_ends()
    wait_until(lambda: all(server.cli("EXISTS", *names) == 0 for server in site.servers), what="none is left")
    for plain, _ in clients:
        plain.close()
