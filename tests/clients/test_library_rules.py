# SPDX-License-Identifier: MIT
"""The rules of docs/reference/client-rules.md, with servers that answer what a test wants."""

import threading
import time
import urllib.parse

import pytest

from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import SLOW, starved_seconds, wait_until

EARLIEST = 1 / 3 - 1 / 8  # of the ttl: a renewal may come an eighth earlier, to go with others


@pytest.mark.parametrize("names", ["orders/42", "a//b ü+1=2&3%2F?#", ["orders/42", "a//b"]], ids=["one", "strange", "several"])
def test_no_path_names_a_lock(fake, driver, names):
    """A proxy may refuse or rewrite what is in it."""
    server = fake()
    member = {"resources" if isinstance(names, list) else "resource": names}
    lease = driver.client(server.address).acquire(names, ttl=6 * SLOW)
    extend = server.call("extend")
    assert lease.release() is not False
    assert [call.path for call in server.of("acquire", "extend", "release")] == ["/locks"] * len(server.calls)
    assert {**extend.body, **member} == extend.body and {**member, "token": TOKEN} == server.call("release").body
    if isinstance(names, str):
        driver.ask("force", resource=names)
        driver.ask("force", resource=names, fence=7)
        forced = server.of("release")[-2:]
        assert [(call.path, call.body) for call in forced] == [("/locks?force=true", member), ("/locks?force=true&fence=7", member)]
        driver.start("watch", resource=names, count=1).get()
        path, _, query = server.call("state").path.partition("?")
        query = urllib.parse.parse_qs(query, strict_parsing=True)
        assert path == "/locks" and query == {"resource": [names], "wait_ms": query["wait_ms"]}


def test_validity_counts_from_before_the_request(fake, driver):
    delay = 1.0

    def late(call):
        time.sleep(delay)
        call.lease(validity_ms=20000)
    server = fake(acquire=late)
    lease = driver.client(server.address).acquire("x", ttl=20)
    assert 0 < lease.first_remaining <= 20 - 2 - delay


def test_a_wait_counts_for_99_percent(fake, driver):
    waited = []

    def late(call):
        time.sleep(2)
        waited.append(int(1000 * (time.monotonic() - call.came)) / 1000)
        call.lease(validity_ms=20000, waited_ms=round(1000 * waited[0]))
    server = fake(acquire=late)
    lease = driver.client(server.address).acquire("x", ttl=20)
    took, counted = time.monotonic() - lease.sent, 0.99 * waited[0]
    coarse = 0.02  # the clock of Node counts hundredths of a second
    assert counted + 20 - 2 - took - coarse <= lease.first_remaining <= counted + 20 - 2 - waited[0]


def test_a_wait_counts_from_the_last_request_and_not_beyond_now(fake, driver):
    """waited_ms of an answer that came at once cannot be the wait of the request before."""
    def answer(call):
        if len(server.of("acquire")) == 1:
            time.sleep(1.0 * SLOW)
            call.problem(409, "locked", place_kept_ms=2000)
        else:
            call.lease(validity_ms=20000, waited_ms=round(900 * SLOW))
    server = fake(acquire=answer)
    lease = driver.client(server.address).acquire("x", ttl=20, wait=30)
    assert len(server.of("acquire")) == 2 and lease.first_remaining <= 20 - 2


def test_the_margin_can_be_chosen(fake, driver):
    server = fake(acquire=lambda call: call.lease(validity_ms=20000))
    lease = driver.client(server.address).acquire("x", ttl=20, margin=9)
    assert 0 < lease.first_remaining <= 11


