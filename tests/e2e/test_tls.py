# SPDX-License-Identifier: MIT
"""HTTPS: every call over it, what clients may do to a handshake and to a connection, and that no lock is lost or kept by it."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time

import pytest

import harness
from certificates import openssl
from harness import DIES_WITH_US, SLOW, connect_to, curl, curl_command, end_process, freeze, quote, read_response, run_redlockd, wait_until


def tls_options(server, authority=None):
    options = ["--tls-cert", server.certificate, "--tls-key", server.key]
    return [*options, "--tls-client-ca", authority.certificate] if authority else options


@pytest.fixture(scope="module")
def service(authority, server):
    """HTTPS, plain HTTP beside it, and a Unix socket."""
    with harness.Lab() as lab:
        path = os.path.join(lab.folder, "socket")
        daemon = lab.service(3, *tls_options(server), "--request-timeout-ms", "60000", listen=("127.0.0.1:0", "http://127.0.0.1:0", f"unix:{path}"),
                             trust=authority.certificate)
        assert daemon.addresses[0].startswith("https://") and not daemon.addresses[1].startswith("https://")
        yield daemon


@pytest.fixture(autouse=True)
def no_connection_is_left(request):
    """After each test that uses the shared service."""
    yield
    if "service" in request.fixturenames:
        daemon = request.getfixturevalue("service")
        wait_until(lambda: connections(daemon) == 1, 10, "all connections but that of the question are closed")


def connections(daemon):
    return daemon.metrics()["redlockd_http_connections"]


def descriptors(daemon):
    return daemon.metrics()["process_open_fds"]


def busy_seconds(daemon):
    """For how long its threads have run, or would have if there had been a processor for them."""
    total = 0
    for task in os.listdir(f"/proc/{daemon.process.pid}/task"):
        with open(f"/proc/{daemon.process.pid}/task/{task}/schedstat", encoding="ascii") as stat:
            total += sum(int(field) for field in stat.read().split()[:2])
    return total / 1e9


def is_held(daemon, resource):
    return daemon.curl("GET", "/locks/" + quote(resource)).json["held"]


def waiters(daemon, resource):
    return daemon.curl("GET", "/locks/" + quote(resource)).json["waiters"]


def request_bytes(method, path, body=b"", *headers):
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *length, *headers, "", ""]).encode() + body


def acquire_bytes(resource, *headers, more=""):
    return request_bytes("POST", "/locks", f'{{"resource":"{resource}","ttl_ms":60000{more}}}'.encode(), *headers)


def cut(plain):
    """Reads what comes until the other side closes; returns it."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while (piece := plain.recv(65536)):
            got += piece
    return got


# ---- calls ----


@pytest.mark.parametrize("which", [0, 1, 2], ids=["https", "http", "unix"])
def test_every_lease_call(service, resource, which):
    address = service.addresses[which]

    def call(method, path, body=None):
        return curl(address, method, path, *service.curl_options, body=body)
    lease = call("POST", "/locks", {"resource": resource, "ttl_ms": 30000}).json
    assert call("POST", "/locks", {"resource": resource}).status == 409
    path = "/locks/" + quote(resource)
    assert call("GET", path).json["held"] is True
    assert call("PUT", path, {"token": lease["token"]}).status == 200
    assert [lock["resource"] for lock in call("GET", f"/locks?prefix={quote(resource)}").json["locks"]] == [resource]
    assert call("DELETE", path, {"token": lease["token"]}).status == 204
    assert call("DELETE", path, {"token": lease["token"]}).status == 410
    assert call("GET", "/masters").status == call("GET", "/openapi.yaml").status == 200


def test_keep_alive(service, resource):
    client = service.client()
    for _ in range(50):
        lease = client.call("POST", "/locks", {"resource": resource})
        assert lease.status == 201
        assert client.call("DELETE", "/locks/" + quote(resource), {"token": lease.json["token"]}).status == 204
    client.close()


