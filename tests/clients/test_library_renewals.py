# SPDX-License-Identifier: MIT
"""Renewals of many leases of one client in few requests, and what else a lease learns and says: waiters, at_least."""

import json
import os
import pathlib
import re
import signal
import time

import pytest

from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import SLOW, wait_until
from test_library import state, url_of

AT_ONCE = 100
COUNTERS = {
    "requests": r'redlockd_http_requests_total\{.*method="PUT".*status="200".*',
    "renewals": r'redlockd_lease_requests_total\{op="extend",outcome="ok"\}',
}


def acquire_many(driver, names, **options):
    leases = []
    for first in range(0, len(names), AT_ONCE):
        asked = [driver.start("acquire", lease=name, resource=name, **options) for name in names[first:first + AT_ONCE]]
        for answers in asked:
            answers.get(seconds=60)
        leases += names[first:first + AT_ONCE]
    return leases


def lost(driver, names):
    found = []
    for name in names:
        try:
            driver.ask("check", lease=name)
        except Refused:
            found.append(name)
    return found


# ---- a real server ----


def processor_seconds(pid):
    """Of a process and its children."""
    folder = pathlib.Path(f"/proc/{pid}")
    fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    children = (folder / "task" / str(pid) / "children").read_text(encoding="utf-8").split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(processor_seconds, children))


class Counted:
    """What the server has counted, and the processors, since this was made."""

    def __init__(self, daemon, driver):
        self.daemon, self.driver = daemon, driver
        self.begun, self.first = time.monotonic(), self.now()

    def now(self):
        metrics = self.daemon.metrics()
        found = {name: sum(value for key, value in metrics.items() if re.fullmatch(pattern, key)) for name, pattern in COUNTERS.items()}
        return {**found, "server": processor_seconds(self.daemon.process.pid), "client": processor_seconds(self.driver.process.pid)}

    def since(self):
        return {name: value - self.first[name] for name, value in self.now().items()}

    def wait_for(self, renewals):
        """Until so many leases were renewed."""
        wait_until(lambda: self.since()["renewals"] >= renewals, 300)
        found, seconds = self.since(), time.monotonic() - self.begun
        print(f"{self.driver.process.args[-1]}: {seconds:.1f} s: " + ", ".join(f"{value / seconds:.3f} {name}/s" for name, value in found.items()))
        return found


def keep_over_a_restart(lab, driver, count, ttl, rounds):
    """Each lease is renewed so often on average before a restart of redlockd and again after it. Returns what was counted."""
    daemon = lab.service(3, log_requests=None)
    leases = acquire_many(driver.client(url_of(daemon)), [f"it/{n}" for n in range(count)], ttl=ttl, wait=60)
    counted = [Counted(daemon, driver).wait_for(rounds * count)]
    daemon.process.send_signal(signal.SIGTERM)
    daemon.process.wait()
    again = lab.redlockd(daemon.masters, listen=(daemon.address,), log_requests=None)
    counted.append(Counted(again, driver).wait_for(rounds * count))
    assert not lost(driver, leases)
    assert all(again.curl("GET", f"/locks/{name}").json["held"] for name in (leases[0], leases[-1]))
    return counted


def test_many_leases_are_renewed_in_few_requests(lab, driver):
    count = 300
    for found in keep_over_a_restart(lab, driver, count, 4 * SLOW, 3):
        assert found["requests"] < found["renewals"] / 10, found


@pytest.mark.slow
def test_5000_leases_for_two_minutes(lab, driver):
    count = 5000
    for found in keep_over_a_restart(lab, driver, count, 30, 6):
        assert found["requests"] < found["renewals"] / 40, found


def test_a_holder_learns_that_somebody_waits(service, resource, drivers):
    """Once for each time that nobody waited before. An error of its callback stops no renewal."""
    lease = drivers().client(url_of(service)).acquire(resource, ttl=2 * SLOW)
    assert lease.waiters == (0, 0)
    for turn in (1, 2):
        others = drivers().client(url_of(service))
        for n in range(2):
            others.start("acquire", lease=f"l{n}", resource=resource, wait=60)
        wait_until(lambda: lease.waiters == (2, turn), what="it knows of both")
        others.kill()
        wait_until(lambda: lease.waiters == (0, turn), what="it knows that nobody is left")
    assert lease.release()


