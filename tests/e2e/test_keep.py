# SPDX-License-Identifier: MIT
"""A release with keep_ms: the lease ends and its token is dead, and nobody gets the lock for a while.

A time is the one that the answers name, or that of Redis: no test waits for a lock to be kept for long.
"""

import pytest

from ctl import ctl, url
from harness import quote, wait_until
from test_force import stopped
from test_wanted import published
from test_watch import fixture_watch  # noqa: F401
from waiting_fixtures import crowd, wait_for_queue  # noqa: F401

LONG_MS = 60000
KINDS = {"single": {}, "shared": {"mode": "shared"}, "slot": {"slots": 2}, "set": {}}


def named(resource, kind):
    """The resources of a request of that kind."""
    return {"resources": [resource, resource + "-2"]} if kind == "set" else {"resource": resource}


def take(service, resource, kind, **members):
    answer = service.curl("POST", "/locks", body={**named(resource, kind), **KINDS[kind], "ttl_ms": LONG_MS, **members})
    assert answer.status == 201, answer
    return answer.json


def call(service, method, resource, kind, **members):
    return service.curl(method, "/locks", body={**named(resource, kind), **members})


def state(service, resource):
    answer = service.curl("GET", "/locks/" + quote(resource))
    assert answer.status == 200, answer
    return answer.json


def holder_of(found):
    """The holder, or the only one of several."""
    if "holders" not in found:
        return found
    assert found["holder_count"] == 1, found
    return found["holders"][0]


def on_all(service, resource):
    wait_until(lambda: all(server.cli("EXISTS", resource) for server in service.masters), what="on all masters")


