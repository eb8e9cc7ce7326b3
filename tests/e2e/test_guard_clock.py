# SPDX-License-Identifier: MIT
"""The restart guard and time: masters whose clock jumps, commands that come too late.

A master whose clock jumps forward drops its locks early, which is as bad as if it had forgotten them. One whose clock
jumps back keeps them for longer than it should: this does no harm, but an operator should know. A command that a
stopped master carries out when its request is over would leave a lock without a holder.
"""

import re
import threading
import time

import pytest

from guard_fixtures import (HASH, LOCK, TTL_MS, Scene, clocked, code_of, guarded, has_lock_on, hold,  # noqa: F401
                            master_lines, metric, state_of, take, wait_state)
from harness import SLOW, patience, process_state, starved_seconds, wait_until
from proxy import Proxy
from test_fences import is_growing

pytestmark = pytest.mark.slow  # waits for the ends of quarantines

MINUTE_MS = 60 * 1000


@pytest.fixture
def scene(lab, clocked):  # noqa: F811
    """The victim's clock can be moved."""
    return Scene(lab, servers=[lab.redis(), clocked(), lab.redis()])


def jumps_of(service, server, direction):
    return metric(service, "master_clock_jumps_total", server, direction=direction)


def check_jump_is_told(service, server, direction, jump_ms, slack_ms=500 * SLOW):
    """What is told is the least that it can have been: less by the round trips of a busy machine."""
    assert jumps_of(service, server, direction) >= 1
    lines = [line for line in master_lines(service, "clock-jump", server) if line["direction"] == direction]
    assert lines and all(line["level"] == "warn" for line in lines)
    assert abs(int(lines[0]["jump_ms"]) - jump_ms) < slack_ms, lines


def jump(scene, jump_ms):
    """Moves the victim's clock forward, by which it drops the lock if it is by so much."""
    scene.victim.clock.set_offset_ms(jump_ms)
    dropped = (scene.victim.cli("GET", LOCK) or "")[:40] != scene.lease["token"]
    assert dropped == (jump_ms > TTL_MS)


@pytest.mark.parametrize("jump_ms", [24 * 60 * MINUTE_MS, round(TTL_MS + 100), round(30 * SLOW)])
def test_forward(scene, jump_ms):
    """The victim drops the lock, the rival gets it there and on the third, and yet it does not get it. Small jumps are found, too."""
    scene.hold()
    since = time.monotonic()
    jump(scene, jump_ms)
    scene.caused()
    scene.follow("clock-forward", since=since)
    scene.check_not_given_twice()
    finder = scene.second if jumps_of(scene.second, scene.victim, "forward") else scene.first
    check_jump_is_told(finder, scene.victim, "forward", jump_ms, 20 * SLOW + 1000 * (starved_seconds() - scene.starved))
    wait_state(scene.first, scene.victim, "voting")
    take(scene.second, "another")
    wait_until(lambda: has_lock_on(scene.victim, "another"), what="it takes part again")


def test_without_the_guard_the_lock_is_given_twice(lab, clocked):  # noqa: F811
    """That these tests see what the guard prevents."""
    scene = Scene(lab, "--restart-guard", "off", servers=[lab.redis(), clocked(), lab.redis()], ttl_ms=30000)
    scene.hold()
    scene.victim.clock.set_offset_ms(MINUTE_MS)
    scene.rival.join(patience(10))
    assert scene.rival.got and scene.rival.got < scene.until - 5, "not given twice?"


def test_the_very_answer_that_grants_shows_it(lab, clocked):  # noqa: F811
    """No request came since the jump. The wrong grant of the victim does not count, and is released."""
    scene = Scene(lab, servers=[lab.redis(), clocked(), lab.redis()], ttl_ms=30000)
    scene.hold()
    scene.rival.kill()
    wait_until(lambda: not has_lock_on(scene.third), what="the rival's leavings are gone")
    beat_is_far(scene.second, scene.victim)
    scene.victim.clock.set_offset_ms(MINUTE_MS)
    answer = scene.second.curl("POST", "/locks", body={"resource": LOCK, "ttl_ms": 30000})
    scene.caused()
    assert answer.status in (409, 503), f"GIVEN TWICE: {answer}"
    votes = answer.json["votes"]
    assert votes["granted"] <= 1 and votes["quarantined"] + votes["failed"] >= 1, answer
    assert code_of(wait_state(scene.second, scene.victim, "quarantined", seconds=0.5)) in ("clock-forward", "bad-epoch")
    wait_until(lambda: not has_lock_on(scene.victim) and not has_lock_on(scene.third), what="given back")


def beat_is_far(service, server):
    """Waits for a heartbeat, so that the next one is nearly a second away."""
    beat = server.cli("HGET", HASH, "beat")
    wait_until(lambda: server.cli("HGET", HASH, "beat") != beat, what="a heartbeat")