def test_a_renewal_counts_from_before_its_request_and_comes_at_a_third(fake, driver):
    ttl, starved = round(9 * SLOW, 3), starved_seconds()

    def late(call):
        time.sleep(ttl / 40 if len(call.server.of("extend")) == 1 else ttl)
        call.lease(validity_ms=round(ttl * 1000))
    server = fake(extend=late)
    lease = driver.client(server.address).acquire("x", ttl=ttl)
    first = server.call("extend")
    assert EARLIEST * ttl - 0.05 < first.came - lease.sent
    assert first.came - server.call("acquire").came < ttl / 2 + starved_seconds() - starved
    assert (first.body["ttl_ms"], first.body["token"]) == (round(ttl * 1000), TOKEN)
    pause, starved_for = server.call("extend", 1).came - first.came, starved_seconds() - starved
    assert EARLIEST * ttl - 0.05 - starved_for < pause < ttl / 2 + starved_for
    before = time.monotonic()
    left, after = lease.remaining, time.monotonic()
    assert lease.sent + EARLIEST * ttl - 0.05 + 0.9 * ttl - after < left <= first.came + 0.9 * ttl - before + 0.001


def test_a_renewal_never_shortens(fake, driver):
    ttl = 9 * SLOW
    server = fake(extend=lambda call: call.lease(validity_ms=1))
    lease = driver.client(server.address).acquire("x", ttl=ttl, margin=ttl / 100)
    server.call("extend", 1)
    lease.check()


@pytest.mark.parametrize("refuse", [lambda call: call.problem(503, "no-quorum"), lambda call: call.problem(401, "unauthorized"),
                                    lambda call: call.connection.close(), lambda call: call.answer(409, {"message": "of a proxy"})],
                         ids=["503", "401", "closed", "409 of a proxy"])
def test_the_old_end_holds_where_a_renewal_fails(fake, driver, refuse):
    """It is tried again and again, soon, until the lease is over; a page of a proxy says nothing."""
    ttl = 9 * SLOW
    server = fake(extend=refuse)
    starved = starved_seconds()
    lease = driver.client(server.address).acquire("x", ttl=ttl)
    answers = lease.lost(2 * ttl)
    third = server.call("extend", 2)
    assert answers.get()["lost"] is True
    assert third.came < answers.told
    assert 0.8 * ttl < answers.told - lease.sent < 0.98 * ttl + starved_seconds() - starved
    wait_until(lambda: time.monotonic() > answers.told + ttl / 8, what="a request that was under way has come")
    asked = len(server.of("extend"))
    wait_until(lambda: time.monotonic() > answers.told + ttl / 3)
    assert len(server.of("extend")) == asked, "nothing is renewed after the loss"


def test_a_renewal_without_an_answer_goes_to_the_next_server_in_time(fake, driver):
    """After a fifth of the ttl, though a server may take five seconds for other answers."""
    ttl, starved = 10 * SLOW, starved_seconds()
    first, second = fake(extend=lambda call: call.until_hung_up()), fake()
    lease = driver.client(first.address, second.address).acquire("x", ttl=ttl)
    took, starved_for = second.call("extend").came - first.call("extend").came, starved_seconds() - starved
    assert ttl / 5 - 0.05 - starved_for < took < 2 * ttl / 5 + starved_for
    lease.check()


@pytest.mark.parametrize("refuse, fifths", [(lambda call: call.answer(503, {"code": "no-quorum", "detail": "d", "status": 503}, Retry_After=30), 0),
                                            (lambda call: call.connection.close(), 0), (lambda call: call.until_hung_up(), 1)],
                         ids=["503", "closed", "silent"])
def test_a_renewal_that_fails_goes_to_the_next_server_at_once(fake, driver, refuse, fifths):
    """The pause of a tenth of the ttl comes after the last server. `fifths` of the ttl pass until a server has failed. No connection is
    kept, since a request that meets one that was closed is sent again."""
    ttl, moment, starved = 12 * SLOW, SLOW, starved_seconds()
    servers = [fake(acquire=lambda call: call.lease(headers={"Connection": "close"}), extend=refuse) for _ in range(2)]
    driver.client(*(server.address for server in servers)).acquire("x", ttl=ttl, margin=ttl / 100)
    asked = [(0, 0), (1, 0), (0, 1), (1, 1)][:3 if fifths else 4]  # before the lease ends
    came = [servers[which].call("extend", turn).came for which, turn in asked]
    pauses = [later - earlier - fifths * ttl / 5 for earlier, later in zip(came, came[1:])]
    starved_for = starved_seconds() - starved
    assert max(pauses[::2]) < moment + starved_for, pauses
    assert ttl / 10 - 0.05 - starved_for < pauses[1] < ttl / 10 + moment + starved_for, pauses


