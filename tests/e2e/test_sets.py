# SPDX-License-Identifier: MIT
"""Several resources at once (resources): one lease, all of them or none."""
import concurrent.futures
import threading

import pytest

import harness
from harness import SLOW, wait_until
from key_fixtures import Key, Keyed
from test_hold import hold  # noqa: F401
from waiting_fixtures import wait_for_queue


def take(service, names, ttl_ms=30000, **members):
    return service.curl("POST", "/locks", body={"resources": names, "ttl_ms": ttl_ms, **members})


def take_one(service, name, ttl_ms=30000, **members):
    return service.curl("POST", "/locks", body={"resource": name, "ttl_ms": ttl_ms, **members})


def give(service, names, token):
    return service.curl("DELETE", "/locks", body={"resources": names, "token": token})


def state(service, name):
    return service.curl("GET", f"/locks/{harness.quote(name)}").json


@pytest.fixture
def names(resource):
    return [f"{resource}/{letter}" for letter in "abcd"]


@pytest.fixture(scope="module")
def pair():
    """Two redlockd over the same masters."""
    with harness.Lab() as lab:
        servers = lab.redises(3)
        yield servers, [lab.redlockd(servers), lab.redlockd(servers)]


def test_a_lease_on_several(service, names):
    given = [names[2], names[0], names[1]]
    granted = take(service, given, owner="me")
    assert granted.status == 201 and "location" not in granted.headers
    lease = granted.json
    assert lease["resources"] == given and "resource" not in lease
    assert lease["owner"] == "me" and len(lease["token"]) == 40
    for name in given:
        held = state(service, name)
        assert held["held"] and held["fence"] == lease["fence"] and held["owner"] == "me"
        assert held["resources"] == sorted(given)
        refused = take_one(service, name)
        assert refused.status == 409 and refused.json["holder"]["fence"] == lease["fence"]
    assert not state(service, names[3])["held"]
    body = {"resources": sorted(given), "token": lease["token"], "ttl_ms": 20000}
    extended = service.curl("PUT", "/locks", body=body)
    assert extended.status == 200, extended
    assert extended.json["fence"] == lease["fence"] and extended.json["resources"] == sorted(given)
    assert give(service, given, lease["token"]).status == 204
    assert not any(state(service, name)["held"] for name in given)
    assert give(service, given, lease["token"]).status == 410


def test_all_or_none(service, names):
    one = take_one(service, names[1]).json
    refused = take(service, names)
    assert refused.status == 409 and refused.code == "locked"
    assert refused.json["resource"] == names[1] and refused.json["holder"]["fence"] == one["fence"]
    assert [state(service, name)["held"] for name in names] == [False, True, False, False]
    granted = take(service, [names[0], names[2]])
    assert granted.status == 201
    assert take(service, [names[2], names[3]]).json["resource"] == names[2]


def test_a_part_is_not_the_set(service, names):
    lease = take(service, names[:3]).json
    for part in (names[:2], names[1:3], names):
        for answer in (
            give(service, part, lease["token"]),
            service.curl("PUT", "/locks", body={"resources": part, "token": lease["token"]}),
        ):
            assert answer.status == 409 and answer.code == "not-owner", answer
    path = f"/locks/{harness.quote(names[0])}"
    for method in ("PUT", "DELETE"):
        answer = service.curl(method, path, body={"token": lease["token"]})
        assert answer.status == 409 and answer.code == "not-owner", answer
    single = take_one(service, names[3]).json
    answer = give(service, [names[3], f"{names[3]}/other"], single["token"])
    assert answer.status == 409, answer
    assert all(state(service, name)["fence"] == lease["fence"] for name in names[:3])
    assert give(service, names[:3], lease["token"]).status == 204


def test_the_fence_is_above_all(service, names):
    fences = [take_one(service, name).json for name in names]
    for name, lease in zip(names, fences):
        service.curl("DELETE", f"/locks/{harness.quote(name)}", body={"token": lease["token"]})
    lease = take(service, names).json
    assert lease["fence"] > max(one["fence"] for one in fences)
    give(service, names, lease["token"])
    for name in names:
        assert take_one(service, name).json["fence"] > lease["fence"]


def test_sixteen_long_names(service, resource):
    names = [f"{resource}/{i:02}/".ljust(256, "x") for i in range(16)]
    lease = take(service, names[::-1])
    assert lease.status == 201 and lease.json["resources"] == names[::-1]
    assert state(service, names[7])["resources"] == names
    assert give(service, names, lease.json["token"]).status == 204


def test_forced_release_of_one_name_releases_the_set(service, names):
    take(service, names)
    forced = service.curl("DELETE", f"/locks/{harness.quote(names[2])}?force=true")
    assert forced.status == 204, forced
    assert not any(state(service, name)["held"] for name in names)


def test_listed_by_single_names(service, resource, names):
    lease = take(service, names).json
    listed = service.curl("GET", f"/locks?prefix={harness.quote(resource)}").json["locks"]
    assert sorted(lock["resource"] for lock in listed) == names
    assert all(lock["resources"] == names and lock["fence"] == lease["fence"] for lock in listed)


