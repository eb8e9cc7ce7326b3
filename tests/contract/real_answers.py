# SPDX-License-Identifier: MIT
"""Real answers of every kind, each with the operation of openapi.yaml that it belongs to: redlockd is asked all that it can be asked, with what can go
wrong around it."""

import concurrent.futures
import hashlib
import json
import pathlib
import signal
import socket
import time

from description import DESCRIPTION, METHODS, RESPONSES
from harness import Lab, connect_to, read_response, wait_until


class Answers:
    """Real answers, each with the operation that it belongs to."""

    def __init__(self):
        self.rows = []

    def add(self, method, pattern, response):
        self.rows.append((method, pattern, response))

    def ask(self, service, method, path, pattern, status, **how):
        """Makes a request and keeps the answer; fails at once where the status is not the expected one."""
        answer = service.curl(method, path, **how)
        assert answer.status == status, f"{method} {path}: {status} expected, got {answer}"
        self.add(method, pattern, answer)
        return answer


NEW, ONE = "/locks", "/locks/{resource}"
TOKEN = "0123456789abcdef0123456789abcdef01234567"
PATHS = {ONE: "/locks/a", **{pattern: pattern for pattern in DESCRIPTION["paths"] if pattern != ONE}}
OPERATIONS = sorted((method.upper(), pattern) for pattern, item in DESCRIPTION["paths"].items() for method in METHODS & set(item))


def gather_leases(lab, answers):
    service = lab.service(3)
    lease = answers.ask(service, "POST", "/locks", NEW, 201, body={"resource": "a/b", "owner": "worker-7"}).json
    answers.ask(service, "POST", "/locks", NEW, 201, body={"resource": "no owner"})
    answers.ask(service, "POST", "/locks", NEW, 409, body={"resource": "a/b"})
    answers.ask(service, "POST", "/locks", NEW, 409, body={"resource": "no owner"})
    for status in (201, 200):
        answers.ask(service, "POST", "/locks", NEW, status, headers={"Idempotency-Key": "one-key-of-a-test"}, body={"resource": "twice"})
    answers.ask(service, "PUT", "/locks/a/b", ONE, 200, body={"token": lease["token"], "ttl_ms": 20000})
    answers.ask(service, "PUT", "/locks/a%2Fb", ONE, 200, headers={"Lock-Token": lease["token"]})
    answers.ask(service, "PUT", "/locks/a/b", ONE, 409, body={"token": TOKEN})
    answers.ask(service, "DELETE", "/locks/a/b", ONE, 409, body={"token": TOKEN})
    answers.ask(service, "GET", "/locks/a/b", ONE, 200)
    answers.ask(service, "GET", "/locks/no%20owner", ONE, 200)
    answers.ask(service, "GET", "/locks/free", ONE, 200)
    answers.ask(service, "GET", "/locks/free?wait_ms=10", ONE, 304, headers={"If-None-Match": '"free"'})
    for resource in ("a/b", "no%20owner", "free"):
        answers.ask(service, "GET", "/locks?resource=" + resource, NEW, 200)
    answers.ask(service, "GET", "/locks?resource=free&wait_ms=10", NEW, 304, headers={"If-None-Match": '"free"'})
    answers.ask(service, "GET", "/locks?resource=free&limit=10", NEW, 400)
    answers.ask(service, "PUT", "/locks", NEW, 200, body={"resource": "a/b", "token": lease["token"]})
    first = answers.ask(service, "GET", "/locks?limit=1", NEW, 200).json
    if first["cursor"] is not None:
        answers.ask(service, "GET", f"/locks?limit=1&cursor={first['cursor']}", NEW, 200)
    answers.ask(service, "GET", "/locks?prefix=a/", NEW, 200)
    answers.ask(service, "GET", "/locks?prefix=nothing", NEW, 200)
    answers.ask(service, "GET", "/locks?owner=nobody", NEW, 200)
    answers.ask(service, "GET", "/locks?owner=" + "o" * 129, NEW, 400)
    answers.ask(service, "DELETE", "/locks/a/b", ONE, 204, body={"token": lease["token"]})
    answers.ask(service, "DELETE", "/locks/a/b", ONE, 410, body={"token": lease["token"]})
    answers.ask(service, "PUT", "/locks/a/b", ONE, 410, body={"token": lease["token"]})
    answers.ask(service, "DELETE", "/locks?force=true", NEW, 410, body={"resource": "a/b"})
    several = {"resources": ["c", "d"]}
    several["token"] = answers.ask(service, "POST", "/locks", NEW, 201, body=several).json["token"]
    answers.ask(service, "POST", "/locks", NEW, 409, body={"resources": ["d", "e"]})
    answers.ask(service, "GET", "/locks/c", ONE, 200)
    answers.ask(service, "PUT", "/locks", NEW, 200, body=several)
    for method in ("PUT", "DELETE"):
        answers.ask(service, method, "/locks", NEW, 409, body={**several, "token": TOKEN})
    for method in ("PUT", "DELETE"):
        many = {"leases": [several, {"resource": "a/b", "token": TOKEN}, {"resource": "no owner", "token": TOKEN}]}
        results = answers.ask(service, method, "/locks", NEW, 200, body=many).json["leases"]
        assert [one.get("status") for one in results] == [204 if method == "DELETE" else None, 410, 409]
    several["token"] = service.curl("POST", "/locks", body={"resources": several["resources"]}).json["token"]
    answers.ask(service, "DELETE", "/locks", NEW, 204, body=several)
    for method in ("PUT", "DELETE"):
        answers.ask(service, method, "/locks", NEW, 410, body=several)
    for master in service.masters:
        master.cli("SET", "stranger", "x", "PX", 20000)
        master.cli("SET", "for ever", "x")
        master.cli("RPUSH", "list", "x")
    for resource in ("stranger", "for ever", "list"):
        answers.ask(service, "POST", "/locks", NEW, 409, body={"resource": resource})
        answers.ask(service, "GET", "/locks/" + resource.replace(" ", "%20"), ONE, 200)
    answers.ask(service, "GET", "/locks", NEW, 200)