@pytest.mark.parametrize("status, code", [(409, "not-owner"), (410, "lease-expired")])
def test_a_refused_renewal_is_a_loss_at_once(fake, driver, status, code):
    server = fake(extend=lambda call: call.problem(status, code))
    lease = driver.client(server.address).acquire("x", ttl=9)
    answers = lease.lost(30)
    server.call("extend")
    assert answers.get()["lost"] is True and len(server.of("extend")) == 1
    with pytest.raises(Refused, match="lock-lost"):
        lease.check()


def test_one_key_for_all_requests_of_an_acquisition(fake, driver):
    """And another one for the next."""
    seen = []

    def lose_the_first(call):
        seen.append(call.headers["idempotency-key"])
        if len(seen) % 2:
            call.connection.close()
        else:
            call.lease()
    server = fake(acquire=lose_the_first)
    driver.client(server.address)
    assert driver.acquire("x").fence == driver.acquire("y").fence == 7
    assert seen[0] == seen[1] != seen[2] == seen[3] and len(seen[0]) >= 32


BUSY = {"503": lambda call: call.answer(503, {"code": "draining", "detail": "d", "status": 503}, Retry_After=1),
        "429": lambda call: call.answer(429, {"code": "too-many-requests", "detail": "d", "status": 429}, Retry_After=1),
        "closed": lambda call: call.connection.close(), "proxy": lambda call: call.answer(502, {"message": "bad gateway"})}


@pytest.mark.parametrize("kind", BUSY)
def test_the_next_server_is_asked_at_once(fake, driver, kind):
    first, second, starved = fake(acquire=BUSY[kind]), fake(), starved_seconds()
    driver.client(first.address, second.address)
    driver.acquire("x", wait=20)
    assert second.call("acquire").came - first.call("acquire").came < 1 + starved_seconds() - starved
    driver.acquire("y", wait=20)
    assert len(first.of("acquire")) == 1 and len(second.of("acquire")) == 2, "it stays with the one that answers"


def test_after_the_last_server_comes_the_pause_that_it_asked_for(fake, driver):
    answers, starved = [], starved_seconds()

    def busy_once(call):
        answers.append(time.monotonic())
        if len(answers) <= 2:
            return call.answer(503, {"code": "no-quorum", "detail": "d", "status": 503}, Retry_After=2)
        return call.lease()
    first, second = fake(acquire=busy_once), fake(acquire=busy_once)
    driver.client(first.address, second.address).acquire("x", wait=30)
    starved_for = starved_seconds() - starved
    assert answers[1] - answers[0] < 1 + starved_for
    assert 2 - starved_for <= answers[2] - answers[1] < 3 + SLOW + starved_for


def test_a_server_that_never_answers(fake, driver):
    """Health checks find it, long before the wait is over."""
    first, second = fake(acquire=lambda call: call.until_hung_up(), health=lambda call: call.until_hung_up()), fake()
    lease = driver.client(first.address, second.address, timeout=0.4 * SLOW).acquire("x", wait=60)
    assert lease.fence == 7 and time.monotonic() - lease.sent < 10 * SLOW


def test_a_server_that_lets_wait_is_not_left(fake, driver):
    def slow(call):
        call.server.call("health", 1)
        call.lease()
    first, second = fake(acquire=slow), fake()
    driver.client(first.address, second.address, timeout=2 * SLOW).acquire("x", wait=60)
    assert len(first.of("acquire")) == 1 and not second.calls and first.of("health")


