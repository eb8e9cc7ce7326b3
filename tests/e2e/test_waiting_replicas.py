# SPDX-License-Identifier: MIT
"""Waiting in the queue over several redlockd, and through faults: a redlockd that dies or hangs at the head of the
queue, masters that die, hang, restart or forget, notifications that are lost. Each waiter is served in the end, and
soon."""

import contextlib
import select
import signal
import threading
import time
from urllib.parse import quote

import pytest

from harness import freeze, read_response, wait_until
from master_checks import TIMEOUT_MS
from proxy import Proxy
from waiting_fixtures import (alive_keys, check_nothing_is_left, check_served_in_order, crowd, is_acquire, queue_up_listening,  # noqa: F401
                              next_answered, releases, serve_all, signs_of, wait_for_queue, when_quiet)


def replicas(lab, count, *options, masters=None):
    """Several redlockd over the same masters."""
    masters = masters or lab.redises(3)
    return [lab.redlockd(masters, *options) for _ in range(count)]


def pause(service):
    freeze(service.process)


def go_on(service):
    service.process.send_signal(signal.SIGCONT)


# ---- the order over several redlockd ----


@pytest.mark.parametrize("count, workers", [(2, "1"), (3, "1"), (2, "2")])
def test_first_come_first_served(lab, resource, crowd, count, workers):
    services = replicas(lab, count, "--workers", workers)
    holder = services[0].acquire(resource)
    waiters = crowd.queue_up(services, resource, 4 * count)
    check_served_in_order(releases(services[0], holder), waiters)
    # Another order of arrival: all of one, then all of the next.
    holder = services[0].acquire(resource)
    waiters = [waiter for service in reversed(services) for waiter in crowd.queue_up(service, resource, 4)]
    check_served_in_order(releases(services[0], holder), waiters)
    check_nothing_is_left(services[0].masters)


def test_released_through_any_of_them(lab, resource, crowd):
    """The redlockd that releases need not know the waiters; nor the one that shows their number."""
    services = replicas(lab, 3)
    holder = services[0].acquire(resource)
    waiters = crowd.queue_up(services[1], resource, 3)
    assert [service.curl("GET", f"/locks/{resource}").json["waiters"] for service in services] == [3, 3, 3]
    lease, through = holder, services[0]
    for i, waiter in enumerate(waiters):
        assert through.release(lease).status == 204
        assert next_answered(waiters[i:]) is waiter
        lease, through = waiter.granted(), services[2 - i % 2 * 2]
    assert through.release(lease).status == 204


@pytest.mark.parametrize("late", [False, True], ids=["together", "late"])
def test_no_herd(lab, crowd, late):
    """Each of three redlockd keeps waiters: on the release one of them acts. The others look once, when the notified one
    had its time. On a master that got the attempt before the release it is not granted: there a command of its own
    removes the entry. If a master releases after the grant, the next waiters of the first redlockd look, too: a few times
    in all, where a crowd that polls would look a dozen times."""
    servers = lab.redises(3)
    sides = [[lab.keep(Proxy(lab.folder, server)) for server in servers] for _ in range(3)]
    services = [lab.redlockd(proxies) for proxies in sides]
    holder = services[0].acquire("x", 60000)
    waiters = queue_up_listening(crowd, services, "x", 12)
    before = [when_quiet(proxies, "x") for proxies in sides]

    def since():
        """The commands to each master about it: [of one redlockd][of one master]."""
        return [[signs[count:] for signs, count in zip(signs_of(proxies, "x"), counts)] for proxies, counts in zip(sides, before)]
    if late:
        sides[1][2].gate.clear()
    assert services[1].release(holder).status == 204
    assert next_answered(waiters) is waiters[0]
    waiters[0].granted()
    sides[1][2].gate.set()
    wait_until(lambda: all(len(signs) >= 1 for signs in since()[0] + since()[1]), what="the third master's part")
    assert not select.select(waiters[1:], [], [], 3)[0]
    for number, of_one in enumerate(since()):
        for signs in of_one:  # two more than follow from the above: a redlockd without a processor for a second looks once more
            assert sum(map(is_acquire, signs)) <= (6 if number == 0 else 4), (number, signs)


