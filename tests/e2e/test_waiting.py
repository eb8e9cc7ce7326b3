# SPDX-License-Identifier: MIT
"""Waiting in the queue with wait_ms: which waiter gets the lock, when, and the answers of the others. One redlockd.

Several redlockd and masters that fail: test_waiting_replicas.py. Bounds and the end: test_waiting_bounds.py. Clients
that leave: test_disconnect.py.
"""

import select
import threading

import pytest

from harness import quote, wait_until
from proxy import Proxy
from waiting_fixtures import (check_nothing_is_left, check_served_in_order, crowd, is_acquire, line, queue_up_listening, releases,  # noqa: F401
                              lines, next_answered, serve_all, signs_of, total, wait_for_key, wait_for_queue, when_quiet)


def with_proxies(lab, *options):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    return lab.redlockd(proxies, *options)


# ---- granted ----


@pytest.mark.parametrize("wait_ms", [1, 60000])
def test_a_free_lock_is_granted_at_once(service, resource, wait_ms):
    answer = service.curl("POST", "/locks", body={"resource": resource, "wait_ms": wait_ms})
    assert answer.status == 201, answer
    lease = answer.json
    assert set(lease) >= {"resource", "token", "fence", "ttl_ms", "validity_ms"} and lease["validity_ms"] > 20000
    assert 0 <= lease["waited_ms"] <= 1000 * answer.seconds
    assert lines(service.masters, resource) == [[], [], []]
    assert service.release(lease).status == 204


def test_granted_when_released(service, resource, crowd):
    holder = service.acquire(resource, 60000, owner="before")
    [waiter] = crowd.queue_up(service, resource, 1, owner="next")
    assert not waiter.is_answered()
    assert not select.select([waiter], [], [], 0.3)[0]
    assert service.release(holder).status == 204
    answer = waiter.answer()
    lease = waiter.lease = answer.json
    assert answer.status == 201, answer
    # How long it waited as the service saw it: the client counts the end of its lease from when it asked.
    assert 300 <= lease["waited_ms"] <= 1000 * answer.seconds
    assert "waited_ms" not in holder
    assert lease["owner"] == "next" and lease["token"] != holder["token"] and lease["fence"] > holder["fence"]
    # The validity counts from the attempt that was granted, not from when the wait began.
    assert 60000 - 602 - 1000 * answer.seconds + 300 <= lease["validity_ms"] <= 60000 - 602
    wait_for_key(service.masters, resource, True)
    assert all(server.cli("GET", resource).startswith(lease["token"]) for server in service.masters)
    assert service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]}).status == 200
    waiter.release()


@pytest.mark.parametrize("masters", [1, 2, 3, 5])
def test_first_come_first_served(lab, resource, crowd, masters):
    service = lab.service(masters)
    holder = service.acquire(resource)
    waiters = crowd.queue_up(service, resource, 8)
    check_served_in_order(releases(service, holder), waiters)
    check_nothing_is_left(service.masters)


def test_fifty_in_the_queue(service, resource, crowd):
    holder = service.acquire(resource)
    waiters = crowd.queue_up(service, resource, 50)
    check_served_in_order(releases(service, holder), waiters)


def test_many_come_while_others_are_served(service, resource, crowd):
    """The queue grows at its end while it shrinks at its head."""
    holder, waiting, served = service.acquire(resource), crowd.queue_up(service, resource, 3), []
    assert service.release(holder).status == 204
    for number in range(30):
        waiter = next_answered(waiting)
        assert waiter is waiting.pop(0), number
        waiter.granted()
        waiting += crowd.queue_up(service, resource, 1)
        waiter.release()
        served.append(waiter)
    serve_all(lambda: None, waiting)


def test_a_lease_that_runs_out(service, resource, crowd):
    """Without a release and a notification the next waiter is served when the lease ends."""
    lease = service.acquire(resource, 4000)
    first, second = crowd.queue_up(service, resource, 2)
    assert next_answered([first, second]) is first
    assert first.granted()["fence"] > lease["fence"]
    assert service.release(lease).status == 409
    first.release()
    second.granted()
    second.release()


