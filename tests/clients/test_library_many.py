# SPDX-License-Identifier: MIT
"""Many leases of one client: one request renews those that are due about the same time, and each is decided alone."""

import os
import pathlib
import signal
import threading
import time

import pytest

from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import fake  # noqa: F401
from fake_server import TOKEN
from harness import SLOW, starved_seconds, wait_until
from test_library import back_after, state, url_of

TTL = 6 * SLOW
MOST, BYTES = 256, 64 << 10  # of a request


def hold(driver, names, **options):
    """Leases by their names; a few hundred are acquired at once."""
    for first in range(0, len(names), 200):
        asked = [driver.start("acquire", lease=name, resource=name, wait=30, **options)
                 for name in names[first:first + 200]]
        for answers in asked:
            answers.get(seconds=60)
    return names


def hold_in_order(driver, names, **options):
    """Leases that are due one after the other. A client may renew the first ones in another request than the last ones,
    as its slots of time begin at random: each lease but the first and the last is in one with a neighbour."""
    for name in names:
        hold(driver, [name], **options)
    return names


def lost_of(driver, names):
    asked = {name: driver.start("lost", lease=name, timeout=0) for name in names}
    return [name for name, answers in asked.items() if answers.get()["lost"]]


def requests_of(server):
    """The requests that renewed."""
    return [call for call in server.requests if call.kind == "extend"]


def items_of(request):
    return request.body["leases"]


def renewed(daemon):
    """How many requests, and how many leases in them."""
    found = daemon.metrics()
    count = lambda start: sum(value for name, value in found.items() if name.startswith(start))
    return (count('redlockd_http_requests_total{route="extend",method="PUT",status="200"'),
            count('redlockd_lease_requests_total{op="extend",outcome="ok"'))


# ---- what is in a request ----


def test_leases_that_are_due_about_the_same_time(fake, driver):
    server, begun = fake(), time.monotonic()
    names = hold(driver.client(server.address), [f"x/{n}" for n in range(20)], ttl=2 * TTL)
    for name in names:
        server.call("extend", 1, name=name)
    requests = requests_of(server)
    assert max(len(items_of(request)) for request in requests) >= 10, "half of them: their time may begin in the next slot"
    assert len(requests) < 20
    assert all(set(item) == {"resource", "token", "ttl_ms"} for request in requests for item in items_of(request))
    earliest = 2 * TTL * (1 / 3 - 1 / 8) - 0.05  # up to an eighth earlier, to go with others
    assert all(call.came - begun > earliest for call in server.of("extend"))
    assert not lost_of(driver, names)


def test_a_request_has_at_most_256_leases_and_64_kib(fake, driver):
    server = fake()
    names = hold(driver.client(server.address), [f"{n:03}/" + (n % 2) * 250 * "x" for n in range(600)], ttl=15 * SLOW)
    for name in names:
        server.call("extend", name=name)
    sizes = [(len(items_of(request)), int(request.headers["content-length"])) for request in requests_of(server)]
    assert sum(count for count, _ in sizes) >= 600 and max(count for count, _ in sizes) <= MOST
    assert max(size for _, size in sizes) <= BYTES and len(sizes) < 60, sizes
    assert not lost_of(driver, names)


# ---- each is decided alone ----