def kept(daemon, resource):
    shown = state(daemon, resource)
    return shown["held"] and shown.get("kept")


@pytest.mark.parametrize("ends_badly", [False, True])
def test_nobody_else_gets_the_lock_for_a_time(service, resource, driver, ends_badly):
    """Also after a block that fails."""
    driver.client(url_of(service))
    block = driver.start("block", lease="it", resource=resource, ttl=60, at_least=60, **{"raise": ends_badly})
    if ends_badly:
        with pytest.raises(Refused, match="raised"):
            block.get()
    else:
        block.get()
    assert kept(service, resource) and 50000 < state(service, resource)["remaining_ms"] <= 60000
    assert driver.acquire(resource, **{"try": True}) is None
    driver.ask("force", resource=resource)
    lease = driver.acquire(resource, ttl=60)
    assert lease.release(keep=50) and kept(service, resource) and state(service, resource)["remaining_ms"] <= 50000


def test_a_time_that_the_server_does_not_allow(lab, driver):
    """It is the ttl of the lease, too, so that it is refused at once."""
    daemon = lab.service(3, "--max-ttl-ms", "20000", "--default-ttl-ms", "20000")
    driver.client(url_of(daemon))
    assert driver.acquire("a", at_least=20).release() and kept(daemon, "a")
    with pytest.raises(Refused, match="invalid-request"):
        driver.acquire("b", at_least=21)
    assert not state(daemon, "b")["held"]


# ---- what is sent, and which answers count ----


def test_what_is_sent_to_keep_a_lock(fake, driver):
    server, long = fake(), 2 * SLOW
    driver.client(server.address)
    for options in ({"at_least": 40}, {"at_least": 8}, {"at_least": 8, "ttl": 9}, {"at_least": long / 100}, {}):
        name = json.dumps(options)
        lease = driver.acquire(name, **options)
        wait_until(lambda: time.monotonic() > lease.sent + long / 10, what="the shortest time is over")
        assert lease.release()
        asked, released = server.of("acquire", name=name)[0].body, server.of("release", name=name)[0].body
        assert asked.get("ttl_ms", 0) == {40: 40000, 9: 9000}.get(options.get("ttl", options.get("at_least")), 0)
        least = 1000 * options.get("at_least", 0)
        assert released.get("keep_ms", 0) == 0 if least < 100 * long else least - 20000 * SLOW < released["keep_ms"] <= least
    assert "at_least" not in str([call.body for call in server.calls if "at_least" not in call.name])
    with pytest.raises(Refused, match="(?i)at.?least"):
        driver.acquire("x", at_least=9, ttl=8)


def test_each_lease_of_a_request_is_decided_alone(fake, driver):
    """One is over, one is refused at this server and asked for at the next one, one is renewed."""
    def extend(call):
        if call.name.startswith("over"):
            call.problem(410, "lease-expired")
        elif call.name.startswith("refused"):
            call.problem(503, "no-quorum")
        else:
            call.lease()
    first, second, ttl = fake(extend=extend), fake(), 6 * SLOW
    driver.client(first.address, second.address)
    names = [f"{kind}/{n}" for n in range(10) for kind in ("over", "refused", "renewed")]
    acquire_many(driver, names, ttl=ttl)
    wait_until(lambda: len(first.of("extend")) >= 30, what="all are asked for once")
    wait_until(lambda: {call.name for call in second.of("extend")} >= {f"refused/{n}" for n in range(10)})
    wait_until(lambda: len(lost(driver, names)) == 10, what="ten are lost")
    assert lost(driver, names) == [name for name in names if name.startswith("over")]
    assert any(len(call.body["leases"]) > 1 for call in first.requests if call.method == "PUT")
    assert not any(call.name.startswith("over") for call in second.of("extend"))
    assert len(first.of("extend", name="over/0")) == 1


