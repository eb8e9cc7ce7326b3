# SPDX-License-Identifier: MIT
"""GET /stats against what the test itself did: counts, times, masters, the hottest resources and those waited for, and who may see their names."""

import concurrent.futures
import itertools
import json
import socket
import time

import pytest

from harness import read_response, wait_until
from key_fixtures import Key, Keyed

COUNTS = ["granted", "locked", "split_vote", "no_quorum", "other", "extended", "released", "lost"]
SERIES = [*COUNTS, "p50_us", "p99_us", "waiters"]
NOBODYS = "0123456789abcdef0123456789abcdef01234567"
LONG_MS = 60000


def stats_of(service, *extra):
    """GET /stats, with what must be true of every answer."""
    answer = service.curl("GET", "/stats", *extra)
    assert answer.status == 200 and answer.headers["content-type"] == "application/json", answer
    stats = answer.json
    assert list(stats) == ["uptime_ms", "interval_ms", "series", "masters", "now", "hottest", "waiting"]
    assert list(stats["series"]) == SERIES and stats["interval_ms"] == 2000
    lengths = {len(numbers) for numbers in stats["series"].values()}
    lengths |= {len(master[name]) for master in stats["masters"] for name in ("rtt_us", "voting")}
    assert len(lengths) == 1 and max(lengths) <= 300, lengths
    assert max(lengths) * 2000 <= stats["uptime_ms"]
    assert [master["address"] for master in stats["masters"]] == [server.url for server in service.masters]
    assert len(stats["hottest"]) <= 20 and len(stats["waiting"]) <= 20
    return stats


def sums_of(stats):
    """{name: how many in all} without what never happened."""
    return {name: sum(stats["series"][name]) for name in COUNTS if sum(stats["series"][name])}


def wait_sums(service, wanted):
    """Until the points add up to exactly that."""
    last = {}

    def add_up():
        last.update(stats=stats_of(service))
        return sums_of(last["stats"]) == wanted
    try:
        wait_until(add_up, 15, f"sums of {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; they are {sums_of(last['stats'])}") from None
    return last["stats"]


def place(stats, kind, resource):
    """The entry of a resource; None where there is none."""
    found = [one for one in stats[kind] if one["resource"] == resource]
    assert len(found) <= 1, stats
    return found[0] if found else None


def test_counts_are_what_was_done(lab):
    """Each request on a connection of its own, so that all workers get some of them."""
    service = lab.service(3, "--workers", "4")
    for i in range(12):
        lease = service.acquire(f"orders/{i % 3}", LONG_MS)
        if i < 6:
            assert service.curl("PUT", f"/locks/orders/{i % 3}", body={"token": lease["token"]}).status == 200
        if i % 3 == 1:
            for _ in range(5):
                assert service.curl("POST", "/locks", body={"resource": "orders/1"}).status == 409
        assert service.release(lease).status == 204
    service.acquire("held", LONG_MS)
    for call in ("PUT", "DELETE"):
        assert service.curl(call, "/locks/held", body={"token": NOBODYS}).status == 409
        assert service.curl(call, "/locks/orders/0", body={"token": NOBODYS}).status == 410
    assert service.curl("PUT", "/locks/held", body={"token": "x"}).status == 400
    assert service.curl("DELETE", "/locks/held?force=true").status == 204
    assert service.curl("DELETE", "/locks/held?force=true").status == 410  # no lease was lost
    stats = wait_sums(service, {"granted": 13, "locked": 20, "extended": 6, "released": 13, "lost": 4})
    assert stats["now"]["workers"] == 4
    assert [tuple(one.values()) for one in stats["hottest"]] == [("orders/1", 24, 20), ("orders/0", 4, 0), ("orders/2", 4, 0), ("held", 1, 0)]
    assert stats["waiting"] == []
    asked = [sum(counts) for counts in zip(*(stats["series"][name] for name in COUNTS[:5]))]
    for count, p50, p99 in zip(asked, stats["series"]["p50_us"], stats["series"]["p99_us"]):
        assert (p50 is None) == (p99 is None) == (count == 0)
        assert count == 0 or 0 < p50 <= p99


