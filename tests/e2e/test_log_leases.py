# SPDX-License-Identifier: MIT
"""--log-leases: the trail of leases in the log."""

import json

import pytest

from harness import wait_until
from key_fixtures import Key, Keyed
from proxy import Proxy

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADERS = {"X-Request-Id": "job/7:a=b", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
IDEMPOTENCY_KEY = "0f9d2a1c-secret-of-this-request"


def trail(service):
    return [line for line in service.log() if line["event"].startswith("lease-")]


def wait_trail(service, *events):
    """The trail, once it has exactly these events."""
    wait_until(lambda: len(trail(service)) >= len(events), what=" ".join(events))
    lines = trail(service)
    assert [line["event"] for line in lines] == list(events)
    return lines


def hold(service, resource, **members):
    """(client, answer, lease) of a lock that the connection holds."""
    client = service.client()
    client.connection.request("POST", "/locks", json.dumps({"resource": resource, "hold": True, **members}))
    answer = client.connection.getresponse()
    return client, answer, json.loads(answer.readline())


@pytest.mark.parametrize("json_log", [False, True], ids=["logfmt", "json"])
def test_a_grant_its_repetition_and_the_release(lab, json_log):
    service = lab.service(3, "--log-leases", json_log=json_log)
    body, headers = {"resource": "orders/7", "owner": 'worker "7"'}, {**HEADERS, "Idempotency-Key": IDEMPOTENCY_KEY}
    lease = service.curl("POST", "/locks", body=body, headers=headers)
    assert lease.status == 201 and lease.headers["x-request-id"] == HEADERS["X-Request-Id"]
    assert service.curl("POST", "/locks", body=body, headers=headers).status == 200
    assert service.curl("PUT", "/locks/orders/7", body={"token": lease.json["token"]}, headers=HEADERS).status == 200
    assert service.curl("DELETE", "/locks/orders/7", body={"token": lease.json["token"]}, headers=HEADERS).status == 204
    service.stop()
    lines = wait_trail(service, "lease-granted", "lease-granted", "lease-released")
    for line in lines:
        assert {name: line[name] for name in ("level", "resource", "owner", "id", "trace_id")} == {
            "level": "info", "resource": "orders/7", "owner": 'worker "7"', "id": HEADERS["X-Request-Id"], "trace_id": TRACE}
        assert int(line["fence"]) == lease.json["fence"] and isinstance(line["fence"], int if json_log else str)
    assert [line.get("reason") for line in lines] == [None, "again", None]
    assert 0 <= int(lines[1]["held_ms"]) <= int(lines[2]["held_ms"])
    assert [line["trace_id"] for line in service.log("request") if line["id"] == HEADERS["X-Request-Id"]] == [TRACE] * 4
    assert lease.json["token"] not in service.stderr() and IDEMPOTENCY_KEY not in service.stderr()


def test_by_default_there_is_no_trail(lab):
    service = lab.service(3)
    service.release(service.acquire("x"))
    service.acquire("x")
    assert service.curl("DELETE", "/locks/x?force=true").status == 204
    service.stop()
    assert trail(service) == []


def test_a_set_has_its_names(lab):
    service = lab.service(3, "--log-leases")
    lease = service.curl("POST", "/locks", body={"resources": ["b", "a"], "owner": "me"}).json
    assert service.curl("DELETE", "/locks", body={"resources": ["a", "b"], "token": lease["token"]}).status == 204
    service.curl("POST", "/locks", body={"resources": ["b", "a"], "owner": "me"})
    assert service.curl("DELETE", "/locks/a?force=true").status == 204
    service.stop()
    lines = wait_trail(service, "lease-granted", "lease-released", "lease-granted", "lease-forced")
    assert {(line["resources"], line["names"], line["owner"]) for line in lines} == {("2", "a b", "me")}


def test_a_forced_release_has_a_line_for_each_lease(lab):
    """By whom, and of whom."""
    keyed = Keyed(lab, [Key("worker", ["x"], ["acquire"])], "--log-leases").wait_ready()
    for owner in ("one", "two"):
        assert keyed.call("worker", "POST", "/locks", body={"resource": "x", "mode": "shared", "owner": owner}).status == 201
    alone = keyed.call("worker", "POST", "/locks", body={"resource": "x1", "owner": "three"}).json
    assert keyed.call("operator", "DELETE", "/locks/x?force=true").status == 204
    assert keyed.call("operator", "DELETE", f"/locks/x1?force=true&fence={alone['fence']}").status == 204
    assert keyed.call("operator", "DELETE", "/locks/x1?force=true").status == 410
    keyed.redlockd.stop()
    lines = wait_trail(keyed.redlockd, *["lease-granted"] * 3, *["lease-forced"] * 3)
    assert [(line["owner"], line["caller"], line["by"]) for line in lines[3:]] == [(owner, "worker", "operator") for owner in ("one", "two", "three")]
    assert [line["fence"] for line in lines[:3]] == [line["fence"] for line in lines[3:]]
    assert not any(secret in keyed.redlockd.stderr() for secret in keyed.all_secrets())


def test_a_kept_lease_has_its_own_event(lab):
    service = lab.service(1, "--log-leases")
    lease = service.acquire("x", owner="me")
    assert service.curl("DELETE", "/locks", body={"resource": "x", "token": lease["token"], "keep_ms": 5000}).status == 204
    line = wait_trail(service, "lease-granted", "lease-kept")[1]
    assert (line["owner"], int(line["fence"])) == ("me", lease["fence"])


def test_a_release_has_the_caller_who_took_the_lease(lab):
    """A token needs no key, so the request has none."""
    keyed = Keyed(lab, [Key("worker", ["x"], ["acquire"])], "--log-leases").wait_ready()
    lease = keyed.call("worker", "POST", "/locks", body={"resource": "x"}).json
    assert keyed.call(None, "DELETE", "/locks/x", headers={"Lock-Token": lease["token"]}).status == 204
    keyed.redlockd.stop()
    assert [line["caller"] for line in wait_trail(keyed.redlockd, "lease-granted", "lease-released")] == ["worker", "worker"]


def test_a_grant_whose_client_has_left_is_released(lab):
    """The answers of the masters come afterwards, so the client never has the token."""
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--log-leases", "--master-timeout-ms", "30000")
    for proxy in proxies:
        proxy.replies.clear()
    client = service.client()
    client.connection.request("POST", "/locks", json.dumps({"resource": "x", "owner": "me"}))
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in servers), what="granted on all masters")
    client.close()
    for proxy in proxies:
        proxy.heal()
    granted, released = wait_trail(service, "lease-granted", "lease-released")
    assert (released["reason"], released["owner"], released["fence"]) == ("client-gone", "me", granted["fence"])


