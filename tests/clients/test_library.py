# SPDX-License-Identifier: MIT
"""The client libraries against real redlockd over real Redis masters: one suite for all languages (README.md)."""

import os
import shutil
import signal
import time

import pytest

import redis_clock
from certificates import Authority
from driver import Refused, driver, drivers, language  # noqa: F401
from fake_redlockd import fake  # noqa: F401
from harness import SLOW, freeze, quote, starved_seconds, wait_until
from key_fixtures import Key, Keyed
from proxies import Apache
from relay import CuttingRelay, Relay
from test_redlockctl_again import Cutter, statuses
from test_redlockctl_tls import context

TTL = 6 * SLOW  # of a lease that is renewed, also where a process or the machine stands still for two seconds
SHORT = 1.6 * SLOW  # of a lease that the test lets end


def url_of(daemon):
    return daemon.address if ":/" in daemon.address else f"http://{daemon.address}"


def state(daemon, resource):
    return daemon.curl("GET", "/locks/" + quote(resource)).json


def end_of(daemon, resource):
    """When the lease ends at the latest, by the clock of this test."""
    shown = state(daemon, resource)
    return time.monotonic() + shown["remaining_ms"] / 1000


def renewals(daemon):
    """How many requests have renewed."""
    return sum(line["method"] == "PUT" for line in daemon.log("request"))


def check_told_in_time(answers, end, latest):
    """The loss was told before the lease ended, but not long before."""
    starved = starved_seconds()
    assert answers.get()["lost"] is True
    assert end - 0.5 * TTL < answers.told < latest - 0.02 * TTL + starved_seconds() - starved


# ---- taking and giving ----


def test_exclusion_on_one_counter(service, resource, drivers, tmp_path):
    """Drivers of all languages add to one number."""
    import driver as module
    number = tmp_path / "number"
    number.write_text("0")
    runs = [drivers(name).client(url_of(service)).start("count", resource=resource, file=str(number), times=15, ttl=30)
            for name in sorted(module.DRIVERS) * 2]
    fences = [run.get(seconds=60)["fences"] for run in runs]
    assert number.read_text() == str(15 * len(runs))
    assert all(mine == sorted(mine) for mine in fences) and len(set(sum(fences, []))) == 15 * len(runs)


def test_the_bounds_of_the_server_are_taken(lab, resource, driver):
    """An acquisition without options, where the server allows less than the defaults of the libraries."""
    daemon = lab.service(3, "--max-wait-ms", "300", "--max-ttl-ms", "20000", "--default-ttl-ms", "20000")
    driver.client(url_of(daemon))
    lease = driver.acquire(resource)
    assert 0 < lease.first_remaining <= 18 and state(daemon, resource)["held"]
    waits = driver.start("acquire", lease="second", resource=resource)
    wait_until(lambda: state(daemon, resource)["waiters"] == 1, what="it waits")
    assert lease.release() is True
    assert waits.get()["fence"] > lease.fence


def test_behind_a_proxy_that_refuses_and_rewrites_names_in_a_path(lab, driver):
    """Apache by default: 404 for an encoded slash, one slash for two."""
    service, name = lab.service(3), "orders//4%2F2"
    proxied = Apache(lab, service, {"    AllowEncodedSlashes NoDecode\n": "", " nocanon": ""})
    assert proxied.curl("GET", "/locks/orders%2F42").status == 404
    driver.client(url_of(proxied))
    lease = driver.acquire(name, ttl=TTL)
    lease.until_renewed()
    assert driver.ask("watch", resource=name, count=1)["state"]["fence"] == lease.fence
    assert lease.release() is True
    driver.acquire(name, ttl=20)
    driver.ask("force", resource=name)
    assert not service.curl("GET", "/locks?resource=" + quote(name)).json["held"]


