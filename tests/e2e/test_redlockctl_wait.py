# SPDX-License-Identifier: MIT
"""redlockctl waits at a real redlockd, in the queue: the order in which waiters are served, the ends of a wait, and
that nothing is left of it."""

import contextlib
import fcntl
import json
import os
import pathlib
import random
import signal
import subprocess
import termios
import time

import pytest

from ctl import BINARY, FOREVER, HELD, TTL_MS, UNREACHABLE, Run, ctl, is_free, url
from harness import DIES_WITH_US, SLOW, clean_environment, process_state, quote, wait_until


def waiters(daemon, resource):
    return daemon.curl("GET", "/locks/" + quote(resource)).json["waiters"]


def in_queue(daemon, resource, count):
    wait_until(lambda: waiters(daemon, resource) == count, 20, f"{count} in line")


def start_waiting(lab, resource, count, servers_of, *options, command=None, **how):
    """So many `run`s, the next one only when the one before is in the queue. Each writes its number into the file `order`."""
    runs = []
    for number in range(count):
        servers = servers_of(number)
        runs.append(Run(lab, resource, *options, command=command or f"echo {number} >>{lab.folder}/order", servers=servers, **how))
        in_queue(servers[0], resource, number + 1)
    return runs


def order(lab):
    path = pathlib.Path(lab.folder, "order")
    return [int(line) for line in path.read_text().split()] if path.exists() else []


# ---------------------------------------------------------------------------------------------------- in the queue


def test_first_come_first_served_at_two_servers(lab, resource):
    masters = lab.redises(3)
    servers = [lab.redlockd(masters), lab.redlockd(masters)]
    held = servers[0].acquire(resource, ttl_ms=60000)
    runs = start_waiting(lab, resource, 6, lambda number: servers if number % 2 == 0 else servers[::-1])
    assert servers[1].release(held).status == 204
    assert [run.wait() for run in runs] == [0] * 6
    assert order(lab) == list(range(6))


def test_wait_is_longer_than_the_lease(lab, service, resource):
    """A lease that comes after a wait counts from when it came, more or less, and not from when it was asked for."""
    held = service.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, command="echo $$ >pid; until [ -e go ]; do sleep 0.02; done", servers=[service])
    in_queue(service, resource, 1)
    time.sleep(1.3 * TTL_MS / 1000)
    service.release(held)
    acquired = run.event("acquired")
    assert acquired["validity_ms"] < TTL_MS < acquired["waited_ms"]
    run.event("extended", 2)
    (run.folder / "go").touch()
    assert run.wait() == 0 and not run.events("lost")


def test_wait_is_longer_than_the_server_lets_wait(lab, resource):
    daemon = lab.service(3, "--max-wait-ms=700")
    held = daemon.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, command="true", servers=[daemon])
    wait_until(lambda: len([line for line in daemon.log("request") if line.get("status") == "409"]) >= 2, what="several waits")
    in_queue(daemon, resource, 1)
    daemon.release(held)
    assert run.wait() == 0
    assert run.events("acquired")[0]["waited_ms"] > 1400


def test_time_is_up(lab, service, resource):
    service.acquire(resource, ttl_ms=60000, owner="worker-7")
    run = Run(lab, resource, "--wait", "700ms", command="echo ran >ran", servers=[service])
    assert run.wait() == HELD and not (run.folder / "ran").exists()
    [refused] = run.events("not-acquired")
    assert refused["code"] == "locked" and refused["waited_ms"] >= 700 and "worker-7" in refused["message"]
    wait_until(lambda: waiters(service, resource) == 0, what="its place is kept for a while")


def test_no_wait_does_not_queue(lab, service, resource):
    service.acquire(resource, ttl_ms=60000)
    Run(lab, resource, command="true", servers=[service])
    in_queue(service, resource, 1)
    assert ctl("run", resource, "-n", "--", "true", server=service).returncode == HELD
    assert waiters(service, resource) == 1


def test_too_many_wait(lab, resource):
    """429: it comes again when Retry-After is over, or goes to another server at once."""
    masters = lab.redises(3)
    full, other = lab.redlockd(masters, "--max-waiters-per-resource=1"), lab.redlockd(masters)
    full.acquire(resource, ttl_ms=min(round(6000 * SLOW), 60000))  # Retry-After may be what is left of it
    first = Run(lab, resource, command="true", servers=[full])
    in_queue(full, resource, 1)
    second, third = Run(lab, resource, command="true", servers=[full]), Run(lab, resource, command="true", servers=[full, other])
    assert second.event("waiting")["code"] == "too-many-requests"
    assert [first.wait(), second.wait(), third.wait()] == [0, 0, 0]
    assert third.events("acquired")[0]["server"] == url(other)


def test_status_says_how_many_wait(lab, service, resource):
    service.acquire(resource, ttl_ms=60000)
    Run(lab, resource, command="true", servers=[service])
    in_queue(service, resource, 1)
    assert ctl("status", resource, server=service).stdout.endswith(", 1 waiting\n")
    [line] = [line for line in ctl("list", server=service).stdout.splitlines() if resource in line]
    assert line.split()[-1] == "1"


# ------------------------------------------------------------------------------------- a server goes meanwhile


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_server_goes_while_we_wait(lab, resource, how):
    masters = lab.redises(3)
    first, second = lab.redlockd(masters), lab.redlockd(masters)
    held = second.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, "--timeout", f"{round(1000 * SLOW)}ms", command="true", servers=[first, second])
    in_queue(second, resource, 1)
    first.process.send_signal(how)
    # until its redlockd counts as dead its old entry may be there as well
    wait_until(lambda: second.metrics().get("redlockd_waiters") == 1, 20, "in line at the second")
    second.release(held)
    assert run.wait() == 0
    assert run.events("acquired")[0]["server"] == url(second)
    if how != signal.SIGTERM:
        first.kill()


