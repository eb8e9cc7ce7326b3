# SPDX-License-Identifier: MIT
"""The name of a lock outside the path: in the body of PUT and DELETE /locks, in the query of GET /locks. Each does what the same call with the name in
its path does, and both forms see each other's leases."""

import json
import subprocess
import threading

import pytest

from ctl import BINARY, Run, ctl
from fake_redlockd import TOKEN, fake  # noqa: F401
from harness import DIES_WITH_US, curl_command, quote, wait_until
from waiting_fixtures import wait_for_queue

NAMES = ["orders/42", "//a///b/", "Zür ich/straße", "鍵🔒", "1+1=2&3;4", "100%", "a?b#c", "\"quo\\te\"", "%2e%2e/%2F", " ", "x" * 256]
OTHER_TOKEN = "0" * 40


def query_of(name):
    return "/locks?resource=" + quote(name).replace("/", "%2F")


@pytest.mark.parametrize("name", NAMES)
def test_every_name(service, name):
    lease = service.acquire(name)
    by_path, by_query = service.curl("GET", "/locks/" + quote(name)), service.curl("GET", query_of(name))
    assert by_query.status == 200 and by_query.headers["etag"] == by_path.headers["etag"]
    same = ("resource", "held", "mode", "fence", "waiters")
    assert [by_query.json[member] for member in same] == [by_path.json[member] for member in same]
    extended = service.curl("PUT", "/locks", body={"resource": name, "token": lease["token"], "ttl_ms": 40000})
    assert extended.status == 200 and extended.json["fence"] == lease["fence"] and extended.json["resource"] == name, extended
    assert extended.json["ttl_ms"] == 40000
    assert service.curl("PUT", "/locks/" + quote(name), body={"token": lease["token"]}).status == 200
    assert service.curl("DELETE", "/locks", body={"resource": name, "token": lease["token"]}).status == 204
    assert service.curl("GET", query_of(name)).json["held"] is False


def test_the_token_in_the_header(service, resource):
    lease = service.acquire(resource)
    other, own = {"Lock-Token": OTHER_TOKEN}, {"Lock-Token": lease["token"]}
    for method, status in (("PUT", 200), ("DELETE", 204)):
        assert service.curl(method, "/locks", body={"resource": resource}, headers=other).code == "not-owner"
        assert service.curl(method, "/locks", body={"resource": resource}, headers=own).status == status
    for method in ("PUT", "DELETE"):
        assert service.curl(method, "/locks", body={"resource": resource}, headers=own).code == "lease-expired"


def test_a_single_name_is_no_part_of_a_set(service, resource):
    names = [f"{resource}/a", f"{resource}/b"]
    lease = service.curl("POST", "/locks", body={"resources": names}).json
    for method in ("PUT", "DELETE"):
        assert service.curl(method, "/locks", body={"resource": names[0], "token": lease["token"]}).code == "not-owner"
    assert service.curl("GET", query_of(names[1])).json["resources"] == names
    assert service.curl("DELETE", "/locks", body={"resources": names, "token": lease["token"]}).status == 204


def test_watched_by_query(service, resource):
    """ETag, If-None-Match, a wait for a change, HEAD."""
    path = query_of(resource)
    free = service.curl("GET", path).headers["etag"]
    assert service.curl("GET", path, headers={"If-None-Match": free}).status == 304
    assert service.curl("GET", path + "&wait_ms=100", headers={"If-None-Match": free}).status == 304
    changed = []
    waiter = threading.Thread(target=lambda: changed.append(service.curl("GET", path + "&wait_ms=20000", headers={"If-None-Match": free})))
    waiter.start()
    wait_until(lambda: service.metrics()["redlockd_watchers"] == 1, what="somebody watches")
    lease = service.acquire(resource)
    waiter.join()
    assert changed[0].status == 200 and changed[0].json["fence"] == lease["fence"]
    head = service.curl("HEAD", path)
    assert head.status == 200 and head.headers["etag"] == changed[0].headers["etag"] and head.body == b""
    assert service.release(lease).status == 204


