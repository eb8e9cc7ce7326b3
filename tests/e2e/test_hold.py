"""Locks held by a connection (hold): the events of the stream, and that lock and connection end together. Most clients
are curl."""

import contextlib
import json
import queue
import signal
import socket
import statistics
import subprocess
import threading
import time

import pytest

from fixtures import certified
from harness import DIES_WITH_US, SLOW, curl_command, end_process, quote, read_response, wait_until

# The most time between an event and its line: far more than it takes, far less than a lease.
SOON = 1.0 * SLOW


class Stream:
    """curl -N on a POST with hold; every line of what it prints, with when it came."""

    def __init__(self, service, resource, *extra, ttl_ms=3000, **members):
        self.resource = resource
        command = curl_command(service.address, "POST", "/locks", "--no-buffer", "--include", "--max-time", "600", *extra,
                               body={"resource" if isinstance(resource, str) else "resources": resource, "ttl_ms": ttl_ms,
                                     "hold": True, **members})
        self.process = subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line.decode()))
        self.lines.put((time.monotonic(), None))

    def line(self, seconds=10.0):
        """The next line and when it came; None for the end of the output."""
        try:
            at, line = self.lines.get(timeout=seconds * SLOW)
        except queue.Empty:
            raise AssertionError(f"{self.resource}: no line within {seconds * SLOW:g} s") from None
        assert line is None or line.endswith("\n"), line
        return at, line

    def head(self, seconds=10.0):
        """Status and headers (names in lower case)."""
        _, line = self.line(seconds)
        assert line is not None, self.process.stderr.read()
        version, status, *_ = line.split()
        headers = {"version": version}
        while (line := self.line(seconds)[1].rstrip("\r\n")):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return int(status), headers

    def event(self, seconds=10.0):
        """The next event, with when it came as its `at`."""
        at, line = self.line(seconds)
        assert line is not None, "the stream ended"
        return {"at": at, **json.loads(line)}

    def acquired(self, seconds=10.0):
        """The lease of the first line."""
        status, _ = self.head(seconds)
        assert status == 201, self.line()
        lease = self.event()
        assert lease.pop("event") == "acquired"
        return lease

    def last(self, seconds=10.0):
        """The last line of a stream that ends as it should, and the renewal before it, if one is on the way there."""
        before, event = None, self.event(seconds)
        while event["event"] == "renewed":
            before, event = event, self.event(seconds)
        assert self.line()[1] is None, "a line after the last one"
        assert self.process.wait(10 * SLOW) == 0, self.process.stderr.read()
        return event, before

    def kill(self):
        end_process(self.process)


@pytest.fixture
def hold(lab):
    return lambda *args, **how: lab.keep(Stream(*args, **how))


def keys(service, resource):
    return [master.cli("GET", resource) for master in service.masters]


def wait_free(service, resource, seconds=10.0):
    wait_until(lambda: keys(service, resource) == [None] * len(service.masters), seconds, f"{resource} is free")


def put(service, resource, token, **members):
    return service.curl("PUT", "/locks/" + quote(resource), body={"token": token, **members})


def stream_log(service, resource):
    """The one line of the log about a stream that has ended."""
    def lines():
        return [line for line in service.log("request") if line.get("resource") == resource and "hold" in line]
    wait_until(lines, what="the line of the log")
    assert len(lines()) == 1
    return lines()[0]


# ---------------------------------------------------------------------------------------------------- the stream