def test_only_http_1_1_is_spoken(service):
    context = ssl.create_default_context(cafile=service.curl_options[1])
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect_to(service.address, tls=context) as client:
        assert client.selected_alpn_protocol() == "http/1.1"
    assert service.curl("GET", "/version", "--http2").status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_requests_of_any_size_of_record(service, resource, version):
    """Many requests in one record, and one request over many records: nothing waits for what GnuTLS holds already."""
    context = ssl.create_default_context(cafile=service.curl_options[1])
    context.minimum_version = context.maximum_version = version
    with connect_to(service.address, tls=context) as client:
        client.sendall(request_bytes("GET", "/healthz") * 100)
        for _ in range(100):
            assert read_response(client).status == 200
        for byte in acquire_bytes(resource):
            client.sendall(bytes([byte]))
        assert read_response(client).status == 201
        client.sendall(request_bytes("GET", "/openapi.yaml") * 3 + acquire_bytes(resource) + request_bytes("GET", "/healthz"))
        assert [read_response(client).status for _ in range(5)] == [200, 200, 200, 409, 200]


def test_a_request_behind_one_that_waits(service, resource):
    holder = service.acquire(resource)
    with service.connect() as client:
        client.sendall(acquire_bytes(resource, more=',"wait_ms":30000') + request_bytes("GET", "/healthz"))
        wait_until(lambda: waiters(service, resource) == 1, what="it waits")
        assert service.release(holder).status == 204
        assert read_response(client).status == 201
        assert read_response(client).status == 200


def test_a_body_too_large_is_refused_readably(service):
    """Chunked: the answer goes past libmicrohttpd."""
    with service.connect() as client:
        client.sendall(request_bytes("POST", "/locks", b"", "Transfer-Encoding: chunked") + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 5)
        answer = read_response(client, "POST")
        assert (answer.status, answer.code) == (413, "too-large")
        assert client.recv(1) == b"", "an orderly end: close_notify"


@pytest.mark.parametrize("header", ["Connection: close", "X-Nothing: 1"])
def test_the_end_is_orderly(service, header):
    """close_notify at the end of a connection that we close, so that it is not taken for a truncation."""
    path = "/no-such-path" if header.startswith("X") else "/healthz"
    with service.connect() as client:
        client.sendall(request_bytes("GET", path, b"", header))
        assert read_response(client).status in (200, 404)
        if header.startswith("X"):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
            assert read_response(client).status == 400
            assert client.recv(1) == b""


# ---- versions ----


def test_versions(service):
    for low, high, fits in [("TLSv1", "TLSv1_1", False), ("TLSv1_2", "TLSv1_2", True), ("TLSv1_3", "TLSv1_3", True)]:
        context = ssl.create_default_context(cafile=service.curl_options[1])
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = ssl.TLSVersion[low], ssl.TLSVersion[high]
        if fits:
            with connect_to(service.address, tls=context) as client:
                assert client.version() == high.replace("_", ".")
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                connect_to(service.address, tls=context)


