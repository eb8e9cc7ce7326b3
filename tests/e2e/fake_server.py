# SPDX-License-Identifier: MIT
"""A redlockd that says what a test wants it to say, and when: for what a real one does only by chance.

A function behave(call) is called for each request, on a thread of the request's connection; it answers, or waits for
something first. Its failure is kept, and raised at the end.

It listens on a Unix socket or on a port of 127.0.0.1, with TLS where it gets an ssl.SSLContext. fake_redlockd.py
has the fixture of tests; this file needs nothing but the standard library.
"""

import json
import os
import select
import socket
import threading
import time
import urllib.parse

from harness import SLOW, wait_until

TOKEN = "5f2b1c7d9e8a4f60b3d2c1e0f9a8b7c6d5e4f3a2"


class Call:
    """One request and its connection."""

    def __init__(self, server, connection, method, path, headers, body):
        self.server, self.connection, self.method, self.path = server, connection, method, path
        self.headers, self.body = headers, body
        self.certificate = connection.getpeercert() if server.tls else None  # the client's
        self.came = time.monotonic()
        self.answered, self.closes = None, False

    @property
    def kind(self):
        asks = "health" if self.path == "/healthz" else "state"
        return {"POST": "acquire", "PUT": "extend", "DELETE": "release"}.get(self.method) or asks

    @property
    def names(self):
        """The member that names the lock, as a lease repeats it; of the test's resource where the request has none."""
        if "resources" in self.body:
            return {"resources": self.body["resources"]}
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        return {"resource": self.body.get("resource") or query.get("resource", [self.server.resource])[0]}

    @property
    def name(self):
        """The name of the lock, or the first one of several."""
        return self.names["resource"] if "resource" in self.names else self.names["resources"][0]

    def send(self, data, status=0):
        """Bytes of an answer. `status`: it is whole, and the connection is kept."""
        self.answered = status or self.answered
        self.connection.sendall(data)

    def answer(self, status, body=None, **headers):
        """`body`: an object, or the bytes of one. `Connection="close"` closes."""
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}",
                 *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.closes = headers.get("Connection") == "close"
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + content, status)

    def problem(self, status, code, **members):
        self.answer(status, {"code": code, "detail": f"{code}, it says.", "status": status, **members})

    def granted(self, validity_ms=None, **members):
        """The lease that was asked for; `members` instead of its own."""
        ttl_ms = members.get("ttl_ms", self.body.get("ttl_ms", 30000))
        slot = {"slot": 0} if "slots" in self.body else {}
        return {**self.names, "token": self.body.get("token", TOKEN), "fence": 7, "ttl_ms": ttl_ms,
                "validity_ms": validity_ms or max(ttl_ms - 10, 1), **slot, **members}

    def lease(self, status=None, validity_ms=None, headers=None, **members):
        """Grants or extends what was asked for."""
        self.answer(
            status or (200 if self.kind == "extend" else 201), self.granted(validity_ms, **members), **(headers or {})
        )

    def state(self, **members):
        self.answer(200, {**self.names, "held": True, "owner": "worker-7", "fence": 6, "remaining_ms": 9000, **members})

    def until_hung_up(self):
        """Until the client has said that nothing more comes; over TLS it may say so in a record."""
        assert select.select([self.connection], [], [], 30 * SLOW)[0], "the client does not hang up"
        with socket.socket(fileno=os.dup(self.connection.fileno())) as below:
            assert self.server.tls or below.recv(1, socket.MSG_PEEK) == b""


class Part(Call):
    """One lease of a request for several. A 200 and a problem answer this lease; everything else the whole request."""

    def __init__(self, whole, body):
        super().__init__(whole.server, whole.connection, whole.method, whole.path, whole.headers, body)
        self.whole, self.content, self.more_headers = whole, None, {}

    def answer(self, status, body=None, **headers):
        if status != 200:
            self.whole.answer(status, body, **headers)
        else:
            self.content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.more_headers = headers
        self.answered = status

    def problem(self, status, code, **members):
        self.answer(200, {"code": code, "detail": f"{code}, it says.", "status": status, **members})
        self.answered = status

    def send(self, data, status=0):
        self.whole.send(data, status)


class FakeRedlockd:
    def __init__(self, address, resource, behave, tls=None):
        """`address`: the path of a Unix socket, or the number of a port."""
        self.resource, self.behave, self.tls = resource, behave, tls
        self.calls, self.failures, self.threads, self.connections = [], [], [], []
        self.requests, self.refused = [], []  # refused: handshakes that failed
        if isinstance(address, int):
            self.listener = socket.create_server(("127.0.0.1", address), backlog=128)
            self.port = self.listener.getsockname()[1]
            self.address = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(address)
            self.listener.listen(128)
            self.address = f"unix:{address}"
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
            more = connection.recv(65536)
            if not more:
                return None
            body += more
        method, path, _ = request.split()
        content = json.loads(body) if body else {}
        token = {"token": headers["lock-token"]} if "lock-token" in headers else {}
        return Call(self, connection, method, path, headers, {**content, **token})

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
            elif connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (call := self.read(connection)) is not None:
                self.carry_out(call)
                if call.answered is None or call.closes:
                    break
        except OSError:
            pass  # the other side has closed
        except Exception as failure:  # noqa: BLE001
            self.failures.append(failure)
        finally:
            connection.close()

    def carry_out(self, call):
        """Each lease of a request for several is a call of its own for the test."""
        parts = [Part(call, body) for body in call.body.get("leases", [])]
        self.requests.append(call)
        self.calls += parts or [call]
        for each in parts or [call]:
            self.behave(each)
        if parts and call.answered is None and all(part.content is not None for part in parts):
            content = b",".join(part.content for part in parts)
            call.answer(200, b'{"leases":[%s]}' % content, **parts[0].more_headers)

    def of(self, *kinds, name=None):
        return [call for call in list(self.calls) if call.kind in kinds and (name is None or call.name == name)]

    def call(self, kind, number=0, name=None):
        """Waits for a call of this kind."""
        return wait_until(lambda: (self.of(kind, name=name) + [None] * (number + 1))[number], 20, f"{kind} {number}")

    def kill(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()
        if self.failures:
            raise AssertionError(f"the fake redlockd: {self.failures[0]!r}") from self.failures[0]


ANSWERS = {
    "acquire": lambda call: call.lease(),
    "extend": lambda call: call.lease(),
    "release": lambda call: call.answer(204),
    "health": lambda call: call.answer(200, {}),
    "state": lambda call: call.state(),
}


def behaving(**behaviour):
    """As said for each kind of call, and usefully for the others."""
    return lambda call: {**ANSWERS, **behaviour}[call.kind](call)