def test_an_extension_on_a_master_that_jumped(lab, clocked):  # noqa: F811
    """Where it did not lose the lock (it jumped by less than was left) its vote does not count either: the lease ends
    there too early."""
    servers = [lab.redis(), clocked(), lab.redis()]
    service = guarded(lab, servers, ttl_ms=TTL_MS * 20)
    lease = take(service, ttl_ms=TTL_MS * 20)
    wait_until(lambda: all(has_lock_on(server) for server in servers), what="the key on all masters")
    servers[2].stop()
    beat_is_far(service, servers[1])
    servers[1].clock.set_offset_ms(3000)
    answer = service.curl("PUT", f"/locks/{LOCK}", body={"token": lease["token"], "ttl_ms": TTL_MS * 20})
    assert answer.status == 503, answer
    wait_state(service, servers[1], "quarantined", "clock-forward", seconds=0.5)


def test_forward_while_nobody_was_connected(lab, clocked):  # noqa: F811
    """Found when the connection is back, before the master has a vote: the offset of its clock is kept when the
    connection ends."""
    servers = [lab.redis(), clocked(), lab.redis()]
    proxy = lab.keep(Proxy(lab.folder, servers[1]))
    scene = Scene(lab, servers=servers, place=proxy)
    scene.hold()
    since = time.monotonic()
    proxy.cut()
    wait_state(scene.second, proxy, "down")
    scene.victim.clock.set_offset_ms(MINUTE_MS)
    assert not has_lock_on(scene.victim)
    proxy.heal()
    scene.caused()
    scene.follow("clock-forward", since=since)
    scene.check_not_given_twice()


@pytest.mark.parametrize("connected", [True, False], ids=["connected", "away"])
def test_back(lab, clocked, connected):  # noqa: F811
    """An alarm, no quarantine. The fences go on growing, and locks there last longer: no longer than the rest of the cluster lets them."""
    servers = [lab.redis(), clocked(), lab.redis()]
    proxy = lab.keep(Proxy(lab.folder, servers[1]))
    scene = Scene(lab, servers=servers, place=proxy)
    fences = [hold(scene.second, "another")]
    scene.hold()
    if not connected:
        proxy.cut()
        wait_state(scene.second, proxy, "down")
    scene.victim.clock.set_offset_ms(-MINUTE_MS)
    if not connected:
        proxy.heal()
    scene.caused()
    for service in (scene.first, scene.second):
        wait_until(lambda one=service: one.log("clock-jump"), 3, "the log line")
        check_jump_is_told(service, proxy, "back", -MINUTE_MS)
    seen = wait_state(scene.second, proxy, "voting")
    wait_until(lambda: any(warning.startswith("clock-back: ") for warning in state_of(scene.second, proxy)["warnings"]), 3, "the warning")
    assert seen["quarantine_remaining_ms"] is None
    scene.check_not_given_twice()
    assert has_lock_on(scene.victim), "it should have it for a minute"
    fences += [hold(scene.second, "another") for _ in range(3)]
    assert is_growing(fences)
    assert not scene.first.log("master-quarantined") and not scene.second.log("master-quarantined")
    # No lease that was given before the jump is left by now: the warning goes away, the lock of the past stays until its time has come.
    wait_until(lambda: not state_of(scene.second, proxy)["warnings"], 5 + TTL_MS / 1000, "the warning ends")


def test_forward_and_back(scene):
    """Back to where it was, or further: still quarantined, since the locks are gone all the same."""
    scene.hold()
    since = time.monotonic()
    jump(scene, MINUTE_MS)
    wait_state(scene.second, scene.victim, "quarantined", seconds=1.3)
    scene.victim.clock.set_offset_ms(0)
    scene.caused()
    scene.follow("clock-forward", since=since)
    scene.check_not_given_twice()


def test_a_pause_is_no_jump(lab):
    """Of a master, or of redlockd itself, whose answers then lie unread: no quarantine, no alarm."""
    servers = lab.redises(3)
    service = guarded(lab, servers)
    client = service.client()
    for round_of in range(3):
        paused = [servers[0].process, service.process, servers[1].process][round_of]
        paused.send_signal(19)
        wait_until(lambda one=paused: process_state(one.pid) == "T", what="stopped")
        asked = threading.Thread(target=client.call, args=("POST", "/locks", {"resource": f"x{round_of}", "ttl_ms": TTL_MS}))
        asked.start()
        time.sleep(1.2)  # more than a heartbeat
        paused.send_signal(18)
        asked.join()
        service.wait_voting(3)
    client.close()
    assert not service.log("master-quarantined") and not service.log("clock-jump")


