# SPDX-License-Identifier: MIT
"""Waiting in the queue: refused requests, the number of waiters, the answers to waiters when redlockd ends, and the
cost of waiting."""

import re
import signal

import pytest

from harness import SLOW, Resp, wait_until
from proxy import Proxy
from waiting_fixtures import (check_nothing_is_left, check_served_in_order, crowd, lines, readable, releases, serve_all,  # noqa: F401
                              total, wait_for_queue)


# ---- wait_ms itself ----


def test_the_bound_of_a_wait(lab):
    service = lab.service(1, "--max-wait-ms", "1000")
    service.acquire("x")
    for wait_ms in (1000, 1001, 4294967296):
        answer = service.curl("POST", "/locks", body={"resource": "x", "wait_ms": wait_ms})
        assert answer.status == 409 and 1000 <= answer.json["waited_ms"] < 30000, answer


def test_waiting_can_be_forbidden(lab):
    service = lab.service(1, "--max-wait-ms", "0")
    service.acquire("x", wait_ms=0)
    answer = service.curl("POST", "/locks", body={"resource": "x", "wait_ms": 60000})
    assert answer.code == "locked" and answer.json["waited_ms"] < 30000, answer
    assert service.curl("GET", "/locks/x").json["waiters"] == 0


# ---- how many may wait ----


def check_too_many(answer):
    assert answer.status == 429 and answer.code == "too-many-requests", answer
    assert int(answer.headers["retry-after"]) >= 1, answer


@pytest.mark.parametrize("workers", ["1", "2"])
def test_too_many_waiters(lab, crowd, workers):
    """Counted over all workers. A refused request leaves no queue entry, and does not affect others."""
    service = lab.service(3, "--max-waiters", "6", "--workers", workers)
    held = {name: service.acquire(name) for name in ("a", "b", "c")}
    waiters = {name: crowd.queue_up(service, name, 3) for name in ("a", "b")}
    for name in ("a", "b", "c") * 4:
        check_too_many(crowd.wait(service, name).answer())
    assert [len(places) for name in held for places in lines(service.masters, name)] == [3] * 6 + [0] * 3
    assert total(service, "redlockd_waiters") == 6
    # A request that need not wait is served; one that does not want to wait gets the usual answer.
    free = crowd.wait(service, "free").granted()
    assert service.release(free).status == 204
    assert service.curl("POST", "/locks", body={"resource": "a"}).status == 409
    # A queue entry that was left can be used again.
    waiters["b"].pop().leave()
    wait_for_queue(service.masters, "b", 2)
    waiters["c"] = crowd.queue_up(service, "c", 1)
    check_too_many(crowd.wait(service, "a").answer())
    for name, lease in held.items():
        check_served_in_order(releases(service, lease), waiters[name])
    assert total(service, "redlockd_waiters") == 0
    check_nothing_is_left(service.masters)


def test_too_many_for_one_resource(lab, crowd):
    service = lab.service(3, "--max-waiters-per-resource", "2")
    other = lab.redlockd(service.masters)
    held = {name: service.acquire(name) for name in ("a", "b")}
    waiters = crowd.queue_up(service, "a", 2)
    for _ in range(5):
        check_too_many(crowd.wait(service, "a").answer())
    wait_for_queue(service.masters, "a", 2)
    waiting_for_b = crowd.queue_up(service, "b", 2)
    waiters += crowd.queue_up(other, "a", 1)
    check_served_in_order(releases(service, held["a"]), waiters)
    check_served_in_order(releases(service, held["b"]), waiting_for_b)
    check_nothing_is_left(service.masters)


def test_a_burst_beyond_the_bound(lab, crowd):
    """A hundred come at once where ten may wait: ten wait, ninety are refused, at once."""
    service = lab.service(3, "--max-waiters", "10")
    holder = service.acquire("x")
    waiters = [crowd.wait(service, "x") for _ in range(100)]
    refused = {}
    while len(refused) < 90:
        ready = readable([waiter for waiter in waiters if waiter not in refused], 20 * SLOW)
        assert ready, len(refused)
        refused.update((waiter, waiter.answer()) for waiter in ready)
    assert all(answer.status == 429 for answer in refused.values())
    assert len(refused) == 90
    wait_for_queue(service.masters, "x", 10)
    assert len(serve_all(releases(service, holder), [waiter for waiter in waiters if waiter not in refused])) == 10
    check_nothing_is_left(service.masters)


# ---- the end ----


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_sends_those_that_wait_away(lab, crowd, workers):
    """They are answered at once, so that they can go to another redlockd, and their queue entries do not block waiters
    there."""
    service = lab.service(3, "--drain-ms", "60000", "--workers", workers)
    other = lab.redlockd(service.masters)
    held = {name: other.acquire(name) for name in ("a", "b")}
    sent_away = [waiter for name in held for waiter in crowd.queue_up(service, name, 5)]
    staying = crowd.queue_up(other, "a", 2)
    service.process.send_signal(signal.SIGTERM)
    for waiter in sent_away:
        answer = waiter.answer()
        assert answer.status == 503 and answer.code == "draining" and int(answer.headers["retry-after"]) >= 1, answer
    wait_for_queue(service.masters, "a", 2)
    wait_for_queue(service.masters, "b", 0)
    for waiter in sent_away:
        waiter.leave()
    service.stop(signal.SIGTERM)
    serve_all(releases(other, held["a"]), staying)
    assert other.release(held["b"]).status == 204
    check_nothing_is_left(service.masters)


