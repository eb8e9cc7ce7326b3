# SPDX-License-Identifier: MIT
"""redlockctl against a redlockd that says what the test wants (fake_redlockd.py): how it waits, and that no lease is lost or counted on for too
long in the moments that a real server shows only by chance."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from ctl import BINARY, FOREVER, LOST, TTL_MS, Run, Shell, ctl
from fake_redlockd import TOKEN, fake  # noqa: F401
from fixtures import needs_pts
from harness import DIES_WITH_US, SLOW, clean_environment, process_state, wait_until


def in_turn(*answers):
    """The first answer to the first call, and so on; the last one to all others."""
    left = list(answers)

    def answer(call):
        (left.pop(0) if len(left) > 1 else left[0])(call)
    return answer


def lease(call):
    call.lease()


def locked(call):
    call.problem(409, "locked", retry_after_ms=50)


def draining(call):
    call.problem(503, "draining", retry_after_ms=5000)


def busy(call):
    call.problem(429, "too-many-requests")


def never(call):
    """No answer, and no notice of anything."""
    threading.Event().wait(60 * SLOW)


def after(seconds, answer):
    def later(call):
        time.sleep(seconds)
        answer(call)
    return later


def granted_to_nobody(call):
    """A lease for a client that has left; the request that follows has the same key, and finds it."""
    if len(call.server.of("acquire")) == 1:
        call.until_hung_up()
    call.lease()


def keys(server):
    return {call.headers["idempotency-key"] for call in server.of("acquire")}


def acquires(server):
    return [call.body.get("wait_ms") for call in server.of("acquire")]


# -------------------------------------------------------------------------------------------------- wait_ms


@pytest.mark.parametrize("options, wait_ms", [(["--wait", "5m"], 60000), (["--wait", "7s"], 7000), (["--no-wait"], None), (["--wait", "0s"], None), ([], 60000)])
def test_how_long_the_server_is_to_wait(fake, resource, options, wait_ms):
    server = fake(acquire=lease)
    assert ctl("run", resource, *options, "--", "true", server=server).returncode == 0
    [asked] = acquires(server)
    assert asked == wait_ms or 0 < asked <= wait_ms
    assert [call.kind for call in server.calls] == ["acquire", "release"]


def test_busy(fake, resource):
    """Retry-After counts, also where it is a header alone."""
    server = fake(acquire=in_turn(lambda call: call.answer(429, {"code": "too-many-requests", "detail": "x"}, Retry_After=2), lease))
    assert ctl("run", resource, "--", "true", server=server).returncode == 0
    first, second = server.of("acquire")
    assert second.came - first.came >= 2


def test_who_has_it(lab, fake, resource):
    told = threading.Event()
    server = fake(acquire=lambda call: (told.wait(30 * SLOW), call.lease()))
    run = Run(lab, resource, command="true", servers=[server])
    waiting = run.event("waiting")
    assert waiting["code"] == "locked" and "worker-7 (fence 6)" in waiting["message"]
    waited = time.monotonic() - server.call("acquire").came
    told.set()
    assert run.wait() == 0
    assert run.events("acquired")[0]["waited_ms"] >= int(1000 * waited)


# -------------------------------------------------------------------------------------------------- fail-over


@pytest.mark.parametrize("how", [draining, lambda call: None], ids=["draining", "closed"])
def test_server_leaves_while_we_wait(lab, fake, resource, how):
    first, second = fake(acquire=after(0.3, how)), fake(acquire=lease)
    run = Run(lab, resource, command="true", servers=[first, second])
    assert run.wait() == 0
    assert run.events("acquired")[0]["server"] == second.address


def test_server_hangs_while_we_wait(lab, fake, resource):
    """It would have had a minute."""
    first, second = fake(acquire=never, health=never, state=never), fake(acquire=lease)
    run = Run(lab, resource, "--timeout", "500ms", command="true", servers=[first, second])
    assert run.wait(20) == 0
    assert run.events("acquired")[0]["server"] == second.address


def test_server_that_is_there_is_waited_for(lab, fake, resource):
    first, second = fake(acquire=after(5, lease)), fake(acquire=lease)
    run = Run(lab, resource, "--timeout", "2s", command="true", servers=[first, second])
    assert run.wait() == 0
    assert run.events("acquired")[0]["server"] == first.address and not second.calls
    assert len(first.of("health")) >= 1


# ---------------------------------------------------------------------------- a lease that comes as we give up


def start_acquire(server, resource, *options):
    return subprocess.Popen([*DIES_WITH_US, BINARY, "acquire", resource, "--wait", "1m", *options], env=clean_environment({"REDLOCKCTL_SERVER": server.address}),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_granted_as_a_signal_comes(lab, fake, resource, number):
    """The server grants at the very moment at which we leave: the lease is asked for once more and given back, and the command does not run."""
    server = fake(acquire=granted_to_nobody)
    run = Run(lab, resource, command="echo ran >ran", servers=[server])
    server.call("acquire")
    run.process.send_signal(number)
    assert run.wait() == (-number if number == signal.SIGINT else 128 + number)
    assert server.call("release").body["token"] == TOKEN and not (run.folder / "ran").exists()
    assert len(server.of("acquire")) == 2 and len(keys(server)) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_acquire_granted_as_a_signal_comes(fake, resource, number):
    server = fake(acquire=granted_to_nobody)
    process = start_acquire(server, resource)
    server.call("acquire")
    process.send_signal(number)
    output, _ = process.communicate(timeout=20 * SLOW)
    assert (process.returncode, output) == (-number, "")
    assert server.call("release").body["token"] == TOKEN


def test_granted_as_the_time_is_up(fake, resource):
    server = fake(acquire=granted_to_nobody)
    done = ctl("acquire", resource, "--wait", "500ms", "--timeout", "3s", server=server)
    assert done.returncode == 0 and TOKEN in done.stdout, done
    assert len(server.of("acquire")) == 2 and len(keys(server)) == 1 and not server.of("release")


@needs_pts
def test_granted_as_the_job_is_stopped(lab, fake, resource):
    """Ctrl-Z while it waits: a job that is stopped cannot use a lock. It asks again when it goes on."""
    server = fake(acquire=granted_to_nobody)
    shell = Shell(lab, server)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} -- true; echo status-$?\n")
    server.call("acquire")
    shell.type("\x1a")
    shell.sees("Stopped")
    assert server.call("release").body["token"] == TOKEN
    shell.type("fg\n")
    wait_until(lambda: len(server.of("release")) == 2, what="the end")
    assert [call.kind for call in server.calls] == ["acquire", "acquire", "release", "acquire", "release"]


@pytest.mark.parametrize("command", ["run", "acquire"])
def test_signal_while_the_server_hangs(lab, fake, resource, command):
    server = fake(acquire=never, state=never)
    process = start_acquire(server, resource) if command == "acquire" else Run(lab, resource, command="true", servers=[server]).process
    server.call("acquire")
    process.send_signal(signal.SIGINT)
    assert process.wait(20 * SLOW) == -signal.SIGINT
    process.stdout.close()


@pytest.mark.parametrize("command", [["run"], ["acquire"]])
def test_nohup(fake, resource, command):
    server = fake(acquire=after(1, lease))
    rest = ["--", "true"] if command == ["run"] else []
    process = subprocess.Popen([*DIES_WITH_US, "env", "--ignore-signal=HUP", BINARY, *command, resource, "--wait", "1m", *rest], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, env=clean_environment({"REDLOCKCTL_SERVER": server.address}))
    server.call("acquire")
    process.send_signal(signal.SIGHUP)
    assert process.wait(20 * SLOW) == 0


# ------------------------------------------------------------------------------------- how long a lease counts


def test_young_lease_is_taken_as_it_is(fake, resource):
    server = fake(acquire=lease)
    assert ctl("run", resource, "--", "true", server=server).returncode == 0
    assert not server.of("extend")


def test_lease_after_a_wait_is_extended_first(lab, fake, resource):
    """When its answer was written is not known: it may have been at any time of the wait."""
    server = fake(acquire=after(3, lease))
    run = Run(lab, resource, "--kill-after", "100ms", command="echo ran >ran", servers=[server], ttl_ms=9000)
    extend = server.call("extend")
    assert extend.body == {"resource": resource, "token": TOKEN, "ttl_ms": 9000}
    assert run.wait() == 0 and (run.folder / "ran").exists()
    assert [call.kind for call in server.calls if call.kind != "state"] == ["acquire", "extend", "release"]


def test_answer_that_was_long_on_its_way(lab, fake, resource):
    """The server says that the lease is good for nine seconds, but the process was stopped and reads it later. Meanwhile it has run out: the
    command must not run under it."""
    stopped = threading.Event()
    server = fake(acquire=in_turn(lambda call: (stopped.wait(30 * SLOW), call.lease()), lease), extend=in_turn(lambda call: call.problem(410, "lease-expired")))
    run = Run(lab, resource, "--kill-after", "100ms", command="echo $REDLOCK_FENCE >ran", servers=[server], ttl_ms=9000)
    first = server.call("acquire")
    supervisor = run.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    wait_until(lambda: process_state(supervisor) == "T", what="stopped")
    stopped.set()
    wait_until(lambda: first.answered, what="the answer")
    time.sleep(4.5)  # half of the lease
    assert not (run.folder / "ran").exists()
    os.kill(supervisor, signal.SIGCONT)
    assert run.wait() == 0
    assert [call.kind for call in server.calls if call.kind != "state"] == ["acquire", "extend", "acquire", "release"]


def test_lease_that_cannot_be_extended_is_released(lab, fake, resource):
    server = fake(acquire=in_turn(after(3.6, lease), lease), extend=draining)
    run = Run(lab, resource, "--kill-after", "100ms", command="true", servers=[server], ttl_ms=9000)
    assert run.wait() == 0
    assert [call.kind for call in server.calls if call.kind != "state"] == ["acquire", "extend", "release", "acquire", "release"]


def test_acquire_prints_what_is_surely_left(fake, resource):
    server = fake(acquire=after(1, lease), extend=lambda call: call.lease(200, validity_ms=2345))
    printed = json.loads(ctl("acquire", resource, "--wait", "10s", "--ttl", "3s", "--json", server=server).stdout)
    assert printed["validity_ms"] <= 2345


def test_extension_that_comes_with_the_end(lab, fake, resource):
    """The machine sleeps while an extension is under way. Its answer is there when the machine wakes up, and the lease is
    over: the loss is the last that is reported of the lease."""
    library, slept = pathlib.Path(lab.folder, "sleep_clock.so"), pathlib.Path(lab.folder, "slept")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, pathlib.Path(__file__).with_name("sleep_clock.c")], check=True)
    asan = "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")  # a sanitizer wants to be the first library
    awake = threading.Event()
    server = fake(acquire=lease, extend=lambda call: (awake.wait(30 * SLOW), call.lease(200)))
    run = Run(lab, resource, command=FOREVER, servers=[server], ttl_ms=TTL_MS * 2, prefix=["env", f"LD_PRELOAD={library}", f"SLEPT_FILE={slept}", f"ASAN_OPTIONS={asan}"])
    server.call("extend")
    slept.touch()
    awake.set()
    assert run.wait() == LOST
    assert [event["event"] for event in run.events()] == ["acquired", "extended", "lost", "ended"]
    assert run.events("lost")[0]["code"] == "late"


def test_without_a_ttl_the_server_decides(lab, resource):
    """Nothing has to be given where a server allows less than thirty seconds."""
    ttl_ms = round(4000 * SLOW)
    server = lab.service(1, "--max-ttl-ms", str(ttl_ms), "--default-ttl-ms", str(ttl_ms - 100))
    run = Run(lab, resource, command=FOREVER, servers=[server], ttl_ms=None)
    run.event("extended", 3)
    assert run.events("acquired")[0]["validity_ms"] <= ttl_ms - 100 and not run.events("not-extended")
    run.process.terminate()
    run.wait()
    lease = json.loads(ctl("acquire", resource, "--json", server=server).stdout)
    assert lease["ttl_ms"] == ttl_ms - 100
    extended = ctl("extend", resource, "--json", server=server, env={"REDLOCK_TOKEN": lease["token"]})
    assert json.loads(extended.stdout)["ttl_ms"] == ttl_ms - 100
    assert "--ttl 60s is over the longest lease" in ctl("acquire", resource, "--ttl", "60s", server=server).stderr


@pytest.mark.parametrize("members", [{"validity_ms": 5001}, {"ttl_ms": 5001, "validity_ms": 5000}, {"validity_ms": 86400000, "ttl_ms": 86400000}])
def test_an_answer_that_lasts_longer_than_asked_for_is_no_lease(fake, resource, members):
    server = fake(acquire=lambda call: call.answer(201, {"resource": call.server.resource, "token": TOKEN, "fence": 7, "ttl_ms": 5000, "validity_ms": 4900, **members}))
    done = ctl("acquire", resource, "--ttl", "5s", server=server.address)
    assert done.returncode == 76 and "longer than" in done.stderr and not done.stdout
