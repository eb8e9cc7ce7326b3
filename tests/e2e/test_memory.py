# SPDX-License-Identifier: MIT
"""No memory ends a program at once, with a line that says so; what it held lives on in Redis (server/base/base.h)."""

import http.client
import pathlib
import resource as limits
import subprocess

import pytest

from ctl import BINARY, url
from fake_redlockd import fake  # noqa: F401
from harness import DIES_WITH_US, clean_environment, patience, wait_until

WAITING = 100
PROGRAM = pathlib.Path(BINARY).read_bytes()
pytestmark = pytest.mark.skipif(b"__asan_" in PROGRAM or b"__tsan_" in PROGRAM, reason="a sanitizer has an allocator of its own")


def let_it_grow_no_more(pid):
    """From now on the process has the memory that it has: every further page is refused."""
    limits.prlimit(pid, limits.RLIMIT_DATA, (0, 0))


def use_up(service, clients):
    """Asks for the largest answer, and keeps a request waiting after each one: what is free shrinks until that answer does not fit."""
    scraper = service.client()
    for waiter in clients:
        try:
            waiter.request("POST", "/locks", '{"resource":"held","wait_ms":60000}')
            scraper.call("GET", "/metrics")
        except (OSError, http.client.HTTPException):
            return


def test_the_daemon_ends_and_its_leases_live_on(lab):
    service = lab.service(3)
    lease = service.acquire("held", ttl_ms=60000)
    clients = [http.client.HTTPConnection(service.address, timeout=patience(20)) for _ in range(WAITING)]
    for client in clients:  # so that accepting needs nothing any more
        client.connect()
    wait_until(lambda: service.metrics()["redlockd_http_connections"] > WAITING, what="all connected")
    let_it_grow_no_more(service.process.pid)
    use_up(service, clients)
    service.process.wait(patience(10))
    lab.started.remove(service)
    assert service.process.returncode == 71, service.stderr()
    assert service.log()[-1]["event"] == "out-of-memory" and service.log()[-1]["level"] == "error", service.stderr()
    for client in clients:
        client.close()
    again = lab.redlockd(service.masters)
    answer = again.curl("PUT", "/locks/held", body={"token": lease["token"], "ttl_ms": 60000})
    assert answer.status == 200 and answer.json["fence"] == lease["fence"], answer


def test_redlockctl_ends(fake):
    """Its answer begins before its memory ends, and goes on beyond what it has."""
    body = b'{"locks":[],"cursor":null,"more":"' + b"x" * 4_000_000 + b'"}'
    programs = []

    def listing(call):
        call.answered = 200
        call.connection.sendall(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:1000])
        wait_until(lambda: programs, what="the program is known")
        let_it_grow_no_more(programs[0].pid)
        try:
            call.connection.sendall(body[1000:])
        except OSError:
            pass  # it has ended
    server = fake(state=listing)
    with subprocess.Popen([*DIES_WITH_US, BINARY, "list"], env=clean_environment({"REDLOCKCTL_SERVER": url(server)}), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        programs.append(program)
        _, errors = program.communicate(timeout=patience(20))
    assert program.returncode == 71 and "event=out-of-memory" in errors.splitlines()[-1], errors