def gather_waiting(lab, answers):
    """One waits in a queue for one: it is seen in the state, the next one is too many. The first wait runs out; another
    is granted."""
    service = lab.service(3, "--max-waiters-per-resource", "1")
    body = {"resource": "line", "owner": "worker-7", "ttl_ms": 60000}
    lease = answers.ask(service, "POST", "/locks", NEW, 201, body={**body, "wait_ms": 60000}).json
    assert lease["waited_ms"] < 20000, "it is free"
    assert "waited_ms" not in service.acquire("no wait")

    def waits(count):
        return service.curl("GET", "/locks/line").json["waiters"] == count

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(service.curl, "POST", "/locks", body={**body, "wait_ms": 8000})
        wait_until(lambda: waits(1), what="one in the queue")
        answers.ask(service, "GET", "/locks/line", ONE, 200)
        assert answers.ask(service, "GET", "/locks?prefix=line", NEW, 200).json["locks"][0]["waiters"] == 1
        answers.ask(service, "POST", "/locks", NEW, 429, body={**body, "wait_ms": 1000})
        answers.add("POST", NEW, waiter.result())
        assert waiter.result().status == 409 and waiter.result().json["waited_ms"] >= 8000, waiter.result()
        wait_until(lambda: waits(0), what="nobody in the queue")
        waiter = pool.submit(service.curl, "POST", "/locks", body={**body, "wait_ms": 60000})
        wait_until(lambda: waits(1), what="one in the queue")

        def has_figures():
            stats = service.curl("GET", "/stats").json
            return sum(stats["series"]["granted"]) and stats["hottest"] and stats["waiting"]
        wait_until(has_figures, what="figures of all kinds")
        answers.ask(service, "GET", "/stats", "/stats", 200)
        seen = time.monotonic()
        answers.ask(service, "GET", "/locks/line", ONE, 200)
        least = (time.monotonic() - seen) * 1000
        answers.ask(service, "DELETE", "/locks/line", ONE, 204, body={"token": lease["token"]})
        answers.add("POST", NEW, waiter.result())
        assert waiter.result().status == 201 and waiter.result().json["fence"] > lease["fence"], waiter.result()
        assert least * 0.99 - 1 <= waiter.result().json["waited_ms"] <= waiter.result().seconds * 1000 + 1, waiter.result()


