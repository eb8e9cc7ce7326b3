# SPDX-License-Identifier: MIT
"""Shared leases (mode) and slots: who holds a lock together, who waits for whom, and what is told of it."""

import concurrent.futures
import threading
import time

import pytest

import harness
from harness import SLOW, quote, wait_until
from test_hold import hold  # noqa: F401
from waiting_fixtures import check_nothing_is_left, crowd, total, wait_for_queue  # noqa: F401


@pytest.fixture(scope="module")
def started_pair():
    with harness.Lab() as lab:
        servers = lab.redises(3)
        yield servers, [lab.redlockd(servers), lab.redlockd(servers)]


@pytest.fixture
def pair(started_pair):
    """Two redlockd over the same masters, on which no lease is left to the next test."""
    yield started_pair
    service = started_pair[1][0]
    for lock in service.curl("GET", "/locks?limit=1000").json["locks"]:
        service.curl("DELETE", f"/locks/{quote(lock['resource'])}?force=true")


def take(service, resource, status=201, **members):
    answer = service.curl("POST", "/locks", body={"resource": resource, "ttl_ms": 30000, **members})
    assert answer.status == status, answer
    return answer.json


def share(service, resource, **members):
    return take(service, resource, mode="shared", **members)


def state(service, resource):
    return service.curl("GET", f"/locks/{quote(resource)}").json


def change(service, method, lease, status):
    body = {"token": lease["token"]} | ({"ttl_ms": 30000} if method == "PUT" else {})
    answer = service.curl(method, f"/locks/{quote(lease['resource'])}", body=body)
    assert answer.status == status, answer
    return answer


# ---- what a lease is ----


def test_shared_leases_and_an_exclusive_one(service, resource):
    before = take(service, resource)
    change(service, "DELETE", before, 204)
    first, second = (share(service, resource, owner=owner, metadata={"of": owner}) for owner in ("a", "b"))
    assert first["mode"] == second["mode"] == "shared" and first["token"] != second["token"]
    refused = take(service, resource, status=409)
    assert refused["code"] == "locked" and refused["holder"]["mode"] == "shared" and 0 < refused["retry_after_ms"] <= 30000
    held = state(service, resource)
    assert held["mode"] == "shared" and held["holder_count"] == 2 and "owner" not in held and 0 < held["remaining_ms"] <= 30000
    assert [(one["owner"], one["fence"], one["metadata"]) for one in held["holders"]] == \
        [("a", first["fence"], {"of": "a"}), ("b", second["fence"], {"of": "b"})]
    extended = change(service, "PUT", first, 200).json
    assert extended["fence"] == first["fence"] and extended["mode"] == "shared" and extended["owner"] == "a"
    change(service, "DELETE", first, 204)
    change(service, "PUT", first, 410)
    change(service, "DELETE", first, 410)
    assert [one["owner"] for one in state(service, resource)["holders"]] == ["b"]
    take(service, resource, status=409)
    change(service, "DELETE", second, 204)
    after = take(service, resource)
    assert before["fence"] < first["fence"] < second["fence"] < after["fence"]
    assert "mode" not in after and state(service, resource)["mode"] == "exclusive"
    refused = take(service, resource, status=409, mode="shared")
    assert "mode" not in refused["holder"]
    change(service, "DELETE", after, 204)
    assert state(service, resource)["held"] is False


