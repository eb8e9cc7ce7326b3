# SPDX-License-Identifier: MIT
"""All modes at once over several workers, while keys and certificates are replaced: for races between threads, which the build with ThreadSanitizer reports.
Its report on stderr fails the test (Redlockd.stop). A round takes two seconds or more; ./dev test tsan runs 30."""

import collections
import itertools
import json
import os
import shutil
import threading
import uuid

from certificates import Authority
from harness import Client, connect_to, quote, wait_until
from key_fixtures import Key, Keyed
from test_tls import request_bytes

ROUNDS = int(os.environ.get("REDLOCKD_TEST_ROUNDS", "2"))
WORKERS = 3
ANSWERS = {200, 201, 204, 304, 409, 410, 429, 503}  # a slow build may have waits that end and masters that are late


class Caller:
    """A client of one kind: in each turn it makes a connection, and a few requests on it."""

    def __init__(self, load, turn, name="lasting", listener=0, also=()):
        self.load, self.turn, self.listener, self.fine = load, turn, listener, ANSWERS | set(also)
        self.headers = load.keyed.keys[name].header()
        self.turns, self.statuses = 0, collections.Counter()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.load.over.is_set():
            try:
                self.turn(self)
            except Exception as failure:  # noqa: BLE001: whatever it is, the test is to end with it
                self.load.failures.append(f"{self.turn.__name__}: {failure!r}")
                return
            self.turns += 1

    @property
    def place(self):
        """Where it connects, and the context of TLS there."""
        daemon = self.load.keyed.redlockd
        address = daemon.addresses[self.listener]
        return address, daemon.tls if address.startswith("https://") else None

    def note(self, status):
        assert status in self.fine, status
        self.statuses[status] += 1
        return status

    def connection(self):
        address, tls = self.place
        return Connection(self, Client(address, tls))

    def lines(self, method, path, body, *headers):
        """One request on a connection of its own; then its status and the lines of its answer, as they come."""
        address, tls = self.place
        fields = [f"{name}: {value}" for name, value in self.headers.items()]
        with connect_to(address, tls=tls) as plain, plain.makefile("rb") as answer:
            plain.sendall(request_bytes(method, path, json.dumps(body).encode() if body else b"", *fields, *headers, "Connection: close"))
            yield self.note(int(answer.readline().split()[1]))
            yield from iter(answer.readline, b"")


class Connection:
    def __init__(self, caller, client):
        self.caller, self.client = caller, client

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.client.close()

    def call(self, method, path, body=None, **headers):
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.client.call(method, path, body, {**self.caller.headers, **fields})
        self.caller.note(answer.status)
        return answer

    def use(self, body, **headers):
        """Acquires, extends, inspects and releases."""
        answer = self.call("POST", "/locks", {"ttl_ms": 5000, **body}, **headers)
        if answer.status in (200, 201):
            lease = answer.json
            names, path = {"token": lease["token"]}, "/locks/" + quote(lease.get("resource", ""))
            if "resources" in lease:
                names, path = {**names, "resources": lease["resources"]}, "/locks"
            self.call("PUT", path, names)
            self.call("GET", path if "resource" in lease else "/locks/" + quote(lease["resources"][0]))
            self.call("DELETE", path, names)
        return answer


# ---- the kinds of callers: one turn of each ----


def exclusive(caller):
    with caller.connection() as connection:
        connection.use({"resource": "mixed/alone", "metadata": {"from": "mixed"}, "owner": "exclusive"})
        connection.use({"resource": "mixed/one"})  # refused as a rule: others wait for it


def waiting(caller):
    with caller.connection() as connection:
        connection.use({"resource": "mixed/one", "wait_ms": 500})


def shared(caller):
    with caller.connection() as connection:
        connection.use({"resource": "mixed/shared", "mode": "shared", "wait_ms": 200})
        connection.use({"resource": "mixed/shared", "wait_ms": 200})


def slots(caller):
    with caller.connection() as connection:
        connection.use({"resource": "mixed/slots", "slots": 2, "wait_ms": 200})


def sets(caller):
    with caller.connection() as connection:
        connection.use({"resources": ["mixed/one", "mixed/set", "mixed/other"], "wait_ms": 200})
        connection.use({"resources": ["mixed/set", "mixed/third"], "mode": "shared", "wait_ms": 200})


def repeated(caller):
    body, key = {"resource": f"mixed/repeated/{uuid.uuid4().hex}", "ttl_ms": 5000}, uuid.uuid4().hex
    with caller.connection() as connection:
        connection.call("POST", "/locks", body, Idempotency_Key=key)
        connection.use(body, Idempotency_Key=key)