def test_an_answer_counts_that_comes_before_the_one_of_a_health_check(fake, driver):
    checked = threading.Event()

    def after_the_check_began(call):
        assert checked.wait(20 * SLOW)
        call.lease()

    def never(call):
        checked.set()
        time.sleep(9 * SLOW)
    first, second = fake(acquire=after_the_check_began, health=never), fake()
    lease = driver.client(first.address, second.address, timeout=3 * SLOW).acquire("x", wait=60)
    assert lease.fence == 7 and len(first.of("acquire")) == 1 and not second.calls


@pytest.mark.parametrize("status, code", [(400, "invalid-request"), (401, "unauthorized"), (403, "forbidden"), (404, "not-found"), (413, "too-large"),
                                          (418, "new-error")])
def test_what_repeating_does_not_help_is_raised_at_once(fake, driver, status, code):
    server = fake(acquire=lambda call: call.problem(status, code))
    with pytest.raises(Refused) as refused:
        driver.client(server.address).acquire("x", wait=20)
    assert (refused.value.code, refused.value.status, len(server.calls)) == (code, status, 1)


@pytest.mark.parametrize("tags, pause", [([None] * 4, 1), (['"7"'] * 4, 1), (['"7"', '"8"', '"9"', '"10"'], 0)], ids=["stripped", "not seen", "seen"])
def test_a_watch_behind_a_proxy_that_strips_tags_pauses(fake, driver, tags, pause):
    """The answer or the request has lost its tag, so each answer comes at once."""
    def at_once(call):
        tag = tags[min(len(call.server.of("state")), 4) - 1]
        call.answer(200, {"resource": "x", "held": False}, **({"ETag": tag} if tag else {}))
    server, starved = fake(state=at_once), starved_seconds()
    watch = driver.client(server.address).start("watch", resource="x", count=4)
    assert watch.get(1)["state"]["held"] is False
    assert time.monotonic() < server.call("state").came + 0.9 + starved_seconds() - starved, "the first state comes at once"
    watch.get()
    second, *others = [call.came for call in server.of("state")[1:4]]
    starved_for = starved_seconds() - starved
    assert all(0.99 * pause - starved_for <= later - earlier < 2 * pause + 0.9 + starved_for
               for earlier, later in zip([second, *others], others)), (second, others)


def test_a_long_wait_is_asked_for_in_parts(fake, driver):
    server = fake(acquire=lambda call: call.problem(409, "locked") if len(call.server.calls) == 1 else call.lease())
    driver.client(server.address).acquire("x", wait=500)
    assert [call.body["wait_ms"] for call in server.of("acquire")] == [60000, 60000]


def test_a_wait_that_the_server_shortens_goes_on_at_once(fake, driver):
    """The place is kept for two seconds, so that no pause may come in between."""
    shortened, starved = 0.6, starved_seconds()

    def shorten(call):
        time.sleep(shortened)
        call.problem(409, "locked", retry_after_ms=30000, place_kept_ms=2000)
    server = fake(acquire=lambda call: shorten(call) if len(call.server.calls) <= 3 else call.lease())
    driver.client(server.address).acquire("x", wait=500)
    came = [call.came for call in server.of("acquire")]
    most = max(later - earlier for earlier, later in zip(came, came[1:]))
    assert most < shortened + 0.5 * SLOW + starved_seconds() - starved, came
    assert len({call.headers["idempotency-key"] for call in server.of("acquire")}) == 1