def test_slots(service, resource):
    leases = [take(service, resource, slots=3, owner=f"w{i}") for i in range(3)]
    assert sorted(lease["slot"] for lease in leases) == [0, 1, 2]
    assert [lease["fence"] for lease in leases] == sorted({lease["fence"] for lease in leases})
    refused = take(service, resource, status=409, slots=3)
    assert refused["holder"]["slot"] in (0, 1, 2)
    take(service, resource, status=409)
    take(service, resource, status=409, mode="shared")
    held = state(service, resource)
    assert held["mode"] == "exclusive" and held["holder_count"] == 3
    assert {one["slot"]: one["owner"] for one in held["holders"]} == {lease["slot"]: lease["owner"] for lease in leases}
    assert change(service, "PUT", leases[1], 200).json["slot"] == leases[1]["slot"]
    change(service, "DELETE", leases[1], 204)
    again = take(service, resource, slots=3)
    assert again["slot"] == leases[1]["slot"] and again["fence"] > leases[2]["fence"]
    higher = take(service, resource, slots=4)
    assert higher["slot"] == 3
    take(service, resource, status=409, slots=2)
    for lease in (leases[0], leases[2], again, higher):
        change(service, "DELETE", lease, 204)
    change(service, "DELETE", take(service, resource), 204)


@pytest.mark.parametrize("members, field, reason", [
    ({"mode": "both"}, "mode", "must be exclusive or shared"),
    ({"mode": True}, "mode", "must be a string"),
    ({"mode": ""}, "mode", "must be exclusive or shared"),
    ({"slots": 0}, "slots", "must be from 1 to 1024"),
    ({"slots": 1025}, "slots", "must be from 1 to 1024"),
    ({"slots": "3"}, "slots", "must be an integer"),
    ({"slots": 3, "mode": "shared"}, "slots", "must not be there beside mode shared"),
    ({"slots": 3, "resources": ["a", "b"]}, "slots", "must not be there beside resources"),
])  # fmt: skip
def test_what_is_wrong_is_named(service, resource, members, field, reason):
    body = members if "resources" in members else {"resource": resource, **members}
    answer = service.curl("POST", "/locks", body=body)
    assert answer.status == 400 and {"field": field, "reason": reason} in answer.json["errors"], answer
    assert not state(service, resource)["held"]


def take_set(service, names, status=201, **members):
    answer = service.curl("POST", "/locks", body={"resources": names, "ttl_ms": 30000, **members})
    assert answer.status == status, answer
    return answer.json


def change_set(service, method, lease, status, names=None):
    body = {"resources": names or lease["resources"], "token": lease["token"]} | ({"ttl_ms": 40000} if method == "PUT" else {})
    answer = service.curl(method, "/locks", body=body)
    assert answer.status == status, answer
    return answer


def test_a_shared_set(service, resource):
    a, b, c = (f"{resource}/{name}" for name in "abc")
    one = share(service, b, owner="one")
    first = take_set(service, [a, b], mode="shared", owner="first", metadata={"of": 1})
    second = take_set(service, [b, c], mode="shared")
    assert first["mode"] == second["mode"] == "shared" and first["resources"] == [a, b] and second["resources"] == [b, c]
    held = state(service, b)
    assert held["mode"] == "shared" and held["holder_count"] == 3
    assert [(holder.get("owner"), holder["fence"], holder.get("resources")) for holder in held["holders"]] == \
        [("one", one["fence"], None), ("first", first["fence"], [a, b]), (None, second["fence"], [b, c])]
    assert one["fence"] < first["fence"] < second["fence"]
    refused = take_set(service, [a, c], status=409)
    assert refused["resource"] == a and refused["holder"]["mode"] == "shared" and refused["holder"]["fence"] == first["fence"]
    assert take_set(service, [b, f"{resource}/d"], status=409)["resource"] == b and not state(service, f"{resource}/d")["held"]
    extended = change_set(service, "PUT", first, 200).json
    assert extended["fence"] == first["fence"] and extended["mode"] == "shared" and extended["validity_ms"] > 30000
    for method in "PUT", "DELETE":  # a part of it is not that lease
        change_set(service, method, first, 409, [a, b, c])
        change(service, method, {"resource": b, "token": first["token"]}, 409)
    assert state(service, b)["holder_count"] == 3
    change_set(service, "DELETE", first, 204)
    change_set(service, "DELETE", first, 410)
    assert not state(service, a)["held"] and state(service, b)["holder_count"] == 2
    take(service, b, status=409)
    change(service, "DELETE", one, 204)
    change_set(service, "DELETE", second, 204)
    alone = take_set(service, [a, b, c])
    assert alone["fence"] > second["fence"] and "mode" not in alone
    take_set(service, [b, c], status=409, mode="shared")
    change_set(service, "DELETE", alone, 204)


