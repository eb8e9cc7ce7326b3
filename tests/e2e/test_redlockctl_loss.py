# SPDX-License-Identifier: MIT
"""redlockctl run where the lock cannot be kept: the command, and all that it started, is ended before the lock is over.

Times are checked from outside: a command ends while its lock is still in Redis, or before the end of the first lease,
counted from before redlockctl was started.
"""

import os
import re
import signal

import pytest

from ctl import DAEMON, FOREVER, LOST, STUBBORN, TTL_MS, Run, check_dead_in_time, is_free, until_dead, url
from harness import freeze, process_state, quote, starved_seconds, wait_until

pytestmark = pytest.mark.slow  # waits for the ends of leases


def test_one_master_killed_is_no_loss(lab, resource):
    daemon = lab.service(3)
    run = Run(lab, resource, command="echo $$ >pid; until [ -e go ]; do sleep 0.02; done", servers=[daemon])
    run.event("extended")
    daemon.masters[0].kill()
    run.event("extended", len(run.events("extended")) + 2)
    (run.folder / "go").touch()
    assert run.wait() == 0
    assert not run.events("lost")


def test_all_masters_killed(lab, resource):
    daemon = lab.service(3)
    ttl_ms = min(TTL_MS * 4, 60000)  # killed before the first extension: nothing but the first lease counts
    run = Run(lab, resource, command=FOREVER, servers=[daemon], ttl_ms=ttl_ms)
    pid = run.file("pid")
    assert not run.events("extended")
    for master in daemon.masters:
        master.kill()
    validity_ms, starved = run.events("acquired")[0]["validity_ms"], starved_seconds()
    assert until_dead(pid) < run.started + validity_ms / 1000 + starved_seconds() - starved
    assert (run.wait(), run.events("lost")[0]["code"]) == (LOST, "unreachable")


def test_a_lower_max_ttl_is_no_loss(lab, resource):
    daemon, most_ms = lab.service(3), TTL_MS // 2
    run = Run(lab, resource, "--kill-after", f"{TTL_MS // 2}ms", command=FOREVER, servers=[daemon])
    run.event("extended")
    daemon.stop(signal.SIGTERM)
    again = lab.redlockd(daemon.masters, "--max-ttl-ms", str(most_ms), "--default-ttl-ms", str(most_ms), listen=(daemon.address,))
    run.event("extended", len(run.events("extended")) + 12)
    assert again.curl("GET", "/locks/" + quote(resource)).json["remaining_ms"] <= most_ms
    assert not run.events("lost") and not run.events("not-extended")[1:]
    run.process.terminate()
    assert run.wait() == 143 and is_free(again, resource)


def test_a_higher_min_ttl_is_no_loss(lab, resource):
    daemon, least_ms = lab.service(3), TTL_MS * 3 // 2
    run = Run(lab, resource, command=FOREVER, servers=[daemon])
    run.event("extended")
    daemon.stop(signal.SIGTERM)
    again = lab.redlockd(daemon.masters, "--min-ttl-ms", str(least_ms), listen=(daemon.address,))
    run.event("extended", len(run.events("extended")) + 12)
    assert again.curl("GET", "/locks/" + quote(resource)).json["remaining_ms"] > TTL_MS
    assert not run.events("lost") and not run.events("not-extended")[1:]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_server_gone(lab, resource, how):
    daemon = lab.service(3)
    run = Run(lab, resource, command=FOREVER, servers=[daemon])
    run.event("extended", 2)
    pid = run.file("pid")
    daemon.process.send_signal(how)
    check_dead_in_time([pid], daemon.masters, resource)
    assert (run.wait(), run.events("lost")[0]["code"]) == (LOST, "unreachable")
    daemon.kill()


def test_stubborn_command_is_killed_in_time(lab, resource):
    daemon = lab.service(3)
    run = Run(lab, resource, "--kill-after", f"{TTL_MS // 3}ms", command=STUBBORN, servers=[daemon])
    pid = run.file("pid")
    run.event("extended")
    freeze(daemon.process)
    check_dead_in_time([pid], daemon.masters, resource)
    assert run.file("term") == "asked"
    assert run.wait() == LOST
    daemon.kill()