@pytest.mark.slow
def test_nobody_polls_behind_a_bare_majority(lab, crowd):
    """The lock is on two masters of three, as when the third one was slow: it is free there, which is no reason to try again and again."""
    servers = lab.redises(3)
    sides = [[lab.keep(Proxy(lab.folder, server)) for server in servers] for _ in range(3)]
    services = [lab.redlockd(proxies) for proxies in sides]
    holder = services[0].acquire("x", 60000)
    wait_until(lambda: servers[2].cli("DEL", "x") == 1, what="gone from one master")
    waiters = queue_up_listening(crowd, services, "x", 9)
    assert not select.select(waiters, [], [], 1.5)[0], "what their coming started is over"
    for _ in range(3):  # a redlockd that had no processor for a second has lost its signs of life, and tries anew: once, not again and again
        before = [[len(signs) for signs in signs_of(proxies, "x")] for proxies in sides]
        assert not select.select(waiters, [], [], 4)[0]
        asked = [[sum(map(is_acquire, signs[count:])) for signs, count in zip(signs_of(proxies, "x"), counts)] for proxies, counts in zip(sides, before)]
        print("attempts in 4 s, of each redlockd on each master:", asked)
        if max(map(max, asked)) <= 1:
            break
    assert max(map(max, asked)) <= 1, asked
    check_served_in_order(releases(services[0], holder), waiters)


def test_without_an_entry_refused_although_it_is_free(lab, resource, crowd):
    """The first in the queue cannot come at once, its redlockd hangs: until that counts as dead no other is served, and
    then the next one is."""
    services = replicas(lab, 2)
    client, refused_free = services[1].client(), []
    for attempt in range(10):  # a machine may be too busy to ask in time
        name = f"{resource}/{attempt}"
        holder = services[1].acquire(name)
        [waiter] = crowd.queue_up(services[0], name, 1)
        pause(services[0])
        assert client.call("DELETE", f"/locks/{name}", {"token": holder["token"]}).status == 204

        def asked(name=name):
            answer = client.call("POST", "/locks", {"resource": name})
            if answer.status != 201:
                assert answer.status == 409 and answer.code == "locked", answer
                refused_free.append(answer)
            return answer if answer.status == 201 else None
        lease = wait_until(asked, what="its redlockd counts as dead").json
        go_on(services[0])
        services[1].release(lease)
        waiter.granted()
        if refused_free:
            break
    refused = refused_free[0].json
    assert "holder" not in refused and refused["votes"]["granted"] == 0, refused
    assert refused["votes"]["refused"] >= 2 and refused["retry_after_ms"] > 0, refused
    client.close()


def test_a_stampede(lab, resource, crowd):
    """Sixty come at the same moment for a lock that is free, through three redlockd: they may get in each other's way, but all of them are served."""
    services = replicas(lab, 3)
    waiters = [crowd.wait(services[i % 3], resource) for i in range(60)]
    fences = [waiter.lease["fence"] for waiter in serve_all(lambda: None, waiters)]
    assert fences == sorted(set(fences))
    check_nothing_is_left(services[0].masters)


# ---- a redlockd that dies or hangs ----


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("when", ["just before", "long before"])
def test_the_first_in_the_queue_is_dead(lab, resource, crowd, how, when):
    """Its redlockd dies: the others are delayed by about a second, or not at all where it has been dead for longer than that."""
    services = replicas(lab, 2)
    holder = services[1].acquire(resource)
    lost = crowd.queue_up(services[0], resource, 3)
    waiters = crowd.queue_up(services[1], resource, 3)
    if how == "killed":
        services[0].kill()
    else:
        pause(services[0])
    if when == "long before":
        wait_until(lambda: all(len(alive_keys(server)) == 1 for server in services[1].masters), 5, "its sign of life has run out")
    assert serve_all(releases(services[1], holder), waiters) == waiters
    if how == "stopped":
        go_on(services[0])
        assert serve_all(lambda: None, lost) == lost
    check_nothing_is_left(services[1].masters)


def test_one_that_hung_finds_its_entry_again(lab, resource, crowd):
    """It missed its turn, and the next waiter has the lock: it goes on waiting, and is served with the others."""
    services = replicas(lab, 2)
    holder = services[1].acquire(resource)
    lost = crowd.queue_up(services[0], resource, 2)
    waiters = crowd.queue_up(services[1], resource, 2)
    pause(services[0])
    assert services[1].release(holder).status == 204
    assert next_answered(waiters) is waiters[0]
    waiters[0].granted()
    go_on(services[0])
    wait_for_queue(services[1].masters, resource, 2)  # the first of each; a second one takes its place again when it has become the first
    wait_until(lambda: services[1].curl("GET", f"/locks/{quote(resource)}").json["waiters"] == 2, what="both of living ones")
    waiters[0].release()
    left = [*lost, waiters[1]]
    for waiter in left:
        assert next_answered(left[left.index(waiter):]) is waiter, "they came before the last one, and their places say so"
        waiter.granted()
        if waiter is not left[-1]:
            wait_for_queue(services[1].masters, resource, len(left) - 1 - left.index(waiter))
        waiter.release()


