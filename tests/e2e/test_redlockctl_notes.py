# SPDX-License-Identifier: MIT
"""redlockctl: what it says while it waits (on a terminal only), when it gives up, and of a run inside a run of the same name."""

import pathlib
import signal
import socket
import subprocess
import threading
import types

import pytest

from ctl import BINARY, HELD, UNREACHABLE, Shell, ctl
from fake_redlockd import fake  # noqa: F401
from fixtures import needs_pts

CLOSED = "unix:/nowhere/socket"
REASON = "cannot connect: No such file or directory"


def terminal(lab, server):
    shell = Shell(lab, types.SimpleNamespace(address=server) if isinstance(server, str) else server)
    shell.sees("$ ")
    return shell


def enter(shell, command):
    """Types a command, and forgets what the terminal shows of the typing."""
    shell.type(f"{BINARY} {command}; echo en''ded-$?\n")
    shell.sees("\n")


@needs_pts
@pytest.mark.parametrize("command", ["run {} --wait 1m echo mi''ne", "acquire {} --wait 1m"])
def test_wait_on_a_terminal(lab, service, resource, command):
    held = service.acquire(resource, owner="worker-7", ttl_ms=60000)
    shell = terminal(lab, service)
    enter(shell, command.format(resource))
    shell.sees(f"redlockctl: {resource}: waiting up to 1 min 0 s: held by worker-7 (fence {held['fence']}) for ")
    shell.sees(" s, lease ends in ")
    service.release(held)
    shell.sees("ended-0")
    assert "waiting" not in shell.before  # said once


@needs_pts
@pytest.mark.parametrize("command", ["run {} --wait 1m -q true", "acquire {} --wait 1m --quiet"])
def test_quiet_wait_on_a_terminal(lab, fake, resource, command):  # noqa: F811
    """The answer comes only after the time at which a wait is reported."""
    late = threading.Event()
    server = fake(acquire=lambda call: (late.wait(2), call.lease()))
    shell = terminal(lab, server)
    enter(shell, command.format(resource))
    shell.sees("ended-0")
    assert "redlockctl:" not in shell.before and not server.of("state")


@needs_pts
def test_no_server_on_a_terminal(lab, service, resource):
    shell = terminal(lab, CLOSED)
    enter(shell, f"run {resource} --wait 1h true")
    shell.sees(f"redlockctl: {resource}: waiting up to 1 h 0 min: {CLOSED}: {REASON} (is redlockd running there? --server or REDLOCKCTL_SERVER gives another address)\r\n")
    shell.type("\x03")
    shell.sees("$ ")


@needs_pts
def test_silent_server_on_a_terminal(lab, resource):
    """It takes connections and never answers: people see who is asked, long before the time limit."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{lab.folder}/silent")
        listener.listen()
        address = f"unix:{lab.folder}/silent"
        shell = terminal(lab, address)
        enter(shell, f"run {resource} --no-wait --timeout 1h true")
        shell.sees(f"redlockctl: {resource}: waiting: {address}: no answer yet\r\n")
        shell.type("\x03")
        shell.sees("$ ")


def test_no_server_without_a_terminal(lab, resource):
    """Once, when it gives up, with the reason of each server."""
    pathlib.Path(lab.folder, "file").touch()
    second = f"unix:{lab.folder}/file"
    reasons = f"{CLOSED}: {REASON}; {second}: cannot connect: Connection refused (is redlockd running there? --server or REDLOCKCTL_SERVER gives another address)\n"
    done = ctl("run", resource, "--wait", "1500ms", "true", server=f"{CLOSED},{second}")
    assert (done.returncode, done.stderr) == (UNREACHABLE, f"redlockctl: {resource}: not acquired: {reasons}")
    done = ctl("masters", server=f"{CLOSED},{second}")
    assert (done.returncode, done.stderr) == (UNREACHABLE, f"redlockctl: {reasons}")


def test_no_server_for_seconds_without_a_terminal(resource):
    """Whoever looks at the log of a job sees why it does not run."""
    command = [BINARY, "--server", CLOSED, "run", resource, "--wait", "1h", "true"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
        said = waiting.stderr.readline()
        waiting.terminate()
        assert (waiting.wait(), waiting.stderr.read()) == (128 + signal.SIGTERM, "")
    assert said == (f"redlockctl: {resource}: waiting up to 1 h 0 min: {CLOSED}: {REASON} "
                    "(is redlockd running there? --server or REDLOCKCTL_SERVER gives another address)\n")


def test_a_held_lock_that_is_no_failure_is_not_reported(service, resource):
    """As for cron, which sends what a job writes by mail; a server that cannot be used is reported."""
    service.acquire(resource)
    done = ctl("run", resource, "-n", "-E", "0", "true", server=service)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = ctl("run", resource, "-n", "-E", "0", "true", server=CLOSED)
    assert done.returncode == UNREACHABLE and "cannot connect" in done.stderr


def test_only_servers_that_failed_are_named(fake, resource):  # noqa: F811
    """The second server answers, and its answer is what counts."""
    locked = fake(acquire=lambda call: call.problem(409, "locked", holder={"owner": "me"}))
    done = ctl("run", resource, "-n", "true", server=f"{CLOSED},{locked.address}")
    assert (done.returncode, done.stderr) == (HELD, f"redlockctl: {resource}: not acquired: held by me\n")


def test_quiet_says_nothing_but_bad_arguments(service, resource):
    service.acquire(resource)
    for args in (["run", resource, "-qn", "true"], ["acquire", resource, "-q"]):
        done = ctl(*args, server=service)
        assert (done.returncode, done.stdout, done.stderr) == (HELD, "", "")
    assert ctl("run", resource, "-q", server=service).stderr.startswith("redlockctl: run needs a command")


# ------------------------------------------------------------------------------------------- runs inside runs


@pytest.mark.parametrize("inside", ["", "/b", "/b/c"])
def test_run_inside_a_run_of_its_name(service, resource, inside):
    """At once, though it may wait for an hour: directly, and with other runs between the two."""
    between = [word for name in inside.split("/")[1:] for word in (BINARY, "run", f"{resource}/{name}")]
    done = ctl("run", resource, *between, BINARY, "run", resource, "--wait", "1h", "echo", "ran", server=service)
    assert (done.returncode, done.stdout, done.stderr) == (HELD, "", f"redlockctl: {resource}: not acquired: already held by the enclosing run\n")


def test_run_inside_a_run_with_another_name(service, resource):
    """Also where one name is the beginning or the end of the other, and where the enclosing run is not known."""
    for outer, inner in ((resource, resource + "x"), (resource + "x", resource), ("x" + resource, resource)):
        done = ctl("run", outer, BINARY, "run", inner, "sh", "-c", 'echo "$REDLOCK_RESOURCE of $REDLOCK_HELD"', server=service)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{inner} of {outer}\n{inner}\n", "")
    done = ctl("run", resource, "env", "-u", "REDLOCK_HELD", BINARY, "run", resource, "-n", "true", server=service)
    assert done.returncode == HELD and "held by " in done.stderr


def test_run_inside_a_run_with_its_own_status(service, resource):
    done = ctl("run", resource, BINARY, "run", resource, "-E", "0", "true", server=service)
    assert done.returncode == 0 and "enclosing" in done.stderr
