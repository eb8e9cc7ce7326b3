# SPDX-License-Identifier: MIT
"""redlockctl with several names: one lease, of all of them or none."""

import json
import re
import signal
import subprocess

import pytest

from ctl import BINARY, HELD, LOST, Run, ctl, url
from harness import clean_environment, wait_until


@pytest.fixture
def names(resource):
    return [f"{resource}/{letter}" for letter in "abc"]


def held(service, name):
    return service.curl("GET", f"/locks/{name}").json


def in_queue(service, name, count):
    wait_until(lambda: held(service, name)["waiters"] == count, what=f"{count} waiters for {name}")


def test_a_lease_of_several(service, names):
    done = ctl("acquire", *reversed(names), "--json", server=service)
    lease = json.loads(done.stdout)
    assert done.returncode == 0 and lease["resources"] == names and "resource" not in lease, done
    assert {held(service, name)["fence"] for name in names} == {lease["fence"]}
    status = ctl("status", names[1], server=service)
    assert f"lease on  {', '.join(names)}" in status.stdout, status
    token = {"REDLOCK_TOKEN": lease["token"]}
    assert ctl("extend", *names[1:], server=service, env=token).returncode == LOST
    extended = ctl("extend", names[1], names[0], names[2], "--ttl", "50s", server=service, env=token)
    assert extended.returncode == 0 and f"resources {', '.join(names)}\nfence" in extended.stdout, extended
    assert ctl("release", names[0], server=service, env=token).returncode == LOST
    assert held(service, names[0])["held"]
    assert ctl("release", *names, server=service, env=token).returncode == 0
    assert not any(held(service, name)["held"] for name in names)


def test_a_refusal_names_what_is_held(service, names):
    lease = service.acquire(names[1], 60000)
    done = ctl("acquire", *names, "--no-wait", server=service)
    assert done.returncode == HELD and re.search(rf"{re.escape(names[1])}: held by somebody else \(fence {lease['fence']}\)", done.stderr), done
    assert not held(service, names[0])["held"]
    service.release(lease)


def test_a_command_under_several(lab, service, names):
    script = 'echo "$REDLOCK_RESOURCE|$REDLOCK_HELD"; redlockctl run "$0" -- true; redlockctl run "$0" other -- true; redlockctl run other -- echo inner'
    script = script.replace("redlockctl", BINARY)
    done = ctl("run", names[2], names[0], "--", "sh", "-c", script, names[0], server=service)
    assert done.stdout == f"{names[0]}\n{names[2]}|{names[0]}\n{names[2]}\ninner\n", done
    assert done.stderr.count("already held by the enclosing run") == 2
    assert not any(held(service, name)["held"] for name in names)


def test_sets_in_another_order_do_not_wait_for_each_other(lab, service, names):
    runs = [Run(lab, *order, command=["sh", "-c", "exit 0"], servers=[service]) for order in (names, names[::-1], names[1:], names[:2]) for _ in range(5)]
    assert [run.wait() for run in runs] == [0] * 20


def test_a_wait_says_who_holds_the_one_that_is_not_free(lab, service, names):
    lease = service.acquire(names[2], 60000, owner="night-shift")
    run = Run(lab, *names, command=["true"], servers=[service])
    in_queue(service, names[0], 1)
    in_queue(service, names[2], 1)
    assert "held by night-shift" in wait_until(lambda: run.events("waiting"), what="the wait is told")[0]["message"]
    service.release(lease)
    assert run.wait() == 0


def test_the_server_dies_while_it_holds_several(lab, names):
    masters = lab.redises(3)
    one, other = lab.redlockd(masters), lab.redlockd(masters)
    run = Run(lab, *names, command=["sleep", "1000"], servers=[one, other], ttl_ms=6000)
    fence = run.event("acquired")["fence"]
    one.kill()
    wait_until(lambda: held(other, names[0])["held_ms"] > 6500, 20, "it is extended by the other server")
    assert held(other, names[1])["fence"] == fence
    run.process.send_signal(signal.SIGTERM)
    run.wait()
    wait_until(lambda: not any(held(other, name)["held"] for name in names), what="all are released")


@pytest.mark.parametrize(("arguments", "words"), [
    ("watch a b c", "b: No such file"),
    ("run deploy sh -c trap -- trap", "NAME: sh is a program: to run it, put -- right before it"),
    ("run deploy /bin/sh -c trap -- trap", "NAME: it is a program"),
])
def test_mistakes(service, arguments, words):
    done = ctl(*arguments.split(), server=service)
    assert words in done.stderr and "trap" not in done.stdout, done
    if not arguments.startswith("watch"):
        assert done.returncode == 64 and not service.curl("GET", "/locks?prefix=deploy").json["locks"]


def test_a_name_that_is_a_program_stands_first(service):
    assert ctl("run", "sh", "deploy/9", "--", "sh", "-c", 'echo "$REDLOCK_RESOURCE"', server=service).stdout == "deploy/9\nsh\n"


@pytest.mark.parametrize("path", [None, "", ":/usr/bin", "/usr/bin:"])
def test_what_counts_as_a_program_is_what_would_be_run(service, tmp_path, monkeypatch, path):
    """Without PATH, and with an empty folder in it, as execvp() has it."""
    (tmp_path / "trap").write_text("#!/bin/sh\necho trapped\n", encoding="utf-8")
    (tmp_path / "trap").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    word = "ls" if path is None else "trap"
    run = f"exec {'env -u PATH' if path is None else f'env PATH={path}'} {BINARY} run deploy {word} host -- /bin/echo RAN"
    done = subprocess.run(["/bin/sh", "-c", run], capture_output=True, text=True, check=False, timeout=20,
                          env=clean_environment({"REDLOCKCTL_SERVER": url(service)}))
    assert done.returncode == 64 and "is a program" in done.stderr and not done.stdout, done


def test_a_folder_is_no_program(service, tmp_path, monkeypatch):
    (tmp_path / "account" / "2").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert ctl("run", "account/1", "account/2", "--", "echo", "both", server=service).stdout == "both\n"
