# SPDX-License-Identifier: MIT
"""Locks held by a connection (hold): the events of the stream, and that lock and connection end together. Most clients
are curl."""

import contextlib
import json
import queue
import signal
import statistics
import subprocess
import threading
import time

import pytest

from fixtures import certified
from harness import DIES_WITH_US, SLOW, curl_command, end_process, patience, quote, starved_seconds, wait_until

TTL_MS = 3000  # of a stream that is to be renewed: each third of it, so that a busy machine may be late by two seconds


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
            at, line = self.lines.get(timeout=patience(seconds))
        except queue.Empty:
            raise AssertionError(f"{self.resource}: no line within {patience(seconds):g} s") from None
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
        assert self.process.wait(patience(10)) == 0, self.process.stderr.read()
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
    stream = hold(service, resource, ttl_ms=TTL_MS, owner="me")
    status, headers = stream.head()
    assert status == 201 and headers["location"] == f"/locks/{quote(resource)}"
    assert headers["content-type"] == "application/x-ndjson" and headers["cache-control"] == "no-store"
    assert headers["transfer-encoding"] == "chunked" and headers["connection"] == "close" and headers["x-request-id"]
    first = stream.event()
    assert list(first) == ["at", "event", "resource", "token", "fence", "owner", "ttl_ms", "validity_ms", "drift_ms"]
    assert (first["event"], first["resource"], first["owner"], first["ttl_ms"]) == ("acquired", resource, "me", TTL_MS)
    assert 0 < first["validity_ms"] <= TTL_MS - first["drift_ms"]
    for _ in range(3):
        event = stream.event()
        assert list(event) == ["at", "event", "validity_ms", "waiters"] and event["event"] == "renewed"
        assert 0 < event["validity_ms"] <= TTL_MS - first["drift_ms"]
    state = service.curl("GET", f"/locks/{quote(resource)}").json
    assert state["held"] and state["fence"] == first["fence"] and state["owner"] == "me"
    assert service.metrics()["redlockd_holds"] >= 1


def test_it_is_renewed_each_third_of_its_ttl(lab, hold):
    service = lab.service(3)
    stream = hold(service, "a", ttl_ms=TTL_MS)
    first, start = stream.acquired(), time.monotonic()
    renewed = []
    while time.monotonic() < start + 2 * first["ttl_ms"] / 1000:
        assert service.curl("POST", "/locks", body={"resource": "a"}).status == 409
        with contextlib.suppress(queue.Empty):
            renewed.append(stream.lines.get_nowait())
    while not stream.lines.empty():
        renewed.append(stream.lines.get_nowait())
    pauses = [later[0] - earlier[0] for earlier, later in zip(renewed, renewed[1:])]
    assert statistics.median(pauses) > TTL_MS / 4500, pauses
    assert service.metrics()["redlockd_holds"] == 1
    stream.kill()
    wait_free(service, "a")
    line = stream_log(service, "a")
    assert line["status"] == "201" and line["hold"] == "released" and line["ended"] == "client-gone"
    assert int(line["renewals"]) >= len(renewed) and int(line["us"]) > 3e6
    wait_until(lambda: service.metrics()["redlockd_holds"] == 0, what="the gauge goes down")
    assert stream_log(service, "a")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:"])
def test_two_workers(lab, hold, listen):
    service = lab.service(3, "--workers", "2", listen=[listen + lab.folder + "/http" if listen == "unix:" else listen])
    streams = [hold(service, f"r{i}", ttl_ms=TTL_MS) for i in range(6)]
    for stream in streams:
        stream.acquired()
    assert service.metrics()["redlockd_holds"] == 6
    for stream in streams:
        assert [stream.event()["event"] for _ in range(2)] == ["renewed"] * 2
        stream.kill()
    wait_until(lambda: service.metrics()["redlockd_holds"] == 0, what="all are gone")


# --------------------------------------------------------------------------------------------- the client leaves


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_lock_is_free_at_once_when_its_client_ends(service, hold, resource, how):
    """No master has the key soon after the signal to curl; the lease would last a minute, and is renewed each third of it."""
    for _ in range(5):
        stream = hold(service, resource, ttl_ms=60000)
        stream.acquired()
        wait_until(lambda: None not in keys(service, resource), what="all masters have it")
        stream.process.send_signal(how)
        wait_free(service, resource)


def test_the_next_in_the_queue_has_it_at_once(service, hold, resource):
    stream = hold(service, resource, ttl_ms=60000)
    stream.acquired()
    for _ in range(5):
        following = hold(service, resource, ttl_ms=60000, wait_ms=50000)
        wait_until(lambda: service.curl("GET", f"/locks/{quote(resource)}").json["waiters"] == 1, what="one in the queue")
        stream.process.kill()
        following.acquired()
        stream = following


# ---------------------------------------------------------------------------------------------------- it is lost


def test_its_key_is_deleted(service, hold, resource):
    stream = hold(service, resource, ttl_ms=TTL_MS)
    stream.acquired()
    for master in service.masters:
        master.cli("DEL", resource)
    event, _ = stream.last()
    assert (event["event"], event["code"]) == ("lost", "lease-expired")
    assert stream_log(service, resource)["hold"] == "lease-expired"


def test_another_takes_it(service, hold, resource):
    stream = hold(service, resource, ttl_ms=TTL_MS)
    stream.acquired()
    for master in service.masters:
        master.cli("SET", resource, "0" * 40 + ":0:1::", "PX", 60000)
    event, _ = stream.last()
    assert (event["event"], event["code"]) == ("lost", "not-owner")
    assert keys(service, resource) == ["0" * 40 + ":0:1::"] * 3, "what is another's stays"
    assert stream_log(service, resource)["hold"] == "not-owner"