# ---------------------------------------------------------------------------------------------- late commands


TIMEOUT_MS = min(round(1000 * SLOW), 5000)
IN_TIME_MS = 20000  # nobody waits for it


def asked_of(proxy):
    """The resources of the locks that were asked for or given back, one entry for each time; a command may ask for several."""
    return [key for command in proxy.commands("EVALSHA") for key in command[3:3 + int(command[2])] if re.fullmatch("zombie/[0-9]+", key)]


def leave_commands(lab, server, round_of, timeout_ms, count=5):
    """Kills a redlockd while the master is stopped with its commands unread, so no release follows. The resources, and when."""
    proxy = lab.keep(Proxy(lab.folder, server))
    service = guarded(lab, [proxy], "--master-timeout-ms", str(timeout_ms), ttl_ms=30000)
    hold(service, "warm-up")  # so that the scripts are known there
    names = [f"zombie/{round_of * count + number}" for number in range(count)]
    clients = [service.client() for _ in names]
    server.stop()
    for name, client in zip(names, clients):
        client.connection.request("POST", "/locks", f'{{"resource": "{name}", "ttl_ms": 30000}}')
    wait_until(lambda: len(asked_of(proxy)) >= count, what="the commands are on their way")
    service.kill()
    killed = time.monotonic()
    for client in clients:
        client.close()
    # One that has been given back already proves nothing.
    return [name for name in names if asked_of(proxy).count(name) == 1], killed


@pytest.mark.parametrize("late", [True, False], ids=["late", "in-time"])
def test_commands_that_a_stopped_master_finds_in_its_socket(lab, late):
    """Fifty times: the request is over, and no client will release the lock. Commands in time are carried out: their
    keys exist."""
    server = lab.redis()
    trials, round_of, zombies = 0, 0, []
    while trials < (50 if late else 5):
        assert round_of < 30
        names, killed = leave_commands(lab, server, round_of, TIMEOUT_MS if late else IN_TIME_MS)
        if late:
            time.sleep(max(0, killed + TIMEOUT_MS / 1000 + 0.2 - time.monotonic()))  # the deadline is over
        server.cont()
        wait_until(lambda: "connected_clients:1\r\n" in server.cli("INFO", "clients"), what="all is read that lay there")
        zombies += [name for name in names if has_lock_on(server, name)]
        trials += len(names)
        round_of += 1
    if late:
        assert zombies == [], f"{len(zombies)} of {trials}"
        assert server.cli("DBSIZE") == 1  # our hash
    else:
        assert len(zombies) >= 1


def test_late_commands_are_counted(lab):
    """By the redlockd that sent them, if it is still there. The others decided without this master, and go on with it afterwards."""
    servers = lab.redises(3)
    service = guarded(lab, servers, "--master-timeout-ms", str(TIMEOUT_MS), ttl_ms=60000)
    hold(service, "warm-up")
    servers[1].stop()
    lease = take(service, ttl_ms=60000)
    time.sleep(TIMEOUT_MS / 1000 + 0.2)  # the deadline is over
    servers[1].cont()
    wait_until(lambda: metric(service, "late_commands_total", servers[1]) == 1, what="counted")
    assert not has_lock_on(servers[1])
    service.wait_voting(3)
    assert metric(service, "late_commands_total", servers[0]) == 0
    assert not service.log("master-quarantined") and not service.log("clock-jump")
    extended = service.curl("PUT", f"/locks/{LOCK}", body={"token": lease["token"], "ttl_ms": 60000})
    assert extended.status == 200, extended
    assert service.release(lease).status == 204


def test_deadlines_follow_a_clock_that_jumped_back(lab, clocked):  # noqa: F811
    """A deadline in the master's old time would be a minute too late: after the next answer it is as it should be."""
    server = clocked()
    guarded(lab, [server]).stop()
    proxy = lab.keep(Proxy(lab.folder, server))
    service = guarded(lab, [proxy], "--master-timeout-ms", str(TIMEOUT_MS), ttl_ms=30000)
    server.clock.set_offset_ms(-MINUTE_MS)
    wait_until(lambda: jumps_of(service, proxy, "back") == 1, 3, "found")
    hold(service, "warm-up")
    server.stop()
    client = service.client()
    client.connection.request("POST", "/locks", '{"resource": "zombie/1", "ttl_ms": 30000}')
    wait_until(lambda: "zombie/1" in asked_of(proxy), what="the command is on its way")
    service.kill()
    client.close()
    time.sleep(TIMEOUT_MS / 1000 + 0.2)  # the deadline is over
    server.cont()
    wait_until(lambda: "connected_clients:1\r\n" in server.cli("INFO", "clients"), what="all is read that lay there")
    assert not has_lock_on(server, "zombie/1")