def test_a_server_that_ends_keeps_the_place(fake, driver):
    """It is asked again, since another one may be behind its address, before the place is gone."""
    def draining(call):
        call.answer(503, {"code": "draining", "detail": "d", "status": 503, "place_kept_ms": 2000}, Retry_After=10)
    server = fake(acquire=lambda call: draining(call) if len(call.server.calls) == 1 else call.lease())
    starved = starved_seconds()
    driver.client(server.address).acquire("x", wait=500)
    first, second = server.of("acquire")
    assert second.came - first.came < 1 + SLOW / 2 + starved_seconds() - starved
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_the_server_says_the_ttl_that_nobody_chose(fake, driver):
    """Its largest may be less than the default: what counts is what it answers."""
    ttl, starved = round(6 * SLOW, 3), starved_seconds()
    server = fake(acquire=lambda call: call.lease(ttl_ms=round(ttl * 1000)))
    lease = driver.client(server.address).acquire("x")
    assert "ttl_ms" not in server.call("acquire").body and 0 < lease.first_remaining < 0.9 * ttl
    first = server.call("extend")
    assert first.body["ttl_ms"] == round(ttl * 1000) and EARLIEST * ttl - 0.05 < first.came - lease.sent
    assert first.came - server.call("acquire").came < ttl / 2 + starved_seconds() - starved


def test_a_release_is_asked_for_once(fake, driver):
    """A 409 or 410 is not repeated; without an answer the next server is asked."""
    first, second = fake(release=lambda call: call.problem(410, "lease-expired")), fake()
    assert driver.client(first.address, second.address).acquire("x").release() is False
    assert len(first.of("release")) == 1 and not second.calls
    silent = fake(release=lambda call: call.connection.close())
    assert driver.client(silent.address, second.address).acquire("x").release() is True
    assert second.of("release")[0].body["token"] == TOKEN


UNKNOWN = {"closed": lambda call: call.connection.close(), "silent": lambda call: call.until_hung_up(),
           "503": lambda call: call.problem(503, "no-quorum")}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_forced_release_without_a_fence_is_sent_once(fake, driver, kind):
    """It may have been carried out, and a second one would release the next holder. A kept connection that turns out to be closed would
    leave the same doubt, so it has a new one."""
    first, second = fake(release=UNKNOWN[kind]), fake()
    driver.client(first.address, second.address, timeout=3 * SLOW).acquire("kept", ttl=60)
    with pytest.raises(Refused, match="no-quorum" if kind == "503" else "no-answer"):
        driver.ask("force", resource="x")
    forced = [call.connection for call in first.of("release") + second.of("release")]
    assert len(forced) == 1 and forced[0] is not first.call("acquire").connection


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_forced_release_with_a_fence_goes_to_the_next_server(fake, driver, kind):
    """It can release no other holder."""
    first, second = fake(release=UNKNOWN[kind]), fake()
    driver.client(first.address, second.address, timeout=3 * SLOW).ask("force", resource="x", fence=7)
    assert len(first.of("release")) == len(second.of("release")) == 1


def test_a_forced_release_that_was_not_sent_goes_to_the_next_server(fake, driver):
    server = fake()
    driver.client(f"{server.address}-nobody", server.address).ask("force", resource="x")
    assert len(server.of("release")) == 1


def test_a_lease_that_comes_too_late_is_not_used(fake, driver):
    """It is released, and another one asked for, under another key."""
    server = fake(acquire=lambda call: call.lease(validity_ms=1 if len(call.server.of("acquire")) == 1 else 20000))
    lease = driver.client(server.address).acquire("x", ttl=20)
    assert lease.first_remaining > 10
    assert [call.kind for call in server.calls[:3]] == ["acquire", "release", "acquire"]
    assert server.calls[0].headers["idempotency-key"] != server.calls[2].headers["idempotency-key"]


def test_nothing_is_renewed_after_the_release(fake, driver):
    server = fake()
    ttl = 4 * SLOW
    lease = driver.client(server.address).acquire("x", ttl=ttl)
    server.call("extend")
    assert lease.release()
    assert driver.acquire("y", ttl=60) and driver.start("lost", lease=lease.name, timeout=1).get()["lost"] is True
    released = server.call("release").came
    wait_until(lambda: time.monotonic() - released > 1.5 * ttl, what="four more thirds")
    # One that was under way may come right after it; the next one would come a fifth of the ttl later.
    assert not [call for call in server.of("extend", name="x") if call.came - released > ttl / 10]