def test_a_holder_that_extends(service, resource, crowd):
    """Those in the queue go on waiting, and come when it releases after all."""
    lease = service.acquire(resource, 3000)
    assert service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"], "ttl_ms": 60000}).status == 200
    waiters = crowd.queue_up(service, resource, 2)
    assert not select.select(waiters, [], [], 3.5)[0], "a waiter is answered while somebody holds the lock"
    assert service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"], "ttl_ms": 60000}).status == 200
    assert serve_all(releases(service, lease), waiters) == waiters


def test_a_lock_of_another_library(service, resource, crowd):
    """Waiters rely on its expiry, among other things; the others are in test_waiting_foreign.py. A key that never
    expires keeps them waiting to the end."""
    for server in service.masters:
        assert server.cli("SET", resource, "somebody-elses", "NX", "PX", 4000) == "OK"
    waiters = crowd.queue_up(service, resource, 2)
    assert serve_all(lambda: None, waiters) == waiters
    wait_for_key(service.masters, resource, False)
    for server in service.masters:
        server.cli("RPUSH", resource, "a list")
    answer = crowd.wait(service, resource, wait_ms=500).answer()
    assert answer.status == 409 and answer.code == "locked" and "holder" not in answer.json, answer
    for server in service.masters:
        server.cli("DEL", resource)


def test_resources_and_prefixes_do_not_wait_for_each_other(lab, crowd):
    plain = lab.service(3)
    prefixed = lab.redlockd(plain.masters, "--key-prefix", "app:")
    held = [(through, through.acquire(name)) for through in (plain, prefixed) for name in ("a", "b")]
    waiters = [crowd.wait(through, lease["resource"]) for through, lease in held]
    for server in plain.masters:
        for prefix in ("", "app:"):
            wait_until(lambda s=server, p=prefix: [len(line(s, name, p)) for name in ("a", "b")] == [1, 1], what="in the queue")
    for (through, lease), waiter in zip(held, waiters):
        assert through.release(lease).status == 204
        assert next_answered(waiters) is waiter
        waiter.granted()
        waiters = [other for other in waiters if other is not waiter]


# ---- refused ----


@pytest.mark.parametrize("wait_ms", [100, 1000])
def test_a_wait_that_runs_out(service, resource, crowd, wait_ms):
    holder = service.acquire(resource, 30000, owner="me")
    waiter = crowd.wait(service, resource, wait_ms=wait_ms)
    answer = waiter.answer()
    assert answer.status == 409 and answer.code == "locked", answer
    assert wait_ms <= answer.json["waited_ms"] <= 1000 * answer.seconds, answer
    assert answer.json["holder"] == {"owner": "me", "fence": holder["fence"]}
    votes = answer.json["votes"]
    assert votes["needed"] == 2 and votes["masters"] == 3 and votes["granted"] == 0 and votes["refused"] >= 2, votes
    assert 0 < answer.json["retry_after_ms"] <= 30000 - wait_ms + 50, "by the masters, whose clocks tick at the beginning of a round"
    assert abs(int(answer.headers["retry-after"]) - answer.json["retry_after_ms"] / 1000) <= 1
    wait_for_queue(service.masters, resource, 0)
    # The connection goes on, the lock is untouched, and the next one in that connection may wait again.
    assert service.curl("GET", f"/locks/{quote(resource)}").json["fence"] == holder["fence"]
    waiter.send("POST", "/locks", {"resource": resource, "wait_ms": 30000})
    wait_for_queue(service.masters, resource, 1)
    assert service.release(holder).status == 204
    waiter.granted()
    waiter.release()