def test_other_answers_are_told_apart(lab):
    """Too many wait, split votes, too few masters."""
    service = lab.service(3, "--max-waiters-per-resource", "1", "--retry-count", "1", "--workers", "2")
    for number, master in enumerate(service.masters[:2]):
        master.cli("SET", "split", f"somebody-{number}", "PX", LONG_MS)
    assert service.curl("POST", "/locks", body={"resource": "split"}).code == "split-vote"
    lease = service.acquire("held", LONG_MS)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(service.curl, "POST", "/locks", body={"resource": "held", "wait_ms": 20000})
        wait_until(lambda: place(stats_of(service), "waiting", "held"), what="one in the queue")
        # A worker's line is full, and each new connection goes to one of the two.
        wait_until(lambda: service.curl("POST", "/locks", body={"resource": "held", "wait_ms": 1}).status == 429, what="too many wait")
        service.release(lease)
        assert waiter.result().status == 201
    for master in service.masters[1:]:
        master.kill()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    before = sums_of(stats_of(service)).get("no_quorum", 0)
    for _ in range(3):
        assert service.curl("POST", "/locks", body={"resource": "a"}).code == "no-quorum"

    def all_counted():
        sums = sums_of(stats_of(service))
        return sums.get("no_quorum", 0) - before == 3 and sums["split_vote"] == 1 and sums["other"] == 1 and sums["granted"] == 2
    wait_until(all_counted, 15, "all kinds of answers")


def test_those_who_wait(lab):
    """Lines of several workers: how many wait for what, and for how long, while they do; nothing of it afterwards."""
    service = lab.service(3, "--workers", "2")
    leases = [service.acquire(resource, LONG_MS) for resource in ("long/line", "short/line")]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        asked = [pool.submit(service.curl, "POST", "/locks", body={"resource": resource, "wait_ms": LONG_MS, **owner})
                 for resource, owner in [("long/line", {"owner": f"w{i}"}) for i in range(6)] + [("short/line", {})]]

        def all_wait():
            stats = stats_of(service)
            return stats if [one["waiters"] for one in stats["waiting"]] == [6, 1] and stats["series"]["waiters"][-1:] == [7] else None
        stats = wait_until(all_wait, 15, "seven who wait")
        assert [one["resource"] for one in stats["waiting"]] == ["long/line", "short/line"]
        assert stats["now"]["waiters"] == stats["now"]["in_flight"] == 7 and stats["now"]["connections"] >= 7
        first = stats["waiting"][0]["first"]
        waited = [one["waited_ms"] for one in first]
        assert {one["owner"] for one in first} == {f"w{i}" for i in range(6)} and waited == sorted(waited, reverse=True)
        assert waited[0] == stats["waiting"][0]["oldest_ms"] and list(stats["waiting"][1]["first"][0]) == ["waited_ms"]
        ages = [stats_of(service)["waiting"][0]["oldest_ms"] for _ in range(2)]
        assert 0 < stats["waiting"][0]["oldest_ms"] < ages[0] < ages[1] <= (time.monotonic() - began) * 1000
        for lease in leases:
            service.release(lease)
        answers = [asked[i] for i in (0, 6)]
        for answer in concurrent.futures.as_completed(asked):
            assert answer.result().status == 201, answer.result()
            service.release(answer.result().json)
        assert all(answer.done() for answer in answers)
    stats = wait_sums(service, {"granted": 9, "released": 9})
    wait_until(lambda: stats_of(service)["waiting"] == [], what="empty lines")
    assert stats["series"]["waiters"][-1] == stats["now"]["waiters"] == 0
    assert place(stats, "hottest", "long/line") == {"resource": "long/line", "acquires": 7, "refused": 0}


def hold(service, resource, ttl_ms):
    """A socket by which the resource is held."""
    plain = service.connect()
    body = json.dumps({"resource": resource, "ttl_ms": ttl_ms, "hold": True}).encode()
    plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    wait_until(lambda: b'"acquired"' in plain.recv(65536, socket.MSG_PEEK), what="the grant")
    return plain


def test_held_leases(lab):
    """While a connection holds it, when it ends well, and when the lease is lost: that counts once, whatever redlockd then tries and releases."""
    service = lab.service(3)
    plain = hold(service, "well", 30000)
    assert stats_of(service)["now"]["holds"] == 1
    plain.close()
    wait_sums(service, {"granted": 1, "released": 1})
    assert stats_of(service)["now"]["holds"] == 0
    plain = hold(service, "lost", 3000)
    for master in service.masters:
        master.cli("SET", "lost", "somebody's")
    assert json.loads(read_response(plain).body.splitlines()[-1]) == {"event": "lost", "code": "not-owner"}
    plain.close()
    seen = len(stats_of(service)["series"]["lost"])
    wait_until(lambda: len(stats_of(service)["series"]["lost"]) >= seen + 2, 15, "two more points")
    sums = sums_of(stats_of(service))
    assert sums["lost"] == 1 and sums["granted"] == 2 and sums["released"] == 1, sums


