# SPDX-License-Identifier: MIT
"""The bounds of an address and of a connection: connections open, requests a second, requests per connection; each over one worker and over two,
which share what they count. The clients come from several addresses of loopback; the harness itself asks over a Unix socket, which has none."""

import os
import socket
import ssl
import time

import pytest

from certificates import Authority
from harness import SLOW, Client, read_response, wait_until

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(params=[1, 2], ids=["one-worker", "two-workers"])
def start(lab, request):
    """To start a redlockd on a Unix socket (what the harness asks) and on TCP; its member `tcp` is (host, port)."""
    def started(*options):
        path = f"unix:{os.path.join(lab.folder, 'l')}"
        service = lab.service(1, "--workers", str(request.param), *options, listen=(path, "127.0.0.1:0"))
        assert service.address == path
        host, _, port = service.addresses[1].rpartition(":")
        service.tcp = (host, int(port))
        return service
    return started


def connect_from(service, source):
    plain = socket.create_connection(service.tcp, 20 * SLOW, (source, 0))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def ask(plain, request=REQUEST):
    plain.sendall(request)
    return read_response(plain)


def served(connect):
    """A new connection whose first request is answered 200; None where it is refused."""
    plain = connect()
    answer = ask(plain)
    if answer is not None and answer.status == 200:
        return plain
    plain.close()
    return None


def client_from(service, source):
    client = Client(service.address)
    client.connection.close()
    client.connection.sock = connect_from(service, source)
    return client


def reads_to_the_end(plain):
    """All that comes until the other side closes; a reset fails the test."""
    content = b""
    while piece := plain.recv(65536):
        content += piece
    return content


# ---- connections per address ----


def test_an_address_has_so_many_connections_and_no_more(start):
    service = start("--max-connections-per-address", "3")
    kept = [connect_from(service, "127.0.0.2") for _ in range(3)]
    for plain in kept:
        assert ask(plain).status == 200
    for _ in range(4):
        plain = connect_from(service, "127.0.0.2")
        answer = read_response(plain)
        assert answer.status == 429 and answer.code == "too-many-requests" and answer.headers["retry-after"] == "1", answer
        assert "--max-connections-per-address" in answer.json["detail"] and answer.headers["connection"] == "close"
        assert plain.recv(1) == b""
        plain.close()
    others = [connect_from(service, "127.0.0.3") for _ in range(3)]
    for plain in [*kept, *others]:
        assert ask(plain).status == 200
    metrics = service.metrics()
    assert metrics['redlockd_http_connections_refused_total{reason="address"}'] == 4
    assert metrics['redlockd_http_connections_refused_total{reason="all"}'] == 0
    for plain in [*kept, *others]:
        plain.close()


def test_who_closes_a_connection_may_open_another(start):
    """At the latest when the deadline of its request passes: the library may not see an end that comes together with half a request."""
    service = start("--max-connections-per-address", "2", "--request-timeout-ms", "2000")
    kept = [connect_from(service, "127.0.0.2") for _ in range(2)]
    for plain in kept:
        assert ask(plain).status == 200
    for turn in range(30):
        plain = kept.pop(0)
        if turn % 3 == 0:  # in the middle of a request, after rubbish, in peace
            plain.sendall(REQUEST[:-4])
        elif turn % 3 == 1:
            plain.sendall(b"GARBAGE\r\n\r\n")
            read_response(plain)
        plain.close()
        kept.append(wait_until(lambda: served(lambda: connect_from(service, "127.0.0.2")), what="a place of the one that closed"))
    third = connect_from(service, "127.0.0.2")
    assert read_response(third).status == 429
    for plain in [*kept, third]:
        plain.close()


def test_one_address_does_not_use_up_what_others_need(start):
    """The bound on all is met by another address only once its own lets it."""
    service = start("--max-connections-per-address", "4", "--max-connections", "64")
    flood = [connect_from(service, "127.0.0.2") for _ in range(100)]
    client = client_from(service, "127.0.0.3")
    assert client.call("POST", "/locks", {"resource": "x"}).status == 201
    refused = 'redlockd_http_connections_refused_total{reason="address"}'
    wait_until(lambda: service.metrics()[refused] == 96, what="the other worker has refused its last one, too")
    client.close()
    for plain in flood:
        plain.close()


def test_over_tls_who_is_one_too_many_is_just_closed(lab):
    """No handshake is made only to say no. Plain and TLS connections of an address count together."""
    server = Authority(lab.folder).issue("server", "IP:127.0.0.1")
    listen = ("unix:" + os.path.join(lab.folder, "l"), "http://127.0.0.1:0", "https://127.0.0.1:0")
    service = lab.service(1, "--tls-cert", server.certificate, "--tls-key", server.key, "--max-connections-per-address", "2", listen=listen)
    plain_at, tls_at = (("127.0.0.1", int(address.rpartition(":")[2])) for address in service.addresses[1:])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connect(address):
        return socket.create_connection(address, 20 * SLOW, ("127.0.0.2", 0))
    plain, secured = connect(plain_at), context.wrap_socket(connect(tls_at))
    assert ask(plain).status == ask(secured).status == 200
    with connect(tls_at) as extra:
        assert extra.recv(1) == b""
    with connect(plain_at) as extra:
        assert read_response(extra).status == 429
    assert service.metrics()['redlockd_http_connections_refused_total{reason="address"}'] == 2
    secured.close()
    again = wait_until(lambda: served(lambda: connect(plain_at)), what="a place of the one that closed")
    again.close()
    plain.close()


