# SPDX-License-Identifier: MIT
"""Leases as a caller sees them: acquire, refused, extend, release, inspect, list. All masters are well here."""

import math
import re
import socket
import time

import pytest

from harness import curl, quote, wait_until

LEASE = {"resource", "token", "fence", "owner", "ttl_ms", "validity_ms", "drift_ms"}
TOKEN = re.compile(r"[0-9a-f]{40}")


def put(service, resource, token, **members):
    return service.curl("PUT", f"/locks/{quote(resource)}", body={"token": token, **members})


def delete(service, resource, token):
    return service.curl("DELETE", f"/locks/{quote(resource)}", body={"token": token})


def state(service, resource):
    answer = service.curl("GET", f"/locks/{quote(resource)}")
    assert answer.status == 200, answer
    return answer.json


def keys(service, key):
    """The value of a key on each master."""
    return [master.cli("GET", key) for master in service.masters]


def wait_for_all(service, key):
    """Until the key lies on all masters: the answer comes as soon as a majority has granted."""
    wait_until(lambda: all(keys(service, key)), what=f"{key} on all masters")


def wait_for_none(service, key):
    wait_until(lambda: not any(keys(service, key)), what=f"{key} on no master")


def test_acquire_answers_a_lease(service, resource):
    answer = service.curl("POST", "/locks", body={"resource": resource, "ttl_ms": 20000, "owner": "worker-7"})
    assert answer.status == 201, answer
    assert answer.headers["content-type"].startswith("application/json")
    lease = answer.json
    assert set(lease) == LEASE
    assert lease["resource"] == resource and lease["owner"] == "worker-7" and lease["ttl_ms"] == 20000
    assert TOKEN.fullmatch(lease["token"])
    assert answer.headers["location"].startswith("/locks/")
    seen = service.curl("GET", answer.headers["location"]).json
    assert seen["resource"] == resource and seen["held"] is True
    assert service.curl("PUT", answer.headers["location"], body={"token": lease["token"]}).status == 200
    later = service.curl("GET", answer.headers["location"]).json
    assert 0 <= seen["held_ms"] < later["held_ms"] < 3600_000, "extended, it is held since its beginning"


def test_content_type_does_not_matter(service, resource):
    body = {"resource": resource}
    assert service.curl("POST", "/locks", body=body, headers={"Content-Type": "text/plain"}).status == 201
    assert service.curl("POST", "/locks", body={"resource": resource + "b"}, headers={"Content-Type": ""}).status == 201


@pytest.mark.parametrize("ttl_ms", [2500, 3333, 12345, 60000])
def test_validity_and_drift(service, resource, ttl_ms):
    lease = service.acquire(resource, ttl_ms)
    assert lease["ttl_ms"] == ttl_ms
    assert lease["drift_ms"] == math.ceil(ttl_ms * 0.01 + 2)
    assert 0 < lease["validity_ms"] <= ttl_ms - math.floor(ttl_ms * 0.01 + 2)
    for master in service.masters:
        assert master.cli("PTTL", resource) <= ttl_ms


def test_refused_acquire(service, resource):
    lease = service.acquire(resource, 20000, owner="the first")
    wait_for_all(service, resource)
    for _ in range(3):
        answer = service.curl("POST", "/locks", body={"resource": resource, "owner": "the second"})
        assert answer.status == 409 and answer.code == "locked"
    problem = answer.json
    assert 0 < problem["retry_after_ms"] <= 20000
    assert int(answer.headers["retry-after"]) == max(1, math.ceil(problem["retry_after_ms"] / 1000))
    assert problem["holder"] == {"owner": "the first", "fence": lease["fence"]}
    assert problem["waited_ms"] >= 0
    votes = problem["votes"]
    assert votes["needed"] == 2 and votes["masters"] == 3 and votes["refused"] >= 2
    assert votes["granted"] == votes["failed"] == votes["quarantined"] == 0
    # It leaves the holder alone.
    assert all(value.startswith(lease["token"]) for value in keys(service, resource))
    assert put(service, resource, lease["token"]).status == 200