def test_a_stream_by_query(service, resource):
    command = curl_command(service.address, "GET", query_of(resource), "--no-buffer", "-H", "Accept: text/event-stream")
    stream = subprocess.Popen([*DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        states = (json.loads(line[6:]) for line in stream.stdout if line.startswith("data: "))
        assert next(states)["held"] is False
        lease = service.acquire(resource, owner="me")
        assert next(states)["owner"] == "me"
        assert service.release(lease).status == 204
        assert next(states)["held"] is False
    finally:
        stream.kill()
        stream.wait()
        stream.stdout.close()


def test_forced(service, resource):
    """A waiter gets the lock; with a fence, only that holder is released; a set goes as a whole. The log names the resource."""
    lease = service.acquire(resource)
    body = {"resource": resource}
    refused = service.curl("DELETE", f"/locks?force=true&fence={lease['fence'] - 1}", body=body)
    assert refused.code == "not-owner" and service.curl("GET", query_of(resource)).json["held"]
    assert service.curl("DELETE", f"/locks?force=true&fence={lease['fence']}", body=body).status == 204
    assert service.curl("DELETE", "/locks?force=true", body=body).code == "lease-expired"
    service.acquire(resource)
    granted = []
    waiter = threading.Thread(target=lambda: granted.append(service.curl("POST", "/locks", body={"resource": resource, "wait_ms": 20000})))
    waiter.start()
    wait_for_queue(service.masters, resource, 1)
    assert service.curl("DELETE", "/locks?force=true", body=body).status == 204
    waiter.join()
    assert granted[0].status == 201 and service.release(granted[0].json).status == 204
    lines = wait_until(lambda: [line for line in service.log("forced-release") if line["resource"] == resource][3:], what="four lines")
    assert lines[0]["outcome"] == "released"
    names = [f"{resource}/a", f"{resource}/b"]
    service.curl("POST", "/locks", body={"resources": names})
    assert service.curl("DELETE", "/locks?force=true", body={"resource": names[1]}).status == 204
    assert not service.curl("GET", query_of(names[0])).json["held"]


def test_both_forms_are_counted_and_logged_alike(service, resource):
    token = {"token": OTHER_TOKEN}
    forms = [("PUT", f"/locks/{resource}", token, "extend"), ("PUT", "/locks", {"resource": resource, **token}, "extend"),
             ("DELETE", f"/locks/{resource}", token, "release"), ("DELETE", "/locks", {"resource": resource, **token}, "release"),
             ("DELETE", f"/locks/{resource}?force=true", None, "release"), ("DELETE", "/locks?force=true", {"resource": resource}, "release"),
             ("GET", f"/locks/{resource}", None, "inspect"), ("GET", query_of(resource), None, "inspect")]
    for method, path, body, route in forms:
        before = service.metrics()
        answer = service.curl(method, path, body=body, headers={"X-Request-Id": "both-forms"})
        name = f'redlockd_http_requests_total{{route="{route}",method="{method}",status="{answer.status}"}}'
        wait_until(lambda: service.metrics()[name] == before.get(name, 0) + 1, what=name)
    lines = wait_until(lambda: [line for line in service.log("request") if line["id"] == "both-forms"][7:] and
                       [line for line in service.log("request") if line["id"] == "both-forms"], what="a line for each")
    for (by_path, other), (_, _, _, route) in zip(zip(lines[::2], lines[1::2]), forms[::2]):
        own = [{name: line.get(name) for name in ("route", "resource", "status", "code")} for line in (by_path, other)]
        assert own[0] == own[1] and own[0]["resource"] == resource and own[0]["route"] == route


@pytest.mark.parametrize("method, path, body, errors", [
    ("PUT", "/locks", {}, {"resource": "is required, in the path or in the body"}),
    ("DELETE", "/locks", {}, {"resource": "is required, in the path or in the body"}),
    ("DELETE", "/locks", None, {"resource": "is required, in the path or in the body"}),
    ("DELETE", "/locks?force=true", None, {"resource": "is required, in the path or in the body"}),
    ("DELETE", "/locks?force=true", "null", {"resource": "is required, in the path or in the body"}),
    ("DELETE", "/locks?force=true", {"resource": "a", "ttl_ms": 1}, {"ttl_ms": "is not a member of this body; allowed are resource"}),
    ("DELETE", "/locks?force=true", {"resources": ["a", "b"]}, None),
    ("DELETE", "/locks?force=1", {"resource": "a"}, {"force": "must be true"}),
    ("DELETE", "/locks?force=true&fence=0", {"resource": "a"}, {"fence": "must be from 1 to 9007199254740991"}),
    ("DELETE", "/locks?fence=1", {"resource": "a"}, {"fence": "must not be there without force=true"}),
    ("DELETE", "/locks/a?force=true", {"resource": "a"}, {"body": "must not be there with force"}),
    ("PUT", "/locks", {"resource": "a", "resources": ["a", "b"]}, {"resources": "must not be there beside resource"}),
    ("PUT", "/locks", {"resources": ["a", "b"], "resource": "a"}, {"resources": "must not be there beside resource"}),
    ("DELETE", "/locks", {"resource": "a", "resources": ["a", "b"]}, {"resources": "must not be there beside resource"}),
    ("DELETE", "/locks", {"resource": ""}, {"resource": "must not be empty"}),
    ("PUT", "/locks", {"resource": "a\n"}, {"resource": "must not hold control characters"}),
    ("PUT", "/locks", {"resource": ["a"]}, {"resource": "must be a string"}),
    ("PUT", "/locks/a", {"resource": "a"}, {"resource": "must not be there: the path names the resource"}),
    ("DELETE", "/locks/a", {"resource": "b"}, {"resource": "must not be there: the path names the resource"}),
    ("PUT", "/locks/a", {"resources": ["a", "b"]}, {"resources": "must not be there: the path names the resource"}),
    ("PUT", "/locks?resource=a", {}, {"resource": None}),
    ("DELETE", "/locks?resource=a", {}, {"resource": None}),
    ("GET", "/locks?resource=a&prefix=b", None, {"prefix": "must not be there beside resource"}),
    ("GET", "/locks?owner=b&limit=x&resource=a&cursor=", None, dict.fromkeys(("owner", "limit", "cursor"), "must not be there beside resource")),
    ("GET", "/locks?wait_ms=1", None, {"wait_ms": "must not be there without resource"}),
    ("GET", "/locks?wait_ms=1&prefix=a", None, {"wait_ms": "must not be there without resource"}),
    ("GET", "/locks?resource=a&wait_ms=-1", None, {"wait_ms": "must be a whole number, not negative, of 16 digits at most"}),
    ("GET", "/locks?resource", None, {"resource": "has no value"}),
    ("GET", "/locks?resource=", None, {"resource": "must not be empty"}),
    ("GET", "/locks?resource=a&resource=a", None, {"resource": "must not be given twice"}),
    ("GET", "/locks?resource=a%00", None, {"resource": "must not hold control characters"}),
    ("GET", "/locks?resource=%ff", None, {"resource": "must be valid UTF-8"}),
    ("GET", "/locks?resource=%zz", None, {"resource": "has a % that is not followed by two hexadecimal digits"}),
    ("GET", "/locks?resource=" + 257 * "x", None, {"resource": "must be at most 256 bytes"}),
    ("GET", "/locks?resource=redlockd:master", None, {"resource": None}),
    ("GET", "/locks/a?resource=a", None, {"resource": "must not be there: the path names the resource"}),
    ("GET", "/locks/a?prefix=a", None, {"prefix": None}),
])
def test_what_does_not_fit(service, method, path, body, errors):
    headers = {} if "force" in path or method == "GET" else {"Lock-Token": OTHER_TOKEN}
    answer = service.curl(method, path, body=body, headers=headers)
    assert answer.code == "invalid-request", answer
    errors = errors or {"resources": "is not a member of this body; allowed are resource", "resource": "is required, in the path or in the body"}
    found = {error["field"]: error["reason"] for error in answer.json["errors"]}
    assert found == {field: reason or found.get(field) for field, reason in errors.items()}, answer


def test_force_and_a_token(service, resource):
    answer = service.curl("DELETE", "/locks?force=true", body={"resource": resource}, headers={"Lock-Token": OTHER_TOKEN})
    assert [error["field"] for error in answer.json["errors"]] == ["Lock-Token"]
    answer = service.curl("DELETE", "/locks?force=true", body={"resource": resource, "token": OTHER_TOKEN})
    assert [error["field"] for error in answer.json["errors"]] == ["token"]


# ---- redlockctl ----


@pytest.mark.parametrize("name", ["orders/42", "a//b", "1+1=2&3", "é%2F"])
def test_redlockctl_names_no_lock_in_a_path(fake, name):  # noqa: F811
    server, encoded = fake(), quote(name)
    server.resource = name
    token = {"REDLOCK_TOKEN": TOKEN}
    named = {"resource": name, "token": TOKEN}
    for args, method, path, body in (
            (("status",), "GET", f"/locks?resource={encoded}", {}), (("extend", "--ttl", "5s"), "PUT", "/locks", {**named, "ttl_ms": 5000}),
            (("release",), "DELETE", "/locks", named), (("release", "--force"), "DELETE", "/locks?force=true", {"resource": name}),
            (("release", "--force", "--fence", "7"), "DELETE", "/locks?force=true&fence=7", {"resource": name})):
        assert ctl(*args, name, server=server.address, env={} if "--force" in args else token).returncode == 0
        call = server.calls[-1]
        assert (call.method, call.path, call.body) == (method, path, body)


def test_redlockctl_keeps_and_watches_a_lock_by_its_name_alone(lab, fake, resource):  # noqa: F811
    server = fake(state=lambda call: call.answer(200, {"resource": resource, "held": False}, ETag='"free"') if "wait_ms" not in call.path else call.until_hung_up())
    run = Run(lab, resource, command="exec tail -f /dev/null", servers=[server.address])
    assert server.call("extend").path == "/locks" and server.call("extend").body["resource"] == resource
    run.process.terminate()
    run.wait()
    assert server.call("release").path == "/locks"
    watch = subprocess.Popen([*DIES_WITH_US, BINARY, "watch", resource, "--server", server.address], stdout=subprocess.DEVNULL)
    path = f"/locks?resource={quote(resource)}"
    assert [server.call("state", number).path for number in range(2)] == [path, path + "&wait_ms=60000"]
    watch.kill()
    watch.wait()


def test_redlockctl_and_a_real_redlockd(service, resource):
    name = f"{resource}//1+1 = 2&3%2F?"
    token = json.loads(ctl("acquire", name, "--json", server=service).stdout)["token"]
    assert ctl("status", name, server=service).stdout.startswith(f"{name}: held")
    assert ctl("extend", name, server=service, env={"REDLOCK_TOKEN": token}).returncode == 0
    assert ctl("release", name, server=service, env={"REDLOCK_TOKEN": token}).returncode == 0
    assert service.acquire(name)
    assert ctl("release", "--force", name, server=service).returncode == 0
    assert ctl("status", name, server=service).stdout == f"{name}: free\n"