def test_head_and_lines(service, hold, resource):
    stream = hold(service, resource, ttl_ms=900, owner="me")
    status, headers = stream.head()
    assert status == 201 and headers["location"] == f"/locks/{quote(resource)}"
    assert headers["content-type"] == "application/x-ndjson" and headers["cache-control"] == "no-store"
    assert headers["transfer-encoding"] == "chunked" and headers["connection"] == "close" and headers["x-request-id"]
    first = stream.event()
    assert list(first) == ["at", "event", "resource", "token", "fence", "owner", "ttl_ms", "validity_ms", "drift_ms"]
    assert (first["event"], first["resource"], first["owner"], first["ttl_ms"]) == ("acquired", resource, "me", 900)
    assert 0 < first["validity_ms"] <= 900 - first["drift_ms"]
    for _ in range(5):
        event = stream.event()
        assert list(event) == ["at", "event", "validity_ms"] and event["event"] == "renewed"
        assert 0 < event["validity_ms"] <= 900 - first["drift_ms"]
    state = service.curl("GET", f"/locks/{quote(resource)}").json
    assert state["held"] and state["fence"] == first["fence"] and state["owner"] == "me"
    assert service.metrics()["redlockd_holds"] >= 1


def test_it_is_renewed_each_third_of_its_ttl(lab, hold):
    service = lab.service(3)
    stream = hold(service, "a", ttl_ms=900)
    first, start = stream.acquired(), time.monotonic()
    renewed = []
    while time.monotonic() < start + 3:
        assert service.curl("POST", "/locks", body={"resource": "a"}).status == 409
        with contextlib.suppress(queue.Empty):
            renewed.append(stream.lines.get_nowait())
    while not stream.lines.empty():
        renewed.append(stream.lines.get_nowait())
    assert (time.monotonic() - start) * 1000 > 3 * first["ttl_ms"]
    pauses = [later[0] - earlier[0] for earlier, later in zip(renewed, renewed[1:])]
    assert abs(statistics.median(pauses) - 0.3) < 0.1 * SLOW, pauses
    assert len(renewed) >= 8 / SLOW
    assert service.metrics()["redlockd_holds"] == 1
    stream.kill()
    wait_free(service, "a")
    line = stream_log(service, "a")
    assert line["status"] == "201" and line["hold"] == "released" and line["ended"] == "client-gone"
    assert int(line["renewals"]) >= len(renewed) and int(line["us"]) > 3e6
    wait_until(lambda: service.metrics()["redlockd_holds"] == 0, what="the gauge goes down")
    assert stream_log(service, "a")


def test_http_1_0(service, hold, resource):
    stream = hold(service, resource, "--http1.0", ttl_ms=600)
    status, headers = stream.head()
    assert status == 201 and "transfer-encoding" not in headers and "content-length" not in headers
    assert stream.event()["event"] == "acquired"
    assert [stream.event()["event"] for _ in range(4)] == ["renewed"] * 4
    stream.kill()
    wait_free(service, resource)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:"])
def test_two_workers(lab, hold, listen):
    service = lab.service(3, "--workers", "2", listen=[listen + lab.folder + "/http" if listen == "unix:" else listen])
    streams = [hold(service, f"r{i}", ttl_ms=600) for i in range(6)]
    for stream in streams:
        stream.acquired()
    assert service.metrics()["redlockd_holds"] == 6
    for stream in streams:
        assert [stream.event()["event"] for _ in range(4)] == ["renewed"] * 4
        stream.kill()
    wait_until(lambda: service.metrics()["redlockd_holds"] == 0, what="all are gone")


def test_false_is_a_plain_lease(service, resource):
    answer = service.curl("POST", "/locks", body={"resource": resource, "hold": False})
    assert answer.status == 201 and answer.headers["content-type"] == "application/json" and "event" not in answer.json
    assert service.release(answer.json).status == 204


@pytest.mark.parametrize("value", ["1", "0", '"true"', "null", "[true]", "{}", "1.0"])
def test_bad_values(service, resource, value):
    answer = service.curl("POST", "/locks", body=f'{{"resource":"{resource}","hold":{value}}}')
    assert answer.status == 400 and answer.code == "invalid-request"
    assert answer.json["errors"] == [{"field": "hold", "reason": "must be true or false"}]
    assert keys(service, resource) == [None] * 3