WRONG = {
    "token": lambda call: call.lease(token=TOKEN[::-1]),
    "name": lambda call: call.answer(200, {**call.granted(), "resource": "another"}),
    "validity": lambda call: call.lease(validity_ms=10**7),
    "nothing": lambda call: call.answer(200, {}),
    "no object": lambda call: call.answer(200, 7),
    "a code alone": lambda call: call.answer(200, {"code": "lease-expired"}),
    "503": lambda call: call.problem(503, "no-quorum"),
    "locked": lambda call: call.problem(409, "locked"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_lease_without_a_good_answer_goes_to_the_next_server(fake, driver, kind):
    """Alone: the others of its request are renewed."""
    starved = starved_seconds()
    first, second = fake(extend=lambda call: WRONG[kind](call) if call.name == "wrong" else call.lease()), fake()
    names = hold_in_order(driver.client(first.address, second.address), ["right", "wrong", "fine"], ttl=2 * TTL)
    asked, again = first.call("extend", name="wrong"), second.call("extend", name="wrong")
    assert len(items_of(asked.whole)) > 1 and again.came - asked.came < TTL / 2 + starved_seconds() - starved
    assert len(items_of(requests_of(second)[0])) == 1
    assert not lost_of(driver, names)


@pytest.mark.parametrize("status, code", [(409, "not-owner"), (410, "lease-expired")])
def test_a_lease_that_is_over_is_lost_alone(fake, driver, status, code):
    def extend(call):
        call.problem(status, code) if call.name == "gone" else call.lease()
    first, second = fake(extend=extend), fake()
    names = hold(driver.client(first.address, second.address), ["right", "gone", "fine"], ttl=2 * TTL)
    assert driver.start("lost", lease="gone", timeout=20 * SLOW).get()["lost"] is True
    with pytest.raises(Refused) as refused:
        driver.ask("check", lease="gone")
    assert refused.value.cause == code
    first.call("extend", 1, name="fine")
    assert len(first.of("extend", name="gone")) == 1 and not second.of("extend") and lost_of(driver, names) == ["gone"]


# ---- a request that is refused as a whole ----

def once(answer):
    """Of all leases of a request, the first one answers for it."""
    return lambda call: call.whole.answered or answer(call.whole)


REFUSE = {
    "429": once(lambda call: call.problem(429, "too-many-requests")),
    "503": once(lambda call: call.problem(503, "draining")),
    "401": once(lambda call: call.problem(401, "unauthorized")),
    "400": once(lambda call: call.problem(400, "invalid-request")),
    "404 of a proxy": once(lambda call: call.answer(404, {"message": "not found"})),
    "too few": once(lambda call: call.answer(200, {"leases": [{**call.granted(), **items_of(call)[0]}]})),
    "no list": once(lambda call: call.answer(200, {"leases": {"0": 1}})),
    "closed": lambda call: call.connection.close(),
    "silent": lambda call: call.until_hung_up(),
}


@pytest.mark.parametrize("kind", REFUSE)
def test_a_refused_request_goes_to_the_next_server(fake, driver, kind):
    several = threading.Event()  # one lease may come before the others, where the next slot begins between them

    def extend(call):
        if len(items_of(call.whole)) > 1:
            several.set()
        REFUSE[kind](call) if several.is_set() else call.lease()
    first, second = fake(extend=extend), fake()
    names = hold(driver.client(first.address, second.address), [f"x/{n}" for n in range(5)], ttl=2 * TTL)
    for name in names:
        second.call("extend", 1, name=name)
    assert max(len(items_of(request)) for request in requests_of(first)) > 1
    assert not lost_of(driver, names)


@pytest.mark.parametrize("servers", [1, 2])
def test_one_lease_that_makes_a_request_invalid_harms_no_other(fake, driver, servers):
    """For instance one with a ttl that the server does not allow since it was started again."""
    def extend(call):
        if any(item["resource"] == "bad" for item in items_of(call.whole)):
            once(lambda call: call.problem(400, "invalid-request"))(call)
        else:
            call.lease()
    made = [fake(extend=extend) for _ in range(servers)]
    names = hold(driver.client(*(server.address for server in made)), ["bad", *(f"x/{n}" for n in range(9))], ttl=TTL)
    assert driver.start("lost", lease="bad", timeout=20 * SLOW).get()["lost"] is True
    assert lost_of(driver, names) == ["bad"]


def test_a_ttl_that_is_not_allowed_any_more(fake, driver):
    """The server was started again with a shorter --max-ttl-ms. It names the first eight leases with a longer ttl; for
    all of these it chooses the next one."""
    most = round(6000 * SLOW)

    def refuse(call):
        asked = [item.get("ttl_ms", 0) for item in call.body.get("leases", [])]
        errors = [{"field": f"leases[{n}].ttl_ms", "reason": "r"} for n, ttl_ms in enumerate(asked) if ttl_ms > most]
        if not errors:
            return behave(call)
        server.requests.append(call)
        return call.answer(400, {"code": "invalid-request", "detail": "d", "status": 400, "errors": errors[:8]})
    server = fake(extend=lambda call: call.lease(ttl_ms=call.body.get("ttl_ms", most)))
    behave, server.carry_out = server.carry_out, refuse
    driver.client(server.address)
    long = [*hold(driver, [f"x/{n}" for n in range(20)], ttl=2 * TTL), *hold(driver, ["margin"], ttl=2 * TTL, margin=TTL)]
    short = hold(driver, ["short"], ttl=TTL / 2)
    for name in long:
        first, second = server.call("extend", name=name), server.call("extend", 2, name=name)
        assert "ttl_ms" not in first.body and second.body["ttl_ms"] == most, name
        assert second.came - first.came < most / 1000, "the new ttl counts"
    server.call("extend", 2, name="short")
    assert {call.body["ttl_ms"] for call in server.of("extend", name="short")} == {most // 2}
    assert len(requests_of(server)) < 2 * len(long), "not one by one"
    assert not lost_of(driver, [*long, *short])


def test_a_release_while_a_request_for_several_is_under_way(fake, driver):
    """It is sent at once, and the renewals of the others go on. When the last one is released, nobody waits for it."""
    server = fake(extend=lambda call: call.until_hung_up())
    hold_in_order(driver.client(server.address), ["a", "b", "c"], ttl=20 * SLOW)
    request = server.call("extend", name="b").whole
    others = [item["resource"] for item in items_of(request) if item["resource"] != "b"]
    assert driver.ask("release", lease="b")["released"] and not request.answered
    assert others and not lost_of(driver, others)
    assert all(len(server.of("extend", name=name)) == 1 for name in ["b", *others])
    for name in others:
        driver.ask("release", lease=name)
    wait_until(lambda: request.connection.fileno() == -1, what="the connection of the request is closed")


def test_leases_with_much_time_do_not_go_with_one_that_has_little(fake, driver):
    """A request waits for its answer for as long as the lease with the least time can. Here that is too short."""
    def slow(call):
        if call.body["ttl_ms"] > 10000 * SLOW:
            time.sleep(1.5 * SLOW)
        call.lease()
    server = fake(extend=slow)
    driver.client(server.address)
    short = hold(driver, ["short"], ttl=TTL)
    long = hold(driver, ["long"], ttl=15 * SLOW)
    server.call("extend", 1, name="long")
    assert not lost_of(driver, short + long)
    assert not any(len(items_of(request)) > 1 for request in requests_of(server))


def test_renewals_that_fail_stay_together(fake, driver):
    """The server refuses each request as a whole. Each lease is asked for again and again, until it is lost."""
    server, ttl = fake(extend=lambda call: call.answer(503, {"code": "draining", "detail": "d", "status": 503})), 6 * SLOW
    names = [str(n) for n in range(100)]
    hold(driver.client(server.address), names, ttl=ttl)
    wait_until(lambda: lost_of(driver, names) == names, what="all are lost")
    requests = [call for call in server.requests if call.method == "PUT"]
    assert len(requests) < len(names) < 3 * len(names) <= sum(len(call.body["leases"]) for call in requests)


def test_a_rate_that_many_leases_exceed(fake, driver):
    """The server takes ten at once."""
    server = fake()
    busy, behave = {"code": "too-many-requests", "detail": "d", "status": 429}, server.carry_out
    server.carry_out = lambda call: call.answer(429, busy) if len(call.body.get("leases", [])) > 10 else behave(call)
    names = [str(n) for n in range(40)]
    hold(driver.client(server.address), names, ttl=10 * SLOW)
    wait_until(lambda: {call.name for call in server.of("extend")} == set(names), what="all are renewed")
    assert not lost_of(driver, names)


def test_a_request_without_an_answer_holds_up_no_other_one(fake, driver):
    """There is one server, which hangs for some leases."""
    server = fake(extend=lambda call: call.until_hung_up() if call.name.startswith("slow") else call.lease())
    driver.client(server.address)
    slow, fast = hold(driver, [f"slow/{n}" for n in range(5)], ttl=15 * SLOW), hold(driver, ["fast"], ttl=5 * SLOW)
    server.call("extend", name="slow/0")
    before = len(server.of("extend", name="fast"))
    wait_until(lambda: lost_of(driver, slow) == slow, what="they are lost")
    assert not lost_of(driver, fast) and len(server.of("extend", name="fast")) > before + 2


@pytest.mark.parametrize("waiters", [-1, 1.5, "1", None, True])
def test_a_number_of_waiters_that_is_none(fake, driver, waiters):
    first, second = fake(extend=lambda call: call.lease(waiters=waiters)), fake()
    lease = driver.client(first.address, second.address).acquire("x", ttl=9 * SLOW)
    assert second.call("extend").body["token"] == TOKEN and lease.waiters == (0, 0)


# ---- a real server ----


def test_hundreds_of_leases_over_a_restart(lab, driver):
    daemon, count = lab.service(3), 300
    names = hold(driver.client(url_of(daemon)), [f"x/{n}" for n in range(count)], ttl=2 * TTL)
    wait_until(lambda: renewed(daemon)[1] >= 2 * count, 60, "each is renewed twice")
    requests, leases = renewed(daemon)
    assert leases > 15 * requests, (requests, leases)
    again = back_after(signal.SIGTERM)(lab, daemon)
    wait_until(lambda: renewed(again)[1] >= 3 * count, 60, "all are renewed at the new one")
    assert not lost_of(driver, names)
    assert state(again, names[0])["held"] and driver.ask("release", lease=names[0])["released"]


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures(daemon, driver):
    return *renewed(daemon), processor_seconds(driver.process), processor_seconds(daemon.process)


@pytest.mark.slow
def test_5000_leases_for_two_minutes_over_restarts(lab, driver, language):
    """`-m slow -s` shows the figures."""
    daemon, count, part = lab.service(3, log_requests=None), 5000, 60
    names = hold(driver.client(url_of(daemon)), [f"x/{n}" for n in range(count)], ttl=30)
    for number in (signal.SIGTERM, signal.SIGKILL):
        before, begun = figures(daemon, driver), time.monotonic()
        wait_until(lambda: time.monotonic() > begun + part, 2 * part)
        requests, leases, own, of_server = ((now - then) / part for now, then in zip(figures(daemon, driver), before))
        print(f"\n{language}: {requests:.1f} requests/s for {leases:.0f} leases/s, processor: client {own:.1%}, "
              f"server {of_server:.1%}, threads of the client {len(os.listdir(f'/proc/{driver.process.pid}/task'))}")
        daemon = back_after(number)(lab, daemon)
        wait_until(lambda: renewed(daemon)[1] >= count, 60, "all are renewed at the new one")
    assert not lost_of(driver, names)
