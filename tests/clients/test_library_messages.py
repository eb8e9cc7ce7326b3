# SPDX-License-Identifier: MIT
"""What the errors of the libraries say: the lock and its holder, options and units of the language, why a lease is lost;
and what their log says of it."""

import re
import socket

import pytest

from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import fake  # noqa: F401
from harness import SLOW, wait_until
from test_library import state, url_of

TTL = 5 * SLOW
OPTION = {"go": "TTL"}  # others have ttl
SECONDS = {"python": ("0.1 s", "5 s"), "python-aio": ("0.1 s", "5 s"), "go": ("100ms", "5s"), "node": ("100", "5000 ms"), "java": ("100", "5000 ms"),
           "php": ("0.1 s", "5 s")}


def error_of(ask):
    with pytest.raises(Refused) as refused:
        ask()
    return refused.value


def test_locked_names_the_lock_and_its_holder(service, resource, driver):
    lease = driver.client(url_of(service)).acquire(resource, owner="worker-7")
    error = error_of(lambda: driver.acquire(resource, wait=0))
    assert error.code == "locked" and f"{resource}: held by worker-7 (fence {lease.fence}), lease ends in " in error.detail
    assert re.search(r" ends in [\d.]+ ?m?s unless it is extended", error.detail)
    error = error_of(lambda: driver.acquire(["free/" + resource, resource], wait=0))
    assert f" {resource}: held by worker-7" in " " + error.detail and "free" not in error.detail
    service.acquire(resource + "/b", 60000)
    assert f"{resource}/b: held by somebody else (fence " in error_of(lambda: driver.acquire(resource + "/b", wait=0)).detail


def test_locked_with_a_strange_holder(fake, driver):
    strange = [{}, {"holder": None}, {"holder": 7, "retry_after_ms": "x"}, {"holder": {"owner": "", "fence": None}}, {"holder": {"owner": "a\n"}}]
    server = fake(acquire=lambda call: call.problem(409, "locked", **strange[len(call.server.of("acquire")) - 1]))
    driver.client(server.address)
    told = [error_of(lambda: driver.acquire(["x", "y"], wait=0)).detail for _ in strange]
    assert all("x, y: held by somebody else" in one for one in told[:4]), told
    assert "x, y: held by " in told[4] and "\n" not in told[4], told


def test_an_option_beyond_the_bounds_is_named_in_the_language(lab, language, driver):
    daemon = lab.service(1, "--max-ttl-ms", "5000", "--default-ttl-ms", "5000")
    error = error_of(lambda: driver.client(url_of(daemon)).acquire("x", ttl=30))
    least, most = SECONDS[language]
    assert error.code == "invalid-request"
    assert f"{OPTION.get(language, 'ttl')}: must be from {least} to {most}" in error.detail and "_ms" not in error.detail


def test_a_wrong_address_is_told_with_the_right_forms(driver):
    error = error_of(lambda: driver.client("127.0.0.1:8080"))
    assert re.search("not the address of a server: .?127.0.0.1:8080", error.detail)
    assert "use http://host:port, https://host:port or unix:/path" in error.detail


