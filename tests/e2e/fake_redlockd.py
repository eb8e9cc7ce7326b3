"""A redlockd that says what a test wants it to say, and when: for what a real one does only by chance.

A test gives a function behave(call). It is called for each request, on a thread of the request's connection; it answers, or waits for
something first. A test's failure in there is kept, and raised at the end.

It listens on a Unix socket, on a port of 127.0.0.1 where `port` is true, or with TLS on such a port where it gets an ssl.SSLContext.
"""

import json
import os
import select
import socket
import threading
import time

import pytest

from harness import SLOW, wait_until

TOKEN = "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"


class Call:
    """One request and its connection."""

    def __init__(self, server, connection, method, path, headers, body):
        self.server, self.connection, self.method, self.path, self.headers, self.body = server, connection, method, path, headers, body
        self.certificate = connection.getpeercert() if server.tls else None  # the client's
        self.came = time.monotonic()
        self.answered = None

    @property
    def kind(self):
        return {"POST": "acquire", "PUT": "extend", "DELETE": "release"}.get(self.method) or ("health" if self.path == "/healthz" else "state")

    def answer(self, status, body=None, **headers):
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.answered = status
        self.connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    def problem(self, status, code, **members):
        self.answer(status, {"code": code, "detail": f"{code}, it says.", "status": status, **members})

    def lease(self, status=201, validity_ms=None):
        ttl_ms = self.body.get("ttl_ms", 30000)
        self.answer(status, {"resource": self.server.resource, "token": TOKEN, "fence": 7, "ttl_ms": ttl_ms, "validity_ms": validity_ms or ttl_ms - 10})

    def until_hung_up(self):
        """Until the client has said that nothing more comes. Seen below TLS: OpenSSL 3.5 (Debian 13) writes no answer after it has read this end."""
        assert select.select([self.connection], [], [], 30 * SLOW)[0], "the client does not hang up"
        with socket.socket(fileno=os.dup(self.connection.fileno())) as below:
            assert below.recv(1, socket.MSG_PEEK) == b""


class FakeRedlockd:
    def __init__(self, folder, name, resource, behave, tls=None, port=False):
        self.resource, self.behave, self.tls = resource, behave, tls
        self.calls, self.failures, self.threads, self.connections = [], [], [], []
        self.refused = []  # handshakes that failed
        if tls or port:
            self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            self.port = self.listener.getsockname()[1]
            self.address = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        else:
            path = os.path.join(folder, name)
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(path)
            self.listener.listen(64)
            self.address = f"unix:{path}"
        self.start(self.accept)

    def start(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            connection.settimeout(30 * SLOW)
            self.connections.append(connection)
            self.start(self.serve, connection)

    def read(self, connection):
        """The next request, or None at the end."""
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        request, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += connection.recv(65536)
        method, path, _ = request.split()
        content = json.loads(body) if body else {}
        return Call(self, connection, method, path, headers, {**content, **({"token": headers["lock-token"]} if "lock-token" in headers else {})})

    def shake_hands(self, connection):
        try:
            secured = self.tls.wrap_socket(connection, server_side=True)
        except OSError as error:
            self.refused.append(error)
            raise
        self.connections.append(secured)
        return secured

    def serve(self, connection):
        try:
            if self.tls:
                connection = self.shake_hands(connection)
            while (call := self.read(connection)) is not None:
                self.calls.append(call)
                self.behave(call)
                if call.answered is None:
                    break
        except OSError:
            pass  # the other side has closed
        except Exception as failure:  # noqa: BLE001
            self.failures.append(failure)
        finally:
            connection.close()

    def of(self, *kinds):
        return [call for call in self.calls if call.kind in kinds]

    def call(self, kind, number=0):
        """Waits for a call of this kind."""
        return wait_until(lambda: (self.of(kind) + [None] * (number + 1))[number], 20, f"{kind} {number}")

    def kill(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()
        if self.failures:
            raise AssertionError(f"the fake redlockd: {self.failures[0]!r}") from self.failures[0]


ANSWERS = {"acquire": lambda call: call.lease(), "extend": lambda call: call.lease(200), "release": lambda call: call.answer(204),
           "health": lambda call: call.answer(200, {}),
           "state": lambda call: call.answer(200, {"resource": call.server.resource, "held": True, "owner": "worker-7", "fence": 6, "remaining_ms": 9000})}


@pytest.fixture
def fake(lab, resource):
    """Makes servers. Each behaves as said for each kind of call, and usefully for the others."""
    def make(tls=None, port=False, **behaviour):
        return lab.keep(FakeRedlockd(lab.folder, f"fake{len(lab.started)}", resource, lambda call: {**ANSWERS, **behaviour}[call.kind](call), tls, port))
    return make