def test_refused_acquire_where_the_holder_has_no_owner(service, resource):
    fence = service.acquire(resource)["fence"]
    problem = service.curl("POST", "/locks", body={"resource": resource}).json
    assert problem["code"] == "locked" and problem["holder"] == {"fence": fence}


def test_extend(service, resource):
    lease = service.acquire(resource, 5000, owner="me")
    wait_for_all(service, resource)
    answer = put(service, resource, lease["token"], ttl_ms=50000)
    assert answer.status == 200, answer
    assert set(answer.json) == {*LEASE, "waiters"}
    assert answer.json["token"] == lease["token"] and answer.json["owner"] == "me"
    assert answer.json["ttl_ms"] == 50000 and answer.json["drift_ms"] == 502
    assert 5000 < answer.json["validity_ms"] <= 50000 - 502
    wait_until(lambda: all(5000 < master.cli("PTTL", resource) <= 50000 for master in service.masters), what="new end")
    # It never shortens.
    assert put(service, resource, lease["token"], ttl_ms=1000).status == 200
    assert all(master.cli("PTTL", resource) > 5000 for master in service.masters)


def test_extend_with_a_wrong_token(service, resource):
    lease = service.acquire(resource, 20000)
    wait_for_all(service, resource)
    answer = put(service, resource, "0" * 40, ttl_ms=60000)
    assert answer.status == 409 and answer.code == "not-owner"
    assert answer.json["votes"]["needed"] == 2 and answer.json["votes"]["refused"] >= 2
    assert all(master.cli("PTTL", resource) <= 20000 for master in service.masters)
    assert put(service, resource, lease["token"]).status == 200


def test_release(service, resource):
    lease = service.acquire(resource)
    wait_for_all(service, resource)
    answer = delete(service, resource, lease["token"])
    assert answer.status == 204 and answer.body == b""
    wait_for_none(service, resource)
    again = delete(service, resource, lease["token"])
    assert again.status == 410 and again.code == "lease-expired"
    assert again.json["votes"]["masters"] == 3
    assert service.acquire(resource)["token"] != lease["token"]


def test_release_of_anothers_lock(service, resource):
    service.acquire(resource)
    wait_for_all(service, resource)
    answer = delete(service, resource, "f" * 40)
    assert answer.status == 409 and answer.code == "not-owner"
    assert answer.json["votes"]["refused"] >= 2
    assert all(keys(service, resource))


def test_the_token_may_travel_in_a_header(service, resource):
    lease = service.acquire(resource)
    token = {"Lock-Token": lease["token"]}
    assert service.curl("PUT", f"/locks/{resource}", headers={"Lock-Token": "0" * 40}).status == 409
    assert service.curl("PUT", f"/locks/{resource}", headers=token).status == 200
    assert service.curl("PUT", f"/locks/{resource}", body={"ttl_ms": 1000}, headers=token).status == 200
    assert service.curl("DELETE", f"/locks/{resource}", headers={"Lock-Token": "0" * 40}).status == 409
    assert service.curl("DELETE", f"/locks/{resource}", headers=token).status == 204


@pytest.mark.parametrize("name, forms", [
    ("a/b/c", ["a/b/c", "a%2Fb/c", "a%2fb%2Fc", "%61/b/c"]),
    ("Zür ich/straße 鍵", ["Z%C3%BCr%20ich/stra%C3%9Fe%20%E9%8D%B5", "Z%c3%bcr%20ich%2Fstra%c3%9fe%20%e9%8d%b5"]),
    ("鍵🔒", ["%E9%8D%B5%F0%9F%94%92"]),
    ("1+1=2&3", ["1+1=2&3", "1%2B1%3D2%263"]),
    ("100%", ["100%25"]),
    ("100% a?b#c&d+e", ["100%25%20a%3Fb%23c&d+e"]),
    ("..x/.y/z.//", ["..x/.y/z.//", "%2e%2ex/%2Ey/z.%2f/"]),
    ("~user's \"quoted\\back\"", ["~user's%20%22quoted%5Cback%22"]),
    ("x" * 256, ["x" * 256, "%78" * 256]),
    ("é" * 128, ["%C3%A9" * 128]),
])
def test_every_percent_form_of_a_resource_is_one_lock(service, name, forms):
    answer = service.curl("POST", "/locks", body={"resource": name})
    assert answer.status == 201 and answer.json["resource"] == name
    wait_for_all(service, name)
    location = answer.headers["location"]
    assert re.fullmatch(r"/locks/[A-Za-z0-9._~!$&'()*+,;=:@/%-]+", location)
    token = {"token": answer.json["token"]}
    for path in (location, *("/locks/" + form for form in forms)):
        seen = service.curl("GET", path)
        assert seen.status == 200, seen
        assert seen.json["resource"] == name and seen.json["held"] is True
        assert service.curl("PUT", path, body=token).status == 200
    assert service.curl("POST", "/locks", body={"resource": name}).status == 409
    assert service.curl("DELETE", "/locks/" + forms[-1], body=token).status == 204
    wait_for_none(service, name)