@pytest.mark.slow
def test_a_master_that_stops(lab):
    service = lab.service(3, "--workers", "2")

    def last(name):
        return [master[name][-1] for master in stats_of(service)["masters"] if master[name]]
    wait_until(lambda: last("voting") == [1, 1, 1], 15, "all vote")
    wait_until(lambda: None not in last("rtt_us"), 15, "round trips of all")
    service.masters[1].stop()
    wait_until(lambda: last("voting") == [1, 0, 1], 20, "one does not vote")
    wait_until(lambda: [rtt is None for rtt in last("rtt_us")] == [False, True, False], 20, "no round trip to it")
    service.masters[1].cont()
    wait_until(lambda: last("voting") == [1, 1, 1], 20, "all vote again")
    history = stats_of(service)["masters"][1]["voting"]
    assert [vote for vote, _ in itertools.groupby(history)][-3:] == [1, 0, 1]


def test_as_many_masters_and_workers(lab):
    service = lab.service(15, "--workers", "4")
    stats = wait_until(lambda: stats_of(service) if stats_of(service)["series"]["granted"] else None, 15, "a point")
    assert len(stats["masters"]) == 15 and stats["now"]["workers"] == 4
    wait_until(lambda: all(master["voting"][-1] == 1 for master in stats_of(service)["masters"]), 20, "all vote")


def test_names_are_for_those_who_may_list_them(lab):
    """All known callers see the numbers. Each sees the names that it may see, and cannot conclude others from gaps."""
    keys = [Key("orders", ["orders/"], ["acquire", "list"]), Key("no-list", ["orders/"], ["acquire", "inspect", "admin"]),
            Key("billing", ["billing/", "orders/2"], ["list"]), Key("nothing", ["nothing/"], ["list"]), Key("flood", ["flood/"], ["acquire", "list"])]
    keyed = Keyed(lab, keys).wait_ready()
    leases = [keyed.call("operator", "POST", "/locks", body={"resource": resource, "ttl_ms": LONG_MS}).json
              for resource in ("orders/1", "orders/2", "billing/1", "secret/1")]
    for number in range(25):  # more than a list holds, and more of each than of all others
        for _ in range(2):
            keyed.call("flood", "POST", "/locks", body={"resource": f"flood/{number:02}", "ttl_ms": LONG_MS})
    with concurrent.futures.ThreadPoolExecutor(len(leases)) as pool:
        asked = [pool.submit(keyed.call, "operator", "POST", "/locks", body={"resource": lease["resource"], "wait_ms": LONG_MS}) for lease in leases]

        def seen(caller, kind="hottest"):
            answer = keyed.call(caller, "GET", "/stats")
            assert answer.status == 200, answer
            return {one["resource"] for one in answer.json[kind]}
        wait_until(lambda: len(seen("operator", "waiting")) == len(leases), what="all wait")
        assert seen("operator", "waiting") == {lease["resource"] for lease in leases}
        expected = {"orders": {"orders/1", "orders/2"}, "no-list": set(), "billing": {"billing/1", "orders/2"}, "nothing": set()}
        for caller, names in expected.items():
            assert seen(caller) == seen(caller, "waiting") == names, caller
        assert len(seen("flood")) == 20 and all(name.startswith("flood/") for name in seen("flood")) and seen("flood", "waiting") == set()
        for caller in ("no-list", "nothing"):
            assert b"secret" not in (body := keyed.call(caller, "GET", "/stats").body) and b"orders" not in body
        wait_until(lambda: sum(keyed.call("nothing", "GET", "/stats").json["series"]["granted"]) == 29, 15, "all grants, seen by anybody")
        for caller in (None, "wrong"):
            headers = {} if caller is None else {"X-Api-Key": "rlk_nobody-has-this-key"}
            answer = keyed.call(None, "GET", "/stats", headers=headers)
            assert answer.status == 401 and answer.code == "unauthorized" and b"secret" not in answer.body
        for lease in leases:
            assert keyed.call(None, "DELETE", "/locks/" + lease["resource"], body={"token": lease["token"]}).status == 204
        assert [one.result().status for one in asked] == [201] * len(leases)
    # A right that is taken away counts at once.
    keyed.write([Key("orders", ["orders/1"], ["list"])])
    keyed.reload()
    wait_until(lambda: seen("orders") == {"orders/1"}, what="the new keys")


def test_what_the_call_does_not_take(service):
    for path in ("/stats?prefix=a", "/stats?x", "/stats?limit=1"):
        answer = service.curl("GET", path)
        assert answer.status == 400 and answer.code == "invalid-request" and answer.json["errors"], answer
    assert service.curl("GET", "/stats", body="{}").status == 400
    answer = service.curl("POST", "/stats", body="{}")
    assert answer.status == 405 and answer.headers["allow"] == "GET, HEAD"
    head = service.curl("HEAD", "/stats")
    assert head.status == 200 and head.body == b"" and int(head.headers["content-length"]) > 100