def test_a_shared_set_that_comes_again(service, resource):
    """With the same Idempotency-Key, whoever else shares the locks."""
    body = {"resources": [f"{resource}/a", f"{resource}/b"], "mode": "shared", "ttl_ms": 30000}
    share(service, f"{resource}/b")
    key = {"Idempotency-Key": f"{resource}-key-of-16-bytes"}
    first, again = (service.curl("POST", "/locks", body=body, headers=key) for _ in range(2))
    assert first.status == 201 and again.status == 200, (first, again)
    assert again.json["token"] == first.json["token"] and again.json["fence"] == first.json["fence"]
    assert state(service, f"{resource}/b")["holder_count"] == 2


def test_sets_wait_for_each_other(pair, resource):
    """Shared ones pass together when the writer between them leaves, at both redlockd; a writer waits for all."""
    _, services = pair
    names = [f"{resource}/{name}" for name in "abc"]
    writer = take(services[0], names[1])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(take_set, services[i], names[i:i + 2], mode="shared", wait_ms=30000) for i in (0, 1)]
        wait_until(lambda: state(services[0], names[1])["waiters"] == 2, what="the readers wait")
        change(services[0], "DELETE", writer, 204)
        leases = [reader.result(20) for reader in readers]
        assert len({lease["fence"] for lease in leases}) == 2 and state(services[0], names[1])["holder_count"] == 2
        all_alone = pool.submit(take_set, services[1], names, wait_ms=30000)
        wait_until(lambda: state(services[0], names[2])["waiters"] == 1, what="the writer waits")
        take_set(services[0], names[1:], status=409, mode="shared")  # it does not overtake
        for lease in leases:
            change_set(services[0], "DELETE", lease, 204)
        assert all_alone.result(20)["fence"] > max(lease["fence"] for lease in leases)


def test_force_takes_a_shared_set_whole(service, resource):
    lease, other = take_set(service, [f"{resource}/a", f"{resource}/b"], mode="shared"), share(service, f"{resource}/b")
    answer = service.curl("DELETE", f"/locks/{quote(resource)}%2Fb?force=true&fence={lease['fence']}")
    assert answer.status == 204, answer
    change_set(service, "PUT", lease, 410)
    assert not state(service, f"{resource}/a")["held"]
    change(service, "PUT", other, 200)


def test_an_extension_changes_no_mode(service, resource):
    lease = take(service, resource)
    for members in ({"mode": "shared"}, {"slots": 2}):
        answer = service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"], **members})
        assert answer.status == 400 and answer.json["errors"][0]["field"] in members
    change(service, "DELETE", lease, 204)


def test_as_many_as_the_lowered_number_on_higher_slots(pair, resource):
    """A caller that lowers its number counts the leases of those that have not: it waits until fewer hold the lock."""
    _, services = pair
    leases = {lease["slot"]: lease for lease in (take(services[0], resource, slots=3) for _ in range(3))}
    change(services[0], "DELETE", leases[0], 204)
    refused = take(services[1], resource, status=409, slots=1)
    assert refused["code"] == "locked" and take(services[1], resource, slots=3)["slot"] == 0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(take, services[1], resource, slots=2, wait_ms=30000)
        wait_until(lambda: state(services[0], resource)["waiters"] == 1, what="it waits")
        change(services[0], "DELETE", leases[1], 204)
        wait_until(lambda: state(services[0], resource)["holder_count"] == 2, what="one is released")
        assert not waiter.done()
        change(services[0], "DELETE", leases[2], 204)
        assert waiter.result(20)["slot"] == 1


def test_another_library_is_refused(pair, resource):
    """SET NX fails on a key of any type."""
    servers, (service, _) = pair
    share(service, resource)
    wait_until(lambda: all(server.cli("EXISTS", resource) for server in servers), what="on all masters")
    assert all(server.cli("SET", resource, "x", "NX", "PX", "1000") is None for server in servers)