def test_an_extension_does_not_know_it(service, resource):
    lease = service.acquire(resource)
    answer = put(service, resource, lease["token"], hold=True)
    assert answer.status == 400 and answer.json["errors"][0]["field"] == "hold"
    assert service.release(lease).status == 204


def test_a_lock_that_is_held_is_refused_as_ever(service, hold, resource):
    lease = service.acquire(resource, owner="other")
    stream = hold(service, resource)
    status, headers = stream.head()
    assert status == 409 and headers["content-type"] == "application/problem+json"
    assert json.loads(stream.lines.get(timeout=5 * SLOW)[1])["code"] == "locked"
    assert service.release(lease).status == 204


# --------------------------------------------------------------------------------------------- the client leaves


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_lock_is_free_at_once_when_its_client_ends(service, hold, resource, how):
    """The time from the signal to curl until no master has the key, 20 times; the lease would last a minute."""
    took = []
    for _ in range(20):
        stream = hold(service, resource, ttl_ms=60000)
        stream.acquired()
        wait_until(lambda: None not in keys(service, resource), what="all masters have it")
        start = time.monotonic()
        stream.process.send_signal(how)
        while keys(service, resource) != [None] * 3:
            assert time.monotonic() < start + SOON, f"not free after {SOON} s"
        took.append(time.monotonic() - start)
    print(f"{how.name}: median {statistics.median(took) * 1000:.1f} ms, max {max(took) * 1000:.1f} ms")


def test_the_next_in_the_queue_has_it_at_once(service, hold, resource):
    took = []
    stream = hold(service, resource, ttl_ms=60000)
    stream.acquired()
    for _ in range(20):
        following = hold(service, resource, ttl_ms=60000, wait_ms=50000)
        wait_until(lambda: service.curl("GET", f"/locks/{quote(resource)}").json["waiters"] == 1, what="one in the queue")
        start = time.monotonic()
        stream.process.kill()
        lease = following.acquired()
        took.append(lease["at"] - start)
        stream = following
    print(f"from kill to the next holder's line: median {statistics.median(took) * 1000:.1f} ms, max {max(took) * 1000:.1f} ms")
    assert max(took) < 1 * SLOW


def test_a_client_that_closes_its_sending_half_has_left(service, resource):
    plain = service.connect()
    body = json.dumps({"resource": resource, "hold": True}).encode()
    plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b"201 Created" in plain.recv(4096)
    plain.shutdown(socket.SHUT_WR)
    wait_free(service, resource, 2)
    while plain.recv(4096):
        pass
    plain.close()


def test_what_the_client_sends_meanwhile_is_not_answered(lab, hold):
    """… and does not hide that it left, nor does it hurt the last line."""
    service = lab.service(3)
    for leaves in (True, False):
        plain = service.connect()
        body = json.dumps({"resource": "a", "hold": True, "ttl_ms": 900}).encode()
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        assert b"201 Created" in plain.recv(4096)
        if leaves:
            plain.close()
            wait_free(service, "a", 2)
            continue
        for master in service.masters:
            master.cli("DEL", "a")
        got = b""
        while (piece := plain.recv(4096)):
            got += piece
        assert b'{"event":"lost","code":"lease-expired"}' in got and b"200 OK" not in got
        plain.close()


# ---------------------------------------------------------------------------------------------------- it is lost


def test_its_key_is_deleted(service, hold, resource):
    stream = hold(service, resource, ttl_ms=1500)
    stream.acquired()
    start = time.monotonic()
    for master in service.masters:
        master.cli("DEL", resource)
    event, _ = stream.last()
    assert (event["event"], event["code"]) == ("lost", "lease-expired")
    assert event["at"] - start < 0.5 + SOON, "at the next renewal"
    assert stream_log(service, resource)["hold"] == "lease-expired"


def test_it_is_released_with_its_token(service, hold, resource):
    stream = hold(service, resource, ttl_ms=900)
    lease = stream.acquired()
    assert service.release({"resource": resource, "token": lease["token"]}).status == 204
    event, _ = stream.last()
    assert (event["event"], event["code"]) == ("lost", "lease-expired")


