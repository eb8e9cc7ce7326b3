"""One client process: some threads, each of which takes leases, works under them, and writes down what it saw.

Started with one argument, a JSON object (see main), and ends when its standard input ends. A thread is one client, with a connection
of its own to each redlockd. It takes a lease as README.md says: it counts from when it sent the request, brings its fence to the
guarded resource before it reads there, and writes only while its deadline is not over. But for the clients that are paused: some sleep
past the end of their lease and write then without a look at the clock, some processes stop themselves (SIGSTOP) before they write, and
are continued by the program that started them. About half of the requests wait in the line (`wait_ms`), and some of those close their
connection while they do. The history is one line of JSON for each answer or each failure to get one (checkers.py says what is in it).
"""

import http.client
import json
import os
import random
import select
import signal
import socket
import sys
import threading
import time

HTTP_TIMEOUT_S = 3.0


def now_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class UnixConnection(http.client.HTTPConnection):
    """HTTP, kept alive, over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=HTTP_TIMEOUT_S)
        self.path = path

    def set_patience(self, seconds):
        self.timeout = seconds
        if self.sock:
            self.sock.settimeout(seconds)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class History:
    """The file that all threads of a process write to."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8", buffering=1)  # pylint: disable=consider-using-with
        self.lock = threading.Lock()

    def write(self, event):
        with self.lock:
            self.file.write(json.dumps(event) + "\n")


class Left(Exception):
    """The client has closed its connection while it waited."""


class Service:
    """All redlockd, as one client sees them."""

    def __init__(self, name, paths, history):
        self.name, self.history = name, history
        self.connections = [UnixConnection(path) for path in paths]

    def call(self, kind, daemon, method, path, resource, body, stays_s=None):
        """Makes a request and writes down what came of it; returns the event. `stays_s`: if there is no answer by then the client leaves."""
        event = {"kind": kind, "client": self.name, "daemon": daemon, "resource": resource, "token": body.get("token"), "sent": now_us(),
                 "wait_ms": body.get("wait_ms", 0)}
        connection = self.connections[daemon]
        connection.set_patience(event["wait_ms"] / 1000 + HTTP_TIMEOUT_S)
        try:
            connection.request(method, path, json.dumps(body))
            if stays_s is not None and not select.select([connection.sock], [], [], stays_s)[0]:
                raise Left
            answer = connection.getresponse()
            content = answer.read()
            event["received"] = now_us()
            event["status"] = answer.status
            self._note(event, json.loads(content) if content else {})
        except (OSError, http.client.HTTPException, Left) as error:
            connection.close()
            event.update(received=now_us(), status=None, code=type(error).__name__)
        self.history.write(event)
        return event

    @staticmethod
    def _note(event, content):
        lease, refusal = ("token", "fence", "ttl_ms", "validity_ms", "drift_ms", "waited_ms"), ("code", "retry_after_ms", "waited_ms")
        members = lease if event["status"] in (200, 201) else refusal
        event.update({name: content[name] for name in members if name in content})