def test_the_only_server_comes_back(lab, resource):
    masters = lab.redises(3)
    path = os.path.join(lab.folder, "one.sock")
    daemon = lab.redlockd(masters, listen=[f"unix:{path}"])
    held = daemon.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, command="true", servers=[f"unix:{path}"])
    in_queue(daemon, resource, 1)
    daemon.kill()
    daemon = lab.redlockd(masters, listen=[f"unix:{path}"])
    wait_until(lambda: daemon.metrics().get("redlockd_waiters") == 1, 20, "in line again")
    daemon.release(held)
    assert run.wait() == 0


def test_all_servers_gone(lab, resource):
    daemon = lab.service(3)
    daemon.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, "--wait", "6s", command="true", servers=[daemon])
    in_queue(daemon, resource, 1)
    daemon.kill()
    assert run.wait() == UNREACHABLE


# ------------------------------------------------------------------------------------------- a wait is given up


@pytest.mark.parametrize("who", ["foreground", "supervisor", "SIGKILL"])
def test_no_entry_is_left(lab, service, resource, who):
    """The next waiter is served at once, however the wait ends."""
    held = service.acquire(resource, ttl_ms=60000)
    first = Run(lab, resource, command="echo ran >ran", servers=[service])
    in_queue(service, resource, 1)
    second = Run(lab, resource, command="true", servers=[service])
    in_queue(service, resource, 2)
    os.kill(first.supervisor if who == "supervisor" else first.process.pid, signal.SIGINT if who == "foreground" else signal.SIGKILL)
    in_queue(service, resource, 1)
    service.release(held)
    assert second.wait() == 0
    assert first.wait() != 0 and not (first.folder / "ran").exists()


@pytest.mark.parametrize("command", ["run", "acquire"])
def test_interrupted_as_it_is_granted(lab, service, resource, command):
    """The release and the signal at nearly the same time, in any order: either it runs, or the lock is free."""
    rest = ["--", "echo", "ran"] if command == "run" else ["--json"]
    for _ in range(10):
        held = service.acquire(resource, ttl_ms=60000)
        process = subprocess.Popen([*DIES_WITH_US, "env", "--default-signal", BINARY, command, resource, "--wait", "1m", "--ttl", "1m", *rest],
                                   env=clean_environment({"REDLOCKCTL_SERVER": url(service)}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        in_queue(service, resource, 1)
        client = service.client()
        time.sleep(random.random() * 0.002)  # not to wait for something: to meet another moment
        if random.random() < 0.5:
            client.call("DELETE", "/locks/" + quote(resource), {"token": held["token"]})
            time.sleep(random.random() * 0.004)
            process.send_signal(signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
            time.sleep(random.random() * 0.002)
            client.call("DELETE", "/locks/" + quote(resource), {"token": held["token"]})
        client.close()
        output, _ = process.communicate(timeout=20 * SLOW)
        if command == "acquire" and process.returncode == 0:
            assert ctl("release", resource, server=service, env={"REDLOCK_TOKEN": json.loads(output)["token"]}).returncode == 0
        wait_until(lambda: is_free(service, resource), what=f"free after {process.returncode} {output!r}")


def test_stopped_while_it_waits(lab, service, resource):
    """Stopped from outside, by no shell: its queue entry stays, and so would its lease, for no longer than one lease
    lasts. It asks again when it goes on."""
    held = service.acquire(resource, ttl_ms=60000)
    run = Run(lab, resource, command=FOREVER, servers=[service])
    in_queue(service, resource, 1)
    supervisor = run.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    service.release(held)
    fence = wait_until(lambda: (found := service.curl("GET", "/locks/" + quote(resource)).json.get("fence")) != held["fence"] and found, 20,
                       "granted to the one that is stopped")
    wait_until(lambda: is_free(service, resource), 20, "its lease is over")
    os.kill(supervisor, signal.SIGCONT)
    run.file("pid")
    assert run.events("acquired")[0]["fence"] > fence
    run.process.terminate()
    assert run.wait() == 143


def leave_terminal():
    """The terminal of whoever runs the tests, if there is one. A session of its own would not do: the kernel stops no process in an orphaned group."""
    with contextlib.suppress(OSError), open("/dev/tty", "rb", buffering=0) as terminal:
        fcntl.ioctl(terminal, termios.TIOCNOTTY)


def test_a_stopped_wait_without_a_terminal_stops_nobody_else(service, resource, lab):
    """SIGTSTP to redlockctl alone, in a process group that it shares."""
    lease = service.acquire(resource, 60000)
    script = f'{BINARY} run {resource} -- true & echo $! >{lab.folder}/pid; wait'
    with subprocess.Popen([*DIES_WITH_US, "sh", "-c", script], process_group=0, preexec_fn=leave_terminal, stdin=subprocess.DEVNULL,  # noqa: PLW1509
                          env=clean_environment({"REDLOCKCTL_SERVER": url(service)})) as shell:
        try:
            in_queue(service, resource, 1)
            with open(f"{lab.folder}/pid", encoding="utf-8") as file:
                run = int(file.read())
            os.kill(run, signal.SIGTSTP)
            wait_until(lambda: process_state(run) == "T", what="redlockctl is stopped")
            assert process_state(shell.pid) != "T"
            os.kill(run, signal.SIGCONT)
            service.release(lease)
            assert shell.wait(20 * SLOW) == 0
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)  # also what is stopped