def test_another_takes_it(service, hold, resource):
    stream = hold(service, resource, ttl_ms=1500)
    stream.acquired()
    for master in service.masters:
        master.cli("SET", resource, "0" * 40 + ":0:1::", "PX", 60000)
    event, _ = stream.last()
    assert (event["event"], event["code"]) == ("lost", "not-owner")
    assert keys(service, resource) == ["0" * 40 + ":0:1::"] * 3, "what is another's stays"
    assert stream_log(service, resource)["hold"] == "not-owner"


def test_one_master_of_three_is_no_loss(lab, hold):
    service = lab.service(3, "--master-timeout-ms", "100")
    stream = hold(service, "a", ttl_ms=900)
    stream.acquired()
    service.masters[0].kill()
    for _ in range(8):
        assert stream.event()["event"] == "renewed"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_masters_away_until_the_end_of_its_validity(lab, hold, how):
    """Lost when nothing is left of what the last line said: not later, and not before."""
    service = lab.service(3, "--master-timeout-ms", "200")
    stream = hold(service, "a", ttl_ms=3000)
    stream.acquired()
    renewed = stream.event()
    for master in service.masters[:2]:
        getattr(master, how)()
    event, before = stream.last(20)
    before = before or renewed
    assert (event["event"], event["code"]) == ("lost", "no-quorum")
    held_for = (event["at"] - before["at"]) * 1000
    assert before["validity_ms"] - 300 * SLOW < held_for < before["validity_ms"] + 300 * SLOW, (before, event)
    assert stream_log(service, "a")["hold"] == "no-quorum"
    if how == "stop":  # they carry out their pending commands when they go on
        for master in service.masters[:2]:
            master.cont()
        wait_free(service, "a")


def test_masters_away_for_less_than_its_validity(lab, hold):
    service = lab.service(3, "--master-timeout-ms", "100")
    stream = hold(service, "a", ttl_ms=6000)
    stream.acquired()
    assert stream.event()["event"] == "renewed"
    failures = service.metrics()['redlockd_lease_requests_total{op="extend",outcome="no-quorum"}']
    for master in service.masters[:2]:
        master.stop()
    metric = 'redlockd_lease_requests_total{op="extend",outcome="no-quorum"}'
    wait_until(lambda: service.metrics()[metric] > failures, what="a renewal fails")
    for master in service.masters[:2]:
        master.cont()
    back = time.monotonic()
    event = stream.event()
    assert event["event"] == "renewed" and event["at"] - back < 1.2 + 0.5 * SLOW, "tried again soon, not a third of the TTL later"
    assert event["validity_ms"] > 6000 * 0.9 - SOON * 1000
    assert service.curl("POST", "/locks", body={"resource": "a"}).status == 409


def test_no_longer_than_max_hold(lab, hold):
    service = lab.service(3, "--max-hold-ms", "3000")
    start = time.monotonic()
    stream = hold(service, "a", ttl_ms=1200)
    stream.acquired()
    validities = []
    while (event := stream.event())["event"] == "renewed":
        validities.append(event["validity_ms"])
    assert (event["event"], event["code"]) == ("lost", "lease-expired")
    assert 2.7 < event["at"] - start < 3.05 + SOON
    assert min(validities) < 900 and validities[0] > 1000, "they get shorter"
    wait_free(service, "a", 1)