def gather_holding(lab, answers):
    """Streams of a lock that is held by its connection, each to its end."""
    service = lab.service(3)

    def ended(resource, end):
        plain = service.connect()
        body = json.dumps({"resource": resource, "owner": "worker-7", "ttl_ms": 4500, "hold": True}).encode()
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: b'"renewed"' in plain.recv(65536, socket.MSG_PEEK), what="a renewal")
        end()
        answer = read_response(plain)
        plain.close()
        answers.add("POST", NEW, answer)
        return json.loads(answer.body.splitlines()[-1])

    assert ended("key deleted", lambda: [master.cli("DEL", "key deleted") for master in service.masters]) == {"event": "lost", "code": "lease-expired"}
    assert ended("taken", lambda: [master.cli("SET", "taken", "somebody's") for master in service.masters]) == {"event": "lost", "code": "not-owner"}
    assert ended("drained", lambda: service.process.send_signal(signal.SIGTERM))["event"] == "draining"


def gather_operation(lab, answers):
    service = lab.service(3)
    for path in ("/healthz", "/readyz", "/metrics", "/masters", "/stats", "/whoami", "/openapi.yaml", "/docs/errors", "/version", "/"):
        answers.ask(service, "GET", path, path, 200)
        head = service.curl("HEAD", path)
        assert head.status == 200 and head.body == b""


def gather_mistakes(lab, answers):
    service = lab.service(1)
    for method, pattern in OPERATIONS:
        path = PATHS[pattern]
        answers.ask(service, method, path + "?surprise=1", pattern, 400, headers={"Lock-Token": TOKEN})
        if (method, pattern, 413) in RESPONSES:
            answers.ask(service, method, path, pattern, 413, body="x" * 20000)
            answers.ask(service, method, path, pattern, 415, body="x", headers={"Content-Encoding": "gzip"})
        else:
            answers.ask(service, method, path, pattern, 400, body="x")
        for size in (3000, 12000):
            answers.ask(service, method, path + "?" + "x" * size, pattern, 414)
        for size in (9000, 12000):
            answers.ask(service, method, path, pattern, 431, headers={"X-Long": "x" * size})
    for body in ("", "{", "[]", '{"resource":"a","resource":"b"}', '{"resource":1}', '{"resource":"a","wait_ms":-1}', '{"resource":"a","wait_ms":60000.5}',
                 '{"resource":"a","ttl_ms":0}'):
        answers.ask(service, "POST", "/locks", NEW, 400, body=body)
    answers.ask(service, "DELETE", "/locks/a", ONE, 400)
    answers.ask(service, "GET", "/locks?limit=0", NEW, 400)
    answers.ask(service, "GET", "/nothing", "*", 404)
    answers.ask(service, "POST", "/nothing", "*", 413, body="x" * 20000)
    for pattern, path in PATHS.items():
        answers.ask(service, "PATCH", path, "*", 405)
        assert "GET" in answers.rows[-1][2].headers["allow"].split(", "), pattern


# The keys of tests/contract: what their SHA-256 stands for is `a-test-key-of-NAME`.
def write_keys(folder):
    def entry(name, rights):
        digest = hashlib.sha256(f"a-test-key-of-{name}".encode()).hexdigest()
        return {"name": name, "sha256": digest, "prefixes": ["mine/"], "rights": rights}
    path = pathlib.Path(folder) / "keys.json"
    path.write_text(json.dumps({"keys": [entry("all", ["acquire", "inspect", "list", "admin"]), entry("least", ["acquire"])]}), encoding="utf-8")
    return path


