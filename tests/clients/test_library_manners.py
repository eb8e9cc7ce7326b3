# SPDX-License-Identifier: MIT
"""A holder that keeps the lock for others a while longer (at_least, keep), and one that learns that others wait."""

import re
import time

import pytest

from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import fake  # noqa: F401
from harness import SLOW, wait_until
from test_library import state, url_of
from waiting_fixtures import crowd  # noqa: F401

TTL = 6 * SLOW


# ---- at_least ----


@pytest.mark.parametrize("end", ["release", "block", "error", "program"])
def test_a_lock_is_kept_after_a_short_job(service, resource, driver, end):
    """However it ends; the lease itself is over."""
    driver.client(url_of(service), owner="me")
    how = {"resource": resource, "at_least": 40}
    if end in ("block", "error"):
        answers = driver.start("block", lease="it", **how, **{"raise": end == "error"})
        if end == "error":
            with pytest.raises(Refused, match="raised"):
                answers.get()
        answers.ended or answers.get()
    else:
        lease = driver.acquire(**how)
        assert 30 < lease.first_remaining <= 36, "from ten seconds on it is the ttl, too"
        assert lease.release() if end == "release" else driver.end() is None
    shown = state(service, resource)
    assert (shown["held"], shown["kept"], shown["owner"]) == (True, True, "me") and 0 < shown["remaining_ms"] <= 40000
    if end != "program":
        assert driver.acquire(resource, **{"try": True}) is None


def test_a_lock_is_kept_for_the_rest_of_the_time(fake, driver):
    """Counted from when the answer came: a slow one shortens nothing."""
    def slow(call):
        time.sleep(0.5)
        call.lease()
    server = fake(acquire=slow)
    lease = driver.client(server.address).acquire("x", ttl=20, at_least=15)
    assert lease.release()
    call = server.call("release")
    passed = call.came - server.call("acquire").came
    assert 15 - passed <= call.body["keep_ms"] / 1000 <= 15, "the rest, rounded up"
    assert call.body["keep_ms"] / 1000 > 15.4 - passed and "ttl_ms" not in call.body


def test_nothing_is_kept_after_a_long_job(fake, driver):
    server = fake()
    lease = driver.client(server.address).acquire("x", ttl=20, at_least=0.3)
    assert lease.lost(0.4).get()["lost"] is False
    assert lease.release() and "keep_ms" not in server.call("release").body


def test_a_lost_lease_is_released_as_well(fake, driver):
    """The masters may still have it, for as long as the margin."""
    server = fake(extend=lambda call: call.problem(410, "lease-expired"))
    lease = driver.client(server.address).acquire("x", ttl=TTL, at_least=TTL)
    assert lease.lost(5 * TTL).get()["lost"] is True
    lease.release()
    assert 0 < server.call("release").body["keep_ms"] < 1000 * TTL


def test_a_cancelled_acquisition_keeps_nothing(fake, driver):
    """It did no job."""
    server = fake(acquire=lambda call: call.until_hung_up() if len(call.server.calls) == 1 else call.lease())
    waits = driver.client(server.address).start("acquire", lease="it", resource="x", at_least=30, interruptible=True)
    server.call("acquire")
    driver.start("interrupt")
    with pytest.raises(Refused, match="interrupted"):
        waits.get()
    assert "keep_ms" not in server.call("release").body


@pytest.mark.parametrize("at_least", [-1, 21])
def test_an_at_least_that_makes_no_lock(fake, driver, at_least):
    """It is at most the ttl: otherwise a crash would end it earlier."""
    server = fake()
    driver.client(server.address)
    with pytest.raises(Refused, match="(?i)at_?least must be .* to ttl"):
        driver.acquire("x", ttl=20, at_least=at_least)
    assert not server.calls


def test_an_at_least_beyond_the_longest_lease(lab, driver):
    daemon = lab.service(1, "--max-ttl-ms", "50000")
    with pytest.raises(Refused) as refused:
        driver.client(url_of(daemon)).acquire("x", at_least=60)
    assert refused.value.code == "invalid-request"
    assert re.search("at_?least: must be from .* to 50", refused.value.detail, re.IGNORECASE)


# ---- a release that keeps ----


def test_a_release_that_keeps(service, resource, driver):
    lease = driver.client(url_of(service), owner="me").acquire(resource, ttl=20)
    assert lease.release(keep=50) and lease.release() is False
    shown = state(service, resource)
    assert (shown["kept"], shown["owner"]) == (True, "me") and 20000 < shown["remaining_ms"] <= 50000


@pytest.mark.parametrize("keep, at_least, kept", [(5, 15, 15), (15, 5, 15), (0, 15, 15)])
def test_the_longer_one_counts(fake, driver, keep, at_least, kept):
    server = fake()
    assert driver.client(server.address).acquire("x", ttl=20, at_least=at_least).release(keep=keep)
    assert kept - 5 < server.call("release").body["keep_ms"] / 1000 <= kept


def test_a_keep_that_is_wrong_releases_nothing(service, resource, driver):
    lease = driver.client(url_of(service)).acquire(resource, ttl=20)
    with pytest.raises(Refused, match="keep must"):
        lease.release(keep=-1)
    assert state(service, resource)["held"] and lease.release()


# ---- others wait ----


def test_the_holder_learns_that_others_wait(service, resource, driver, crowd):
    """Once for each time that nobody waited before, although the callback of the driver ends by an error."""
    lease = driver.client(url_of(service)).acquire(resource, ttl=TTL)
    assert lease.waiters == (0, 0)
    first = crowd.wait(service, resource)
    wait_until(lambda: lease.waiters == (1, 1), what="a renewal says so")
    second = crowd.wait(service, resource)
    wait_until(lambda: lease.waiters == (2, 1), what="the second one is counted, and not told")
    first.leave()
    second.leave()
    wait_until(lambda: lease.waiters == (0, 1), what="they have left")
    crowd.wait(service, resource)
    wait_until(lambda: lease.waiters == (1, 2), what="it is told again")
    lease.check()
    assert lease.release()


def test_the_number_of_a_renewal_that_fails_stays(fake, driver):
    """A number that is none makes it fail."""
    numbers = [1]

    def extend(call):
        number = numbers[len(call.server.of("extend")) % len(numbers)]
        call.problem(503, "no-quorum") if number is None else call.lease(waiters=number)
    server = fake(extend=extend)
    lease = driver.client(server.address).acquire("x", ttl=TTL)
    steps = [([1], (1, 1)), ([None], (1, 1)), ([3], (3, 1)), ([0], (0, 1)), ([2], (2, 2)), ([-1, "7"], (2, 2)), ([1], (1, 2))]
    for numbers, seen in steps:
        more = 2 if lease.waiters == seen else 1  # the next request comes when the one before was answered
        server.call("extend", len(server.of("extend")) + more - 1)
        wait_until(lambda: lease.waiters == seen, what=f"{numbers}: {seen}")  # noqa: B023
    lease.check()


def test_each_lease_learns_of_its_own_waiters(fake, driver):
    server = fake(extend=lambda call: call.lease(waiters=int(call.name)))
    driver.client(server.address)
    leases = [driver.acquire(str(n), ttl=TTL) for n in range(3)]
    for n in range(3):
        server.call("extend", 1, name=str(n))
    wait_until(lambda: [lease.waiters for lease in leases] == [(0, 0), (1, 1), (2, 1)], what="each")


def test_an_older_server_does_not_count(fake, driver):
    server = fake()
    lease = driver.client(server.address).acquire("x", ttl=TTL)
    server.call("extend", 1)
    assert lease.waiters == (0, 0)
