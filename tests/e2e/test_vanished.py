# SPDX-License-Identifier: MIT
"""Clients whose host vanishes: no FIN, no RST, no answer. Needs network namespaces of its own, and is skipped elsewhere."""

import json
import subprocess

import pytest

from harness import DIES_WITH_US, curl_command, wait_until
from networks import SERVER, Networks
from waiting_fixtures import wait_for_queue

TTL_MS = 60000


@pytest.fixture(name="networks")
def fixture_networks():
    networks = Networks()
    yield networks
    networks.kill()


@pytest.fixture(name="service")
def fixture_service(lab, networks):
    """Listens on a Unix socket, for the test, and on the cable, for those that vanish."""
    return lab.redlockd(lab.redises(3), "--insecure", listen=[f"unix:{lab.folder}/listen", f"{SERVER}:0"], prefix=networks.server)


@pytest.fixture(name="far")
def fixture_far(networks, service):
    """far(method, path, …): curl in the other namespace; its output is a pipe."""
    started = []

    def start(*request, **how):
        command = curl_command(service.addresses[1], *request, "--no-buffer", "--max-time", "600", **how)
        started.append(subprocess.Popen([*DIES_WITH_US, *networks.clients, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
        return started[-1]
    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def gone(condition):
    """Waits until the service has noticed it: by the probes of an idle connection, or since its bytes are not acknowledged."""
    wait_until(condition, what="it is noticed")


def waiters(service):
    return service.curl("GET", "/locks/x").json["waiters"]


@pytest.mark.parametrize("how", ["route", pytest.param("link", marks=pytest.mark.slow)])
def test_waiters(service, networks, far, how):
    """Six wait, and one of another host behind them: it is the next when the six have vanished."""
    holder = service.acquire("x", ttl_ms=TTL_MS)
    for count in range(1, 7):
        far("POST", "/locks", body={"resource": "x", "wait_ms": 60000, "ttl_ms": TTL_MS})
        wait_for_queue(service.masters, "x", count)
    live = service.connect(60)
    body = json.dumps({"resource": "x", "wait_ms": 60000})
    live.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    wait_for_queue(service.masters, "x", 7)
    networks.cut(how)
    gone(lambda: waiters(service) == 1)
    assert service.release(holder).status == 204
    assert b" 201 " in live.recv(4096)
    live.close()


@pytest.mark.slow
def test_watchers(service, networks, far):
    stream = far("GET", "/locks/x", headers={"Accept": "text/event-stream"})
    assert stream.stdout.readline() == ":\n"
    far("GET", "/locks/x?wait_ms=60000", headers={"If-None-Match": '"free"'})
    wait_until(lambda: service.metrics()["redlockd_watchers"] == 2, what="both watch")
    networks.cut()
    gone(lambda: service.metrics()["redlockd_watchers"] == 0)


def hold(far, ttl_ms):
    stream = far("POST", "/locks", body={"resource": "x", "ttl_ms": ttl_ms, "hold": True})
    assert json.loads(stream.stdout.readline())["event"] == "acquired"
    return stream


@pytest.mark.slow
@pytest.mark.parametrize("how", ["route", "link"])
@pytest.mark.parametrize("ttl_ms", [TTL_MS, 9000], ids=["silent", "with a line under way"])
def test_a_holder_that_may_count_on_its_lease(service, networks, far, how, ttl_ms):
    """It may only be cut off, and rely on what it was told last. So its lease is not released, but not extended any more."""
    hold(far, ttl_ms)
    fence = service.curl("GET", "/locks/x").json["fence"]
    networks.cut(how)
    gone(lambda: service.metrics()["redlockd_holds"] == 0)
    state = service.curl("GET", "/locks/x").json
    assert state["held"] and state["fence"] == fence, state
    wait_until(lambda: [line["hold"] for line in service.log("request") if "hold" in line] == ["kept"], what="the line of the log")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["route", "link"])
def test_a_holder_whose_lease_would_be_over(service, networks, far, how):
    """It has said nothing for as long as its lease: that is released."""
    hold(far, 2000)
    networks.cut(how)
    gone(lambda: not service.curl("GET", "/locks/x").json["held"])
    wait_until(lambda: [line["hold"] for line in service.log("request") if "hold" in line] == ["released"], what="the line of the log")


def test_an_outage_that_is_short(service, networks, far):
    """Probes are lost, and the network comes back: nobody loses its place."""
    holder = service.acquire("x", ttl_ms=TTL_MS)
    waiter = far("POST", "/locks", body={"resource": "x", "wait_ms": 60000})
    wait_for_queue(service.masters, "x", 1)
    networks.cut()
    wait_until(lambda: networks.probes() > 0, what="a probe without an answer")
    networks.heal()
    wait_until(lambda: networks.probes() == 0, what="an answer")
    assert waiters(service) == 1 and service.release(holder).status == 204
    assert json.loads(waiter.stdout.read())["resource"] == "x"
