# SPDX-License-Identifier: MIT
"""Idle connections rest (api/http/deferred.c): libmicrohttpd gives them back after --request-timeout-ms and a second, and they cost next to nothing
until the client goes on. The client sees nothing of it."""

import contextlib
import os
import pathlib
import re
import signal
import ssl
import subprocess
import time

import pytest

from harness import connect_to, freeze, process_state, read_response, wait_until
from test_delivered import GET, post

REST_S = 2  # of --request-timeout-ms 1000
OPTIONS = ("--request-timeout-ms", "1000")
ONE_SHOT = 1 << 30


def resting(service):
    """How many connections are watched until they speak: no test here has a watched request, or one that has said nothing."""
    infos = ""
    for path in pathlib.Path(f"/proc/{service.process.pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            infos += path.read_text()
    events = re.findall(r"^tfd: +\d+ events: +([0-9a-f]+)", infos, re.M)
    return sum(int(mask, 16) & ONE_SHOT != 0 for mask in events)


def wait_resting(service, count):
    wait_until(lambda: resting(service) == count, what=f"{count} connections rest")


def ask(plain, request=GET):
    plain.sendall(request)
    return read_response(plain)


def connections(service):
    """Besides the one that asks. None: it was refused, since its address has no place left."""
    number = re.search(rb"^redlockd_http_connections (\d+)$", service.curl("GET", "/metrics").body, re.M)
    return number and int(number[1]) - 1


@pytest.fixture
def service(lab):
    return lab.service(3, *OPTIONS)


def test_a_connection_goes_on_after_each_rest(service):
    began = time.monotonic()
    plains = [connect_to(service.address) for _ in range(30)]
    for plain in plains:
        assert ask(plain).status == 200
    assert resting(service) == 0 or time.monotonic() > began + REST_S
    wait_resting(service, 30)
    assert connections(service) == 30
    for number, plain in enumerate(plains):
        answer = ask(plain, post(f"resting/{number}"))
        assert answer.status == 201 and answer.headers["connection"] == "Keep-Alive", answer
    wait_resting(service, 30)
    plains[0].close()
    wait_until(lambda: connections(service) == 29, what="the one that has left is not counted")
    for number, plain in enumerate(plains[1:], 1):
        assert ask(plain, post(f"resting/{number}")).status == 409
        plain.close()
    wait_until(lambda: connections(service) == 0, what="all have ended")


def test_a_rest_ends_with_the_idle_timeout(lab):
    service = lab.service(3, *OPTIONS, "--idle-timeout-ms", "6000")
    plain = connect_to(service.address)
    since = time.monotonic()
    assert ask(plain).status == 200
    wait_resting(service, 1)
    assert plain.recv(1) == b""
    assert time.monotonic() - since > 5.9
    metrics = service.metrics()
    assert metrics['redlockd_http_timeouts_total{phase="idle"}'] == 1 and metrics['redlockd_http_timeouts_total{phase="request"}'] == 0


def test_nothing_rests_where_the_idle_timeout_comes_first(lab):
    service = lab.service(3, *OPTIONS, "--idle-timeout-ms", "2000")
    plain = connect_to(service.address)
    assert ask(plain).status == 200
    assert plain.recv(1) == b""
    assert service.metrics()['redlockd_http_timeouts_total{phase="idle"}'] == 1


def test_the_requests_before_a_rest_count(lab):
    service = lab.service(3, *OPTIONS, "--max-requests-per-connection", "3")
    plain = connect_to(service.address)
    for _ in range(2):
        assert ask(plain).headers["connection"] == "Keep-Alive"
    wait_resting(service, 1)
    assert ask(plain).headers["connection"] == "close"
    assert plain.recv(1) == b""


def test_a_client_at_rest_counts_for_its_address(lab):
    service = lab.service(3, *OPTIONS, "--max-connections-per-address", "3")
    plains = [connect_to(service.address) for _ in range(2)]
    for plain in plains:
        assert ask(plain).status == 200
    wait_resting(service, 2)
    third = connect_to(service.address)
    assert ask(third).status == 200
    assert read_response(connect_to(service.address)).status == 429
    third.close()
    plains[0].close()
    for _ in range(3):  # a place for one and no more
        wait_until(lambda: connections(service) == 1, what="two have left")
        again = connect_to(service.address)
        assert ask(again).status == 200
        again.close()
    assert ask(plains[1]).status == 200


@pytest.mark.parametrize("split", [0, 1, 9, 30], ids=lambda split: f"after {split} bytes")
def test_a_request_at_any_moment_around_the_rest_is_answered(service, split):
    """Also one that comes in two pieces, the second after the first was read: here libmicrohttpd must keep the connection."""
    plains = [connect_to(service.address) for _ in range(150)]
    begun = []
    for plain in plains:
        assert ask(plain).status == 200
        begun.append(time.monotonic())
    for number, (plain, since) in enumerate(zip(plains, begun, strict=True)):
        time.sleep(max(0, since + REST_S - 0.05 + number * 0.001 - time.monotonic()))
        if split:
            plain.sendall(GET[:split])
    for plain in plains:
        plain.sendall(GET[split:])
    assert [answer and answer.status for answer in map(read_response, plains)] == [200] * 150


def test_the_beginning_of_a_request_does_not_rest(lab):
    """It has come with the request before: it is in libmicrohttpd's buffer, and would be lost. A request that does not arrive in time ends the connection."""
    service = lab.service(3, "--request-timeout-ms", "4000")
    plain, late = connect_to(service.address), connect_to(service.address)
    for one in (plain, late):
        assert ask(one, GET + GET[:7]).status == 200
    plain.sendall(GET[7:])
    assert read_response(plain).status == 200
    assert late.recv(1) == b""
    wait_resting(service, 1)
    assert ask(plain).status == 200


@pytest.mark.parametrize("begun", [0, 7], ids=["nothing was read", "as many were read"])
@pytest.mark.parametrize("look", [1, 2])
def test_bytes_that_come_during_the_look(lab, look, begun):
    """What is unread and what has come must be of one moment: else a whole request is lost, or the beginning of one, hidden by as many bytes."""
    library, mark = f"{lab.folder}/slow_look.so", pathlib.Path(lab.folder, "look")
    source = pathlib.Path(__file__).with_name("slow_look.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-ldl"], check=True)
    asan = "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")
    service = lab.service(3, *OPTIONS, env={"LD_PRELOAD": library, "LOOK_FILE": str(mark), "LOOK_NUMBER": str(look), "ASAN_OPTIONS": asan})
    plain = connect_to(service.address)
    assert ask(plain, GET + GET[:begun]).status == 200
    wait_until(mark.exists, what="it looks")
    plain.sendall(GET[begun:2 * begun] or GET)
    mark.unlink()
    if not begun:
        assert read_response(plain).status == 200
        return
    with contextlib.suppress(ConnectionError):
        time.sleep(0.2)
        plain.sendall(GET[2 * begun:])
        assert plain.recv(1) == b""