def with_key(name):
    return {"Authorization": f"Bearer a-test-key-of-{name}"}


def gather_access(lab, answers):
    """No caller, an unknown one, and one without the right; a page that may call, and one that may not."""
    service = lab.service(3, "--keys", str(write_keys(lab.folder)), "--allow-origin", "https://ops.example", wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    for method, pattern in OPERATIONS:
        if (method, pattern, 401) not in RESPONSES:
            continue
        path = PATHS[pattern] + ("?force=true" if method == "DELETE" else "")
        body = {"resource": "mine/a"} if method == "POST" else None
        answers.ask(service, method, path, pattern, 401, body=body)
        answers.ask(service, method, path, pattern, 401, body=body, headers=with_key("nobody"))
        if pattern in (NEW, ONE):
            answers.ask(service, method, path, pattern, 403, body={"resource": "a"} if body else None, headers=with_key("least"))
    for method, pattern in OPERATIONS:
        answers.ask(service, method, PATHS[pattern], pattern, 403, headers={"Origin": "https://evil.example"})
    lease = answers.ask(service, "POST", "/locks", NEW, 201, body={"resource": "mine/a"}, headers=with_key("least")).json
    answers.ask(service, "GET", "/locks/mine/a", ONE, 200, headers=with_key("all"))
    answers.ask(service, "GET", "/locks?prefix=mine/", NEW, 200, headers={"X-Api-Key": "a-test-key-of-all"})
    answers.ask(service, "PUT", "/locks/mine/a", ONE, 200, body={"token": lease["token"]})
    answers.ask(service, "DELETE", f"/locks/mine/a?force=true&fence={lease['fence'] + 1}", ONE, 409, headers=with_key("all"))
    answers.ask(service, "DELETE", "/locks/mine/a?force=true&fence=0", ONE, 400, headers=with_key("all"))
    answers.ask(service, "DELETE", f"/locks/mine/a?force=true&fence={lease['fence']}", ONE, 204, headers=with_key("all"))
    answers.ask(service, "DELETE", "/locks/mine/a?force=true", ONE, 410, headers=with_key("all"))
    answers.ask(service, "OPTIONS", "/locks/mine/a", "*", 204)
    page = {"Origin": "https://ops.example"}
    answers.ask(service, "OPTIONS", "/locks", "*", 204, headers={**page, "Access-Control-Request-Method": "POST"})
    assert answers.rows[-1][2].headers["access-control-allow-origin"] == "https://ops.example"


def gather_too_many(lab, answers):
    service = lab.service(1, "--max-connections", "4", wait=False)
    wait_until(lambda: service.curl("GET", "/masters").json["quorum"]["voting"] == 1, what="one master voting")
    taken = []

    def full():
        """Takes connections until one more is refused: those of the requests before may still be about to go."""
        taken.append(connect_to(service.address))
        taken[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return read_response(taken[-1]).status == 429

    wait_until(full, what="--max-connections connections")
    assert len(taken) <= 5 + 1
    for method, pattern in OPERATIONS:
        answers.ask(service, method, PATHS[pattern], pattern, 429)
    for connection in taken:
        connection.close()


def gather_down(lab, answers):
    service = lab.service(3)
    lease = service.acquire("held")
    for master in service.masters[1:]:
        master.kill()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    answers.ask(service, "GET", "/readyz", "/readyz", 503)
    answers.ask(service, "GET", "/masters", "/masters", 200)
    answers.ask(service, "POST", "/locks", NEW, 503, body={"resource": "a"})
    answers.ask(service, "GET", "/locks", NEW, 503)
    answers.ask(service, "GET", "/locks/a", ONE, 503)
    answers.ask(service, "PUT", "/locks/held", ONE, 503, body={"token": lease["token"]})
    for method in ("PUT", "DELETE"):
        answers.ask(service, method, "/locks", NEW, 503, body={"resources": ["held", "more"], "token": lease["token"]})
    answers.ask(service, "DELETE", "/locks/held", ONE, 503, body={"token": lease["token"]})


def gather_quarantined(lab, answers):
    """Two of three have lost their memory, and time alone will mend it."""
    service = lab.service(3)
    for master in service.masters[1:]:
        master.cli("FLUSHALL")
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")

    def is_measured():
        answer = service.curl("GET", "/readyz")
        return answer if "retry_after_ms" in answer.json else None
    ready = wait_until(is_measured, what="how long it will take")
    answers.add("GET", "/readyz", ready)
    assert int(ready.headers["retry-after"]) == -(-ready.json["retry_after_ms"] // 1000) > 50, ready
    masters = answers.ask(service, "GET", "/masters", "/masters", 200).json["masters"]
    assert [master["quarantine_remaining_ms"] is None for master in masters] == [True, False, False], masters
    for method, path, pattern in (("POST", "/locks", NEW), ("GET", "/locks", NEW), ("GET", "/locks/a", ONE)):
        answers.ask(service, method, path, pattern, 503, body={"resource": "a"} if method == "POST" else None)


def gather_split(lab, answers):
    service = lab.service(3, "--retry-count", "1")
    for i, master in enumerate(service.masters[:2]):
        master.cli("SET", "split", f"somebody-{i}", "PX", 60000)
    answers.ask(service, "POST", "/locks", NEW, 503, body={"resource": "split"})


def gather_draining(lab, answers):
    """Those that wait are sent away, too."""
    service = lab.service(1)
    service.acquire("held")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        body, key = {"resource": "held", "wait_ms": 60000}, {"Idempotency-Key": "the-key-of-a-test"}
        answers.ask(service, "POST", "/locks", NEW, 409, body={**body, "wait_ms": 10}, headers=key)
        waiter = pool.submit(service.curl, "POST", "/locks", body=body, headers=key)
        wait_until(lambda: service.metrics()["redlockd_waiters"] == 1, what="one in the queue")
        service.process.send_signal(signal.SIGTERM)
        answers.add("POST", NEW, waiter.result())
    assert waiter.result().code == "draining" and waiter.result().json["place_kept_ms"] == 2000, waiter.result()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="draining")
    answers.ask(service, "GET", "/readyz", "/readyz", 503)
    answers.ask(service, "POST", "/locks", NEW, 503, body={"resource": "a"})


def gather_drained(lab, answers):
    """Calls that are still under way when the time to drain is up: the masters are stopped."""
    service = lab.service(3, "--master-timeout-ms", "20000", "--drain-ms", "200")
    lease = service.acquire("held")
    for master in service.masters:
        master.stop()
    calls = [("PUT", "/locks/held", ONE), ("DELETE", "/locks/held", ONE), ("GET", "/locks/held", ONE), ("GET", "/locks", NEW),
             ("PUT", "/locks", NEW), ("DELETE", "/locks", NEW)]
    connections = [connect_to(service.address) for _ in calls]
    for connection, (method, path, _) in zip(connections, calls):  # has arrived when this returns: what has arrived is answered
        body = '{"resources":["held","more"]}' if path == "/locks" and method != "GET" else ""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nLock-Token: {lease['token']}\r\n{length}\r\n{body}".encode())
    wait_until(lambda: service.metrics()["redlockd_http_connections"] == len(calls) + 1, what="all connections accepted")
    service.process.send_signal(signal.SIGTERM)
    for connection, (method, _, pattern) in zip(connections, calls):
        answer = read_response(connection)
        connection.close()
        assert answer.code == "draining", answer
        answers.add(method, pattern, answer)


GATHERS = (gather_leases, gather_waiting, gather_holding, gather_operation, gather_mistakes, gather_access, gather_too_many, gather_down,
           gather_quarantined, gather_split, gather_draining, gather_drained)


def gather_all():
    """[(method, pattern, answer)]: all of them."""
    found = Answers()
    for gather in GATHERS:
        with Lab() as lab:
            gather(lab, found)
    return found.rows