def test_the_key_is_noted_for_each_mode(service, resource):
    def ask(status, **members):
        answer = service.curl("POST", "/locks", body={"resource": resource, **members}, headers={"Idempotency-Key": "one-key-of-a-test"})
        assert answer.status == status, answer
        return answer.json

    first = ask(201, mode="shared")
    share(service, resource)
    assert ask(200, mode="shared")["token"] == first["token"]
    ask(409)  # another mode is another lease
    ask(409, slots=2)
    assert state(service, resource)["holder_count"] == 2


def test_as_many_shared_as_allowed(resource):
    with harness.Lab() as lab:
        service = lab.redlockd(lab.redises(3), "--max-shared=2")
        first = share(service, resource)
        share(service, resource)
        take(service, resource, status=409, mode="shared")
        change(service, "DELETE", first, 204)
        share(service, resource)


# ---- who is told, and what operators do ----


def test_more_holders_than_are_told(service, resource):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(lambda i: share(service, resource, owner=str(i)), range(120)))
    held = state(service, resource)
    assert held["holder_count"] == 120 and len(held["holders"]) == 100
    assert len({one["fence"] for one in held["holders"]}) == 100
    listed = [one for one in service.curl("GET", f"/locks?prefix={quote(resource)}").json["locks"] if one["resource"] == resource]
    assert [(one["holder_count"], len(one["holders"])) for one in listed] == [(120, 3)]
    answer = service.curl("DELETE", f"/locks/{quote(resource)}?force=true&fence={leases[7]['fence']}")
    assert answer.status == 204, answer
    change(service, "PUT", leases[7], 410)
    change(service, "PUT", leases[8], 200)
    assert state(service, resource)["holder_count"] == 119
    assert service.curl("DELETE", f"/locks/{quote(resource)}?force=true&fence=1").status == 409
    assert service.curl("DELETE", f"/locks/{quote(resource)}?force=true").status == 204
    assert not state(service, resource)["held"]
    change(service, "DELETE", take(service, resource), 204)


def test_they_are_listed(service, resource):
    share(service, f"{resource}/s")
    take(service, f"{resource}/k", slots=2)
    locks = service.curl("GET", f"/locks?prefix={quote(resource)}").json["locks"]
    assert {lock["resource"][-1]: (lock["mode"], lock["holder_count"]) for lock in locks} == {"s": ("shared", 1), "k": ("exclusive", 1)}


def test_each_owner_is_found(service, resource):
    """A lock that several hold is a lock of each of them; with the owner only its own leases are told, a few of them."""
    for number in range(9):
        share(service, resource, owner="a" if number < 5 else "b", ttl_ms=60000 - number)
    take(service, f"{resource}/k", slots=2, owner="a")
    take(service, f"{resource}/k", slots=2)

    def listed(owner):
        locks = service.curl("GET", f"/locks?prefix={quote(resource)}&owner={owner}").json["locks"]
        return {lock["resource"]: (lock["holder_count"], [one.get("owner") for one in lock["holders"]]) for lock in locks}
    assert listed("a") == {resource: (9, ["a"] * 3), f"{resource}/k": (2, ["a"])}
    assert listed("b") == {resource: (9, ["b"] * 3)}
    assert listed("") == {f"{resource}/k": (2, [None])}
    assert listed("c") == {}


def test_a_master_that_is_behind_does_not_change_the_mode(lab):
    """It has a lease on a slot that ended elsewhere; a majority has shared ones."""
    servers = lab.redises(3)
    service = lab.redlockd(servers)
    take(service, "a", slots=2, ttl_ms=60000)
    for server in servers[1:]:
        server.cli("DEL", "a")
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "a", "mode": "shared", "ttl_ms": 60000}).status == 201, what="a majority")
    for _ in range(5):  # The masters answer in any order.
        held = state(service, "a")
        assert (held["mode"], held["holder_count"], "slot" in held["holders"][0]) == ("shared", 1, False), held