def test_a_lease_and_its_end(service, resource, driver):
    """A name that must be escaped both in JSON and in a path; owner and metadata arrive."""
    name = resource + ' "é" + 100%/?#'
    driver.client(url_of(service), owner="me")
    lease = driver.acquire(name, ttl=60, metadata={"job": 7})
    shown = state(service, name)
    assert (shown["fence"], shown["owner"], shown["metadata"]) == (lease.fence, "me", {"job": 7})
    assert 45 < lease.first_remaining <= 54, "a tenth is left as a margin"
    lease.check()
    assert driver.acquire(name, **{"try": True}) is None
    with pytest.raises(Refused) as refused:
        driver.acquire(name, wait=0)
    assert (refused.value.code, refused.value.status) == ("locked", 409)
    assert lease.release() is True and lease.release() is False
    assert not state(service, name)["held"]
    with pytest.raises(Refused, match="lock-lost"):
        lease.check()
    again = driver.acquire(name, owner="other", **{"try": True})
    assert again.fence > lease.fence and state(service, name)["owner"] == "other"


def test_a_unix_socket(lab, driver):
    daemon = lab.service(1, listen=[f"unix:{lab.folder}/listen"])
    lease = driver.client(f"unix:{lab.folder}/listen").acquire("orders/42")
    assert state(daemon, "orders/42")["fence"] == lease.fence and lease.release()


def test_several_at_once(service, resource, driver):
    names = [f"{resource}/{letter}" for letter in "abc"]
    lease = driver.client(url_of(service)).acquire(names, ttl=TTL)
    assert [state(service, name)["fence"] for name in names] == [lease.fence] * 3
    assert driver.acquire([names[2], "other"], **{"try": True}) is None
    lease.until_renewed()
    assert lease.release() and not any(state(service, name)["held"] for name in names)


def test_shared_leases(service, resource, driver):
    driver.client(url_of(service))
    first, second = (driver.acquire(resource, mode="shared", ttl=TTL) for _ in range(2))
    assert first.fence < second.fence and state(service, resource)["holder_count"] == 2
    assert driver.acquire(resource, **{"try": True}) is None
    waits = driver.start("acquire", lease="alone", resource=resource)
    wait_until(lambda: state(service, resource)["waiters"] == 1, what="it waits for both")
    assert first.release()
    second.until_renewed()
    assert second.release() and waits.get()["fence"] > second.fence


def test_slots(service, resource, driver):
    driver.client(url_of(service))
    leases = [driver.acquire(resource, slots=2, ttl=TTL) for _ in range(2)]
    assert sorted(lease.slot for lease in leases) == [0, 1]
    assert driver.acquire(resource, slots=2, **{"try": True}) is None
    leases[0].until_renewed()
    assert leases[0].release() and driver.acquire(resource, slots=2).slot == leases[0].slot
    assert driver.acquire(resource + "/one").slot is None


@pytest.mark.parametrize("ends_badly", [False, True])
def test_a_block_releases(service, resource, driver, ends_badly):
    driver.client(url_of(service))
    block = driver.start("block", lease="it", resource=resource, **{"raise": ends_badly})
    if ends_badly:
        with pytest.raises(Refused, match="raised"):
            block.get()
    else:
        assert block.get()["fence"] > 0
    assert not state(service, resource)["held"]


def test_the_end_of_a_program_releases(service, resource, driver):
    driver.client(url_of(service)).acquire(resource, ttl=60)
    driver.end()
    assert not state(service, resource)["held"]


def test_200_locks_at_once(service, resource, driver):
    driver.client(url_of(service))
    asked = [driver.start("acquire", lease=f"l{n}", resource=f"{resource}/{n}", ttl=60) for n in range(200)]
    assert len({answers.get()["fence"] for answers in asked}) == 200
    for first in range(0, 200, 20):  # a release has two seconds, and 16 connections
        released = [driver.start("release", lease=f"l{n}") for n in range(first, first + 20)]
        assert all(answers.get()["released"] for answers in released)