def test_a_lease_that_the_server_does_not_take_costs_no_other_one(fake, driver):
    """It refuses the whole request for it, as a redlockd with a smaller --max-ttl-ms does."""
    server, ttl = fake(extend=lambda call: call.lease()), 3 * SLOW
    wrong = {"code": "invalid-request", "detail": "d", "status": 400}
    behave = server.carry_out
    server.carry_out = lambda call: call.answer(400, wrong) if '"wrong"' in json.dumps(call.body) and call.kind == "extend" else behave(call)
    names = ["wrong", *(f"right/{n}" for n in range(40))]
    acquire_many(driver.client(server.address), names, ttl=ttl)
    wait_until(lambda: lost(driver, ["wrong"]), what="it is lost")
    assert lost(driver, names) == ["wrong"]


def test_renewals_that_fail_stay_together(fake, driver):
    """The server refuses each request as a whole. Each lease is asked for again and again, until it is lost."""
    server, ttl = fake(extend=lambda call: call.answer(503, {"code": "draining", "detail": "d", "status": 503})), 3 * SLOW
    names = [str(n) for n in range(100)]
    acquire_many(driver.client(server.address), names, ttl=ttl)
    wait_until(lambda: lost(driver, names) == names, what="all are lost")
    requests = [call for call in server.requests if call.method == "PUT"]
    assert len(requests) < len(names) < 3 * len(names) <= sum(len(call.body["leases"]) for call in requests)


def test_a_rate_that_many_leases_exceed(fake, driver):
    """The server takes ten at once."""
    server = fake()
    busy, behave = {"code": "too-many-requests", "detail": "d", "status": 429}, server.carry_out
    server.carry_out = lambda call: call.answer(429, busy) if len(call.body.get("leases", [])) > 10 else behave(call)
    names = [str(n) for n in range(40)]
    acquire_many(driver.client(server.address), names, ttl=6 * SLOW)
    wait_until(lambda: {call.name for call in server.of("extend")} == set(names), what="all are renewed")
    assert not lost(driver, names)


def test_requests_have_bounds(fake, driver):
    """256 leases, and 64 KiB."""
    server, ttl = fake(), 4 * SLOW
    names = [f"{n}/{'é' * (100 * (n % 2))}" for n in range(700)]
    acquire_many(driver.client(server.address), names, ttl=ttl)
    wait_until(lambda: len({call.name for call in server.of("extend")}) == len(names), what="all are renewed")
    sizes = [(len(call.body["leases"]), int(call.headers["content-length"])) for call in server.requests if call.method == "PUT"]
    assert max(count for count, _ in sizes) <= 256 and max(size for _, size in sizes) <= 65536
    assert len(sizes) < len(names) / 5


def test_a_request_without_an_answer_holds_up_no_other_one(fake, driver):
    """There is one server, which hangs for some leases."""
    server = fake(extend=lambda call: call.until_hung_up() if call.name.startswith("slow") else call.lease())
    driver.client(server.address)
    slow, fast = acquire_many(driver, [f"slow/{n}" for n in range(5)], ttl=8 * SLOW), acquire_many(driver, ["fast"], ttl=2 * SLOW)
    server.call("extend", name="slow/0")
    before = len(server.of("extend", name="fast"))
    wait_until(lambda: lost(driver, slow) == slow, what="they are lost")
    assert not lost(driver, fast) and len(server.of("extend", name="fast")) > before + 2


@pytest.mark.parametrize("waiters", [-1, 1.5, "1", None, True])
def test_a_number_of_waiters_that_is_none(fake, driver, waiters):
    first, second = fake(extend=lambda call: call.lease(waiters=waiters)), fake()
    lease = driver.client(first.address, second.address).acquire("x", ttl=3 * SLOW)
    assert second.call("extend").body["token"] == TOKEN and lease.waiters == (0, 0)
