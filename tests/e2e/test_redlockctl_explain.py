# SPDX-License-Identifier: MIT
"""redlockctl explain: why does my job not get its lock?"""

import contextlib
import json

import pytest

from ctl import ctl
from harness import wait_until
from key_fixtures import Key, Keyed


def explain(server, name, *args, **how):
    """(exit status, verdict, next step, the object) of --json; the screen for people has the same next step and status."""
    done, screen = ctl("explain", name, "--json", *args, server=server, **how), ctl("explain", name, *args, server=server, **how)
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (screen.returncode, screen.stderr) and screen.stdout.startswith(name + ": ")
    assert screen.stdout.splitlines()[-1].split()[:4] == ["next", *found["next"].split()[:3]]
    return done.returncode, found["verdict"], found["next"], found


@contextlib.contextmanager
def waiting(service, name):
    client = service.client()
    client.connection.request("POST", "/locks", json.dumps({"resource": name, "wait_ms": 60000, "owner": "next-one"}))
    wait_until(lambda: service.curl("GET", f"/locks/{name}").json["waiters"] == 1, what="a waiter")
    yield
    client.close()


def test_a_free_lock(service, resource):
    status, verdict, _, found = explain(service, resource)
    assert (status, verdict) == (0, "free")
    assert found["state"]["held"] is False and found["masters"]["quorum"]["voting"] == 3 and "acquire" in found["whoami"]["rights"]
    assert ctl("acquire", resource, server=service).returncode == 0


def test_a_held_lock(service, resource):
    lease = service.acquire(resource, owner="worker-7", metadata={"host": "machine-1"})
    status, verdict, step, found = explain(service, resource)
    assert (status, verdict) == (75, "held") and f"--fence {lease['fence']}" in step and found["state"]["owner"] == "worker-7"
    screen = ctl("explain", resource, server=service).stdout
    assert screen.startswith(f"{resource}: held by worker-7 for ") and '{"host":"machine-1"}' in screen and "3 of 3 may vote, 2 are needed" in screen
    assert ctl("release", resource, "--force", "--fence", str(lease["fence"]), server=service).returncode == 0
    assert explain(service, resource)[:2] == (0, "free")


@pytest.mark.parametrize("members, says", [({"mode": "shared"}, "--shared"), ({"slots": 2}, "--slots")])
def test_a_lock_that_some_hold_together(service, resource, members, says):
    service.acquire(resource, **members)
    status, verdict, step, _ = explain(service, resource)
    assert (status, verdict) == (75, "held") and says in step


def test_one_with_a_waiter(service, resource):
    service.acquire(resource)
    with waiting(service, resource):
        status, verdict, _, found = explain(service, resource)
        assert (status, verdict, found["state"]["waiters"]) == (75, "held", 1)
        assert [waiter["owner"] for waiter in found["waiting"]] == ["next-one"] and found["waiting"][0]["waited_ms"] >= 0
        screen = ctl("explain", resource, server=service).stdout
        assert "  waiting   1 over all servers\n            next-one for " in screen


def test_a_key_of_another_program(service, resource):
    for master in service.masters:
        master.cli("SET", resource, "somebody", "PX", "60000")
    status, verdict, step, _ = explain(service, resource)
    assert (status, verdict) == (75, "held") and "Another program" in step


def test_a_missing_right(lab, tmp_path):
    keyed = Keyed(lab, [Key("reader", ["x"], ["inspect"]), Key("blind", ["x"], ["acquire"]), Key("worker", ["x"], ["acquire", "inspect"])]).wait_ready()

    def ask(key, name):
        (tmp_path / "key").write_text(keyed.keys[key].secret)
        (tmp_path / "key").chmod(0o600)
        return explain(keyed.redlockd, name, "--key-file", str(tmp_path / "key"))
    assert ask("worker", "x1")[:2] == (0, "free")
    assert ask("worker", "y")[:2] == ask("reader", "x1")[:2] == (77, "forbidden")
    assert ask("blind", "x1")[:2] == (77, "unknown")
    status, verdict, step, _ = explain(keyed.redlockd, "x1")
    assert (status, verdict) == (77, "unauthorized") and "--key-file" in step


def test_masters_that_are_down(lab):
    service = lab.service(3)
    service.masters[0].kill()
    service.wait_voting(2)
    assert explain(service, "x")[:2] == (0, "free")
    assert "2 of 3 may vote" in (screen := ctl("explain", "x", server=service).stdout) and f"{service.masters[0].url} is down: " in screen
    service.masters[1].kill()
    service.wait_voting(1)
    status, verdict, step, found = explain(service, "x")
    assert (status, verdict, found["servers"][0]["code"]) == (69, "no-quorum", "no-quorum") and "Too few masters" in step


def test_a_server_that_is_down_and_none(service, resource):
    status, verdict, _, found = explain(f"unix:/nowhere,{service.address}", resource)
    assert (status, verdict) == (0, "free") and [server["ready"] for server in found["servers"]] == [False, True]
    status, verdict, step, found = explain("unix:/nowhere", resource)
    assert (status, verdict, found["state"]) == (69, "unreachable", None) and "--server" in step