def test_resources_differ_by_each_byte(service):
    for name in ("case", "Case", "case ", "case/", "/case", "cas\u0065\u0301", "cas\u00e9"):
        assert service.curl("POST", "/locks", body={"resource": name}).status == 201, name


def test_get_shows_the_state(service, resource):
    free = state(service, resource)
    assert set(free) == {"resource", "held", "waiters", "votes"} and free["held"] is False and free["waiters"] == 0
    assert free["votes"]["needed"] == 2 and free["votes"]["masters"] == 3 and free["votes"]["refused"] >= 2
    assert free["votes"]["granted"] == free["votes"]["failed"] == free["votes"]["quarantined"] == 0
    fence = service.acquire(resource, 20000, owner="日本 \"x\"")["fence"]
    wait_for_all(service, resource)
    held = state(service, resource)
    assert set(held) == {"resource", "held", "mode", "owner", "fence", "remaining_ms", "held_ms", "waiters", "votes"}
    assert held["fence"] == fence and held["waiters"] == 0
    assert held["resource"] == resource and held["held"] is True and held["owner"] == "日本 \"x\""
    assert 0 < held["remaining_ms"] <= 20000
    assert held["votes"]["granted"] >= 2 and held["votes"]["failed"] == 0


def test_a_lease_ends_by_itself(service, resource):
    start = time.monotonic()
    lease = service.acquire(resource, 2000)
    client = service.client()
    answer = wait_until(lambda: (lambda got: got if got.status == 201 else None)(
        client.call("POST", "/locks", {"resource": resource, "ttl_ms": 20000})), what="the lease to end")
    assert time.monotonic() - start > (lease["validity_ms"] / 1000)
    assert answer.json["token"] != lease["token"]
    client.close()


def test_a_token_is_new_every_time(service, resource):
    client, tokens = service.client(), set()
    for number in range(100):
        lease = client.call("POST", "/locks", {"resource": f"{resource}/{number % 3}", "ttl_ms": 60000}).json
        if "token" in lease:
            assert TOKEN.fullmatch(lease["token"]) and lease["token"] not in tokens
            tokens.add(lease["token"])
            client.call("DELETE", f"/locks/{resource}/{number % 3}", {"token": lease["token"]})
    client.close()
    assert len(tokens) == 100
    # Random ones: each of the 160 bits was seen on and off.
    numbers = [int(token, 16) for token in tokens]
    ones, zeros = 0, 0
    for number in numbers:
        ones, zeros = ones | number, zeros | ~number
    assert ones & zeros & (2**160 - 1) == 2**160 - 1


def test_key_and_value_in_redis(service, resource):
    lease = service.acquire(resource, 20000, owner="o:w:n")
    wait_for_all(service, resource)
    for master in service.masters:
        token, hold_until_ms, fence, key, owner = master.cli("GET", resource).split(":", 4)
        seconds, microseconds = master.cli("TIME")
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        assert (token, int(fence), key, owner) == (lease["token"], lease["fence"], "", "o:w:n")
        assert 0 < int(hold_until_ms) - now_ms <= 86400000
        assert 0 < master.cli("PTTL", resource) <= 20000
        assert master.cli("SET", resource, "7f3ab1", "NX", "PX", 20000) is None, "another library is kept out"