def test_watching_and_force(service, resource, driver):
    driver.client(url_of(service))
    watch = driver.start("watch", resource=resource, count=3)
    assert watch.get(1)["state"]["held"] is False
    lease = driver.acquire(resource)
    assert watch.get(2)["state"]["fence"] == lease.fence
    with pytest.raises(Refused, match="not-owner"):
        driver.ask("force", resource=resource, fence=lease.fence - 1)
    assert driver.ask("watch", resource=resource, count=1)["state"]["held"] is True
    driver.ask("force", resource=resource, fence=lease.fence)
    assert watch.get(3)["state"]["held"] is False


def test_the_state(service, resource, driver):
    resource += "/a b+c?&ü"
    driver.client(url_of(service))
    assert driver.ask("state", resource=resource)["state"]["held"] is False
    lease = driver.acquire(resource, owner="me")
    shown = driver.ask("state", resource=resource)["state"]
    assert (shown["resource"], shown["held"], shown["fence"], shown["owner"]) == (resource, True, lease.fence, "me")


def test_keys_and_tls(lab, driver):
    """An authority of one's own, a client certificate, a key; what is not allowed has its own error."""
    authority = Authority(lab.folder)
    server, mine = authority.issue("server", "IP:127.0.0.1", usage="serverAuth"), authority.issue("me", usage="clientAuth")
    keyed = Keyed(lab, [Key("worker", ["orders/"], ["acquire"])], "--tls-cert", server.certificate, "--tls-key", server.key,
                  "--tls-client-ca", authority.certificate, trust=authority.certificate).wait_ready()
    url, secret = url_of(keyed.redlockd), keyed.keys["worker"].secret
    driver.client(url, key=secret, ca=authority.certificate, certificate=[mine.certificate, mine.key])
    assert driver.acquire("orders/1").release()
    with pytest.raises(Refused, match="forbidden"):
        driver.acquire("invoices/1")
    driver.client(url, ca=authority.certificate)
    with pytest.raises(Refused, match="unauthorized"):
        driver.acquire("orders/1")
    driver.client(url, key=secret)
    with pytest.raises(Refused, match="no-answer.*certificate"):
        driver.acquire("orders/1", wait=0)


def test_files_for_https_that_are_replaced(lab, fake, driver):  # noqa: F811
    """Certificates may be shorter-lived than a program. The server that answers then has another authority."""
    authority, other, files = Authority(lab.folder), Authority(lab.folder, "other"), {}

    def put(made, own):
        for name, path in {"ca": made.certificate, "own": own.certificate, "key": own.key}.items():
            files[name] = f"{lab.folder}/{name}"
            shutil.copy(path, files[name] + ".new")
            os.replace(files[name] + ".new", files[name])
    put(authority, authority.issue("me"))
    first = fake(tls=context(authority.issue("server", "IP:127.0.0.1"), authority),
                 extend=lambda call: call.lease(headers={"Connection": "close"}))
    second = fake(tls=context(other.issue("server", "IP:127.0.0.1"), other))
    driver.client(first.address, second.address, ca=files["ca"], certificate=[files["own"], files["key"]])
    lease = driver.acquire("x", ttl=TTL)
    first.call("extend")
    put(other, other.issue("me"))
    first.kill()
    second.call("extend", 1)
    lease.check()
    assert lease.release()


def test_a_request_that_is_refused(service, driver):
    with pytest.raises(Refused, match="invalid-request.*redlockd:"):
        driver.client(url_of(service)).acquire("redlockd:reserved")


# ---- renewal and loss ----


def test_renewal_past_the_first_ttl(service, resource, drivers, tmp_path):
    """Also while the time of day is set forward and back by an hour."""
    driver = drivers(clock=redis_clock.RedisClock(tmp_path, redis_clock.build(tmp_path)))
    lease = driver.client(url_of(service)).acquire(resource, ttl=TTL)
    for ahead in (3600, -3600):
        driver.move_time(ahead)
        for _ in range(2):
            lease.until_renewed()
    lease.check()
    assert 0 < lease.remaining <= 0.9 * TTL and state(service, resource)["fence"] == lease.fence
    assert lease.release()