def test_connections_that_rest_do_not_delay_the_end(service):
    plain = connect_to(service.address)
    assert ask(plain).status == 200
    wait_resting(service, 1)
    service.process.send_signal(signal.SIGTERM)
    assert plain.recv(1) == b""
    wait_until(lambda: process_state(service.process.pid) is None, what="the end")
    assert service.process.wait(10) == 0


def test_requests_that_have_come_are_answered_at_the_end(service):
    """More than are looked at in one round, so that the end comes in between."""
    plains = [connect_to(service.address) for _ in range(200)]
    for plain in plains:
        assert ask(plain).status == 200
    wait_resting(service, 200)
    freeze(service.process)
    for plain in plains:
        plain.sendall(GET)
    service.process.send_signal(signal.SIGTERM)
    service.process.send_signal(signal.SIGCONT)
    answers = [read_response(plain) for plain in plains]
    assert [answer and answer.status for answer in answers] == [200] * 200
    assert "connection" in answers[-1].headers
    assert service.process.wait(30) == 0


def test_unix_and_tls_connections_stay_as_they_are(lab, authority):  # noqa: F811
    """The kernel does not say how much of a Unix socket was read; a session of TLS cannot be given back."""
    certificate = authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
    service = lab.service(3, *OPTIONS, "--tls-cert", certificate.certificate, "--tls-key", certificate.key,
                          listen=("http://127.0.0.1:0", "https://127.0.0.1:0", f"unix:{lab.folder}/listen"))
    tcp, tls, unix = service.addresses
    plains = [connect_to(unix), connect_to(tls, tls=ssl.create_default_context(cafile=authority.certificate)), connect_to(tcp)]
    for _ in range(2):
        for plain in plains:
            assert ask(plain).status == 200
        wait_resting(service, 1)