@pytest.mark.parametrize("command", [("SET", "7f3ab1", "PX", "20000"), ("SET", "for ever"), ("SET", b"\xff\x00\r\n\"\xc3" * 20), ("HSET", "f", "v"), ("RPUSH", "v"),
                                     ("SADD", "v"), ("ZADD", "1", "v"), ("XADD", "*", "f", "v")])
def test_a_key_of_another_program_counts_as_held(service, resource, command):
    for master in service.masters:
        master.cli(command[0], resource, *command[1:])
    before = [master.cli("DUMP", resource) for master in service.masters]
    answer = service.curl("POST", "/locks", body={"resource": resource})
    assert answer.status == 409 and answer.code == "locked", answer
    assert answer.json["votes"]["failed"] == 0 and "holder" not in answer.json
    assert int(answer.headers["retry-after"]) >= 1
    seen = state(service, resource)
    assert seen["held"] is True and "owner" not in seen and "fence" not in seen
    assert put(service, resource, "1" * 40).code == "not-owner"
    assert delete(service, resource, "1" * 40).code == "not-owner"
    assert [master.cli("DUMP", resource) for master in service.masters] == before
    if "PX" in command:
        assert 0 < answer.json["retry_after_ms"] <= 20000 and 0 < seen["remaining_ms"] <= 20000
    else:
        assert "remaining_ms" not in seen
        assert [master.cli("PTTL", resource) for master in service.masters] == [-1] * 3


@pytest.mark.parametrize("names", [{"resource": "big"}, {"resources": ["a", "big"]}], ids=["one", "set"])
def test_huge_foreign_value(lab, names):
    """A value of any size holds its own resource and costs the others nothing: the masters do not send all of it."""
    service = lab.service(3)
    for master in service.masters:
        master.cli("SETRANGE", "big", 64 << 20, "end")
        master.cli("CONFIG", "RESETSTAT")
    answer = service.curl("POST", "/locks", body=names)
    assert answer.code == "locked" and answer.json["votes"]["refused"] >= 2, answer
    assert service.curl("GET", "/locks/big").json["held"]
    assert service.curl("PUT", "/locks/big", body={"token": "0" * 40}).code == "not-owner"
    assert service.curl("DELETE", "/locks/big", body={"token": "0" * 40}).code == "not-owner"
    for master in service.masters:
        assert int(re.search(r"total_net_output_bytes:(\d+)", master.cli("INFO", "stats"))[1]) < 1 << 20
    service.acquire("other")


def test_listing_walks_over_all_locks_once(lab):
    service = lab.service(3)
    names, client = {f"walk/{number:03}/é" for number in range(500)}, service.client()
    fences = {}
    for name in names | {f"other/{number}" for number in range(50)}:
        answer = client.call("POST", "/locks", {"resource": name, "ttl_ms": 60000, "owner": "lister"})
        assert answer.status == 201
        fences[name] = answer.json["fence"]
    for master in service.masters:
        wait_until(lambda one=master: one.cli("DBSIZE") >= 550, what="all keys")
    for limit in ("", "&limit=7", "&limit=1000"):
        found, cursor, pages = [], "", 0
        while True:
            answer = client.call("GET", f"/locks?prefix=walk/{limit}" + (f"&cursor={quote(cursor)}" if cursor else ""))
            assert answer.status == 200, answer
            page = answer.json
            assert set(page) <= {"locks", "cursor"}
            for lock in page["locks"]:
                assert lock["held"] is True and lock["owner"] == "lister" and 0 < lock["remaining_ms"] <= 60000
                assert lock["fence"] == fences.get(lock["resource"])
            found += [lock["resource"] for lock in page["locks"]]
            pages += 1
            cursor = page.get("cursor")
            if not cursor:
                break
            assert pages < 5000
        assert sorted(found) == sorted(names), limit
    client.close()