@pytest.mark.parametrize("cipher", ["AES128-SHA", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA"])
def test_weak_ciphers_are_refused(service, cipher):
    context = ssl.create_default_context(cafile=service.curl_options[1])
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher + ":@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect_to(service.address, tls=context)


class Hand:
    """A client that does TLS by hand, so that it can choose what it sends when, and see what comes below TLS."""

    def __init__(self, service, step=None):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = service.tls.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.plain, self.step = connect_to(service.address), step
        self.run(lambda: self.session.do_handshake() or True)
        self.send(request_bytes("GET", "/healthz"))
        while not self.run(lambda: self.session.read(65536)).endswith(b'{"status":"ok"}'):  # behind the tickets, which no test means
            continue

    def flush(self):
        sent = self.outgoing.read()
        for at in range(0, len(sent), self.step or len(sent) or 1):
            self.plain.sendall(sent[at:at + (self.step or len(sent))])

    def run(self, act):
        while True:
            try:
                result = act()
            except ssl.SSLWantReadError:
                result = None
            self.flush()
            if result is not None:
                return result
            self.incoming.write(self.plain.recv(65536))

    def send(self, data):
        self.session.write(data)
        self.flush()

    def say_goodbye(self):
        with pytest.raises(ssl.SSLWantReadError):
            self.session.unwrap()
        self.flush()


# ---- who does not speak TLS, or not to the end ----


def test_plain_http_to_the_tls_port(service):
    with connect_to(service.address) as plain:
        plain.sendall(request_bytes("GET", "/healthz"))
        assert cut(plain) == b""


@pytest.mark.parametrize("garbage", [b"\x00" * 5_000_000, b"\x16\x03\x01\x40\x00" + b"\xff" * 5_000_000, b"GET " + b"a" * 5_000_000],
                         ids=["zeros", "a record", "text"])
def test_garbage(service, garbage):
    with connect_to(service.address) as plain:
        with contextlib.suppress(ConnectionError):
            plain.sendall(garbage)
        with contextlib.suppress(ConnectionError):
            cut(plain)
    assert service.curl("GET", "/healthz").status == 200


def test_garbage_after_the_handshake(service):
    with service.connect() as client, contextlib.suppress(ConnectionError, ssl.SSLError):
        client.sendall(b"\x01\x02 no request at all\r\n\r\n")
        cut(client)


def client_hello():
    """The first flight of a client, and the object that can go on."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    handshake = context.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("sent", ["nothing", "half", "hello"])
def test_a_handshake_that_never_ends(lab, authority, server, sent):
    """It costs no processor while it waits, and is cut at the deadline of a request."""
    service = lab.service(1, *tls_options(server), "--request-timeout-ms", str(round(2000 * SLOW)), trust=authority.certificate,
                          listen=("127.0.0.1:0", "http://127.0.0.1:0"))
    hello = client_hello()
    before = busy_seconds(service)
    start = time.monotonic()
    plains = [connect_to(service.address) for _ in range(20)]
    for plain in plains:
        plain.sendall({"nothing": b"", "half": hello[:len(hello) // 2], "hello": hello}[sent])
    assert curl(service.addresses[1], "GET", "/healthz").status == 200, "others are served meanwhile"
    for plain in plains:
        cut(plain)
        plain.close()
    seconds = time.monotonic() - start
    assert seconds > 1.9 * SLOW, seconds
    busy = busy_seconds(service) - before
    assert busy < 0.7 * seconds, f"busy for {busy} of {seconds} s"


def test_a_handshake_byte_by_byte(service):
    """One that takes its time within the deadline succeeds."""
    client = Hand(service, step=1)
    client.send(request_bytes("GET", "/healthz"))
    assert client.run(lambda: client.session.read(65536)).startswith(b"HTTP/1.1 200")
    client.plain.close()


def test_a_client_that_leaves_in_its_handshake(service):
    for sent in (b"", client_hello()[:100], client_hello()):
        for _ in range(20):
            plain = connect_to(service.address)
            plain.sendall(sent)
            plain.close()
    wait_until(lambda: connections(service) == 1, 2, "all are closed")


def test_failed_handshakes_are_counted(service):
    name = "redlockd_tls_handshakes_failed_total"
    before = service.metrics()[name]
    with connect_to(service.address) as plain:
        plain.sendall(b"\x00" * 100)
        assert cut(plain) == b""
    wait_until(lambda: service.metrics()[name] == before + 1, what="the metric")


# ---- clients that leave ----


def start_curl(service, body, *extra):
    command = curl_command(service.address, "POST", "/locks", *service.curl_options, "--no-buffer", *extra, body=body)
    return subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def kill(process):
    process.kill()


def interrupt(process):
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("leave", [kill, interrupt])
def test_a_waiter_that_leaves(service, resource, leave):
    holder = service.acquire(resource)
    process = start_curl(service, {"resource": resource, "wait_ms": 30000})
    wait_until(lambda: waiters(service, resource) == 1, what="it waits")
    leave(process)
    wait_until(lambda: waiters(service, resource) == 0, 1, "it has lost its place")
    assert service.release(holder).status == 204
    end_process(process)
    process.stdout.close()
    assert not is_held(service, resource)


@pytest.mark.parametrize("leave", [kill, interrupt])
def test_a_hold_whose_client_leaves(service, resource, leave):
    process = start_curl(service, {"resource": resource, "hold": True, "ttl_ms": 30000})
    assert b'"acquired"' in process.stdout.readline()
    assert is_held(service, resource)
    leave(process)
    wait_until(lambda: not is_held(service, resource), 1, "the lock is free")
    end_process(process)
    process.stdout.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("hold", [False, True], ids=["waiter", "hold"])
def test_a_client_that_says_goodbye_and_stays(service, resource, version, hold):
    """close_notify, then it waits for ours with its socket open, as Python's asyncio does for half a minute."""
    context = ssl.create_default_context(cafile=service.curl_options[1])
    context.minimum_version = context.maximum_version = version
    holder = None if hold else service.acquire(resource)
    client = connect_to(service.address, tls=context)
    client.sendall(acquire_bytes(resource, more=',"hold":true' if hold else ',"wait_ms":30000'))
    if hold:
        wait_until(lambda: is_held(service, resource), what="it holds")
    else:
        wait_until(lambda: waiters(service, resource) == 1, what="it waits")
    client.setblocking(False)
    with contextlib.suppress(OSError):  # ssl.SSLWantReadError, or the reset with which we answer
        client.unwrap()
    wait_until(lambda: not is_held(service, resource) if hold else waiters(service, resource) == 0, 1, "it counts as gone")
    if holder:
        assert service.release(holder).status == 204
    client.close()


def test_who_read_his_grant_and_left_keeps_it(service, resource):
    """With close_notify, without, and with Connection: close."""
    kept = []
    for i in range(60):
        name = f"{resource}/{i}"
        client = service.connect()
        client.sendall(acquire_bytes(name, *(["Connection: close"] if i % 3 == 0 else [])))
        assert read_response(client, "POST").status == 201
        if i % 3 == 1:
            client.setblocking(False)
            with contextlib.suppress(OSError):
                client.unwrap()
        client.close()
        kept.append(name)
    for i in range(20):
        kept.append(f"{resource}/curl/{i}")
        service.acquire(kept[-1], ttl_ms=60000)
    wait_until(lambda: connections(service) == 1, what="all are closed")
    held = {lock["resource"] for lock in service.curl("GET", f"/locks?limit=1000&prefix={quote(resource)}").json["locks"]}
    assert sorted(set(kept) - held) == []


def test_who_left_before_his_grant_does_not_keep_it(service, resource):
    """The client leaves about when its turn comes, with close_notify and without: it has the grant, or the lock is free, or its answer was written and is
    lost, in the very moment in which it left: then the lease runs out."""
    left, lost = 0, 0
    for i in range(40):
        name = f"{resource}/{i}"
        holder = service.client()
        lease = holder.call("POST", "/locks", {"resource": name, "ttl_ms": 60000}).json
        client = Hand(service)
        client.send(acquire_bytes(name, more=',"wait_ms":30000'))
        wait_until(lambda name=name: waiters(service, name) == 1, what="it waits")
        holder.connection.request("DELETE", "/locks/" + quote(name), f'{{"token":"{lease["token"]}"}}')
        time.sleep(0.0001 * (i % 10))
        if i % 2:
            client.say_goodbye()
        try:
            client.plain.shutdown(socket.SHUT_RDWR)  # the grant, if it arrived before, can still be read
            granted = len(client.plain.recv(65536)) > 0
        except OSError:  # the reset with which a goodbye is answered
            granted = False
        assert holder.connection.getresponse().status == 204
        left += not granted
        answers = wait_until(lambda name=name: [line for line in service.log("request") if line.get("resource") == name and line["method"] == "POST"][1:],
                             what="its line in the log")
        written = answers[0].get("status") == "201"
        lost += written and not granted
        if not written:
            assert not granted
            wait_until(lambda name=name: not is_held(service, name), what=f"{name} is free")
        else:
            assert is_held(service, name)
        client.plain.close()
        holder.close()
    print(f"{left} of 40 left before they had read their grant, {lost} while it was being written")
    assert 2 * lost < max(left, 10)


@pytest.mark.parametrize("goodbye", [False, True], ids=["cut", "goodbye"])
def test_who_is_gone_when_his_grant_is_there_is_not_answered(service, resource, goodbye):
    """Unread data in the socket, such as close_notify, does not hide the end of the connection behind it."""
    client = Hand(service)
    freeze(service.process)
    client.send(acquire_bytes(resource))
    if goodbye:
        client.say_goodbye()
    client.plain.close()
    service.process.send_signal(signal.SIGCONT)
    wait_until(lambda: [line for line in service.log("request") if line.get("resource") == resource], what="its line in the log")
    line = [line for line in service.log("request") if line.get("resource") == resource][0]
    assert line["ended"] == "client-gone" and "status" not in line, line
    wait_until(lambda: not is_held(service, resource), 1, "the lock is free")


# ---- the program ----


def test_nothing_is_left_behind(lab, authority, server):
    daemon = lab.service(1, *tls_options(server), "--workers", "2", "--request-timeout-ms", "60000", trust=authority.certificate)
    assert daemon.curl("GET", "/healthz").status == 200
    wait_until(lambda: connections(daemon) == 1, what="it is at rest")
    before = descriptors(daemon)
    for _ in range(3):
        clients = [daemon.client() for _ in range(50)]
        for i, client in enumerate(clients):
            assert client.call("POST", "/locks", {"resource": f"a/{i}"}).status in (201, 409)
        for client in clients:
            client.close()
        for _ in range(20):
            with connect_to(daemon.address) as plain:
                plain.sendall(b"\x00" * 100)
                cut(plain)
    wait_until(lambda: connections(daemon) == 1, what="all are closed")
    wait_until(lambda: descriptors(daemon) <= before, what="no descriptor is left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_handshakes_waiters_and_holds_under_way(lab, authority, server, resource, number):
    daemon = lab.service(1, *tls_options(server), "--workers", "2", "--drain-ms", "3000", trust=authority.certificate)
    holder = daemon.client()
    assert holder.call("POST", "/locks", {"resource": resource}).status == 201
    waiter, hold = daemon.connect(), daemon.connect()
    waiter.sendall(acquire_bytes(resource, more=',"wait_ms":60000'))
    hold.sendall(acquire_bytes(resource + "/hold", more=',"hold":true'))
    plains = [connect_to(daemon.address) for _ in range(10)]
    for i, plain in enumerate(plains):
        plain.sendall(client_hello()[:i * 30])
    wait_until(lambda: waiters(daemon, resource) == 1 and is_held(daemon, resource + "/hold"), what="both are there")
    daemon.process.send_signal(number)
    assert read_response(waiter, "POST").status == 503
    stream = b""
    while (piece := hold.recv(65536)):
        stream += piece
    assert b'"draining"' in stream
    daemon.process.wait(10 * SLOW)
    daemon.stop()
    for plain in (waiter, hold, *plains):
        plain.close()
    holder.close()


def test_connections_beyond_the_bound_are_refused(lab, authority, server):
    daemon = lab.service(1, *tls_options(server), "--max-connections", "5", trust=authority.certificate)
    wait_until(lambda: connections(daemon) == 1, what="it is at rest")
    clients = [daemon.connect() for _ in range(5)]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        daemon.connect()
    for client in clients:
        client.close()
    wait_until(lambda: connections(daemon) == 1, what="room again")
    assert daemon.metrics()['redlockd_http_connections_refused_total{reason="all"}'] >= 1


def write(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    os.chmod(path, 0o600)
    return str(path)


def test_bad_files(tmp_path, authority, server):
    other = authority.issue("other", "IP:127.0.0.1")
    locked = str(tmp_path / "locked.key")
    openssl("ec", "-in", server.key, "-aes128", "-passout", "pass:secret", "-out", locked)
    os.chmod(locked, 0o600)
    readable = write(tmp_path / "readable.key", open(server.key, encoding="utf-8").read())
    os.chmod(readable, 0o644)
    no_pem, empty = write(tmp_path / "no.pem", "hello\n"), write(tmp_path / "empty.pem", "")
    cert, key = server.certificate, server.key
    for files, said in [
            ((str(tmp_path / "none"), key, None), ["--tls-cert", "none"]),
            ((cert, str(tmp_path / "none"), None), ["--tls-key", "none"]),
            ((cert, other.key, None), ["--tls-key", other.key, "does not belong"]),
            ((no_pem, key, None), ["--tls-cert", no_pem, "no certificate"]),
            ((empty, key, None), ["--tls-cert", empty, "no certificate"]),
            ((cert, no_pem, None), ["--tls-key", no_pem, "no private key"]),
            ((cert, locked, None), ["--tls-key", locked, "password"]),
            ((cert, readable, None), ["--tls-key", readable, "readable"]),
            ((cert, key, empty), ["--tls-client-ca", empty, "no certificate"]),
            ((cert, key, no_pem), ["--tls-client-ca", no_pem, "no certificate"])]:
        options = ["--tls-cert", files[0], "--tls-key", files[1]] + (["--tls-client-ca", files[2]] if files[2] else [])
        done = run_redlockd("--listen", "127.0.0.1:0", "--masters", "redis://127.0.0.1:1", *options)
        assert done.returncode == 2, done
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and all(word in lines[0] for word in said), (lines, said)


def test_a_certificate_that_ends_is_told(lab, authority):
    for ended, event in [(True, "tls-certificate-expired"), (False, "tls-certificate-expires-soon")]:
        server = authority.issue("short", "IP:127.0.0.1", ended=ended)
        daemon = lab.redlockd([], "--dev", *tls_options(server), listen=("127.0.0.1:0", "http://127.0.0.1:0"), wait=False)
        assert daemon.log(event)[0]["certificate"] == server.certificate
        expiry = curl(daemon.addresses[1], "GET", "/metrics").body.decode()
        left = float(expiry.split("\nredlockd_tls_certificate_expiry_timestamp_seconds ")[1].split()[0]) - time.time()
        assert -3600 < left < 0 if ended else 80000 < left < 90000
        daemon.stop()


def test_who_may_listen_to_the_network(lab, authority, server):
    done = run_redlockd("--listen", "0.0.0.0:0", "--masters", "redis://127.0.0.1:1")
    assert done.returncode == 2 and "--insecure" in done.stderr and "0.0.0.0" in done.stderr and len(done.stderr.splitlines()) == 1
    done = run_redlockd("--listen", "0.0.0.0:0", "--masters", "redis://127.0.0.1:1", *tls_options(server))
    assert done.returncode == 2 and "--tls-client-ca" in done.stderr
    daemon = lab.redlockd([], "--dev", "--insecure", listen=("0.0.0.0:0",), wait=False)
    assert daemon.log("listener-open")[0]["host"] == "0.0.0.0" and "port" not in daemon.log("listener-open")[0], "no port is chosen yet"
    daemon.stop()
    daemon = lab.redlockd([], "--dev", *tls_options(server, authority), listen=("0.0.0.0:0",), wait=False)
    assert daemon.log("listener-open") == []
    daemon.stop()
