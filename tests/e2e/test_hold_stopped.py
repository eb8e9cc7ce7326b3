# SPDX-License-Identifier: MIT
"""A hold whose redlockd stood still right after the grant: the time that it lost is part of the lease's time."""

import concurrent.futures
import json
import os
import pathlib
import subprocess

import pytest

from harness import SLOW, connect_to, process_state, wait_until

pytestmark = pytest.mark.slow  # stops redlockd for seconds

TTL_MS = round(5000 * SLOW)


@pytest.fixture
def stop(lab):
    """The file that stops redlockd as long as it is there."""
    path = pathlib.Path(lab.folder, "stop")
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("stop") / "stop_hold.so"
    source = pathlib.Path(__file__).with_name("stop_hold.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, source, "-ldl"], check=True)
    return str(path)


def events(plain):
    """The events of a stream, as they come."""
    with plain.makefile("rb") as stream:
        for line in stream:
            if line.startswith(b"{"):
                yield json.loads(line)


def warm_up(service):
    """Several operations at once: each that is used next has its timer, also if the last answers of the one before are still to come."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(lambda number: service.acquire(f"warm/{number}"), range(8)))
    for lease in leases:
        assert service.release(lease).status == 204


@pytest.mark.parametrize("left", ["a third", "nothing"])
def test_a_stop_between_the_grant_and_the_hold(lab, library, stop, left):
    servers = lab.redises(3)
    asan = "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")
    service = lab.redlockd(servers, env={"LD_PRELOAD": library, "STOP_FILE": str(stop), "ASAN_OPTIONS": asan})
    warm_up(service)
    stop.touch()
    plain = connect_to(service.address, 60)
    body = json.dumps({"resource": "x", "ttl_ms": TTL_MS, "hold": True})
    plain.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in servers), what="granted on all masters")
    bound = TTL_MS // 3 if left == "a third" else 0
    left_ms = wait_until(lambda: [server.cli("PTTL", "x") for server in servers if server.cli("PTTL", "x") < bound], TTL_MS / 1000 + 5, "the time goes by")[0]
    for server in servers:
        server.stop()
    stop.unlink()
    told = events(plain)
    acquired = next(told)
    assert acquired["event"] == "acquired" and acquired["validity_ms"] <= max(left_ms, 0), (acquired, left_ms)
    assert [event["event"] for event in told] == ["lost"], "and no renewal, as the masters stand still"
    plain.close()
    for server in servers:
        server.cont()
        wait_until(lambda one=server: process_state(one.process.pid) in ("S", "R"), what="SIGCONT")
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), what="the lock is free")