def test_a_lost_hold(lab):
    service = lab.service(3, "--log-leases")
    client, answer, lease = hold(service, "x", ttl_ms=3000, owner="me")
    assert service.curl("DELETE", "/locks/x?force=true").status == 204
    while json.loads(answer.readline())["event"] != "lost":
        pass
    lines = wait_trail(service, "lease-granted", "lease-forced", "lease-lost")
    assert (lines[2]["reason"], lines[2]["owner"], int(lines[2]["fence"])) == ("lease-expired", "me", lease["fence"])
    assert lines[2]["id"] == lines[0]["id"] != lines[1]["id"]
    client.close()
    service.stop()
    wait_trail(service, "lease-granted", "lease-forced", "lease-lost")


def test_a_hold_whose_client_leaves_is_released(lab):
    service = lab.service(3, "--log-leases")
    client, answer, lease = hold(service, "x", owner="me")
    answer.close()
    client.close()
    line = wait_trail(service, "lease-granted", "lease-released")[1]
    assert (line["reason"], line["owner"], int(line["fence"])) == ("client-gone", "me", lease["fence"])


def test_a_hold_whose_key_is_withdrawn_is_lost(lab):
    keyed = Keyed(lab, [Key("worker", ["x"], ["acquire"])], "--log-leases").wait_ready()
    client = keyed.redlockd.client()
    client.connection.request("POST", "/locks", json.dumps({"resource": "x", "hold": True}), keyed.keys["worker"].header())
    answer = client.connection.getresponse()
    assert json.loads(answer.readline())["event"] == "acquired"
    keyed.write([])
    keyed.reload()
    assert json.loads(answer.readline()) == {"event": "lost", "code": "unauthorized"}
    line = wait_trail(keyed.redlockd, "lease-granted", "lease-lost")[1]
    assert (line["reason"], line["caller"]) == ("unauthorized", "worker")
    client.close()


def test_an_extension_that_comes_too_late(lab):
    service = lab.service(3, "--log-leases")
    lease = service.acquire("x")
    assert service.release(lease).status == 204
    assert service.curl("PUT", "/locks/x", body={"token": lease["token"]}).status == 410
    service.acquire("x", owner="other")
    assert service.curl("PUT", "/locks/x", body={"token": lease["token"]}).status == 409
    service.stop()
    lines = wait_trail(service, "lease-granted", "lease-released", "lease-lost", "lease-granted", "lease-lost")
    assert [(line["reason"], line.get("owner")) for line in lines if line["event"] == "lease-lost"] == [("lease-expired", None), ("not-owner", None)]


def test_refused_rights(lab):
    keyed = Keyed(lab, [Key("reader", ["x"], ["inspect"]), Key("worker", ["x"], ["acquire"])], "--log-leases").wait_ready()
    assert keyed.call("reader", "POST", "/locks", body={"resource": "x"}).status == 403
    assert keyed.call("worker", "POST", "/locks", body={"resource": "y"}).status == 403
    assert keyed.call("worker", "DELETE", "/locks/x?force=true").status == 403
    assert keyed.call(None, "POST", "/locks", body={"resource": "x"}).status == 401
    assert keyed.call(None, "GET", "/locks/x").status == 401
    keyed.redlockd.stop()
    lines = wait_trail(keyed.redlockd, *["lease-refused"] * 4)
    assert [(line["reason"], line.get("caller"), line.get("resource")) for line in lines] == [
        ("forbidden", "reader", None), ("forbidden", "worker", "y"), ("forbidden", "worker", None), ("unauthorized", None, None)]


@pytest.mark.parametrize("given", [f"00-{TRACE}-00f067aa0ba902b7", f"01-{TRACE}-00f067aa0ba902b7-01", f"00-{'0' * 32}-00f067aa0ba902b7-01", TRACE.upper()])
def test_a_malformed_traceparent_is_ignored(service, given):
    assert service.curl("GET", "/version", headers={"traceparent": given, "X-Request-Id": "malformed"}).status == 200
    line = wait_until(lambda: [line for line in service.log("request") if line["id"] == "malformed"], what="its line")[-1]
    assert "trace_id" not in line