def take_by_force(daemon, resource):
    assert daemon.curl("DELETE", f"/locks/{quote(resource)}?force=true").status == 204


def take_and_give_to_another(daemon, resource):
    take_by_force(daemon, resource)
    daemon.acquire(resource)


@pytest.mark.parametrize("lose", [take_by_force, take_and_give_to_another])
def test_force_is_learned_by_the_next_renewal(service, resource, driver, lose):
    driver.client(url_of(service))
    lease = driver.acquire(resource, ttl=TTL)
    answers = lease.lost(2 * TTL)
    lose(service, resource)
    assert answers.get()["lost"] is True
    with pytest.raises(Refused, match="lock-lost") as refused:
        lease.check()
    assert refused.value.cause in ("lease-expired", "not-owner"), "the answer says so, not the clock"
    assert lease.remaining == 0 and lease.release() is False


def kill_masters(daemon, _relay):
    for master in daemon.masters[:2]:
        master.kill()


def cut_the_network(_daemon, relay):
    relay.deaf = True


def stop_redlockd(daemon, _relay):
    freeze(daemon.process)


@pytest.mark.parametrize("harm", [kill_masters, cut_the_network, stop_redlockd])
def test_a_loss_is_told_before_the_lease_ends(lab, driver, harm):
    daemon = lab.service(3)
    relay = lab.keep(Relay(daemon))
    lease = driver.client(relay.url).acquire("a/b", ttl=TTL)
    answers = lease.lost(2 * TTL)
    renewed, end = renewals(daemon), end_of(daemon, "a/b")
    harm(daemon, relay)
    # If the machine was slow, it was renewed meanwhile, and ends later, unless the answer has not come.
    latest = end if renewals(daemon) == renewed else time.monotonic() + TTL
    check_told_in_time(answers, end, latest)
    with pytest.raises(Refused, match="lock-lost.*in time"):
        lease.check()


def test_a_process_that_was_stopped_past_its_lease(service, resource, driver):
    """The first look after it goes on says so; nothing of the stopped process can do it before."""
    lease = driver.client(url_of(service)).acquire(resource, ttl=SHORT)
    driver.stop()
    other = service.acquire(resource, 60000, wait_ms=30000)
    check, lost = driver.start("check", lease=lease.name), driver.start("lost", lease=lease.name, timeout=1)
    driver.cont()
    with pytest.raises(Refused, match="lock-lost"):
        check.get()
    assert lost.get()["lost"] is True
    assert lease.release() is False and state(service, resource)["fence"] == other["fence"]
    with pytest.raises(Refused, match="lock-lost"):
        lease.check()


def test_the_block_of_a_lost_lease_ends_with_an_error(service, resource, driver):
    """What was done there may have been done twice: whoever does not look must learn it."""
    driver.client(url_of(service))
    block = driver.start("block", lease="it", resource=resource, ttl=TTL, until_lost=True)
    wait_until(lambda: state(service, resource)["held"], what="it is taken")
    take_by_force(service, resource)
    with pytest.raises(Refused, match="lock-lost"):
        block.get()


def test_the_block_of_a_lease_that_another_has_ends_with_an_error(service, resource, driver):
    """It ends before the next renewal could tell: the release does."""
    driver.client(url_of(service))
    block = driver.start("block", lease="it", resource=resource, ttl=60, seconds=6 * SLOW)
    wait_until(lambda: state(service, resource)["held"], what="it is taken")
    take_and_give_to_another(service, resource)
    with pytest.raises(Refused, match="lock-lost"):
        block.get()
    assert state(service, resource)["held"], "of the other one"


# ---- servers that fail ----


def back_after(number):
    """It ends by a signal, and another one takes its place."""
    def end_and_start(lab, daemon):
        daemon.process.send_signal(number)
        daemon.process.wait()
        return lab.redlockd(daemon.masters, listen=(daemon.address,))
    return end_and_start


