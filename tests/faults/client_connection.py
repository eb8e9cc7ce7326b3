# SPDX-License-Identifier: MIT
"""A client's connections to all replicas, over different ways, and what the client does with one after a grant.

A way is a kind of address that each replica has: {"name", "addresses", "ca"}. deployment.py has the ways: directly over a Unix socket, TCP or
TLS, and through nginx or HAProxy. After a grant, a client does one of these with the connection (`after`):

    keep    the next request uses it again
    idle    it stays open without another request until the lease is over; everything else goes over other connections
    reset   it is closed with a reset (SO_LINGER 0)
    close   it is closed
    unread  it is closed as soon as the request is sent: the client has no lease

The last four use a connection of their own, half of them after an earlier request on it.
"""

import http.client
import json
import select
import socket
import ssl
import struct
import time

HTTP_TIMEOUT_S = 3.0
AFTERS = {"keep": 50, "idle": 24, "reset": 14, "close": 6, "unread": 6}


def now_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Connection(http.client.HTTPConnection):
    """HTTP, kept alive."""

    def __init__(self, address, tls):
        super().__init__("localhost", timeout=HTTP_TIMEOUT_S)
        self.address, self.tls = address, tls

    def set_patience(self, seconds):
        self.timeout = seconds
        if self.sock:
            self.sock.settimeout(seconds)

    def connect(self):
        is_unix = self.address.startswith("unix:")
        plain = socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET)
        try:
            plain.settimeout(self.timeout)
            host, _, port = self.address.rpartition(":")
            plain.connect(self.address[5:] if is_unix else (host, int(port)))
            self.sock = self.tls.wrap_socket(plain, server_hostname=host) if self.tls else plain
        except BaseException:
            plain.close()
            raise

    def ended_by_server(self):
        """Whether the other side has closed it. Session tickets of TLS can be read too, and are no end."""
        if not self.sock or not select.select([self.sock], [], [], 0)[0]:
            return False
        self.sock.settimeout(0)
        try:
            return self.sock.recv(1) == b""
        except (ssl.SSLWantReadError, BlockingIOError):
            return False
        except OSError:
            return True
        finally:
            self.sock.settimeout(self.timeout)

    def reset(self):
        """Closes with RST where there is such a thing: not over a Unix socket."""
        if self.sock:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


class History:
    """The file that all threads of a process write to."""

    def __init__(self, path, lock):
        self.file = open(path, "a", encoding="utf-8", buffering=1)  # pylint: disable=consider-using-with
        self.lock = lock

    def write(self, event):
        with self.lock:
            self.file.write(json.dumps(event) + "\n")


class Left(Exception):
    """The client has closed its connection while it waited."""


class Unread(Exception):
    """The client has closed its connection without a look at the answer."""


class Service:
    """All replicas, for one client."""

    def __init__(self, name, ways, history):
        self.name, self.ways, self.history = name, ways, history
        self.tls = {way["name"]: ssl.create_default_context(cafile=way["ca"]) if way.get("ca") else None for way in ways}
        self.kept = {}    # (name of the way, replica): connection
        self.parked = []  # (connection, replica, way, until when its lease is relied upon)

    def open(self, way, daemon, after, earlier):
        """A connection for one request, and whether it is to be kept."""
        key = way["name"], daemon
        if after != "keep":
            connection = Connection(way["addresses"][daemon], self.tls[way["name"]])
            if earlier:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
            return connection
        if key not in self.kept:
            self.kept[key] = Connection(way["addresses"][daemon], self.tls[way["name"]])
        if self.kept[key].ended_by_server():
            self.kept[key].close()  # http.client connects anew
        return self.kept[key]

    def call(self, kind, way, daemon, method, path, body, stays_s=None, after="keep", earlier=False):
        """Makes a request and writes down what came of it; returns the event. `stays_s`: if there is no answer by then the client leaves."""
        event = {"kind": kind, "client": self.name, "daemon": daemon, "way": way["name"], "resource": path.removeprefix("/locks/"),
                 "token": body.get("token"), "sent": now_us(), "wait_ms": body.get("wait_ms", 0), "after": after}
        if "resource" in body:
            event.update(resource=body["resource"], wanted=body.get("mode"), slots=body.get("slots", 0))
        connection = None
        try:
            connection = self.open(way, daemon, after, earlier)
            event["sent"] = now_us()
            self.ask(connection, event, method, path, body, stays_s)
        except (OSError, ValueError, http.client.HTTPException, Left, Unread) as error:
            event.update(received=now_us(), status=None, code=type(error).__name__)
            if connection:
                connection.close()
            self.history.write(event)
            return event
        self.history.write(event)
        self.leave(connection, event, way, daemon)
        return event

    @staticmethod
    def ask(connection, event, method, path, body, stays_s):
        connection.set_patience(event["wait_ms"] / 1000 + HTTP_TIMEOUT_S)
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        if event["after"] == "unread":
            raise Unread
        if stays_s is not None and not select.select([connection.sock], [], [], stays_s)[0]:
            raise Left
        answer = connection.getresponse()
        content = answer.read()
        event["received"] = now_us()
        event["status"] = answer.status
        event["last"] = answer.will_close  # such as after --max-requests-per-connection
        is_json = "json" in answer.getheader("Content-Type", "")
        note_answer(event, json.loads(content) if content and is_json else {} if is_json or not content else {"code": "proxy"})

    def leave(self, connection, event, way, daemon):
        """Keeps, parks or ends the connection: event["after"]."""
        if event["after"] == "keep":
            return
        if event["after"] == "reset":
            connection.reset()
        elif event["after"] == "idle" and event["status"] == 201 and connection.sock:
            self.parked.append((connection, daemon, way["name"], event["sent"] + event["validity_ms"] * 1000))
        else:
            connection.close()

    def end_idle(self, everything=False):
        """Closes the idle connections whose leases are over, and writes down which of them the other side had closed."""
        now = now_us()
        over = [one for one in self.parked if everything or one[3] <= now]
        self.parked = [one for one in self.parked if one not in over]
        for connection, daemon, way, _ in over:
            self.history.write({"kind": "idle", "client": self.name, "daemon": daemon, "way": way, "sent": now, "received": now,
                                "status": None, "ended": connection.ended_by_server()})
            connection.close()


def note_answer(event, content):
    lease, refusal = ("token", "fence", "ttl_ms", "validity_ms", "drift_ms", "waited_ms", "mode", "slot"), ("code", "retry_after_ms", "waited_ms", "votes")
    members = lease if event["status"] in (200, 201) else refusal
    event.update({name: content[name] for name in members if name in content})
