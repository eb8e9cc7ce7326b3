# SPDX-License-Identifier: MIT
"""redlockd and npm's `redlock` (both of its versions in use) on the same three masters: they exclude each other, and neither
touches what the other holds."""

import json
import pathlib
import subprocess

import pytest

from harness import DIES_WITH_US, end_process, quote, wait_until

pytestmark = pytest.mark.node
HERE = pathlib.Path(__file__).resolve().parent


class Library:
    """npm's redlock in a process of its own; see interop.js."""

    def __init__(self, package, masters):
        command = [*DIES_WITH_US, "node", str(HERE / "interop.js"), package, *(master.path for master in masters)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def acquire(self, resource, ttl=20000):
        """Acquires and returns the lock's number; fails if it is refused."""
        answer = self.call(call="acquire", resource=resource, ttl=ttl)
        assert answer["ok"], answer
        return answer["lock"]

    def is_refused(self, **request):
        """Makes a call; true if it was refused because too few keys are the library's, and for no other reason."""
        answer = self.call(**request)
        print(answer)
        return not answer["ok"] and answer["error"].split(":")[0] in ("ExecutionError", "LockError")


@pytest.fixture(params=["redlock", "redlock-4"], scope="module")
def library(request, service):
    started = Library(request.param, service.masters)
    yield started
    started.process.stdin.close()
    end_process(started.process)
    started.process.stdout.close()


def on_all(service, resource):
    """The value of a key on each master, once it is on all: an answer comes as soon as a majority has granted."""
    return wait_until(lambda: (found := [master.cli("GET", resource) for master in service.masters]) and all(found) and found,
                      what=f"{resource} on all masters")


def ends_in(service, resource):
    return [master.cli("PTTL", resource) for master in service.masters]


def wait_for_none(service, resource):
    wait_until(lambda: not any(master.cli("EXISTS", resource) for master in service.masters), what=f"{resource} on no master")


def take_away(service, resource):
    """Deletes a lock behind the back of its holder."""
    on_all(service, resource)
    for master in service.masters:
        assert master.cli("DEL", resource) == 1


def post(service, resource, **members):
    return service.curl("POST", "/locks", body={"resource": resource, "ttl_ms": 20000, **members})


def test_what_the_library_holds_is_refused_here(service, library, resource):
    lock = library.acquire(resource)
    answer = post(service, resource)
    assert (answer.status, answer.code) == (409, "locked"), answer
    assert answer.json["votes"]["granted"] == 0 and answer.json["votes"]["refused"] >= 2
    assert 15000 < answer.json["retry_after_ms"] <= 20000, "told from the key that the library wrote"
    assert "holder" not in answer.json, "nothing is known of it"
    state = service.curl("GET", f"/locks/{quote(resource)}").json
    assert state["held"] and "owner" not in state and "fence" not in state and 15000 < state["remaining_ms"] <= 20000
    assert library.call(call="release", lock=lock)["ok"]


def test_what_is_held_here_is_refused_to_the_library(service, library, resource):
    lease = service.acquire(resource, owner="worker-7")
    before = on_all(service, resource)
    assert library.is_refused(call="acquire", resource=resource, ttl=20000)
    assert on_all(service, resource) == before
    assert service.release(lease).status == 204


def test_what_the_library_releases_is_free_here(service, library, resource):
    """And the fence goes on from where it was, although the library knows none."""
    before = service.acquire(resource)
    assert service.release(before).status == 204
    wait_for_none(service, resource)
    lock = library.acquire(resource)
    assert post(service, resource).status == 409
    assert library.call(call="release", lock=lock)["ok"]
    wait_for_none(service, resource)
    after = service.acquire(resource)
    assert after["fence"] > before["fence"]
    assert service.release(after).status == 204


def test_what_is_released_here_is_free_for_the_library(service, library, resource):
    lease = service.acquire(resource)
    on_all(service, resource)
    assert library.is_refused(call="acquire", resource=resource, ttl=20000)
    assert service.release(lease).status == 204
    wait_for_none(service, resource)
    lock = library.acquire(resource)
    assert library.call(call="release", lock=lock)["ok"]


def test_what_the_library_lets_run_out_is_free_here(service, library, resource):
    library.acquire(resource, ttl=300)
    wait_for_none(service, resource)
    assert service.release(service.acquire(resource)).status == 204


def test_what_runs_out_here_is_free_for_the_library(service, library, resource):
    service.acquire(resource, ttl_ms=300)
    wait_for_none(service, resource)
    assert library.call(call="release", lock=library.acquire(resource))["ok"]


def test_what_the_library_extends_stays_its_own(service, library, resource):
    lock = library.acquire(resource, ttl=5000)
    assert library.call(call="extend", lock=lock, ttl=20000)["ok"]
    wait_until(lambda: min(ends_in(service, resource)) > 15000, what="extended on all masters")
    assert post(service, resource).code == "locked"
    assert library.call(call="release", lock=lock)["ok"]


def test_several_resources_exclude_each_other(service, library, resource):
    """A set here and one of the library that have one name in common, and single locks of its names."""
    names = [f"{resource}/{name}" for name in "abc"]
    lease = service.curl("POST", "/locks", body={"resources": names[:2], "ttl_ms": 20000}).json
    for name in names[:2]:
        on_all(service, name)
        assert library.is_refused(call="acquire", resource=name, ttl=20000)
    assert library.is_refused(call="acquire", resource=names[1:], ttl=20000)
    wait_for_none(service, names[2])
    assert service.curl("DELETE", "/locks", body={"resources": names[:2], "token": lease["token"]}).status == 204
    for name in names[:2]:
        wait_for_none(service, name)
    lock = library.acquire(names[1:])
    on_all(service, names[1])
    refused = service.curl("POST", "/locks", body={"resources": names[:2], "ttl_ms": 20000})
    assert (refused.status, refused.code, refused.json["resource"]) == (409, "locked", names[1])
    assert post(service, names[2]).code == "locked"
    assert library.call(call="release", lock=lock)["ok"]
    wait_for_none(service, names[1])
    again = service.curl("POST", "/locks", body={"resources": names, "ttl_ms": 20000})
    assert again.status == 201 and again.json["fence"] > lease["fence"]
    assert service.curl("DELETE", "/locks", body={"resources": names, "token": again.json["token"]}).status == 204


@pytest.mark.parametrize("call", [{"call": "extend", "ttl": 60000}, {"call": "release"}], ids=["extend", "release"])
def test_the_library_leaves_our_lease_alone(service, library, resource, call):
    """The library still believes in a lock that its masters have dropped, and that is ours by now."""
    lock = library.acquire(resource)
    take_away(service, resource)
    lease = service.acquire(resource, ttl_ms=20000)
    before = on_all(service, resource)
    assert library.is_refused(lock=lock, **call)
    assert [master.cli("GET", resource) for master in service.masters] == before
    assert max(ends_in(service, resource)) <= 20000
    answer = service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]})
    assert answer.status == 200, answer
    assert service.release(lease).status == 204


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_we_leave_the_librarys_lock_alone(service, library, resource, method):
    """The same the other way round."""
    lease = service.acquire(resource)
    take_away(service, resource)
    lock = library.acquire(resource)
    before = on_all(service, resource)
    answer = service.curl(method, f"/locks/{quote(resource)}", body={"token": lease["token"]})
    assert (answer.status, answer.code) == (409, "not-owner"), answer
    assert [master.cli("GET", resource) for master in service.masters] == before
    assert max(ends_in(service, resource)) <= 20000
    assert library.call(call="release", lock=lock)["ok"]