def test_masters_that_have_different_leases_agree_on_a_tag(lab):
    """Each master misses other leases, and none lists all of them: nothing changes, so no answer differs from another."""
    servers = lab.redises(3)
    services = [lab.redlockd(servers, "--master-timeout-ms", "1500") for _ in range(2)]
    client = services[0].client()
    for server in servers:
        services[0].wait_voting(3)
        server.stop()
        for _ in range(60):
            assert client.call("POST", "/locks", {"resource": "a", "mode": "shared", "ttl_ms": 60000}).status == 201
        time.sleep(2 * 1.5)  # no command that it finds then is in time
        server.cont()
    for service in services:
        service.wait_voting(3)
    wait_until(lambda: [server.cli("ZCARD", "a") for server in servers] == [120] * 3, what="each has two thirds")
    answers = [service.curl("GET", "/locks/a") for _ in range(20) for service in services]
    assert {(answer.headers["etag"], answer.json["holder_count"]) for answer in answers} == {(answers[0].headers["etag"], 180)}
    assert client.call("GET", "/locks?prefix=a").json["locks"][0]["holder_count"] == 180
    client.close()


def test_the_tag_changes_with_the_holders(service, resource):
    def tag():
        return service.curl("GET", f"/locks/{quote(resource)}").headers["etag"]

    first = share(service, resource)
    one = tag()
    change(service, "PUT", first, 200)
    assert tag() == one
    second = share(service, resource)
    both = tag()
    assert both != one
    answer = {}
    path = f"/locks/{quote(resource)}?wait_ms=20000"
    watcher = threading.Thread(target=lambda: answer.update(it=service.curl("GET", path, headers={"If-None-Match": both})))
    watcher.start()
    wait_until(lambda: total(service, "redlockd_watchers") == 1)
    change(service, "DELETE", second, 204)
    watcher.join(20)
    assert answer["it"].status == 200 and answer["it"].json["holder_count"] == 1 and answer["it"].headers["etag"] == one


def test_a_hold_ends_alone(service, hold, resource):  # noqa: F811
    stays = share(service, resource)
    stream = hold(service, resource, mode="shared")
    assert stream.acquired()["mode"] == "shared"
    assert state(service, resource)["holder_count"] == 2
    stream.kill()
    wait_until(lambda: state(service, resource)["holder_count"] == 1)
    change(service, "PUT", stays, 200)


# ---- who waits for whom ----


def test_readers_and_a_writer_in_their_order(pair, crowd, resource):  # noqa: F811
    """A reader that comes after a waiting writer waits for it; those that wait together are granted together."""
    servers, services = pair
    holder = share(services[0], resource)
    writer = crowd.wait(services[1], resource)
    wait_for_queue(servers, resource, 1)
    readers = []
    for i in range(4):
        readers.append(crowd.wait(services[i % 2], resource, mode="shared"))
        wait_for_queue(servers, resource, 2 + i)
    last = crowd.wait(services[0], resource)
    wait_for_queue(servers, resource, 6)
    take(services[1], resource, status=409, mode="shared")  # who does not wait comes after all
    assert not any(waiter.is_answered() for waiter in (writer, *readers, last))
    change(services[0], "DELETE", holder, 204)
    fences = [holder["fence"], writer.granted()["fence"]]
    assert not any(waiter.is_answered() for waiter in (*readers, last))
    writer.release()
    shared = [reader.granted()["fence"] for reader in readers]
    assert min(shared) > fences[-1] and len(set(shared)) == 4
    for reader in readers:
        assert not last.is_answered()
        reader.release()
    assert last.granted()["fence"] > max(shared)
    last.release()
    check_nothing_is_left(servers)


def test_a_writer_that_gives_up_lets_the_readers_in(pair, crowd, resource):  # noqa: F811
    servers, services = pair
    share(services[0], resource)
    writer = crowd.wait(services[0], resource)
    wait_for_queue(servers, resource, 1)
    readers = [crowd.wait(service, resource, mode="shared") for service in services]
    wait_for_queue(servers, resource, 3)
    writer.leave()
    for reader in readers:
        assert reader.granted()["mode"] == "shared"