def test_the_same_key_gets_the_same_set(service, names):
    def ask(which):
        return service.curl("POST", "/locks", headers={"Idempotency-Key": names[0]}, body={"resources": which, "ttl_ms": 30000})

    first = ask(names[:2])
    assert first.status == 201, first
    again = ask(names[1::-1])
    assert again.status == 200 and again.json["token"] == first.json["token"], again
    assert ask(names[:3]).status == 409


def wait_in_thread(service, pool, names, **members):
    return pool.submit(take if isinstance(names, list) else take_one, service, names, wait_ms=20000, **members)


def test_a_set_waits_in_every_queue(pair, names):
    servers, (first, second) = pair
    a, b = take_one(first, names[0]).json, take_one(second, names[1]).json
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = wait_in_thread(first, pool, names[:2])
        wait_for_queue(servers, names[0], 1)
        wait_for_queue(servers, names[1], 1)
        behind = wait_in_thread(second, pool, names[0])
        wait_for_queue(servers, names[0], 2)
        first.curl("DELETE", f"/locks/{harness.quote(names[0])}", body={"token": a["token"]})
        assert take_one(second, names[0]).status == 409  # it is kept for the set
        assert not waiting.done() and not behind.done()
        second.curl("DELETE", f"/locks/{harness.quote(names[1])}", body={"token": b["token"]})
        lease = waiting.result(10 * SLOW).json
        assert lease["resources"] == names[:2] and lease["fence"] > max(a["fence"], b["fence"])
        assert not behind.done()
        assert give(second, names[:2], lease["token"]).status == 204
        assert behind.result(10 * SLOW).json["fence"] > lease["fence"]


def test_a_set_that_leaves_frees_the_way(pair, names):
    servers, (first, second) = pair
    a = take_one(first, names[0]).json
    with concurrent.futures.ThreadPoolExecutor() as pool:
        leaving = pool.submit(take, first, names[:2], wait_ms=5000)
        wait_for_queue(servers, names[1], 1)
        behind = wait_in_thread(second, pool, names[1])
        wait_for_queue(servers, names[1], 2)
        answer = leaving.result(10 * SLOW)
        assert answer.status == 409 and answer.json["resource"] == names[0], answer
        assert behind.result(5 * SLOW).status == 201
    assert a


@pytest.mark.parametrize(
    "sets",
    [
        [[0, 1], [1, 0]],
        [[0, 1], [1, 2], [2, 0]],
        [[i, (i + 1) % 10] for i in range(10)],
        [[0, 1], [1, 2], [0], [1], [2], [0, 1, 2]],
    ],
    ids=["opposite", "ring", "philosophers", "mixed"],
)
def test_no_deadlock_and_no_overlap(pair, resource, sets):
    _, services = pair
    holders, fences, guard = {}, {}, threading.Lock()

    def work(number):
        service, which = services[number % 2], [f"{resource}/{i}" for i in sets[number % len(sets)]]
        for _ in range(5):
            answer = take(service, which, wait_ms=30000) if len(which) > 1 else take_one(service, which[0], wait_ms=30000)
            assert answer.status == 201, answer
            lease = answer.json
            with guard:
                for name in which:
                    assert name not in holders, name
                    assert lease["fence"] > fences.get(name, 0), name
                    holders[name], fences[name] = number, lease["fence"]
            with guard:
                for name in which:
                    del holders[name]
            if len(which) > 1:
                assert give(service, which, lease["token"]).status == 204
            else:
                path = f"/locks/{harness.quote(which[0])}"
                assert service.curl("DELETE", path, body={"token": lease["token"]}).status == 204

    with concurrent.futures.ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(work, range(max(6, len(sets)))))


def test_a_master_is_lost(lab, names):
    servers = lab.redises(3)
    service = lab.redlockd(servers)
    servers[0].kill()
    lease = take(service, names)
    assert lease.status == 201, lease
    assert service.curl("PUT", "/locks", body={"resources": names, "token": lease.json["token"]}).status == 200
    assert give(service, names, lease.json["token"]).status == 204


def test_held_by_a_connection(service, names, hold):
    stream = hold(service, names[:2], ttl_ms=3000)
    lease = stream.acquired()
    assert lease["resources"] == names[:2] and "resource" not in lease
    for _ in range(3):
        assert stream.event()["event"] == "renewed"
    assert all(state(service, name)["fence"] == lease["fence"] for name in names[:2])
    stream.kill()
    wait_until(lambda: not any(state(service, name)["held"] for name in names[:2]), what="the release of all")


def test_every_name_must_be_allowed(lab):
    keyed = Keyed(lab, [Key("worker", ["own/"], ["acquire", "inspect"])]).wait_ready()
    answer = keyed.call("worker", "POST", "/locks", body={"resources": ["own/a", "their/b", "their/c"]})
    assert answer.status == 403 and "their/b" in answer.json["detail"], answer
    assert not keyed.call("worker", "GET", "/locks/own/a").json["held"]
    assert keyed.call("worker", "POST", "/locks", body={"resources": ["own/a", "own/b"]}).status == 201