def stop_for_a_while(_lab, daemon):
    stop_redlockd(daemon, None)
    time.sleep(SLOW)
    daemon.process.send_signal(signal.SIGCONT)
    return daemon


def test_leases_over_a_restart_with_a_lower_max_ttl(lab, driver):
    """As docs/how-to/operate.md changes it: none is lost, whether its ttl was chosen or not."""
    most = round(6000 * SLOW)
    daemon = lab.service(3, "--max-ttl-ms", str(4 * most), "--default-ttl-ms", str(3 * most))
    driver.client(url_of(daemon))
    options = {"default": {}, "chosen": {"ttl": 4 * most / 1000}, "short": {"ttl": most / 2000}}
    leases = {name: driver.acquire(name, **given) for name, given in options.items()}
    daemon.stop(signal.SIGTERM)
    limits = ["--max-ttl-ms", str(most), "--default-ttl-ms", str(most)]
    again = lab.redlockd(daemon.masters, *limits, listen=(daemon.address,))

    def are_shorter():
        for lease in leases.values():
            lease.check()
        return all(0 < state(again, name)["remaining_ms"] <= most for name in leases)
    wait_until(are_shorter, 8 * most / 1000, "the first leases are over, and all go on")
    assert all(lease.release() for lease in leases.values())


COMES_BACK = pytest.mark.parametrize("go_and_come", [back_after(signal.SIGTERM), back_after(signal.SIGKILL), stop_for_a_while],
                                     ids=["ended", "killed", "stopped"])


@COMES_BACK
def test_redlockd_comes_back_while_a_lease_is_held(lab, driver, go_and_come):
    daemon = lab.service(3)
    lease = driver.client(url_of(daemon)).acquire("a/b", ttl=2 * TTL)
    again = go_and_come(lab, daemon)
    lease.until_renewed()
    assert state(again, "a/b")["fence"] == lease.fence and lease.release()


@COMES_BACK
def test_redlockd_comes_back_while_a_request_waits(lab, driver, go_and_come):
    daemon = lab.service(3)
    held = daemon.acquire("a/b", 60000)
    waits = driver.client(url_of(daemon)).start("acquire", lease="it", resource="a/b", wait=50)
    wait_until(lambda: state(daemon, "a/b")["waiters"] == 1, what="it waits")
    again = go_and_come(lab, daemon)
    wait_until(lambda: state(again, "a/b")["waiters"] == 1, what="it waits again")
    again.release(held)
    assert waits.get()["fence"] > held["fence"]


def test_one_of_two_servers_hangs(lab, driver):
    """Before, while a request waits there, and while the lease is renewed there."""
    first = lab.service(3)
    second = lab.redlockd(first.masters)
    driver.client(url_of(first), url_of(second), timeout=2 * SLOW)
    held = second.acquire("a/b", 60000)
    waits = driver.start("acquire", lease="it", resource="a/b", wait=50, ttl=2 * TTL)
    wait_until(lambda: state(first, "a/b")["waiters"] == 1, what="it waits")
    stop_redlockd(first, None)
    wait_until(lambda: second.metrics()["redlockd_waiters"] == 1, what="it waits at the second one")
    second.release(held)
    assert waits.get()["fence"] > held["fence"]
    assert driver.acquire("c/d", ttl=2 * TTL).release(), "at the second one at once"
    first.process.send_signal(signal.SIGCONT)
    driver.start("release", lease="it").get()
    driver.client(url_of(first), url_of(second), timeout=2 * SLOW)
    lease = driver.acquire("e/f", ttl=2 * TTL)
    stop_redlockd(first, None)
    lease.until_renewed()
    assert lease.release()
    assert driver.acquire("g/h").fence > 0


def test_no_server_answers(lab, driver):
    daemon = lab.service(1)
    daemon.stop()
    driver.client(url_of(daemon))
    for options in ({"wait": 0}, {"try": True}, {"wait": 0.5}):
        with pytest.raises(Refused, match="no-answer"):
            driver.acquire("a/b", **options)