def calls(service):
    return [server.calls().get("evalsha", 0) for server in service.masters]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_kept_and_its_token_is_dead(service, resource, kind):
    lease = take(service, resource, kind, owner="worker-7", metadata={"job": 7})
    assert call(service, "DELETE", resource, kind, token=lease["token"], keep_ms=50000).status == 204
    found = state(service, resource)
    holder = holder_of(found)
    assert found["held"] is True and holder["kept"] is True and 0 < found["remaining_ms"] <= 50000, found
    assert (holder["owner"], holder["fence"], holder["metadata"]) == ("worker-7", lease["fence"], {"job": 7})

    assert [call(service, method, resource, kind, token=lease["token"]).code for method in ("PUT", "DELETE")] == ["lease-expired"] * 2
    assert call(service, "DELETE", resource, kind, token=lease["token"], keep_ms=1).code == "lease-expired"
    assert 0 < state(service, resource)["remaining_ms"] <= 50000
    refused = service.curl("POST", "/locks", body={"resource": resource})
    assert (refused.status, refused.code) == (409, "locked") and refused.json["holder"]["owner"] == "worker-7", refused

    assert service.curl("DELETE", f"/locks/{quote(resource)}?force=true&fence={lease['fence']}").status == 204
    names = [resource, resource + "-2"] if kind == "set" else [resource]
    assert not any(state(service, name)["held"] for name in names)
    assert take(service, resource, kind)["fence"] > lease["fence"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_that_ends_tells_of_it(service, resource, kind):
    """The same as a request that does not wait: else the next one would come at once, again and again."""
    lease = take(service, resource, kind, owner="worker-7")
    assert call(service, "DELETE", resource, kind, token=lease["token"], keep_ms=LONG_MS).status == 204
    on_all(service, resource)
    for headers in ({}, {"Idempotency-Key": f"{resource}-wait-0123456789"}):
        for members in (named(resource, kind), {"resource": resource}):
            refused = service.curl("POST", "/locks", body={**members, "wait_ms": 50}, headers=headers)
            assert refused.code == "locked" and refused.json["waited_ms"] >= 50, refused
            assert refused.json["holder"]["owner"] == "worker-7" and refused.json["retry_after_ms"] > LONG_MS / 2, refused
    service.curl("DELETE", f"/locks/{quote(resource)}?force=true")


def test_a_slot_and_a_place_are_kept_and_no_others(service, resource):
    first, second = (take(service, resource, "slot") for _ in range(2))
    assert call(service, "DELETE", resource, "slot", token=first["token"], keep_ms=LONG_MS).status == 204
    assert service.curl("POST", "/locks", body={"resource": resource, "slots": 2}).code == "locked"
    assert call(service, "PUT", resource, "slot", token=second["token"]).status == 200
    assert call(service, "DELETE", resource, "slot", token=second["token"]).status == 204
    third = take(service, resource, "slot")
    assert third["slot"] == second["slot"]
    kept = [holder["slot"] for holder in state(service, resource)["holders"] if holder.get("kept")]
    assert kept == [first["slot"]]


def test_an_idempotency_key_does_not_get_a_kept_lease_back(service, resource):
    key = {"Idempotency-Key": f"{resource}-keep-0123456789"}
    body = {"resource": resource, "ttl_ms": LONG_MS}
    for more in ({}, {"mode": "shared"}):
        lease = service.curl("POST", "/locks", body={**body, **more}, headers=key).json
        assert service.curl("POST", "/locks", body={**body, **more}, headers=key).json["token"] == lease["token"]
        assert service.curl("DELETE", "/locks", body={"resource": resource, "token": lease["token"], "keep_ms": LONG_MS}).status == 204
        again = service.curl("POST", "/locks", body={**body, **more}, headers=key)
        assert again.status == (201 if more else 409) and again.json.get("token") != lease["token"], again
        service.curl("DELETE", f"/locks/{quote(resource)}?force=true")


@pytest.mark.parametrize("kind", KINDS)
def test_an_invented_token_keeps_nothing_and_concerns_nobody(service, resource, crowd, kind):  # noqa: F811
    take(service, resource, kind)
    waiters = [crowd.wait(service, resource) for _ in range(3)]
    wait_for_queue(service.masters, resource, 3)
    before = published(service), calls(service)
    for i in range(20):
        assert call(service, "DELETE", resource, kind, token=f"{i:040x}", keep_ms=LONG_MS).status in (409, 410)
    after = published(service), calls(service)
    assert after[0] == before[0], "nobody is notified"
    assert max(now - then for now, then in zip(after[1], before[1], strict=True)) <= 20 + 4, "one call for each, and heartbeats"
    assert not any(waiter.is_answered() for waiter in waiters)
    assert "kept" not in holder_of(state(service, resource))


@pytest.mark.parametrize("keep_ms", [300, LONG_MS], ids=["shorter", "longer"])
def test_waiters_come_in_order_when_it_ends(service, resource, crowd, keep_ms):  # noqa: F811
    """A kept time that is shorter than the lease was, or longer. Nobody polls meanwhile."""
    lease = service.acquire(resource, 20000)
    waiters = crowd.queue_up(service, resource, 3)
    assert service.curl("DELETE", "/locks", body={"resource": resource, "token": lease["token"], "keep_ms": keep_ms}).status == 204
    if keep_ms == LONG_MS:
        assert state(service, resource)["waiters"] == 3
        before = calls(service)
        wait_until(lambda: all(server.cli("PTTL", resource) < LONG_MS - 1000 for server in service.masters), what="a second of the time")
        assert max(now - then for now, then in zip(calls(service), before, strict=True)) <= 4, "heartbeats, and nobody who polls"
        assert service.curl("DELETE", f"/locks/{quote(resource)}?force=true").status == 204
    fences = []
    for waiter in waiters:
        granted = waiter.granted(20)
        fences.append(granted["fence"])
        assert service.release(granted).status == 204
    assert fences == sorted(fences) and fences[0] > lease["fence"]


def test_watchers_see_it(service, resource, watch):
    lease = service.acquire(resource, LONG_MS)
    watcher = watch(service, resource)
    wait_until(lambda: watcher.events, what="the state now")
    assert service.curl("DELETE", "/locks", body={"resource": resource, "token": lease["token"], "keep_ms": LONG_MS}).status == 204
    wait_until(lambda: watcher.events and watcher.events[-1].state.get("kept"), what="the watcher sees that it is kept")
    assert len({event.tag for event in watcher.events}) == 2, "the state has another tag"


def test_another_library_sees_it_held(service, resource):
    lease = service.acquire(resource)
    on_all(service, resource)
    assert service.curl("DELETE", f"/locks/{quote(resource)}?keep_ms={LONG_MS}", headers={"Lock-Token": lease["token"]}).status == 204
    assert [server.cli("SET", resource, "theirs", "NX", "PX", 1000) for server in service.masters] == [None] * 3
    wait_until(lambda: all(lease["token"] not in server.cli("GET", resource) for server in service.masters), what="kept on all masters")


def test_a_minority_that_keeps_is_no_release(lab):
    service = lab.service()
    lease = service.acquire("minority", LONG_MS)
    on_all(service, "minority")
    for server in service.masters[1:]:
        server.cli("DEL", "minority")
    answer = service.curl("DELETE", "/locks", body={"resource": "minority", "token": lease["token"], "keep_ms": LONG_MS})
    assert (answer.status, answer.code) == (410, "lease-expired"), "a majority says that it is gone"

    lease = service.acquire("unknown", LONG_MS)
    on_all(service, "unknown")
    service.masters[0].cli("DEL", "unknown")
    with stopped(service.masters[1]):
        answer = service.curl("DELETE", "/locks", body={"resource": "unknown", "token": lease["token"], "keep_ms": LONG_MS})
        assert (answer.status, answer.code) == (503, "no-quorum"), answer
        assert answer.json["votes"]["granted"] == 1


def test_the_guard_counts_it(lab):
    """A master that lost its memory does not vote until the kept time is over, though no lease is out."""
    service = lab.service(5, "--max-ttl-ms", "60000")
    lease = service.acquire("counted", 10000)
    now_s = int(service.masters[0].cli("TIME")[0])
    assert service.curl("DELETE", "/locks", body={"resource": "counted", "token": lease["token"], "keep_ms": 50000}).status == 204
    noted = sorted(int(server.cli("HGET", "redlockd:master", "leases")) for server in service.masters)
    assert noted[2] >= now_s + 45, "a majority has stored that something may lie there until then"


def test_no_memory_is_no_reason_to_lose_it(lab):
    service = lab.service()
    lease = service.acquire("full", LONG_MS)
    on_all(service, "full")
    for server in service.masters:
        server.cli("CONFIG", "SET", "maxmemory", "1")
    assert service.curl("DELETE", "/locks", body={"resource": "full", "token": lease["token"], "keep_ms": LONG_MS}).status == 204
    assert all(server.cli("PTTL", "full") > 0 for server in service.masters)


def test_what_is_asked_for_wrongly_releases_nothing(service, resource):
    lease = service.acquire(resource)
    token, path = {"token": lease["token"]}, "/locks/" + quote(resource)
    wrong = [(path, {**token, "keep_ms": -1}), (path, {**token, "keep_ms": 60001}), (path, {**token, "keep_ms": "1"}), (path, {**token, "keep_ms": 1.5}),
             (path, {**token, "keep_ms": None}), (path + "?keep_ms=", token), (path + "?keep_ms=1x", token), (path + "?keep_ms=60001", token),
             (path + "?keep_ms=1", {**token, "keep_ms": 2}), (path + "?force=true&keep_ms=1", None)]
    before = calls(service)
    for target, body in wrong:
        answer = service.curl("DELETE", target, body=body)
        assert answer.status == 400 and [error["field"] for error in answer.json["errors"]] == ["keep_ms"], (target, body, answer)
    assert max(now - then for now, then in zip(calls(service), before, strict=True)) <= 2, "heartbeats alone"
    answer = service.curl("PUT", path, body={**token, "keep_ms": 1})
    assert answer.status == 400 and answer.json["errors"][0]["field"] == "keep_ms"
    assert service.curl("DELETE", path + "?keep_ms=0", body={**token, "keep_ms": 0}).status == 204
    assert state(service, resource)["held"] is False


def test_run_keeps_the_lock_until_the_time_is_over(service, resource):
    done = ctl("run", resource, "--at-least", "50s", "--owner", "first", "--", "true", server=url(service))
    assert done.returncode == 0, done.stderr
    found = state(service, resource)
    assert found["kept"] is True and found["owner"] == "first" and 0 < found["remaining_ms"] <= 50000
    done = ctl("run", resource, "--no-wait", "--", "true", server=url(service))
    assert done.returncode == 75 and "held by first" in done.stderr, done.stderr
    done = ctl("run", resource + "-2", "--at-least", "61s", "--", "true", server=url(service))
    assert done.returncode == 64 and "--at-least 61s is over the longest lease of the server: use at most 60s\n" in done.stderr, done.stderr


def test_release_keeps_it(service, resource):
    lease = service.acquire(resource)
    done = ctl("release", resource, "--keep", "30s", server=url(service), env={"REDLOCK_TOKEN": lease["token"]})
    assert done.returncode == 0, done.stderr
    assert f"{resource}: kept by " in ctl("status", resource, server=url(service)).stdout


def test_some_of_many_are_kept(service, resource):
    names = [f"{resource}/{i}" for i in range(3)]
    items = [{"resource": name, "token": service.acquire(name)["token"], **more} for name, more in zip(names, ({"keep_ms": LONG_MS}, {}, {"keep_ms": 0}), strict=True)]
    answer = service.curl("DELETE", "/locks", body={"leases": items})
    assert answer.status == 200 and [each["status"] for each in answer.json["leases"]] == [204] * 3
    assert [state(service, name).get("kept", False) for name in names] == [True, False, False]
    answer = service.curl("DELETE", "/locks", body={"leases": [items[0], {**items[1], "keep_ms": -1}]})
    assert answer.status == 400 and answer.json["errors"][0]["field"] == "leases[1].keep_ms"
    answer = service.curl("DELETE", "/locks?keep_ms=5", body={"leases": items})
    assert answer.status == 400 and answer.json["errors"][0]["field"] == "keep_ms"
