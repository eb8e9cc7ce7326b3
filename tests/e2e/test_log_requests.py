# SPDX-License-Identifier: MIT
"""--log-requests: which requests have a line in the log."""

import json

import pytest

from harness import run_redlockd, wait_until
from key_fixtures import Key, Keyed

READER = Key("reader", ["x/"], ["inspect"])


def found(service, mark):
    """What is logged of requests, once everything before now is in the log: a forced release is an event of its own."""
    service.curl("DELETE", f"/locks/{mark}?force=true", headers={"X-Request-Id": mark})
    wait_until(lambda: [line for line in service.log("forced-release") if line["id"] == mark], what="the last line")
    return [(line["route"], line["status"], line["level"]) for line in service.log("request") if line["id"] != mark]


def ask(service):
    """The business of every day: granted, held, released, over, wrong."""
    lease = service.acquire("x")
    assert service.curl("POST", "/locks", body={"resource": "x"}).status == 409
    assert service.release(lease).status == 204
    assert service.release(lease).status == 410
    assert service.curl("POST", "/locks", body={"nonsense": 1}).status == 400
    assert service.curl("GET", "/nothing").status == 404


def test_by_default_only_errors_are_logged(lab):
    service = lab.service(3, "--log-requests=errors")
    ask(service)
    assert found(service, "before") == []
    lost = service.acquire("lost", 2000)
    wait_until(lambda: not service.curl("GET", "/locks/lost").json["held"], what="the end of the lease")
    assert service.curl("PUT", "/locks/lost", body={"token": lost["token"]}).status == 410
    service.acquire("lost")
    assert service.curl("PUT", "/locks/lost", body={"token": lost["token"]}).status == 409
    assert found(service, "late") == [("extend", "410", "info"), ("extend", "409", "info")]
    for master in service.masters[1:]:
        master.kill()
    service.wait_voting(1)
    assert service.curl("POST", "/locks", body={"resource": "y"}).status == 503
    assert found(service, "after")[2:] == [("acquire", "503", "warn")]


def test_errors_is_the_default(tmp_path):
    """And a file of the configuration may say another."""
    config = tmp_path / "redlockd.json"
    config.write_text(json.dumps({"log_requests": "some", "dev": True}))
    assert "default: errors" in run_redlockd("--help").stdout.lower().partition("--log-requests")[2].partition("\n\n")[0]
    assert run_redlockd("--config", str(config)).stderr == f"redlockd: {config}: log_requests=some: not known; allowed are all, errors or none\n"


def test_a_caller_that_may_not_is_an_error(lab):
    keyed = Keyed(lab, [READER], "--log-requests", "errors").wait_ready()
    assert keyed.call(None, "GET", "/locks/x/1").status == 401
    assert keyed.call("reader", "POST", "/locks", body={"resource": "x/1"}).status == 403
    assert keyed.call("reader", "GET", "/locks/x/1").status == 200
    lines = wait_until(lambda: keyed.redlockd.log("request")[1:] and keyed.redlockd.log("request"), what="two lines")
    assert [(line["status"], line.get("caller"), line["level"], line["address"]) for line in lines] == [
        ("401", None, "info", lines[0]["address"]), ("403", "reader", "info", lines[0]["address"])]


def test_a_limit_is_an_error(lab):
    service = lab.service(3, "--log-requests=errors", "--max-rate-per-address", "1", wait=False)
    wait_until(lambda: service.curl("GET", "/version").status == 429, what="more than one a second")
    assert {line["status"] for line in wait_until(lambda: service.log("request"), what="its line")} == {"429"}


def test_a_hold_that_is_lost_is_an_error(lab):
    """One that its client ends is not."""
    service = lab.service(3, "--log-requests=errors")
    client = service.client()
    client.connection.request("POST", "/locks", json.dumps({"resource": "ended", "hold": True}))
    assert json.loads(client.connection.getresponse().readline())["event"] == "acquired"
    client.close()
    wait_until(lambda: not service.curl("GET", "/locks/ended").json["held"], what="released")
    client = service.client()
    client.connection.request("POST", "/locks", json.dumps({"resource": "lost", "hold": True, "ttl_ms": 3000}))
    answer = client.connection.getresponse()
    assert json.loads(answer.readline())["event"] == "acquired"
    assert service.curl("DELETE", "/locks/lost?force=true").status == 204
    line = wait_until(lambda: service.log("request"), what="its line")
    assert [(one["resource"], one["status"], one["hold"]) for one in line] == [("lost", "201", "lease-expired")]
    client.close()


@pytest.mark.parametrize("which", ["all", "none"])
def test_all_or_none(lab, which):
    service = lab.service(3, f"--log-requests={which}")
    ask(service)
    for master in service.masters[1:]:
        master.kill()
    service.wait_voting(1)
    assert service.curl("POST", "/locks", body={"resource": "y"}).status == 503
    expected = [("acquire", "201", "info"), ("acquire", "409", "info"), ("release", "204", "info"), ("release", "410", "info"), ("acquire", "400", "info"),
                ("none", "404", "info"), ("acquire", "503", "warn")]
    assert found(service, "after") == (expected if which == "all" else [])


@pytest.mark.parametrize("which", ["errors", "all"])
def test_a_flood_of_one_error_is_bounded(lab, which):
    """What was left out is counted; the end of the program does not wait for that of the second."""
    keyed = Keyed(lab, [READER], "--log-requests", which).wait_ready().redlockd
    client = keyed.client()
    assert {client.call("GET", "/locks/x").status for _ in range(400)} == {401}
    client.close()
    keyed.stop()
    lines, suppressed = keyed.log("request"), keyed.log("log-lines-suppressed")
    assert len(lines) + sum(int(line["count"]) for line in suppressed) == 400
    assert (which == "all") == (len(lines) == 400) and all((line["of"], line["status"]) == ("request", "401") for line in suppressed)
