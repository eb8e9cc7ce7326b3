# SPDX-License-Identifier: MIT
"""The metadata of a lease and who took it: given with POST /locks, shown in states, listings and refusals, and kept for as long as the lease."""

import json
import subprocess

import pytest

from harness import DIES_WITH_US, curl_command, end_process, quote, wait_until
from key_fixtures import Key, Keyed

METADATA = {"z": "https://10.0.0.7:9000", "a": [1, None, True, {"deep": {"é": "\n\t\"\\"}}], "big": 2**63 - 1, "half": 0.5}


def state(service, resource):
    return service.curl("GET", f"/locks/{quote(resource)}").json


def listed(service, resource):
    locks = service.curl("GET", f"/locks?prefix={quote(resource)}").json["locks"]
    return next(one for one in locks if one["resource"] == resource)


def test_metadata_comes_back_as_it_was(service, resource):
    lease = service.acquire(resource, metadata=METADATA, owner="me")
    assert "metadata" not in lease, "the caller knows it"
    refused = service.curl("POST", "/locks", body={"resource": resource}).json["holder"]
    for shown in (state(service, resource), listed(service, resource), refused):
        assert shown["metadata"] == METADATA and shown["owner"] == "me"
        assert list(shown["metadata"]) == list(METADATA), "in another order"
    assert "caller" not in state(service, resource), "nobody is asked who he is"
    for _ in range(2):
        assert service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]}).status == 200
    assert state(service, resource)["metadata"] == METADATA
    assert service.curl("DELETE", f"/locks/{quote(resource)}", body={"token": lease["token"]}).status == 204
    assert service.acquire(resource, ttl_ms=5000) and "metadata" not in state(service, resource), "that of the holder before"
    assert "10.0.0.7:9000" not in service.stderr(), "metadata is in the log"


def test_another_redlockd_shows_it(lab):
    masters = lab.redises(3)
    one, other = lab.redlockd(masters), lab.redlockd(masters)
    lease = one.acquire("r", metadata=METADATA)
    assert state(other, "r")["metadata"] == METADATA and listed(other, "r")["metadata"] == METADATA
    assert other.curl("PUT", "/locks/r", body={"token": lease["token"]}).status == 200
    other.curl("DELETE", f"/locks/r?force=true&fence={lease['fence']}")
    assert state(one, "r")["held"] is False and "metadata" not in state(one, "r")


def test_a_waiter_and_a_held_lease_have_it(lab):
    service = lab.service()
    first = service.acquire("r", metadata={"n": 1})
    command = curl_command(service.address, "POST", "/locks", "--no-buffer",
                           body={"resource": "r", "ttl_ms": 6000, "wait_ms": 20000, "hold": True, "metadata": {"n": 2}})
    with subprocess.Popen([*DIES_WITH_US, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        wait_until(lambda: state(service, "r")["waiters"] == 1, what="a waiter")
        assert state(service, "r")["metadata"] == {"n": 1}
        service.curl("DELETE", "/locks/r", body={"token": first["token"]})
        assert json.loads(holder.stdout.readline())["event"] == "acquired"
        assert json.loads(holder.stdout.readline())["event"] == "renewed"
        assert state(service, "r")["metadata"] == {"n": 2}
        end_process(holder)
    wait_until(lambda: not state(service, "r")["held"], what="the end of the lease")


def test_the_largest_is_listed_a_thousand_times(lab):
    service = lab.service(1)
    client = service.client()
    largest = {"a": "x" * (1024 - len('{"a":""}'))}
    for i in range(1000):
        answer = client.call("POST", "/locks", {"resource": f"r{i:03}", "ttl_ms": 60000, "metadata": largest})
        assert answer.status == 201, answer
    locks, cursor = {}, ""
    while cursor is not None:
        page = service.curl("GET", f"/locks?limit=1000&cursor={cursor}").json
        locks.update((one["resource"], one["metadata"]) for one in page["locks"])
        cursor = page["cursor"]
    assert len(locks) == 1000 and all(one == largest for one in locks.values())


def test_the_caller_is_that_of_the_key(lab):
    keyed = Keyed(lab, [Key("billing", [""], ["acquire", "inspect"]), Key("ops", [""], ["acquire", "inspect", "list"])]).wait_ready()
    lease = keyed.call("billing", "POST", "/locks", body={"resource": "r", "owner": "me", "metadata": {"job": 7}}).json
    seen = keyed.call("ops", "GET", "/locks/r").json
    assert seen["caller"] == "billing" and seen["owner"] == "me" and seen["metadata"] == {"job": 7}
    assert keyed.call("operator", "GET", "/locks").json["locks"][0]["caller"] == "billing"
    assert "caller" not in keyed.call("ops", "POST", "/locks", body={"resource": "r"}).json["holder"]
    assert keyed.call("ops", "PUT", "/locks/r", body={"token": lease["token"]}).status == 200
    assert keyed.call("ops", "GET", "/locks/r").json["caller"] == "billing", "who took it, not who extended it"
    assert keyed.call("billing", "DELETE", "/locks/r", body={"token": lease["token"]}).status == 204
    assert keyed.call("ops", "POST", "/locks", body={"resource": "r"}).status == 201
    assert keyed.call("ops", "GET", "/locks/r").json["caller"] == "ops"


@pytest.mark.parametrize("value", ["no json", "[1]", '{"a":1', '{"a":1,"a":2}', "{}" + " " * 1023])
def test_what_another_program_wrote_there_is_not_shown(lab, value):
    service = lab.service()
    lease = service.acquire("r", ttl_ms=30000)
    for master in service.masters:
        wait_until(lambda: master.cli("GET", "r"), what="the key")
        master.cli("SET", "r", f"{lease['token']}:0:{lease['fence']}::me\n\n{value}", "KEEPTTL")
    seen = state(service, "r")
    assert seen["held"] is True and "metadata" not in seen