class Guarded:
    """The guarded resource, as one client sees it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rwb")

    def call(self, operation, lease, value=None):
        request = {"op": operation, "resource": lease["resource"], "fence": lease["fence"], "token": lease["token"], "value": value}
        self.file.write(json.dumps(request).encode() + b"\n")
        self.file.flush()
        return json.loads(self.file.readline())


class Client(threading.Thread):
    def __init__(self, name, settings, history, ending):
        super().__init__(name=name, daemon=True)
        self.random = random.Random(f"{settings['seed']} {name}")
        self.settings, self.ending = settings, ending
        self.service = Service(name, settings["daemons"], history)
        self.guarded = Guarded(settings["guarded"])

    def run(self):
        while not self.ending.is_set():
            lease = self.acquire()
            if lease["status"] == 201:
                self.use(lease)
                self.pause(self.random.uniform(0.02, 0.2))
            elif lease.get("code") == "locked" and self.random.random() < 0.4:
                self.pause(min(lease["retry_after_ms"] / 1000, 0.5))  # to the moment at which the holder's lease runs out
            else:
                self.pause(self.random.uniform(0.03, 0.2))

    def pause(self, seconds):
        self.ending.wait(max(0.0, seconds))

    def any_daemon(self):
        return self.random.randrange(len(self.settings["daemons"]))

    def acquire(self):
        resource = f"r/{self.random.randrange(self.settings['resources'])}"
        shortest, longest = self.settings["ttl_ms"]
        ttl_ms = self.random.randint(shortest, 3 * shortest) if self.random.random() < 0.5 else self.random.randint(shortest, longest)
        body, stays_s = {"resource": resource, "ttl_ms": ttl_ms}, None
        if self.random.random() < 0.5:
            body["wait_ms"] = self.random.randint(*self.settings["wait_ms"])
            stays_s = self.random.random() * body["wait_ms"] / 1000 if self.random.random() < 0.25 else None
        return self.service.call("acquire", self.any_daemon(), "POST", "/locks", resource, body, stays_s)

    def use(self, lease):
        """The deadline is the client's own, by the rule of the README: from when it sent the request, and, after a wait, from then on plus 0.99
        of the wait; some extend at once instead."""
        deadline = lease["sent"] + int(0.99 * lease.get("waited_ms", 0) + lease["validity_ms"]) * 1000
        if lease.get("waited_ms") and self.random.random() < 0.3:
            deadline = self.ask_for_more(lease, deadline)
        if now_us() >= deadline:
            return
        entered = self.guarded.call("enter", lease)
        quick = self.random.random() < 0.5
        for _ in range(0 if quick else self.random.choice((0, 0, 1, 3))):
            self.wait_part(deadline)
            deadline = self.extend(lease, deadline)
        if not entered["taken"]:
            self.release(lease)
        else:
            self.work(lease, deadline, entered["value"] + 1, quick)

    def wait_part(self, deadline):
        self.pause(self.random.uniform(0.02, 0.5) * (deadline - now_us()) / 1e6)

    def extend(self, lease, deadline):
        return deadline if now_us() >= deadline else self.ask_for_more(lease, deadline)

    def ask_for_more(self, lease, deadline):
        """Returns the new deadline, which is the old one if the extension failed."""
        body = {"token": lease["token"], "ttl_ms": self.random.randint(*self.settings["ttl_ms"])}
        answer = self.service.call("extend", self.any_daemon(), "PUT", "/locks/" + lease["resource"], lease["resource"], body)
        return max(deadline, answer["sent"] + answer["validity_ms"] * 1000) if answer["status"] == 200 else deadline

    def work(self, lease, deadline, value, quick):
        """Writes once, and then gives the lease back or lets it run out."""
        lot = self.random.random()
        if lot < 0.06:  # paused by whatever: writes after the end of its lease without knowing
            self.pause((deadline - now_us()) / 1e6 + self.random.uniform(0, 1.5) * self.settings["ttl_ms"][1] / 1000)
            self.guarded.call("write", lease, value)
        elif lot < 0.12 and self.settings["stops_itself"]:
            os.kill(os.getpid(), signal.SIGSTOP)
            self.guarded.call("write", lease, value)
        else:
            if not quick:
                self.wait_part(deadline)
            if now_us() < deadline:
                self.guarded.call("write", lease, value)
        if lot < 0.8:
            self.release(lease)
        else:
            self.pause((deadline - now_us()) / 1e6)

    def release(self, lease):
        resource = lease["resource"]
        self.service.call("release", self.any_daemon(), "DELETE", "/locks/" + resource, resource, {"token": lease["token"]})


def main():
    """Settings: name, seed, threads, daemons (paths), resources (how many), ttl_ms and wait_ms (shortest, longest), guarded (path),
    history (path), stops_itself."""
    settings = json.loads(sys.argv[1])
    ending, history = threading.Event(), History(settings["history"])
    clients = [Client(f"{settings['name']}.{i}", settings, history, ending) for i in range(settings["threads"])]
    for client in clients:
        client.start()
    sys.stdin.read()
    ending.set()
    for client in clients:
        client.join(4 * HTTP_TIMEOUT_S + settings["wait_ms"][1] / 1000)


if __name__ == "__main__":
    main()