def test_listing_with_odd_prefixes(service, resource):
    names = [f"{resource}/{end}" for end in ("*", "*x", "[a-c]", "b", "?", "\\", "ü ü")]
    for name in names:
        service.acquire(name)
        wait_for_all(service, name)

    def listed(prefix):
        found, cursor = [], ""
        while cursor is not None:
            page = service.curl("GET", f"/locks?prefix={quote(prefix)}&limit=1000" + (f"&cursor={quote(cursor)}" if cursor else "")).json
            found += [lock["resource"] for lock in page["locks"]]
            cursor = page.get("cursor") or None
        return sorted(found)
    assert listed(resource) == sorted(names)
    assert listed(f"{resource}/*") == sorted(names[:2])
    assert listed(f"{resource}/[a-c]") == [names[2]]
    assert listed(f"{resource}/?") == [names[4]]
    assert listed(f"{resource}/\\") == [names[5]]
    assert listed(f"{resource}/ü ") == [names[6]]
    assert listed(f"{resource}/none") == []


def test_tokens_are_shown_to_nobody_else(lab, resource):
    service = lab.service(3, "--log-level", "debug")
    lease = service.acquire(resource, owner="me")
    wait_for_all(service, resource)
    refused = service.curl("POST", "/locks", body={"resource": resource})
    wrong = put(service, resource, "0123456789" * 4)
    extended = put(service, resource, lease["token"])
    seen = [service.curl("GET", path).body for path in (f"/locks/{resource}", "/locks", "/masters", "/metrics", "/readyz", "/version", "/")]
    released = service.release(lease)
    in_url = service.curl("GET", f"/locks/{resource}?token={lease['token']}")
    assert (refused.status, wrong.status, extended.status, released.status, in_url.status) == (409, 409, 200, 204, 400)
    service.stop()
    for text in [refused.body, wrong.body, released.body, in_url.body, *seen, service.stderr().encode()]:
        assert lease["token"].encode() not in text
    assert b"0123456789" * 4 not in wrong.body and "0123456789" * 4 not in service.stderr()
    assert resource in service.stderr()


@pytest.mark.parametrize("masters", [1, 2, 3, 4, 5])
def test_any_number_of_masters(lab, resource, masters):
    service = lab.service(masters)
    needed = masters // 2 + 1
    lease = service.acquire(resource)
    wait_for_all(service, resource)
    refused = service.curl("POST", "/locks", body={"resource": resource})
    assert refused.status == 409 and refused.json["votes"]["needed"] == needed and refused.json["votes"]["masters"] == masters
    assert state(service, resource)["votes"]["granted"] >= needed
    assert put(service, resource, lease["token"]).status == 200
    assert put(service, resource, "0" * 40).status == 409
    assert service.release(lease).status == 204
    assert service.release(lease).status == 410
    wait_for_none(service, resource)


def test_key_prefix(lab):
    service = lab.service(3, "--key-prefix", "app1:")
    other = lab.redlockd(service.masters, "--key-prefix", "app2:")
    lease = service.acquire("x", owner="one")
    wait_for_all(service, "app1:x")
    assert keys(service, "x") == [None] * 3
    assert other.acquire("x", owner="two")["token"] != lease["token"]
    assert state(service, "x")["owner"] == "one" and state(other, "x")["owner"] == "two"
    assert [lock["resource"] for lock in service.curl("GET", "/locks?limit=1000").json["locks"]] == ["x"]


def test_nested_prefixes_reach_no_keys_of_others(lab):
    """One cluster without a prefix, another with one, on the same masters: no name that is asked of the first is a key of the second's own."""
    outer = lab.service(3)
    inner = lab.redlockd(outer.masters, "--key-prefix", "app:")
    inner.acquire("x", 60000)
    with inner.connect() as waiter:
        body = b'{"resource":"x","wait_ms":60000}'
        waiter.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: all(len(master.cli("KEYS", "app:redlockd:*")) == 3 for master in inner.masters), what="all that a cluster keeps")
        names = outer.masters[0].cli("KEYS", "app:redlockd:*") + ["app:redlockd:wake", "app:redlockd:queue:app:y", "redlockd:master"]
        for name in names:
            body = {"resource": name}
            answers = [outer.curl("POST", "/locks", body=body), outer.curl("GET", f"/locks/{quote(name)}"), put(outer, name, "0" * 40),
                       outer.curl("DELETE", f"/locks/{quote(name)}?force=true")]
            for answer in answers:
                assert answer.status == 400 and answer.code == "invalid-request", (name, answer)
                [error] = answer.json["errors"]
                assert error["field"] == "resource" and "redlockd:" in error["reason"], error
        assert [lock["resource"] for lock in outer.curl("GET", "/locks?limit=1000").json["locks"]] == ["app:x"]


