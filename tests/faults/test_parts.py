# SPDX-License-Identifier: MIT
"""The parts of the real faults that other checks rely on: connections that are reset or left idle, looks at a master, jobs, restarts."""

import collections
import json
import os
import random
import socket
import subprocess
import sys
import threading
import types

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "e2e")]

import client_connection  # noqa: E402
import cluster as parts  # noqa: E402
import harness  # noqa: E402
import restarts  # noqa: E402

ANSWER = b'HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s'
LEASE = {"resource": "r/1", "token": "a" * 40, "fence": 7, "ttl_ms": 1000, "validity_ms": 1000, "drift_ms": 12}


class Server:
    """Accepts one connection, reads one request, and answers it."""

    def __init__(self, status, content):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(10 * harness.SLOW)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.answer = ANSWER % (status, len(content), content)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        self.peer = self.listener.accept()[0]
        self.peer.settimeout(10 * harness.SLOW)
        request = piece = self.peer.recv(65536)
        while piece and not (b"\r\n\r\n" in request and request.endswith(b"}")):
            piece = self.peer.recv(65536)
            request += piece
        self.peer.sendall(self.answer)

    def end(self):
        self.thread.join()
        self.listener.close()
        self.peer.close()


@pytest.fixture(name="server")
def a_server():
    server = Server(b"201 Created", json.dumps(LEASE).encode())
    yield server
    server.end()


@pytest.fixture(name="call")
def a_call(server, tmp_path):
    """Acquires over the server; `after`: what the client does with the connection."""
    history = client_connection.History(tmp_path / "history", threading.Lock())
    way = {"name": "tcp", "addresses": [server.address]}
    service = client_connection.Service("c", [way], history)

    def call(after):
        event = service.call("acquire", way, 0, "POST", "/locks", {"resource": "r/1"}, after=after)
        server.thread.join()
        return service, event
    yield call
    service.end_idle(everything=True)
    for connection in service.kept.values():
        connection.close()


def events(tmp_path):
    return parts.read_lines(tmp_path / "history")


def test_a_reset_after_the_answer_is_a_reset(server, call):
    assert call("reset")[1]["status"] == 201
    with pytest.raises(ConnectionResetError):
        server.peer.recv(1)


def test_a_close_after_the_answer_is_a_close(server, call):
    assert call("close")[1]["status"] == 201
    assert server.peer.recv(1) == b""


def test_an_unread_answer_is_no_lease(server, call):
    event = call("unread")[1]
    assert (event["status"], event["code"]) == (None, "Unread") and "token" in event and event["token"] is None


def test_an_idle_connection_stays_open_until_the_lease_is_over(server, call, tmp_path):
    service, event = call("idle")
    server.peer.settimeout(0)
    with pytest.raises(BlockingIOError):
        server.peer.recv(1)
    service.end_idle()
    assert len(service.parked) == 1 or client_connection.now_us() > event["sent"] + 1_000_000
    service.end_idle(everything=True)
    assert [one["ended"] for one in events(tmp_path) if one["kind"] == "idle"] == [False]


def test_an_idle_connection_that_the_server_closed_is_counted(server, call, tmp_path):
    service, _ = call("idle")
    server.peer.close()
    harness.wait_until(service.parked[0][0].ended_by_server, what="the end of the connection")
    service.end_idle(everything=True)
    assert [one["ended"] for one in events(tmp_path) if one["kind"] == "idle"] == [True]


def test_a_page_of_a_proxy_is_no_answer_of_redlockd():
    answer = types.SimpleNamespace(status=502, will_close=True, read=lambda: b"<html>", getheader=lambda *_: "text/html")
    connection = types.SimpleNamespace(set_patience=lambda _: None, request=lambda *_: None, getresponse=lambda: answer)
    event = {"wait_ms": 0, "after": "keep"}
    client_connection.Service.ask(connection, event, "POST", "/locks", {}, None)
    assert (event["status"], event["code"], event["last"]) == (502, "proxy", True)


# ---- looks at a master ----