# ---- requests a second ----


def test_an_address_has_so_many_requests_a_second(start):
    rate = 20
    service = start("--max-rate-per-address", str(rate))
    clients = [client_from(service, "127.0.0.2") for _ in range(4)]
    began = time.monotonic()
    answers = [clients[i % 4].call("GET", "/version") for i in range(rate * 5)]
    taken = sum(answer.status == 200 for answer in answers)
    assert taken <= rate * (time.monotonic() - began) + rate
    assert taken >= rate
    refused = [answer for answer in answers if answer.status != 200]
    for answer in refused:
        assert answer.status == 429 and answer.code == "too-many-requests" and answer.headers["retry-after"] == "1", answer
        assert answer.headers["connection"] == "Keep-Alive" and "--max-rate-per-address" in answer.json["detail"]
    # Other clients are not affected. A refusal ends no connection, and holds for the address no longer than it says.
    other = client_from(service, "127.0.0.3")
    assert other.call("GET", "/version").status == 200
    assert service.metrics()['redlockd_http_requests_limited_total{limit="address-rate"}'] == len(refused)
    wait_until(lambda: clients[0].call("GET", "/version").status == 200, what="it may ask again")
    for client in [*clients, other]:
        client.close()


def test_what_is_refused_for_its_rate_does_nothing(start):
    service = start("--max-rate-per-address", "1")
    client = client_from(service, "127.0.0.2")
    answers = [client.call("POST", "/locks", {"resource": f"r{i}"}) for i in range(5)]
    granted = [f"r{i}" for i, answer in enumerate(answers) if answer.status == 201]
    assert "r0" in granted and len(granted) < 5 and {answer.status for answer in answers} == {201, 429}
    held = service.curl("GET", "/locks").json["locks"]
    assert sorted(lock["resource"] for lock in held) == granted
    client.close()


# ---- requests per connection ----


def test_the_last_request_of_a_connection_says_so(start):
    service = start("--max-requests-per-connection", "3")
    for _ in range(3):
        plain = connect_from(service, "127.0.0.2")
        assert [ask(plain).headers.get("connection") for _ in range(3)] == ["Keep-Alive", "Keep-Alive", "close"]
        assert plain.recv(1) == b""
        plain.close()
    plain = connect_from(service, "127.0.0.2")
    assert ask(plain, b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 404
    lease = ask(plain, b'POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{"resource":"a"}')
    assert lease.status == 201 and lease.headers["connection"] == "Keep-Alive"
    released = ask(plain, b"DELETE /locks/a HTTP/1.1\r\nHost: localhost\r\nLock-Token: %s\r\n\r\n" % lease.json["token"].encode())
    assert released.status == 204 and released.headers["connection"] == "close"
    plain.close()


def test_what_was_sent_after_the_last_request_is_not_carried_out_and_cuts_nothing(start):
    service = start("--max-requests-per-connection", "3")
    for _ in range(5):
        plain = connect_from(service, "127.0.0.2")
        plain.sendall(REQUEST * 3 + b'POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{"resource":"a"}' + REQUEST * 50)
        content = reads_to_the_end(plain)
        assert content.count(b"HTTP/1.1 200 ") == content.count(b"HTTP/1.1 ") == 3, content
        assert content.lower().count(b"connection: close\r\n") == 1
        plain.close()
    assert service.curl("GET", "/locks").json["locks"] == []


def test_headers_within_the_bounds_have_room(service, resource):
    """8 KiB in few or many lines, and in cookies, which libmicrohttpd keeps twice; beside them a long URL and a body."""
    cookies = "; ".join(f"name{i}={'v' * 145}" for i in range(50))
    assert 7600 < len(cookies) < 7800
    lease = service.curl("POST", "/locks", body={"resource": resource, "ttl_ms": 60000, "owner": "o" * 100}, headers={"Cookie": cookies})
    assert lease.status == 201, lease
    lines = {f"X-Line-{i}": "v" * 100 for i in range(55)}
    assert service.curl("PUT", f"/locks/{resource}", body={"token": lease.json["token"], "ttl_ms": 60000}, headers=lines).status == 200
    listed = service.curl("GET", f"/locks?prefix={resource}&cursor={'0' * 1800}", headers={"Cookie": cookies})
    assert (listed.status, listed.code) == (400, "invalid-request"), listed
    assert service.release(lease.json).status == 204


def test_a_listing_of_many_locks(lab):
    """Each is looked up on the masters while the answer to SCAN is being read."""
    service = lab.service(3)
    leases = [service.acquire(f"many/{i:02}", ttl_ms=60000) for i in range(70)]
    listed = service.curl("GET", "/locks?prefix=many/&limit=100").json
    assert sorted(lock["resource"] for lock in listed["locks"]) == [lease["resource"] for lease in leases]
    assert {lock["fence"] for lock in listed["locks"]} == {lease["fence"] for lease in leases}