@pytest.mark.parametrize("taken, code", [(False, "lease-expired"), (True, "not-owner")])
def test_lock_deleted(lab, resource, taken, code):
    daemon = lab.service(3)
    run = Run(lab, resource, command="trap 'echo asked >term; exit 0' TERM; " + FOREVER, servers=[daemon])
    run.file("pid")
    for master in daemon.masters:
        master.cli("SET", resource, "f" * 40, "PX", "60000") if taken else master.cli("DEL", resource)
    assert (run.wait(), run.file("term")) == (LOST, "asked")
    lost = run.events("lost")[0]
    assert lost["code"] == code and "before the lease ends" not in lost["message"], lost  # it is over


def test_lock_lost_before_the_end(lab, resource):
    """The loss is found only after the command has ended: the release reports it."""
    daemon = lab.service(3)
    run = Run(lab, resource, command="echo $$ >pid; until [ -e go ]; do sleep 0.02; done", servers=[daemon], ttl_ms=min(TTL_MS * 10, 60000))
    run.file("pid")
    for master in daemon.masters:
        master.cli("DEL", resource)
    (run.folder / "go").touch()
    assert (run.wait(), len(run.events("lost"))) == (LOST, 1)


def test_longest_hold(lab, resource):
    daemon = lab.service(3, f"--max-hold-ms={TTL_MS * 2}")
    run = Run(lab, resource, command=FOREVER, servers=[daemon])
    until_dead(run.file("pid"))
    lost = run.event("lost")  # the server is there, so the lock is given back before anybody could look
    assert (run.wait(), lost["code"]) == (LOST, "max-hold") and lost["left_ms"] > 0
    assert re.search(r"; SIGTERM to the command, [0-9.]+ ?m?s before the lease ends$", lost["message"]), lost


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_fail_over(lab, resource, how):
    masters = lab.redises(3)
    first, second = lab.redlockd(masters), lab.redlockd(masters)
    run = Run(lab, resource, command="echo $REDLOCK_TOKEN >pid; until [ -e go ]; do sleep 0.02; done", servers=[first, second])
    assert run.event("extended")["server"] == url(first)
    before = second.curl("GET", "/locks/" + quote(resource)).json
    first.process.send_signal(how)
    wait_until(lambda: sum(event["server"] == url(second) for event in run.events("extended")) >= 3, what="three extensions at the second")
    after = second.curl("GET", "/locks/" + quote(resource)).json
    assert after["held"] and after["fence"] == before["fence"]
    (run.folder / "go").touch()
    assert run.wait() == 0
    assert not run.events("lost") and is_free(second, resource)
    first.kill()


HELD = "echo $REDLOCK_FENCE >fence; until [ -e go ]; do sleep 0.02; done"


def test_restarts_of_the_only_server(lab, resource):
    """Down for longer than until the next extension, but not for as long as the lock is valid."""
    masters, address = lab.redises(3), f"unix:{lab.folder}/only"
    daemon = lab.redlockd(masters, listen=(address,))
    run = Run(lab, resource, command=HELD, servers=[daemon], ttl_ms=min(TTL_MS * 2, 60000))
    for restarts in range(1, 4):
        run.event("extended", len(run.events("extended")) + 1)
        daemon.stop()
        run.event("not-extended", restarts)
        daemon = lab.redlockd(masters, listen=(address,))
        run.event("extended", len(run.events("extended")) + 1)
        assert str(daemon.curl("GET", "/locks/" + quote(resource)).json["fence"]) == run.file("fence")
    (run.folder / "go").touch()
    assert run.wait() == 0
    assert not run.events("lost") and is_free(daemon, resource)