def test_the_witness_sees_a_token_come_and_go(tmp_path):
    redis, looks = harness.Redis(str(tmp_path)), tmp_path / "looks"
    witness = parts.start_python("witness.py", json.dumps([redis.path]), str(looks), stdin=subprocess.PIPE)

    def seen():
        return parts.read_lines(looks)[-1]["tokens"] if looks.exists() and parts.read_lines(looks) else None
    try:
        redis.cli("SET", "r/1", "b" * 40 + ":0:7:owner")
        harness.wait_until(lambda: seen() == {"r/1": "b" * 40}, what="the token")
        redis.cli("DEL", "r/1")
        harness.wait_until(lambda: seen() == {}, what="no token")
        count = len(parts.read_lines(looks))
        redis.restart()
        harness.wait_until(lambda: len(parts.read_lines(looks)) > count + 2, what="looks after a restart")
        assert all(look["asked"] <= look["answered"] for look in parts.read_lines(looks))
    finally:
        harness.end_process(witness)
        redis.kill()


# ---- jobs ----


def test_a_job_writes_how_long_it_lived_however_it_ends(tmp_path):
    path = tmp_path / "job"
    environment = {**os.environ, "REDLOCK_RESOURCE": "r/1", "REDLOCK_TOKEN": "c" * 40, "REDLOCK_FENCE": "9"}
    with subprocess.Popen([sys.executable, os.path.join(HERE, "job.py"), str(path), "5", "60"], env=environment) as job:
        harness.wait_until(lambda: path.exists() and len(parts.read_lines(path)) > 3, what="a job that lives")
        job.kill()
    head, *lines = parts.read_lines(path)
    assert (head["token"], head["fence"], head["asked"], head["resource"]) == ("c" * 40, 9, 5, "r/1")
    assert head["begin"] <= lines[0]["lives"] <= lines[-1]["lives"] <= client_connection.now_us()


# ---- restarts ----


class Replica:
    """Ends with `status` when it is asked to; never, where that is None."""

    def __init__(self, number, status=0, drain_s=60):
        self.name, self.number, self.status, self.drain = f"redlockd {number}", number, status, drain_s
        self.process = types.SimpleNamespace(returncode=None, poll=lambda: self.process.returncode)
        self.done = []

    def begin_to_end(self):
        self.done.append("SIGTERM")
        self.process.returncode = self.status

    def drain_s(self):
        return self.drain

    def kill(self):
        self.done.append("kill")
        self.process.returncode = -9

    def start(self):
        self.done.append("start")
        self.process.returncode = None

    @staticmethod
    def call(*_, **__):
        return types.SimpleNamespace(status=200)


class Rolling(restarts.Restarts):
    def __init__(self, *replicas):
        self.cluster = types.SimpleNamespace(daemons=replicas)
        self.random, self.counts, self.log, self.busy = random.Random(1), collections.Counter(), [], set()
        self.trap, self.quiet_until = None, 0
        self.random.random = lambda: 1.0  # nothing is killed while it drains

    def note(self, *what):
        self.log.append(what)

    def seconds(self, least, most):
        return round(self.random.uniform(least, most) * parts.SECOND)

    def roll_to_the_end(self):
        self.roll()
        for _ in range(100):
            if self.rolling:
                self.restart_step()


def test_each_replica_is_restarted_one_after_the_other():
    rolling = Rolling(*(Replica(number) for number in range(3)))
    rolling.roll_to_the_end()
    assert rolling.rolling is None and rolling.slow_ends == () and not rolling.busy
    assert [replica.done for replica in rolling.cluster.daemons] == [["SIGTERM", "start"]] * 3
    assert [what for _, _, what in rolling.log] == ["begins", "over"] * 3
    assert rolling.counts["redlockd restarted by SIGTERM"] == 3


@pytest.mark.parametrize("replica", [Replica(0, status=-11), Replica(0, status=1), Replica(0, status=None, drain_s=0)])
def test_a_replica_that_does_not_end_well_is_found(replica):
    rolling = Rolling(replica)
    rolling.roll_to_the_end()
    assert len(rolling.slow_ends) == 1 and replica.done[-1] == "start"


def test_a_replica_that_something_else_hurts_is_left_alone_until_that_is_over():
    rolling = Rolling(Replica(0))
    rolling.busy.add("redlockd 0")
    rolling.roll_to_the_end()
    assert rolling.cluster.daemons[0].done == [] and rolling.rolling