# ------------------------------------------------------------------------------------------ the service shuts down


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_holder_goes_on_through_another_redlockd(lab, hold, number):
    first = lab.service(3)
    second = lab.redlockd(first.masters)
    stream = hold(first, "a", ttl_ms=6000)
    lease = stream.acquired()
    assert stream.event()["event"] == "renewed"
    late = time.monotonic() + 1.5  # into the pause between two renewals, so that a fresh one shows
    wait_until(lambda: time.monotonic() > late, what="most of the pause")
    start = time.monotonic()
    first.process.send_signal(number)
    event, _ = stream.last()
    assert event["event"] == "draining" and event["at"] - start < SOON
    assert 6000 - lease["drift_ms"] - 1000 < event["validity_ms"] <= 6000 - lease["drift_ms"], "renewed once more"
    assert second.curl("POST", "/locks", body={"resource": "a"}).status == 409, "not released"
    extended = put(second, "a", lease["token"], ttl_ms=6000)
    assert extended.status == 200 and extended.json["fence"] == lease["fence"]
    first.process.wait(5 * SLOW)
    first.stop()
    assert keys(second, "a") == [f"{lease['token']}:" + key.split(":", 1)[1] for key in keys(second, "a")]
    assert put(second, "a", lease["token"]).status == 200
    assert stream_log(first, "a")["hold"] == "draining"


def test_draining_without_a_quorum(lab, hold):
    """The holder keeps the rest of the validity."""
    service = lab.service(3, "--master-timeout-ms", "100")
    stream = hold(service, "a", ttl_ms=30000)
    lease = stream.acquired()
    wait_until(lambda: None not in keys(service, "a"), what="granted by all masters, also the one that is not needed")
    for master in service.masters[:2]:
        master.stop()
    start = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    event, _ = stream.last()
    assert event["event"] == "draining" and event["at"] - start < 0.6 + SOON
    assert 0 < event["validity_ms"] <= lease["validity_ms"] - (event["at"] - lease["at"] - SOON) * 1000
    service.process.wait(10 * SLOW)
    for master in service.masters[:2]:
        master.cont()
    wait_until(lambda: None not in keys(service, "a"), what="it is not released")


def test_a_drain_ends_in_time_with_many_streams(lab, hold):
    """… also with one that reads nothing, over a master that answers nothing."""
    service = lab.service(3, "--drain-ms", "2000", "--max-connections", "1000")
    plains = []
    for i in range(150):
        plain = service.connect()
        body = json.dumps({"resource": f"r{i}", "hold": True, "ttl_ms": 20000}).encode()
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        plains.append(plain)
    for plain in plains:
        got = b""
        while b"acquired" not in got:
            got += plain.recv(4096)
    assert service.metrics()["redlockd_holds"] == 150
    service.masters[0].stop()
    start = time.monotonic()
    service.process.send_signal(signal.SIGTERM)
    for plain in plains[1:]:
        got = b""
        while (piece := plain.recv(4096)):
            got += piece
        assert b'{"event":"draining"' in got and got.endswith(b"\r\n0\r\n\r\n"), got
    told = time.monotonic() - start
    service.process.wait(10 * SLOW)
    ended = time.monotonic() - start
    print(f"150 streams told after {told:.2f} s, ended after {ended:.2f} s")
    assert told < 1.5 * SLOW and ended < 2 + SOON
    service.masters[0].cont()
    assert sum(key is not None for master in service.masters for key in [master.cli("GET", "r7")]) >= 2
    for plain in plains:
        plain.close()


def test_a_redlockd_that_is_killed(lab, hold):
    """No last line, since no process is left to write it; and the lock still ends."""
    first = lab.redlockd(certified(lab, 3))
    second = lab.redlockd(first.masters)
    stream = hold(first, "a", ttl_ms=1200)
    lease = stream.acquired()
    first.kill()
    while (line := stream.line()[1]) is not None:
        assert json.loads(line)["event"] == "renewed"
    assert stream.process.wait(10 * SLOW) != 0
    assert second.curl("POST", "/locks", body={"resource": "a"}).status == 409
    wait_free(second, "a", 3)
    assert second.acquire("a")["fence"] > lease["fence"]


# ------------------------------------------------------------------------------------------------------- waiting