def test_rolling_restarts(lab, resource):
    """One after the other, each when the lock was extended at the other one."""
    masters, addresses = lab.redises(3), [f"unix:{lab.folder}/{name}" for name in ("first", "second")]
    daemons = [lab.redlockd(masters, listen=(address,)) for address in addresses]
    run = Run(lab, resource, command=HELD, servers=daemons)
    run.event("extended")
    for i in (0, 1, 0, 1):
        before = len(run.events("extended"))
        daemons[i].stop()
        wait_until(lambda n=before, other=addresses[1 - i]: any(event["server"] == other for event in run.events("extended")[n:]), what="extended at the other one")
        daemons[i] = lab.redlockd(masters, listen=(addresses[i],))
    assert str(daemons[0].curl("GET", "/locks/" + quote(resource)).json["fence"]) == run.file("fence")
    (run.folder / "go").touch()
    assert run.wait() == 0
    assert not run.events("lost") and is_free(daemons[0], resource)


def test_a_lock_that_was_lost_during_a_restart(lab, resource):
    """It is noticed as soon as a server is there again, not when the lock would be over."""
    masters, address = lab.redises(3), f"unix:{lab.folder}/only"
    daemon = lab.redlockd(masters, listen=(address,))
    run = Run(lab, resource, command="trap 'echo asked >term; exit 0' TERM; " + FOREVER, servers=[daemon], ttl_ms=min(TTL_MS * 3, 60000))
    run.event("extended")
    daemon.stop()
    for master in masters:
        master.cli("DEL", resource)
    run.event("not-extended")
    lab.redlockd(masters, listen=(address,))
    assert (run.wait(), run.file("term")) == (LOST, "asked")
    [lost] = run.events("lost")
    assert lost["code"] == "lease-expired" and lost["left_ms"] > 0


# ----------------------------------------------------------------------------------- what the command leaves


def test_double_fork_is_ended_as_well(lab, resource):
    daemon = lab.service(3)
    run = Run(lab, resource, command=DAEMON + FOREVER, servers=[daemon])
    pids = [run.file("daemon"), run.file("pid")]
    daemon.kill()
    check_dead_in_time(pids, daemon.masters, resource)
    assert run.wait() == LOST


def test_what_is_left_behind_is_ended(lab, service, resource):
    run = Run(lab, resource, command=DAEMON + "until [ -e daemon ]; do sleep 0.02; done; exit 3", servers=[service])
    assert run.wait() == 3
    assert not process_state(run.file("daemon")) and is_free(service, resource)


def test_wait_all(lab, service, resource):
    run = Run(lab, resource, "--wait-all", command=DAEMON + "until [ -e daemon ]; do sleep 0.02; done; exit 3", servers=[service])
    run.event("ended")
    run.event("extended", len(run.events("extended")) + 2)
    assert not is_free(service, resource)
    os.kill(int(run.file("daemon")), signal.SIGKILL)
    assert run.wait() == 3
    assert is_free(service, resource)


# --------------------------------------------------------------------------------------- redlockctl is killed


@pytest.mark.parametrize("who", ["foreground", "supervisor"])
def test_killed_itself(lab, service, resource, who):
    run = Run(lab, resource, command=DAEMON + FOREVER, servers=[service])
    pids = [run.file("daemon"), run.file("pid"), run.supervisor]
    os.kill(run.process.pid if who == "foreground" else run.supervisor, signal.SIGKILL)
    for pid in pids:
        until_dead(pid)
    assert is_free(service, resource) if who == "foreground" else run.wait() == LOST


@pytest.mark.parametrize("killed", [False, True], ids=["alone", "foreground killed"])
def test_supervisor_stopped(lab, resource, killed):
    daemon = lab.service(3)
    run = Run(lab, resource, command=DAEMON + FOREVER, servers=[daemon], ttl_ms=min(TTL_MS * 2, 60000))
    pids = [run.file("daemon"), run.file("pid"), run.supervisor]
    os.kill(run.supervisor, signal.SIGSTOP)
    if killed:
        run.process.kill()
        for pid in pids:
            until_dead(pid)
        assert is_free(daemon, resource)
    else:
        check_dead_in_time(pids[:2], daemon.masters, resource)
        assert run.wait() == LOST