def test_one_master_of_three_is_no_loss(lab, hold):
    service = lab.service(3)
    stream = hold(service, "a", ttl_ms=TTL_MS)
    stream.acquired()
    service.masters[0].kill()
    for _ in range(4):
        assert stream.event()["event"] == "renewed"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_masters_away_until_the_end_of_its_validity(lab, hold, how):
    """Lost when nothing is left of what the last line said, and not before."""
    service = lab.service(3, "--master-timeout-ms", "500")
    stream = hold(service, "a", ttl_ms=3000)
    stream.acquired()
    starved, renewed = starved_seconds(), stream.event()
    for master in service.masters[:2]:
        getattr(master, how)()
    event, before = stream.last(20)
    before = before or renewed
    assert (event["event"], event["code"]) == ("lost", "no-quorum")
    held_for = (event["at"] - before["at"]) * 1000
    late = 300 * SLOW + 1000 * (starved_seconds() - starved)  # the line before may have been read late
    assert before["validity_ms"] - late < held_for, (before, event)
    assert stream_log(service, "a")["hold"] == "no-quorum"
    if how == "stop":  # they carry out their pending commands when they go on
        for master in service.masters[:2]:
            master.cont()
        wait_free(service, "a")


def test_masters_away_for_less_than_its_validity(lab, hold):
    service = lab.service(3, "--master-timeout-ms", "500")
    stream = hold(service, "a", ttl_ms=9000)
    stream.acquired()
    assert stream.event()["event"] == "renewed"
    failures = service.metrics()['redlockd_lease_requests_total{op="extend",outcome="no-quorum"}']
    for master in service.masters[:2]:
        master.stop()
    metric = 'redlockd_lease_requests_total{op="extend",outcome="no-quorum"}'
    wait_until(lambda: service.metrics()[metric] > failures, what="a renewal fails")
    for master in service.masters[:2]:
        master.cont()
    assert stream.event()["event"] == "renewed"
    assert service.curl("POST", "/locks", body={"resource": "a"}).status == 409


def test_no_longer_than_max_hold(lab, hold):
    service = lab.service(3, "--max-hold-ms", "6000")
    stream = hold(service, "a", ttl_ms=TTL_MS)
    stream.acquired()
    validities = []
    while (event := stream.event())["event"] == "renewed":
        validities.append(event["validity_ms"])
    assert (event["event"], event["code"]) == ("lost", "lease-expired")
    assert min(validities) < validities[0], "they get shorter"
    wait_free(service, "a")


# ------------------------------------------------------------------------------------------ the service shuts down


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_holder_goes_on_through_another_redlockd(lab, hold, number):
    first = lab.service(3)
    second = lab.redlockd(first.masters)
    stream = hold(first, "a", ttl_ms=9000)
    lease = stream.acquired()
    assert stream.event()["event"] == "renewed"
    first.process.send_signal(number)
    event, _ = stream.last()
    assert event["event"] == "draining"
    assert 0 < event["validity_ms"] <= 9000 - lease["drift_ms"]
    assert second.curl("POST", "/locks", body={"resource": "a"}).status == 409, "not released"
    extended = put(second, "a", lease["token"], ttl_ms=9000)
    assert extended.status == 200 and extended.json["fence"] == lease["fence"]
    first.process.wait(10 * SLOW)  # a second SIGINT would end it at once, with status 1
    first.stop()
    assert keys(second, "a") == [f"{lease['token']}:" + key.split(":", 1)[1] for key in keys(second, "a")]
    assert put(second, "a", lease["token"]).status == 200
    assert stream_log(first, "a")["hold"] == "draining"


def test_a_drain_ends_in_time_with_many_streams(lab, hold):
    """… also with one that reads nothing, over a master that answers nothing."""
    service = lab.service(3, "--drain-ms", "5000", "--max-connections", "1000")
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
    service.process.send_signal(signal.SIGTERM)
    for plain in plains[1:]:
        got = b""
        while (piece := plain.recv(4096)):
            got += piece
        assert b'{"event":"draining"' in got and got.endswith(b"\r\n0\r\n\r\n"), got
    service.process.wait(patience(10))
    service.masters[0].cont()
    assert sum(key is not None for master in service.masters for key in [master.cli("GET", "r7")]) >= 2
    for plain in plains:
        plain.close()


def test_a_redlockd_that_is_killed(lab, hold):
    """No last line, since no process is left to write it; and the lock still ends."""
    first = lab.redlockd(certified(lab, 3))
    second = lab.redlockd(first.masters)
    stream = hold(first, "a", ttl_ms=5000)
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
    stream = hold(service, resource, ttl_ms=TTL_MS, wait_ms=30000)
    wait_until(lambda: service.curl("GET", f"/locks/{quote(resource)}").json["waiters"] == 1, what="one in the queue")
    assert stream.lines.empty(), "no head before the lock is granted"
    assert service.release(lease).status == 204
    assert stream.acquired()["fence"] > lease["fence"]
    assert [stream.event()["event"] for _ in range(2)] == ["renewed"] * 2


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
    streams = [hold(service, "a", ttl_ms=60000)]
    streams[0].acquired()
    for i in range(1, 6):
        streams.append(hold(other if i % 2 else service, "a", ttl_ms=60000, wait_ms=60000))
        wait_until(lambda: all(master.cli("ZCARD", "redlockd:queue:a") == i for master in service.masters), what="in the queue")
    fences = []
    for stream, following in zip(streams, streams[1:]):
        stream.process.kill()
        fences.append(following.acquired()["fence"])
        assert all(later.lines.empty() for later in streams[streams.index(following) + 1:])
    assert fences == sorted(fences)