def test_one_that_hung_beyond_the_end_of_its_wait(lab, resource, crowd):
    services = replicas(lab, 2)
    holder = services[1].acquire(resource)
    late = crowd.wait(services[0], resource, wait_ms=3000)
    wait_for_queue(services[0].masters, resource, 1)
    pause(services[0])
    wait_until(lambda: not any(alive_keys(server) for server in services[0].masters), 5, "its sign of life has run out")
    go_on(services[0])
    answer = late.answer(2)
    assert answer.status == 409 and answer.code == "locked" and answer.json["waited_ms"] >= 3000, answer
    assert services[1].release(holder).status == 204
    lease = services[1].acquire(resource, wait_ms=0)
    assert services[1].release(lease).status == 204


def test_the_holders_redlockd_is_killed(lab, resource, crowd):
    """Its grant stays until the lease ends; then the next waiter is served."""
    services = replicas(lab, 2)
    services[0].acquire(resource, 5000)
    waiters = crowd.queue_up(services[1], resource, 2)
    services[0].kill()
    assert serve_all(lambda: None, waiters) == waiters


# ---- masters ----


MASTER_FAULTS = {
    "killed": (lambda server: server.kill(), lambda server: None),
    "stopped": (lambda server: server.stop(), lambda server: server.cont()),
    "restarted": (lambda server: server.restart(), lambda server: None),
    "flushed": (lambda server: server.cli("FLUSHALL"), lambda server: None),
    "scripts gone": (lambda server: server.cli("SCRIPT", "FLUSH"), lambda server: None),
    "busy": (lambda server: Busy(server).start(), lambda server: None),
}