def test_it_tells_the_holder_of_now(service, resource, crowd):
    first = service.acquire(resource, 60000, owner="first")
    [next_one] = crowd.queue_up(service, resource, 1, owner="second", ttl_ms=40000)
    late = crowd.wait(service, resource, wait_ms=5000)
    wait_for_queue(service.masters, resource, 2)
    assert service.release(first).status == 204
    second = next_one.granted()
    answer = late.answer()
    assert answer.status == 409 and answer.json["holder"] == {"owner": "second", "fence": second["fence"]}, answer
    assert answer.json["retry_after_ms"] <= 40000 and answer.json["waited_ms"] >= 5000
    next_one.release()


def test_an_entry_that_is_given_up_does_not_stop_those_behind(service, resource, crowd):
    holder = service.acquire(resource)
    first, second, third = (crowd.queue_up(service, resource, 1, wait_ms=wait_ms)[0] for wait_ms in (60000, 5000, 60000))
    assert second.answer().status == 409
    wait_for_queue(service.masters, resource, 2)
    check_served_in_order(releases(service, holder), [first, third])


def test_no_wait_is_no_entry(service, resource, crowd):
    """wait_ms 0 is as none: refused at once, and no queue entry is made."""
    holder = service.acquire(resource)
    for wait_ms in (0, None):
        answer = crowd.wait(service, resource, wait_ms=wait_ms).answer()
        assert answer.status == 409 and answer.code == "locked", answer
        assert lines(service.masters, resource) == [[], [], []]
    assert service.release(holder).status == 204
    lease = crowd.wait(service, resource, wait_ms=0).granted()
    assert service.release(lease).status == 204


def test_nobody_barges(lab, resource, crowd):
    """Four clients without wait_ms try without a pause, through two redlockd, while the lock goes from one to the next: all of them are refused."""
    service = lab.service(3)
    other = lab.redlockd(service.masters)
    holder = service.acquire(resource)
    waiters = crowd.queue_up(service, resource, 60)
    statuses, over = [], threading.Event()

    def barge(through):
        client = through.client()
        while not over.is_set():
            statuses.append(client.call("POST", "/locks", {"resource": resource}).status)
        client.close()
    threads = [threading.Thread(target=barge, args=(through,)) for through in (service, other) * 2]
    for thread in threads:
        thread.start()
    release, fences = releases(service, holder), [holder["fence"]]
    for waiter in waiters:
        release()
        fences.append(waiter.granted()["fence"])
        release = waiter.release
    over.set()
    for thread in threads:
        thread.join()
    assert len(statuses) > 60 and set(statuses) == {409}, (len(statuses), statuses.count(201))
    assert fences == sorted(set(fences))
    release()
    assert service.curl("POST", "/locks", body={"resource": resource}).status == 201, "nobody waits any more"


# ---- what is shown ----


def test_how_many_wait_is_shown(service, resource, crowd):
    path = f"/locks/{quote(resource)}"
    assert service.curl("GET", path).json["waiters"] == 0
    holder = service.acquire(resource, owner="me")
    for count in range(1, 4):
        crowd.queue_up(service, resource, 1)
        state = service.curl("GET", path).json
        assert state["waiters"] == count and state["held"] is True and state["owner"] == "me", state
    listed = service.curl("GET", f"/locks?prefix={quote(resource)}").json["locks"]
    assert [(state["resource"], state["waiters"]) for state in listed] == [(resource, 3)]
    crowd.close()
    wait_until(lambda: service.curl("GET", path).json["waiters"] == 0, what="nobody waits any more")
    assert service.curl("GET", f"/locks?prefix={quote(resource)}").json["locks"][0]["waiters"] == 0
    assert service.release(holder).status == 204


