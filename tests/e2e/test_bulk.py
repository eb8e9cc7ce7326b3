# SPDX-License-Identifier: MIT
"""Many leases in one request (leases): each is decided alone, and an item that is not valid refuses all."""

import json
import signal

import pytest

from harness import Lab, read_response, wait_until
from key_fixtures import Key, Keyed

TOKEN = "0123456789abcdef0123456789abcdef01234567"
MANY = 256


def names_of(lease):
    return {"resources": lease["resources"]} if "resources" in lease else {"resource": lease["resource"]}


def item(lease, **members):
    return {**names_of(lease), "token": lease["token"], **members}


def bulk(service, method, items, *extra, **how):
    return service.curl(method, "/locks", *extra, body={"leases": items}, **how)


def results(service, method, items, **how):
    """One for each item: its status, and the answer."""
    answer = bulk(service, method, items, **how)
    assert answer.status == 200 and list(answer.json) == ["leases"] and len(answer.json["leases"]) == len(items), answer
    found = answer.json["leases"]
    return [one.get("status", 200) for one in found], found


def send(connection, method, members):
    body = json.dumps(members).encode()
    connection.sendall(b"%s /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (method.encode(), len(body), body))


def held(service, name):
    return service.curl("GET", "/locks?resource=" + name).json


@pytest.fixture
def mixed(service, resource):
    """{kind: an item}: leases of all kinds, one that is over, and one whose lock another holder has."""
    leases = {"plain": {}, "shared": {"mode": "shared"}, "slot": {"slots": 3}}
    found = {kind: item(service.acquire(f"{resource}/{kind}", ttl_ms=20000, owner="me", **members)) for kind, members in leases.items()}
    names = [f"{resource}/{letter}" for letter in "zay"]
    found["set"] = item(service.curl("POST", "/locks", body={"resources": names, "ttl_ms": 20000}).json)
    over = service.acquire(f"{resource}/over")
    service.release(over)
    found["over"] = item(over)
    other = service.acquire(f"{resource}/other")
    found["other"] = item({**other, "token": TOKEN})
    yield found
    service.release(other)


def test_a_mix(service, mixed):
    statuses, found = results(service, "PUT", [{**one, "ttl_ms": 30000} for one in mixed.values()])
    assert dict(zip(mixed, statuses)) == {"plain": 200, "shared": 200, "slot": 200, "set": 200, "over": 410, "other": 409}
    got = dict(zip(mixed, found))
    assert got["shared"]["mode"] == "shared" and 0 <= got["slot"]["slot"] < 3 and got["set"]["resources"] == mixed["set"]["resources"]
    assert all(got[kind]["ttl_ms"] == 30000 and 25000 < got[kind]["validity_ms"] < 30000 for kind in ("plain", "shared", "slot", "set"))
    assert got["over"]["code"] == "lease-expired" and got["other"]["code"] == "not-owner" and got["other"]["votes"]["needed"] == 2
    statuses, found = results(service, "DELETE", list(mixed.values()))
    assert dict(zip(mixed, statuses)) == {"plain": 204, "shared": 204, "slot": 204, "set": 204, "over": 410, "other": 409}
    assert found[0] == {"status": 204, "resource": mixed["plain"]["resource"]} and found[3] == {"status": 204, "resources": mixed["set"]["resources"]}
    assert not held(service, mixed["plain"]["resource"])["held"] and held(service, mixed["other"]["resource"])["held"]


def test_each_is_as_of_a_call_of_its_own(service, mixed):
    """The same members with the same values, but for times."""
    def known(one):
        return {name: value for name, value in one.items() if name != "validity_ms"}
    items = [{**one, "ttl_ms": 20000} for one in mixed.values()]
    for method in ("PUT", "DELETE"):
        asked = items if method == "PUT" else [mixed["over"], mixed["other"]]  # nothing is released twice
        _, found = results(service, method, asked)
        alone = [service.curl(method, "/locks", body=one).json for one in asked]
        assert [known(one) for one in found] == [known(one) for one in alone]
    results(service, "DELETE", list(mixed.values()))


def test_the_most_in_one_request(service, resource):
    client = service.client()
    leases = [client.call("POST", "/locks", {"resource": f"{resource}/{number}"}).json for number in range(MANY)]
    before = service.metrics()
    statuses, found = results(service, "PUT", [item(one, ttl_ms=40000) for one in leases])
    assert statuses == [200] * MANY and [one["fence"] for one in found] == [one["fence"] for one in leases]
    after = service.metrics()
    counted = 'redlockd_lease_requests_total{op="extend",outcome="ok"}'
    assert after[counted] - before[counted] == MANY, "each is an operation of its own"
    statuses, _ = results(service, "DELETE", [item(one) for one in reversed(leases)])
    assert statuses == [204] * MANY
    assert service.curl("GET", f"/locks?prefix={resource}/").json["locks"] == []
    client.close()


def test_one_line_in_the_log(service, mixed):
    answer = bulk(service, "PUT", list(mixed.values()), headers={"X-Request-Id": "many-in-one"})
    assert answer.status == 200
    lines = wait_until(lambda: [line for line in service.log("request") if line["id"] == "many-in-one"], what="the line")
    assert [(line["route"], line["leases"], line["problems"], line["status"]) for line in lines] == [("extend", "6", "2", "200")]
    results(service, "DELETE", list(mixed.values()))


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_one_that_is_not_valid_refuses_all(service, resource, method):
    """A lease before it is neither extended nor released. What is not valid: tests/unit/test_api_bulk.c."""
    lease = service.acquire(resource, ttl_ms=20000)
    answer = bulk(service, method, [item(lease), item({"resource": resource, "token": "bad"})])
    assert answer.status == 400 and [error["field"] for error in answer.json["errors"]] == ["leases[1].token"]
    state = held(service, resource)
    assert state["held"] and state["remaining_ms"] <= 20000
    service.release(lease)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_sizes(service, resource, chunked):
    """64 KiB with leases, 16 KiB without."""
    lease = service.acquire(resource)
    extra = ("-H", "Transfer-Encoding: chunked") if chunked else ()

    def ask(members, size):
        return service.curl("PUT", "/locks", *extra, "-H", "Expect:", body=json.dumps(members).ljust(size))
    assert ask({"leases": [item(lease)]}, 65536).status == 200
    assert ask({"leases": [item(lease)]}, 65537).code == "too-large"
    assert ask(item(lease), 16384).status == 200
    assert ask(item(lease), 16385).code == "too-large"
    service.release(lease)


def test_the_same_lease_twice(service, resource):
    """Both are answered, in their order."""
    lease = service.acquire(resource)
    assert results(service, "PUT", [item(lease, ttl_ms=60000), item(lease, ttl_ms=1000)])[0] == [200, 200]
    assert held(service, resource)["remaining_ms"] > 1000, "never shortened"
    assert results(service, "DELETE", [item(lease), item(lease)])[0] == [204, 410]


def test_waiters_get_what_is_released(service, resource):
    leases = [service.acquire(f"{resource}/{number}", ttl_ms=60000) for number in range(20)]
    waiting = [service.connect() for _ in leases]
    for connection, lease in zip(waiting, leases):
        send(connection, "POST", {"resource": lease["resource"], "wait_ms": 60000})
    wait_until(lambda: all(held(service, lease["resource"])["waiters"] == 1 for lease in leases), 30, "all wait")
    assert results(service, "DELETE", [item(lease) for lease in leases])[0] == [204] * len(leases)
    for connection, lease in zip(waiting, leases):
        answer = read_response(connection)
        assert answer.status == 201 and answer.json["fence"] > lease["fence"]
        service.release(answer.json)
        connection.close()


def test_a_client_that_leaves(service, resource):
    """Its extensions and releases are carried out."""
    leases = [service.acquire(f"{resource}/{number}") for number in range(20)]
    with service.connect() as connection:
        send(connection, "DELETE", {"leases": [item(lease) for lease in leases]})
    wait_until(lambda: not any(held(service, lease["resource"])["held"] for lease in leases), what="all are released")


def test_callers(resource):
    """The token is all that an item needs, as in a call of its own; a stranger does not learn of other holders."""
    with Lab() as lab:
        keyed = Keyed(lab, [Key("mine", ["mine/"], ["acquire"]), Key("theirs", ["theirs/"], ["acquire"])]).wait_ready()
        mine, theirs = (keyed.call(name, "POST", "/locks", body={"resource": name + "/" + resource}).json for name in ("mine", "theirs"))
        items = [item(mine), item(theirs), {"resource": theirs["resource"], "token": TOKEN}]
        for headers, wanted in ((keyed.keys["mine"].header(), [200, 200, 409]), ({}, [200, 200, 410])):
            assert results(keyed.redlockd, "PUT", items, headers=headers)[0] == wanted
            assert [keyed.redlockd.curl("PUT", "/locks", body=one, headers=headers).status for one in items] == wanted


def test_no_quorum(resource):
    """Each has its own problem, and the request is one line of the log with the votes."""
    with Lab() as lab:
        service = lab.service(3)
        leases = [service.acquire(f"{resource}/{number}") for number in range(3)]
        for master in service.masters[1:]:
            master.kill()
        wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="the loss of the quorum")
        for method in ("PUT", "DELETE"):
            statuses, found = results(service, method, [item(lease) for lease in leases])
            assert statuses == [503] * 3 and all(one["code"] == "no-quorum" and one["votes"]["failed"] == 2 and one["retry_after_ms"] > 0 for one in found)
        lines = wait_until(lambda: [line for line in service.log("request") if line.get("leases") == "3"][1:], what="the lines")
        assert lines[0]["level"] == "warn" and lines[0]["failed"] == "2"


def test_draining():
    """A drain answers extensions that have come, also many in one request."""
    with Lab() as lab:
        service = lab.service(3, "--master-timeout-ms", "20000", "--drain-ms", "60000")
        leases = [service.acquire(f"drained/{number}") for number in range(3)]
        for master in service.masters:
            master.stop()
        with service.connect() as connection:
            send(connection, "PUT", {"leases": [item(lease) for lease in leases]})
            wait_until(lambda: service.metrics()["redlockd_operations_in_flight"] >= 3, what="the extensions are under way")
            service.process.send_signal(signal.SIGTERM)
            wait_until(lambda: service.log("draining"), what="the drain")
            for master in service.masters:
                master.cont()
            answer = read_response(connection)
        assert answer.status == 200 and len(answer.json["leases"]) == 3, answer
        assert all("token" in one or one["code"] == "no-quorum" for one in answer.json["leases"]), "too late on a slow machine"