CAUSES = {
    "not-owner": lambda call: call.problem(409, "not-owner"),
    "lease-expired": lambda call: call.problem(410, "lease-expired"),
    "no-quorum": lambda call: call.problem(503, "no-quorum"),
    "unauthorized": lambda call: call.problem(401, "unauthorized"),
    "no-answer": lambda call: call.until_hung_up(),
    "max-hold": lambda call: call.lease(ttl_ms=1),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_why_a_lease_is_lost(fake, driver, language, cause):
    server = fake(extend=CAUSES[cause])
    lease = driver.client(server.address).acquire("orders/42", ttl=TTL)
    assert lease.lost(5 * TTL).get()["lost"] is True
    error = error_of(lease.check)
    assert (error.code, error.cause) == ("lock-lost", cause) and "lease on orders/42 lost: " in error.detail
    if language != "php":  # which has no log
        wait_until(lambda: "lease on orders/42 lost: " in driver.log, what="it is a line of the log")
    lease.release()
    assert error_of(lease.check).cause == cause, "the first one stays"


def test_a_lease_that_was_released(service, resource, driver):
    lease = driver.client(url_of(service)).acquire(resource)
    assert lease.release()
    error = error_of(lease.check)
    assert error.cause == "released" and re.search(f"lease on {re.escape(resource)} lost: ", error.detail)


def test_a_process_that_was_stopped_is_late(service, resource, driver):
    lease = driver.client(url_of(service)).acquire(resource, ttl=6 * SLOW)
    driver.stop()
    wait_until(lambda: not state(service, resource)["held"], 30, "it is over")
    driver.cont()
    assert error_of(lease.check).cause == "late"


def test_the_longest_hold_of_a_real_server(lab, driver):
    daemon = lab.service(3, f"--max-hold-ms={round(1300 * TTL)}")
    lease = driver.client(url_of(daemon)).acquire("x", ttl=TTL)
    assert lease.lost(10 * TTL).get()["lost"] is True
    assert error_of(lease.check).cause == "max-hold"


def test_a_forced_release(service, resource, driver):
    """The server says only that nobody holds it with this token."""
    lease = driver.client(url_of(service)).acquire(resource, ttl=TTL)
    driver.ask("force", resource=resource)
    assert lease.lost(2 * TTL).get()["lost"] is True
    assert error_of(lease.check).cause == "lease-expired"


def test_the_end_of_a_block_says_why(fake, driver):
    server = fake(release=lambda call: call.problem(409, "not-owner"))
    driver.client(server.address)
    assert error_of(lambda: driver.ask("block", lease="of a block", resource="x")).cause == "not-owner"


# ---- the log ----

WAIT = {"go": "1m0s", "node": "60000 ms", "java": "60000 ms"}  # others have seconds
WARNING = re.compile("no answer of redlockd: (.*); waiting up to (.*) for the lock on orders/42")


@pytest.fixture
def nobody():
    """An address at which no server listens, and no other program can."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def hang_up(call):
    call.connection.close()


def echo(call):
    """No HTTP, and it shows what was sent."""
    call.send(f"{call.headers['idempotency-key']} {call.headers['authorization']}\r\n\r\n".encode())
    call.connection.close()


def grant(call):
    call.lease()


def acquire_and_lose(driver, server, *addresses):
    """All lines of an acquisition: the line of the loss comes after them."""
    driver.client(*addresses, server.address, key="c2VjcmV0").acquire("orders/42", ttl=TTL)
    wait_until(lambda: "lease on orders/42 lost: lease-expired" in driver.log, 30, "the loss is a line of the log")
    return driver.log


def test_one_warning_where_nobody_listens(nobody, driver, language):
    waits = driver.client(nobody).start("acquire", lease="it", resource="orders/42", interruptible=True)
    why, wait = wait_until(lambda: WARNING.search(driver.log), 30, "it is told at once").groups()
    assert why.startswith(f"{nobody}: ") and "refused" in why.lower() and wait == WAIT.get(language, "60 s")
    driver.start("interrupt")
    with pytest.raises(Refused, match="interrupted"):
        waits.get()


@pytest.mark.parametrize("silence", [hang_up, echo])
def test_one_warning_after_the_first_round_without_an_answer(fake, nobody, driver, silence):
    answers = [silence, silence, grant]
    server = fake(acquire=lambda call: answers.pop(0)(call), extend=CAUSES["lease-expired"])
    log = acquire_and_lose(driver, server, nobody)
    (why, _), = WARNING.findall(log)
    assert why.startswith(f"{server.address}: ") and not answers, "the last one was asked, too"
    assert not [secret for secret in ("c2VjcmV0", server.calls[0].headers["idempotency-key"]) if secret in log]


def test_no_warning_where_a_server_answers(fake, nobody, driver):
    answers = [CAUSES["no-quorum"], lambda call: call.problem(429, "too-many-requests"), lambda call: call.problem(409, "locked"), grant]
    server = fake(acquire=lambda call: answers.pop(0)(call), extend=CAUSES["lease-expired"])
    assert not WARNING.search(acquire_and_lose(driver, server, nobody)) and not answers


def test_no_warning_without_a_wait(nobody, driver):
    assert error_of(lambda: driver.client(nobody).acquire("orders/42", wait=0)).code == "no-answer"
    driver.end()
    assert not WARNING.search(driver.log), "the error says it"