def test_it_waits_for_the_lock(service, hold, resource):
    lease = service.acquire(resource)
    stream = hold(service, resource, ttl_ms=900, wait_ms=30000)
    wait_until(lambda: service.curl("GET", f"/locks/{quote(resource)}").json["waiters"] == 1, what="one in the queue")
    assert stream.lines.empty(), "no head before the lock is granted"
    start = time.monotonic()
    assert service.release(lease).status == 204
    held = stream.acquired()
    assert held["at"] - start < SOON and held["fence"] > lease["fence"]
    assert held["validity_ms"] > 900 - held["drift_ms"] - SOON * 1000
    assert [stream.event()["event"] for _ in range(5)] == ["renewed"] * 5


def test_the_wait_runs_out(service, hold, resource):
    lease = service.acquire(resource)
    stream = hold(service, resource, wait_ms=400)
    status, headers = stream.head()
    problem = json.loads(stream.lines.get(timeout=5 * SLOW)[1])
    assert status == 409 and headers["content-type"] == "application/problem+json" and problem["code"] == "locked" and problem["waited_ms"] >= 400
    assert service.release(lease).status == 204


def test_a_client_that_leaves_the_queue(service, hold, resource):
    lease = service.acquire(resource)
    stream = hold(service, resource, wait_ms=30000)
    wait_until(lambda: service.curl("GET", f"/locks/{quote(resource)}").json["waiters"] == 1, what="one in the queue")
    stream.kill()
    wait_until(lambda: service.curl("GET", f"/locks/{quote(resource)}").json["waiters"] == 0, 2, "nobody in line")
    assert service.release(lease).status == 204
    wait_free(service, resource)


def test_holders_take_turns(lab, hold):
    """Through two redlockd, in the order in which they came."""
    service = lab.service(3)
    other = lab.redlockd(service.masters)
    streams = [hold(service, "a")]
    streams[0].acquired()
    for i in range(1, 6):
        streams.append(hold(other if i % 2 else service, "a", wait_ms=60000))
        wait_until(lambda: all(master.cli("ZCARD", "redlockd:queue:a") == i for master in service.masters), what="in the queue")
    fences = []
    for stream, following in zip(streams, streams[1:]):
        stream.process.kill()
        fences.append(following.acquired()["fence"])
        assert all(later.lines.empty() for later in streams[streams.index(following) + 1:])
    assert fences == sorted(fences)


# ------------------------------------------------------------------------------------- clients that do not read


def test_a_client_that_does_not_read_is_given_up(lab):
    """Its buffer is made small and its lines come fast, so that it does not take hours. Nothing piles up here meanwhile."""
    service = lab.service(3)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    host, _, port = service.address.rpartition(":")
    plain.connect((host, int(port)))
    body = json.dumps({"resource": "a", "hold": True, "ttl_ms": max(600, round(300 * SLOW))}).encode()
    plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    wait_until(lambda: service.metrics().get("redlockd_holds") == 1, what="held")
    before = service.metrics()["process_resident_memory_bytes"]
    wait_until(lambda: service.metrics()["redlockd_holds"] == 0, 30, "given up")
    wait_free(service, "a", 1)
    assert service.metrics()["process_resident_memory_bytes"] < before + 4e6 or SLOW > 1, "a sanitizer keeps what was freed"
    line = stream_log(service, "a")
    assert line["hold"] == "released" and line["ended"] in ("late", "client-gone") and int(line["renewals"]) > 10, line
    plain.close()


def test_the_connection_is_closed_after_the_stream(service, resource):
    """The last answer of its connection, also if the client asked to keep it."""
    plain = service.connect()
    body = json.dumps({"resource": resource, "hold": True, "ttl_ms": 600}).encode()
    plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    wait_until(lambda: None not in keys(service, resource), what="held")
    for master in service.masters:
        master.cli("DEL", resource)
    answer = read_response(plain)
    assert answer.headers["connection"] == "close"
    assert json.loads(answer.body.decode().splitlines()[-1]) == {"event": "lost", "code": "lease-expired"}
    assert plain.recv(1) == b""
    plain.close()