def test_metrics(lab, resource, crowd):
    service = lab.service(3)
    holder = service.acquire(resource)
    assert total(service, "redlockd_waiters") == 0
    granted = crowd.queue_up(service, resource, 2)
    [gone] = crowd.queue_up(service, resource, 1)
    assert total(service, "redlockd_waiters") == 3
    assert crowd.wait(service, resource, wait_ms=500).answer().status == 409
    assert total(service, "redlockd_waiters") == 3
    gone.leave()
    wait_until(lambda: total(service, "redlockd_waiters") == 2, what="two wait")
    serve_all(releases(service, holder), granted)
    assert total(service, "redlockd_waiters") == 0
    waits = {result: total(service, "redlockd_wait_seconds_count", result=result) for result in ("granted", "timeout", "gone")}
    assert waits == {"granted": 2, "timeout": 1, "gone": 1}
    assert 0.5 <= total(service, "redlockd_wait_seconds_sum", result="timeout") < total(service, "redlockd_hold_seconds_sum")
    assert total(service, "redlockd_wait_seconds_bucket", result="granted", le="+Inf") == 2
    assert total(service, "redlockd_handover_seconds_count") == 2
    assert 0 < total(service, "redlockd_handover_seconds_sum") < total(service, "redlockd_wait_seconds_sum", result="granted")
    assert total(service, "redlockd_hold_seconds_count") == 3


# ---- what it costs ----


@pytest.mark.parametrize("keyed", [False, True])
def test_nobody_polls(lab, crowd, keyed):
    """Twenty wait for two heartbeats behind a lock that stays: nothing is asked about it, and what shows that redlockd lives does not depend on
    how many wait. A redlockd that had no processor for a second tries anew: once, so a later time is quiet."""
    service = with_proxies(lab)
    service.acquire("x", 60000)
    waiters = queue_up_listening(crowd, service, "x", 20, keyed=lambda i: keyed)

    def heartbeats(of_one):
        return sum(command[0].upper() == "INFO" for command in of_one)

    def is_quiet():
        before = when_quiet(service.masters, "x")
        commands = [len(proxy.commands()) for proxy in service.masters]

        def sent():
            return [proxy.commands()[count:] for proxy, count in zip(service.masters, commands)]
        wait_until(lambda: all(heartbeats(of_one) >= 2 for of_one in sent()), what="two heartbeats")
        assert not any(waiter.is_answered() for waiter in waiters)
        # The sign of life every 300 ms or so, and the heartbeat once a second: INFO, TIME and the like.
        return [len(signs) for signs in signs_of(service.masters, "x")] == before and all(len(of_one) <= 9 * (heartbeats(of_one) + 2) for of_one in sent())
    assert any(is_quiet() for _ in range(5)), [signs[-3:] for signs in signs_of(service.masters, "x")]


def test_no_herd(lab, crowd):
    """One release wakes one waiter: one attempt on each master, and nothing from the other nineteen, then or later. A master that calls it after
    a majority has granted is told that it does not wait any more. A redlockd that had no processor for a second tries anew: not at each release."""
    service = with_proxies(lab)
    release = releases(service, service.acquire("x", 60000))
    waiters = queue_up_listening(crowd, service, "x", 20)
    for _ in range(5):
        before = when_quiet(service.masters, "x")

        def since():
            return [signs[count:] for signs, count in zip(signs_of(service.masters, "x"), before)]  # noqa: B023
        release()
        assert next_answered(waiters) is waiters[0]
        waiters[0].granted()
        wait_until(lambda: all(len(signs) >= 2 for signs in since()), what="the third master's part")  # noqa: B023
        release = waiters.pop(0).release
        assert not select.select(waiters, [], [], 2.5)[0]
        seen = [[is_acquire(command) for command in signs] for signs in since()]
        if all(signs in ([False, True], [False, True, False]) for signs in seen):
            return
    raise AssertionError(seen)


def test_nothing_is_left_in_redis(lab, crowd):
    """Neither of waiters that were served nor of those whose time ran out or who left; and what is left of a redlockd that died goes by itself."""
    service = lab.service(3)
    holder = service.acquire("x")
    waiters = crowd.queue_up(service, "x", 3)
    crowd.queue_up(service, "x", 1)[0].leave()
    assert crowd.wait(service, "x", wait_ms=200).answer().status == 409
    serve_all(releases(service, holder), waiters)
    check_nothing_is_left(service.masters)
    service.acquire("x", 5000)
    crowd.queue_up(service, "x", 3, wait_ms=5000, ttl_ms=1000)
    service.kill()
    check_nothing_is_left(service.masters, 8)