def test_the_end_of_a_dead_reader_lets_the_writer_in(pair, crowd, resource):  # noqa: F811
    servers, services = pair
    share(services[0], resource, ttl_ms=1000)
    writer = crowd.wait(services[1], resource)
    assert writer.granted(5)["fence"] > 0


def test_a_dead_writer_lets_all_readers_in(pair, crowd, resource):  # noqa: F811
    servers, services = pair
    take(services[0], resource, ttl_ms=4000)
    readers = [crowd.wait(services[i % 2], resource, mode="shared") for i in range(6)]
    wait_for_queue(servers, resource, 6)
    for reader in readers:
        reader.granted(5)


def test_slots_are_handed_on_in_order(pair, crowd, resource):  # noqa: F811
    servers, services = pair
    leases = [take(services[0], resource, slots=2) for _ in range(2)]
    waiters = crowd.queue_up(services[1], resource, 3, slots=2)
    for lease, waiter in zip(leases, waiters):
        change(services[0], "DELETE", lease, 204)
        assert waiter.granted()["slot"] == lease["slot"]
    assert not waiters[2].is_answered()
    waiters[1].release()
    assert waiters[2].granted()["slot"] == waiters[1].lease["slot"]


def test_one_hundred_want_eight_slots(pair, resource):
    """No slot has two holders, and all are in use while somebody waits: the first work goes on until they are."""
    _, services = pair
    slots, turns, lock, seen = 8, 4, threading.Lock(), []
    held, full = {}, threading.Event()

    def work(i):
        client = services[i % 2].client()
        for _ in range(turns):
            answer = client.call("POST", "/locks", {"resource": resource, "slots": slots, "wait_ms": 60000, "ttl_ms": 30000})
            assert answer.status == 201, answer
            lease = answer.json
            with lock:
                assert lease["slot"] not in held, "a slot has two holders"
                held[lease["slot"]] = lease["fence"]
                seen.append(lease["fence"])
                if len(held) == slots:
                    full.set()
            assert full.wait(20 * SLOW), f"a slot stays free: {sorted(held)} are held"
            time.sleep(0.005)  # the work
            with lock:
                del held[lease["slot"]]
            answer = client.call("DELETE", f"/locks/{quote(resource)}", {"token": lease["token"]})
            assert answer.status == 204, answer
        client.close()

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        for done in [pool.submit(work, i) for i in range(100)]:
            done.result(120 * SLOW)
    assert len(set(seen)) == 100 * turns


def test_readers_and_writers_count(pair, resource):
    """Writers are alone; readers are not among writers; nobody starves."""
    _, services = pair
    lock, inside, most, seen = threading.Lock(), [], [0], []

    def work(i):
        client, mode = services[i % 2].client(), "exclusive" if i % 3 == 0 else "shared"
        for _ in range(6):
            answer = client.call("POST", "/locks", {"resource": resource, "mode": mode, "wait_ms": 60000, "ttl_ms": 30000})
            assert answer.status == 201, answer
            with lock:
                inside.append(mode)
                assert mode == "shared" and "exclusive" not in inside or inside == ["exclusive"], inside
                most[0] = max(most[0], len(inside))
                seen.append((answer.json["fence"], mode))
            time.sleep(0.01)  # the work
            with lock:
                inside.remove(mode)
            assert client.call("DELETE", f"/locks/{quote(resource)}", {"token": answer.json["token"]}).status == 204
        client.close()

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        for done in [pool.submit(work, i) for i in range(24)]:
            done.result(120 * SLOW)
    assert most[0] > 2 and len({fence for fence, _ in seen}) == 24 * 6
    writers = [fence for fence, mode in seen if mode == "exclusive"]
    assert writers == sorted(writers)
    assert not state(services[0], resource)["held"]