def test_while_it_ends_nobody_may_wait(lab, crowd):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--drain-ms", "3000", "--master-timeout-ms", "60000")
    service.acquire("x")
    for proxy in proxies:
        proxy.swallow = True
    busy = crowd.wait(service, "y", wait_ms=None)  # keeps it from ending
    wait_until(lambda: all(server.cli("EXISTS", "y") for server in servers), what="granted on all masters")
    service.process.send_signal(signal.SIGTERM)
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    answer = crowd.wait(service, "x").answer()
    assert answer.status == 503 and answer.code == "draining", answer
    for proxy in proxies:
        proxy.heal()
    busy.leave()
    service.stop(signal.SIGTERM)


def test_sigterm_with_the_masters_stopped(lab, crowd):
    """Their queue entries cannot be removed; it ends in time all the same, and the entries run out."""
    service = lab.service(3, "--drain-ms", "2000")
    service.acquire("x", 6000)
    waiters = crowd.queue_up(service, "x", 3, wait_ms=8000)
    for server in service.masters:
        server.stop()
    service.process.send_signal(signal.SIGTERM)
    for waiter in waiters:
        answer = waiter.answer()
        assert answer.status == 503, answer
    service.stop(signal.SIGTERM)
    for server in service.masters:
        server.cont()
    check_nothing_is_left(service.masters, 10)


def test_sigint_ends_at_once(lab, crowd):
    service = lab.service(3)
    service.acquire("x", 5000)
    waiters = crowd.queue_up(service, "x", 3, wait_ms=6000, ttl_ms=1000)
    service.stop(signal.SIGINT)
    assert all(waiter.is_answered() for waiter in waiters), "an answer or the end of the connection"
    check_nothing_is_left(service.masters, 8)


# ---- what an inspection costs ----

# Commands whose cost does not depend on how much lies under a key.
CONSTANT = {"TIME", "HMGET", "GETRANGE", "PTTL", "ZCARD", "EXISTS"}


def commands_of_scripts(server, resource, work):
    """The commands of scripts about a resource on a master while work() runs."""
    watching = Resp(server.path, 10 * SLOW)
    watching.send("MONITOR")
    assert watching.receive() == "OK"
    work()
    server.cli("ECHO", "done")
    seen = []
    while not (seen and '"ECHO" "done"' in seen[-1]):
        seen.append(watching.receive())
    watching.close()
    return [re.search(r'\[\d+ lua\] "(\w+)"', told)[1].upper() for told in seen if " lua] " in told and resource in told]


def test_an_inspection_costs_the_same_however_many_wait(lab, crowd):
    """A state may be read at any rate: no master reads the queue to count it."""
    service = lab.service(1)
    service.acquire("x", 60000)
    [server], seen = service.masters, []
    for count in (1, 60):
        while len(crowd.made) < count:
            crowd.wait(service, "x")
        wait_for_queue(service.masters, "x", count)
        # The first one looks for itself once more when it can be called; that is no part of an inspection.
        seen.append(wait_until(lambda count=count: inspection(server, service, count), what="an inspection and nothing else"))
    print(seen)
    assert seen[0] == seen[1] and set(seen[0]) <= CONSTANT, seen


def inspection(server, service, count):
    seen = commands_of_scripts(server, "x", lambda: waiters_are(service, "x", count))
    return None if {"SET", "ZADD"} & set(seen) else seen


def waiters_are(service, resource, count):
    state = service.curl("GET", f"/locks/{resource}").json
    assert state["waiters"] == count and state["held"] is True, state


def test_waiters_of_a_redlockd_that_was_killed(lab, crowd):
    """They count until they are first, where the next request for the lock drops them."""
    first = lab.service(3)
    second = lab.redlockd(first.masters)
    holder = first.acquire("x", 60000)
    [living] = crowd.queue_up(second, "x", 1)
    crowd.queue_up(first, "x", 4)
    waiters_are(second, "x", 5)
    first.kill()
    waiters_are(second, "x", 5)
    assert second.release(holder).status == 204
    lease = living.granted()
    wait_until(lambda: not any(server.cli("KEYS", "redlockd:alive:*") for server in second.masters), what="nobody lives who waits")
    assert second.curl("POST", "/locks", body={"resource": "x"}).status == 409
    wait_until(lambda: second.curl("GET", "/locks/x").json["waiters"] == 0, what="they are dropped")
    assert lease["fence"] > holder["fence"]
    living.release()