def test_no_lease_is_extended_past_max_hold(lab, resource):
    service = lab.service(3, "--max-hold-ms", "6000", "--max-ttl-ms", "5000", "--default-ttl-ms", "4000")
    client, start = service.client(), time.monotonic()
    lease = client.call("POST", "/locks", {"resource": resource, "ttl_ms": 4000}).json
    shortened = False
    while True:
        answer = client.call("PUT", f"/locks/{resource}", {"token": lease["token"], "ttl_ms": 5000})
        seconds = time.monotonic() - start
        if answer.status != 200:
            break
        shortened = shortened or answer.json["ttl_ms"] < 5000
    assert shortened and seconds > 5
    assert answer.status in (410, 503), answer  # 503 where what is left is less than the drift
    wait_for_none(service, resource)
    assert put(service, resource, lease["token"]).status == 410
    client.close()


def test_listen_on_a_unix_socket(lab, resource):
    """One that was left over does not hinder the next start."""
    path = f"{lab.folder}/http"
    service = lab.service(3, listen=[f"unix:{path}"])
    assert service.address == f"unix:{path}"
    lease = service.acquire(resource)
    assert service.release(lease).status == 204
    service.stop()
    again = lab.redlockd(service.masters, listen=[f"unix:{path}"])
    assert again.curl("GET", "/healthz").status == 200
    again.kill()
    assert lab.redlockd(service.masters, listen=[f"unix:{path}"]).curl("GET", "/healthz").status == 200


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as plain:
            plain.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback")
def test_listen_on_ipv6(lab, resource):
    service = lab.service(3, listen=["[::1]:0"])
    assert service.address.startswith("[::1]:")
    assert service.acquire(resource)["resource"] == resource


def test_two_workers_and_two_addresses(lab, resource):
    for attempt in range(4):  # one worker makes the new masters its own; the other one does not take that amiss, unless one of them is held up meanwhile
        service = lab.service(3, "--workers", "2", listen=["127.0.0.1:0", f"unix:{lab.folder}/http{attempt}"])
        if not service.log("master-quarantined"):
            break
    assert service.log("master-quarantined") == []
    assert len(service.addresses) == 2
    clients = [service.client() for _ in range(16)]  # spread over the workers by the kernel
    tokens = [client.call("POST", "/locks", {"resource": f"{resource}/{i}"}) for i, client in enumerate(clients)]
    assert [answer.status for answer in tokens] == [201] * 16
    for i, client in enumerate(clients):
        other = clients[(i + 7) % 16]
        assert other.call("POST", "/locks", {"resource": f"{resource}/{i}"}).status == 409
        assert client.call("DELETE", f"/locks/{resource}/{i}", {"token": tokens[i].json["token"]}).status == 204
    for client in clients:
        client.close()
    for address in service.addresses:
        assert curl(address, "POST", "/locks", body={"resource": f"{resource}/{address}"}).status == 201
        assert curl(address, "GET", "/readyz").status == 200


def test_many_requests_in_one_connection_and_in_many(service, resource):
    """Sixteen connections, each with several requests under way in turn; each lock goes to exactly one of them."""
    clients = [service.client() for _ in range(16)]
    for number in range(20):
        for client in clients:
            body = f'{{"resource":"{resource}/{number}"}}'
            client.connection.request("POST", "/locks", body)
        answers = [client.connection.getresponse() for client in clients]
        statuses = sorted(answer.status for answer in answers)
        for answer in answers:
            answer.read()
        assert statuses.count(201) == 1, statuses
        assert set(statuses) <= {201, 409, 503}, statuses
    for client in clients:
        client.close()