class Busy(threading.Thread):
    """Keeps a master from answering for a while, as a slow command does."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server = server

    def run(self):
        with contextlib.suppress(OSError):
            self.server.cli("DEBUG", "SLEEP", "1", timeout=30)


@pytest.mark.parametrize("fault", MASTER_FAULTS)
def test_a_master_fails_while_ten_wait(lab, resource, crowd, fault):
    """A majority is left: in the end all are served, and one after the other."""
    services = replicas(lab, 2, "--master-timeout-ms", TIMEOUT_MS)
    victim = services[0].masters[1]
    holder = services[0].acquire(resource)
    waiters = crowd.queue_up(services, resource, 10)
    strike, heal = MASTER_FAULTS[fault]
    strike(victim)
    served = serve_all(releases(services[0], holder), waiters[:7])
    heal(victim)
    later = serve_all(lambda: None, waiters[7:])
    print(f"{fault}: order {[waiters.index(waiter) for waiter in served + later]}")


@pytest.mark.parametrize("fault", ["stopped", "flushed", "restarted"])
def test_a_majority_fails_while_some_wait(lab, resource, crowd, fault):
    """No waiter can be served for a while, and none is forgotten: all are served when the masters are back."""
    services = replicas(lab, 2, "--master-timeout-ms", TIMEOUT_MS, "--restart-guard", "off")
    holder = services[0].acquire(resource)
    waiters = crowd.queue_up(services, resource, 6)
    strike, heal = MASTER_FAULTS[fault]
    for server in services[0].masters[:2]:
        strike(server)
    services[0].release(holder)
    for server in services[0].masters[:2]:
        heal(server)
    assert set(serve_all(lambda: None, waiters)) == set(waiters)


def test_a_master_is_away_for_all_of_the_wait(lab, resource, crowd):
    services = replicas(lab, 2, "--master-timeout-ms", TIMEOUT_MS)
    services[0].masters[2].kill()
    for service in services:
        service.wait_voting(2)
    holder = services[0].acquire(resource)
    check_served_in_order(releases(services[0], holder), crowd.queue_up(services, resource, 6))


def test_a_majority_is_away_to_the_end(lab, resource, crowd):
    """Whether the lock is free is unknown: when the wait is over the answer is 503 and not 409."""
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    service.acquire(resource)
    waiter = crowd.queue_up(service, resource, 1, wait_ms=6000)[0]
    for server in service.masters[:2]:
        server.kill()
    answer = waiter.answer()
    assert answer.status == 503 and answer.code == "no-quorum" and int(answer.headers["retry-after"]) >= 1, answer
    assert answer.json["votes"]["failed"] == 2, answer
    # And one that comes now is told so at once.
    answer = crowd.wait(service, resource, wait_ms=20000).answer(2)
    assert answer.status == 503 and answer.code == "no-quorum", answer


# ---- missed notifications, lost queue entries ----


@pytest.mark.parametrize("masters", ["one", "all"])
def test_the_subscription_is_cut_right_before_the_release(lab, resource, crowd, masters):
    services = replicas(lab, 2)
    holder = services[0].acquire(resource)
    waiters = crowd.queue_up(services, resource, 4)
    release = releases(services[0], holder)
    for waiter in waiters:
        for server in services[0].masters[:1 if masters == "one" else 3]:
            server.cli("CLIENT", "KILL", "TYPE", "pubsub")
        release()
        assert next_answered(waiters[waiters.index(waiter):]) is waiter
        waiter.granted()
        release = waiter.release
    release()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["sign of life", "line", "both"])
def test_a_hand_deletes_what_the_masters_know(lab, resource, crowd, what):
    """A redlockd notices that its alive key is missing. A missing queue shows only when the lease ends; then all are
    served."""
    services, ttl_ms = replicas(lab, 2), 5000 if what == "line" else 60000
    holder = services[0].acquire(resource, ttl_ms)
    waiters = crowd.queue_up(services, resource, 4, ttl_ms=ttl_ms)
    release, left = lambda: services[0].release(holder), list(waiters)
    while left:
        for server in services[0].masters:
            keys = alive_keys(server) if what in ("sign of life", "both") else []
            keys += [f"redlockd:queue:{resource}"] if what in ("line", "both") else []
            if keys:
                server.cli("DEL", *keys)
        release()
        waiter = next_answered(left)
        waiter.granted()
        left.remove(waiter)
        release = waiter.release
    release()
    check_nothing_is_left(services[0].masters)


def test_all_of_it_at_once(lab, crowd):
    """Six resources, sixty waiters over three redlockd, while masters and a redlockd are struck one after the other: all that can be served are, each
    resource has one holder at a time, and nothing is left."""
    services = replicas(lab, 3, "--master-timeout-ms", TIMEOUT_MS)
    masters = services[0].masters
    names = [f"all/{i}" for i in range(6)]
    held = {name: services[0].acquire(name) for name in names}
    waiters = {name: [crowd.wait(services[i % 2], name) for i in range(10)] for name in names}
    for name in names:
        wait_for_queue(masters, name, 10)
    lost = [crowd.wait(services[2], name) for name in names]
    failures, fences = [], {}

    def serve(name):
        try:
            served = serve_all(releases(services[0], held[name]), waiters[name])
            fences[name] = [waiter.lease["fence"] for waiter in served]
        except BaseException as failure:  # noqa: BLE001
            failures.append((name, failure))
    threads = [threading.Thread(target=serve, args=(name,)) for name in names]
    services[2].kill()
    for thread in threads:
        thread.start()
    for strike in (lambda: masters[0].cli("CLIENT", "KILL", "TYPE", "pubsub"), lambda: masters[1].cli("SCRIPT", "FLUSH"), masters[2].stop, masters[2].cont):
        strike()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert all(of_one == sorted(set(of_one)) and len(of_one) == 10 for of_one in fences.values()), fences
    assert not any(waiter.is_answered() and read_response(waiter.plain) for waiter in lost), "these had no redlockd any more"
    # The next waiter removes the entries of the dead redlockd, once it counts as dead.
    wait_until(lambda: not any(alive_keys(server) for server in masters), 5, "no sign of life")
    for name in names:
        assert services[0].release(services[0].acquire(name)).status == 204
    check_nothing_is_left(masters)


@pytest.mark.parametrize("names", [{"resource": "r"}, {"resources": ["q", "r"]}], ids=["one", "set"])
def test_the_many_entries_of_dead_replicas_are_removed_at_once(lab, names):
    """A command for each would keep a master from all others for longer than it may take."""
    service = lab.service(3)
    for master in service.masters:
        master.pipeline([("ZADD", "redlockd:queue:r", arrival, f"{arrival % 4:016x}:{arrival:016d}") for arrival in range(1, 3001)])
        master.cli("HSET", "redlockd:master", "waited", int(time.time() * 1e6) + 60_000_000)
        master.cli("CONFIG", "RESETSTAT")
    answer = service.curl("POST", "/locks", body={**names, "wait_ms": 10000})
    assert answer.status == 201, answer
    for master in service.masters:
        wait_until(lambda one=master: one.cli("EXISTS", "redlockd:queue:r") == 0, what="the queue is empty")
        calls = master.calls()
        assert calls["zrem"] <= 10 and calls["zrange"] <= 20 and calls["exists"] <= 60, calls