def test_too_few_masters(lab, driver):
    daemon = lab.service(3)
    kill_masters(daemon, None)
    with pytest.raises(Refused, match="no-quorum"):
        driver.client(url_of(daemon)).acquire("a/b", wait=0.3)


# ---- answers that are lost ----


@pytest.mark.parametrize("left", [0, 15, 300])
def test_an_answer_that_is_cut_off(lab, service, resource, driver, left):
    """By a reset. The next request finds the lease; also without waiting."""
    cutter = lab.keep(Cutter(service, left))
    lease = driver.client(cutter.url()).acquire(resource, ttl=60, **({"try": True} if left % 2 else {}))
    assert statuses(service, resource, 2) == ["201", "200"]
    assert state(service, resource)["fence"] == lease.fence and lease.release()


def test_an_answer_that_is_cut_off_at_each_byte(lab, driver):
    """The first answer for the resource `N` ends after N bytes; the next request finds the lease. A quarter of them may wait."""
    daemon = lab.service(1)
    relay = lab.keep(CuttingRelay(daemon))
    whole = relay.length_of_an_answer()
    driver.client(relay.url, timeout=30 * SLOW)
    asked = {}
    for n in range(whole):
        asked[n] = driver.start("acquire", lease=f"l{n}", resource=f"{n:04}", ttl=60, **({} if n % 4 == 3 else {"try": True}))
        if n >= 100 and n % 4 != 3:
            asked[n - 100 - (n - 100) % 4].get(seconds=60)  # about so many at once
    fences = {n: answers.get(seconds=60)["fence"] for n, answers in asked.items()}
    shown = {int(lock["resource"]): lock["fence"] for lock in listed(daemon)}
    assert len(fences) == whole > 200 and fences == shown
    assert relay.statuses == {n: [201, 200] for n in range(whole)}


def listed(daemon):
    locks, cursor = [], ""
    while cursor is not None:
        page = daemon.curl("GET", f"/locks?limit=1000{cursor and '&cursor=' + quote(cursor)}").json
        locks, cursor = locks + page["locks"], page["cursor"]
    return locks


def test_cancelling_leaves_no_waiter_and_no_lease(service, resource, driver):
    held = service.acquire(resource, 60000)
    waits = driver.client(url_of(service)).start("acquire", lease="it", resource=resource, interruptible=True)
    wait_until(lambda: state(service, resource)["waiters"] == 1, what="it waits")
    driver.start("interrupt")
    with pytest.raises(Refused, match="interrupted"):
        waits.get()
    wait_until(lambda: state(service, resource)["waiters"] == 0, what="it has left")
    service.release(held)
    assert not state(service, resource)["held"]


def cancel_while_the_grant_is_under_way(service, relay, driver, name):
    held = service.acquire(name, 60000)
    waits = driver.start("acquire", lease="it", resource=name, interruptible=True)
    wait_until(lambda: state(service, name)["waiters"] == 1, what="it waits")
    relay.deaf = True
    service.release(held)
    wait_until(lambda: state(service, name).get("fence", 0) > held["fence"], what="it is granted")
    relay.deaf = False
    driver.start("interrupt")
    with pytest.raises(Refused, match="interrupted"):
        waits.get()


def test_cancelling_while_the_grant_is_under_way(lab, service, resource, driver):
    """It was granted, and the answer has not come: the lease is given back. The library gives that a second, which may be too
    little where the machine is busy: then it is tried once more."""
    relay = lab.keep(Relay(service))
    driver.client(relay.url)
    for turn in range(5):
        starved, name = starved_seconds(), f"{resource}/{turn}"
        cancel_while_the_grant_is_under_way(service, relay, driver, name)
        if not state(service, name)["held"]:
            return
        assert starved_seconds() - starved > 1, "it is left"
    raise AssertionError("it is left each time")