def holding(caller):
    """Reads a few lines and hangs up, which ends the lease."""
    for _ in itertools.islice(caller.lines("POST", "/locks", {"resource": "mixed/held", "hold": True, "ttl_ms": 600, "wait_ms": 500}), 12):
        pass


def guest(caller):
    """Holds for as long as its key is in the file."""
    for _ in itertools.islice(caller.lines("POST", "/locks", {"resource": "mixed/guest", "hold": True, "ttl_ms": 600}), 40):
        pass


def watching(caller):
    for _ in itertools.islice(caller.lines("GET", "/locks/mixed/one", None, "Accept: text/event-stream"), 20):
        if caller.load.over.is_set():
            break
    with caller.connection() as connection:
        tag = connection.call("GET", "/locks/mixed/shared").headers.get("etag", '"none"')
        connection.call("GET", "/locks/mixed/shared?wait_ms=200", If_None_Match=tag)


def looking(caller):
    with caller.connection() as connection:
        for path in ("/stats", "/metrics", "/masters", "/readyz", "/healthz", "/whoami", "/version", "/", "/openapi.yaml"):
            connection.call("GET", path)


def listing(caller):
    with caller.connection() as connection:
        page = connection.call("GET", "/locks?prefix=mixed/&limit=3")
        if page.status == 200 and page.json["cursor"]:
            connection.call("GET", f"/locks?prefix=mixed/&limit=3&cursor={page.json['cursor']}")


def forcing(caller):
    with caller.connection() as connection:
        connection.call("POST", "/locks", {"resource": "mixed/one", "wait_ms": 100, "ttl_ms": 5000})
        connection.call("DELETE", "/locks/mixed/one?force=true")


# ---- the load ----


class Load:
    def __init__(self, lab, folder):
        authority = Authority(folder)
        self.certificates = itertools.cycle([authority.issue(f"server-{i}", "IP:127.0.0.1", "DNS:localhost", usage="serverAuth") for i in range(2)])
        self.certificate, self.key = os.path.join(folder, "server.pem"), os.path.join(folder, "server.key")
        self.guest, self.lasting = Key("guest", ["mixed/"], ["acquire"], rate=50), Key("lasting", [""], ["acquire", "inspect", "list", "admin"], rate=1000000)
        self.replace_certificate()
        self.keyed = Keyed(lab, [self.lasting, self.guest], "--workers", str(WORKERS), "--tls-cert", self.certificate, "--tls-key", self.key,
                           "--tls-client-ca", authority.certificate, "--max-rate-per-address", "1000000",
                           "--request-timeout-ms", "3600000", trust=authority.certificate, log_requests=None,
                           listen=("127.0.0.1:0", "http://127.0.0.1:0", f"unix:{os.path.join(lab.folder, 'socket')}")).wait_ready()
        self.over, self.failures = threading.Event(), []
        turns = [exclusive, shared, slots, sets, repeated, holding, watching, looking, listing, forcing, waiting, waiting, looking]
        self.callers = [Caller(self, turn, listener=i % 3) for i, turn in enumerate(turns)]
        self.callers.append(Caller(self, guest, "guest", also=[401]))

    def replace_certificate(self):
        new = next(self.certificates)
        for source, target in ((new.certificate, self.certificate), (new.key, self.key)):
            shutil.copy2(source, target + ".new")
            os.rename(target + ".new", target)

    def uptime_ms(self):
        answer = self.keyed.call("operator", "GET", "/stats")
        return answer.json["uptime_ms"]

    def round(self, keys):
        """A reload; then every caller has another turn, and /stats another point."""
        self.replace_certificate()
        self.keyed.write(keys)
        self.keyed.reload()
        turns, until_ms = [caller.turns for caller in self.callers], self.uptime_ms() + 2000
        wait_until(lambda: self.failures or all(caller.turns > before + 1 for caller, before in zip(self.callers, turns)), 60, "every caller has a turn")
        wait_until(lambda: self.failures or self.uptime_ms() >= until_ms, 60, "the figures are added up")
        assert not self.failures, self.failures

    def end(self):
        self.over.set()
        for caller in self.callers:
            while caller.thread.is_alive():
                self.keyed.call("operator", "POST", "/locks", body={"resource": "mixed/one", "ttl_ms": 100})  # a change, for who watches
                caller.thread.join(0.2)


def test_all_modes_with_reloads(lab, tmp_path):
    load = Load(lab, str(tmp_path))
    try:
        for i in range(ROUNDS):
            load.round([load.lasting, load.guest] if i % 2 else [load.lasting])
    finally:
        load.end()
    unserved = {caller.turn.__name__: caller.statuses for caller in load.callers if not caller.statuses.keys() & {200, 201, 204}}
    assert not unserved
    assert load.keyed.redlockd.log("tls-reloaded") and not load.keyed.redlockd.log("tls-reload-failed")
    load.keyed.redlockd.stop()
