# SPDX-License-Identifier: MIT
"""The restart guard: masters that lost their memory, or were replaced by another server.

Each hazard is caused on real servers while the victim has the key of a lease and a rival tries to get the lock
(guard_fixtures.py). The rival must not get it before the lease is over. /masters must give the reason and the length of
the quarantine, and the master must vote again without help.
"""

import signal
import threading
import time

import pytest

from guard_fixtures import (HASH, LOCK, SEEN_BY_OTHERS, TTL_MS, Rival, Scene, Switch, quarantine_seconds, code_of, follow_readiness,
                            guarded, has_lock_on, metric, number_of, state_of, take, wait_state)
from harness import SLOW, freeze, patience, wait_until

pytestmark = pytest.mark.slow  # waits for the ends of quarantines

AOF = ["--appendonly", "yes", "--appendfsync", "always"]


def kill_and_start(scene):
    scene.victim.restart()


def flush(scene):
    scene.victim.cli("FLUSHALL")


def delete_epoch(scene):
    scene.victim.cli("HDEL", HASH, "epoch")
    scene.victim.cli("DEL", LOCK)


def exchange(scene):
    """Another server, a new one, under the same address."""
    scene.place.lead_to(scene.other)


def replicate_and_promote(scene):
    """The victim follows an empty server for a moment; its run_id stays."""
    scene.victim.cli("REPLICAOF", "127.0.0.1", scene.other.port)
    wait_until(lambda: "master_link_status:up" in scene.victim.cli("INFO", "replication"), what="replicated")
    assert scene.victim.cli("EXISTS", HASH) == 0
    scene.victim.cli("REPLICAOF", "NO", "ONE")


def set_scene(lab, cause, *options, **how):
    """With the servers that the cause needs."""
    servers = lab.redises(3)
    switch = lab.keep(Switch(lab.folder, servers[1])) if cause is exchange else None
    scene = Scene(lab, *options, servers=servers, place=switch, **how)
    if cause in (exchange, replicate_and_promote):
        scene.other = lab.redis("--repl-diskless-sync", "no", tcp=True)
    return scene


# Where INFO shows the replica before a script finds the epoch gone, redlockd connects anew, and reads that there is none.
FORGETS = {kill_and_start: ("restarted", "no-epoch"), flush: ("bad-epoch",), exchange: ("restarted", "no-epoch"),
           replicate_and_promote: ("bad-epoch", "no-epoch")}


@pytest.mark.parametrize("cause", FORGETS, ids=lambda cause: cause.__name__)
def test_a_master_that_forgot(lab, cause):
    """Empty after a crash, flushed, exchanged: it does not vote until every lease that it may have forgotten is over."""
    scene = set_scene(lab, cause)
    scene.hold()
    since = time.monotonic()
    cause(scene)
    scene.caused()
    course = scene.follow(*FORGETS[cause], since=since)
    assert course.code in FORGETS[cause] or course.code in SEEN_BY_OTHERS
    scene.check_not_given_twice()
    wait_state(scene.first, scene.place, "voting")
    take(scene.second, "another")
    server = scene.place.redis if isinstance(scene.place, Switch) else scene.victim
    wait_until(lambda: has_lock_on(server, "another"), what="it takes part again")


@pytest.mark.parametrize("cause", [kill_and_start, flush, exchange], ids=lambda cause: cause.__name__)
def test_without_the_guard_the_lock_is_given_twice(lab, cause):
    """That these tests see what the guard prevents."""
    scene = set_scene(lab, cause, "--restart-guard", "off", ttl_ms=30000)
    scene.hold()
    cause(scene)
    scene.rival.join(patience(10))
    assert scene.rival.got and scene.rival.got < scene.until - 5, "not given twice?"
    assert state_of(scene.second, scene.place)["state"] == "voting"


NEXT_OPERATIONS = {
    "acquire": lambda service, lease: service.curl("POST", "/locks", body={"resource": LOCK}),
    "extend": lambda service, lease: service.curl("PUT", f"/locks/{LOCK}", body={"token": lease["token"]}),
    "inspect": lambda service, lease: service.curl("GET", f"/locks/{LOCK}"),
    "release": lambda service, lease: service.curl("DELETE", f"/locks/{LOCK}", body={"token": lease["token"]}),
}


@pytest.mark.parametrize("operation", NEXT_OPERATIONS)
def test_the_very_next_operation_finds_it(lab, operation):
    """No heartbeat is needed: the command that would have been fooled says so itself."""
    scene = set_scene(lab, delete_epoch, ttl_ms=30000)
    scene.hold()
    scene.rival.kill()
    wait_until(lambda: not has_lock_on(scene.third), what="the rival's leavings are gone")
    delete_epoch(scene)
    answer = NEXT_OPERATIONS[operation](scene.second, scene.lease)
    assert answer.status != 201
    assert operation == "release" or answer.json["votes"]["quarantined"] == 1, answer  # released: one master that had the key is enough
    assert code_of(wait_state(scene.second, scene.victim, "quarantined", seconds=0.5)) in SEEN_BY_OTHERS


def test_held_all_the_time(lab):
    """A holder that goes on extending keeps the lock: before, during and after the quarantine, against all tries of the
    rival."""
    ttl_ms = 2 * TTL_MS
    scene = Scene(lab, ttl_ms=ttl_ms)
    lease = take(scene.first, ttl_ms=ttl_ms)
    rival = lab.keep(Rival(scene.second, ttl_ms=ttl_ms))
    supervisor = Supervisor(scene.first, lease, ttl_ms)
    since = time.monotonic()
    scene.victim.restart()
    scene.follow("restarted", "no-epoch", since=since, ttl_ms=ttl_ms)
    assert rival.got is None, "GIVEN TWICE"
    tries = rival.tries
    wait_until(lambda: rival.tries > tries + 50, what="the rival tries with the master back")
    assert rival.got is None and rival.error is None, "GIVEN TWICE, after the quarantine"
    assert supervisor.stop() >= 5
    assert scene.first.release(lease).status == 204
    rival.join(patience(10))
    assert rival.lease["fence"] > lease["fence"]


class Supervisor(threading.Thread):
    """Extends a lease again and again, each time before it is over."""

    def __init__(self, service, lease, ttl_ms):
        super().__init__(daemon=True)
        self.client, self.lease, self.ttl_ms = service.client(), lease, ttl_ms
        self.count, self.error, self.end = 0, None, threading.Event()
        self.start()

    def run(self):
        try:
            while not self.end.wait(self.ttl_ms / 8000):
                answer = self.client.call("PUT", f"/locks/{LOCK}", {"token": self.lease["token"], "ttl_ms": self.ttl_ms})
                assert answer.status == 200 and answer.json["fence"] == self.lease["fence"], answer
                self.count += 1
        except BaseException as error:  # shown by stop()
            self.error = error
        finally:
            self.client.close()

    def stop(self):
        self.end.set()
        self.join(20 * SLOW)
        assert self.error is None, self.error
        return self.count


def test_restarted_with_its_data(lab):
    """An epoch that was written for another server: the data may be older than the last lease, so it is quarantined all the same."""
    scene = Scene(lab, servers=[lab.redis(*AOF) for _ in range(3)])
    scene.hold()
    since = time.monotonic()
    scene.victim.restart()
    scene.caused()
    assert has_lock_on(scene.victim)
    scene.follow("restarted", since=since)
    scene.check_not_given_twice()


def test_a_failover_to_a_replica(lab):
    """Replication is asynchronous: the lease had not got there when the replica was promoted."""
    servers = [lab.redis(), lab.redis("--repl-diskless-sync", "no", tcp=True), lab.redis()]
    scene = Scene(lab, "--allow-replicas", servers=servers, place=lab.keep(Switch(lab.folder, servers[1])))
    replica = lab.redis("--replicaof", "127.0.0.1", str(scene.victim.port))
    wait_until(lambda: number_of(replica, "beat") > 0, what="replicated")
    replica.cli("REPLICAOF", "NO", "ONE")
    scene.hold()
    since = time.monotonic()
    scene.place.lead_to(replica)
    scene.caused()
    scene.follow("restarted", since=since)
    scene.check_not_given_twice()


# ------------------------------------------------------------------------------------------------ all at once


@pytest.mark.parametrize("aof", [False, True], ids=["empty", "aof"])
def test_everything_restarted_at_once(lab, aof):
    """All masters and redlockd: unavailable for the longest lease and a little more, then back without help."""
    servers = [lab.redis(*(AOF if aof else [])) for _ in range(3)]
    before = guarded(lab, servers)
    taken = time.monotonic()
    lease = take(before)
    until = taken + lease["validity_ms"] / 1000
    before.kill()
    for server in servers:
        server.kill()
    start = time.monotonic()
    for server in servers:
        server.start()
    after = guarded(lab, servers, bootstrap=False, wait=False)
    rival = lab.keep(Rival(after))
    end = follow_readiness(after, quarantine_seconds(), "restarted" if aof else "no-epoch")
    assert end - start >= quarantine_seconds(), f"ready after {end - start:.3f} s"
    rival.join(patience(10))
    assert rival.got and rival.got > until and rival.got >= start + quarantine_seconds(), "GIVEN TWICE"
    assert rival.lease["fence"] > lease["fence"]
    after.wait_voting(3)
    wait_until(lambda: any(metric(after, "fence_floor_clocked", server) for server in servers), 3, "the metric")


def test_the_longest_lease_of_anybody_is_waited_for(lab):
    """Also of a redlockd that is not there any more: the masters remember it."""
    servers = [lab.redis(*AOF) for _ in range(3)]
    short = guarded(lab, servers)
    long_ms = TTL_MS + 1000
    other = guarded(lab, servers, ttl_ms=long_ms)
    taken = time.monotonic()
    lease = take(other, ttl_ms=long_ms)
    until = taken + lease["validity_ms"] / 1000
    for service in (short, other):
        service.kill()
    for server in servers:
        server.kill()
    start = time.monotonic()
    for server in servers:
        server.start()
    after = guarded(lab, servers, bootstrap=False, wait=False)
    rival = lab.keep(Rival(after))
    end = follow_readiness(after, quarantine_seconds(long_ms), "restarted")
    assert end - start >= quarantine_seconds(long_ms)
    rival.join(patience(10))
    assert rival.got and rival.got > until, "GIVEN TWICE"


@pytest.mark.parametrize("first", ["long", "short"])
def test_all_masters_forgot_and_the_longest_lease_is_that_of_a_running_redlockd(lab, first):
    """One that gives short leases is started after the loss. `first`: the redlockd that writes the markers;
    the other one finds them."""
    servers = lab.redises(3)
    long_ms = round(TTL_MS + (quarantine_seconds() + 2) * 1000)
    long = guarded(lab, servers, ttl_ms=long_ms)
    long.wait_voting(3)
    start = time.monotonic()
    lease = take(long, ttl_ms=long_ms)
    until = start + lease["validity_ms"] / 1000
    if first == "short":
        freeze(long.process)
    for server in servers:
        server.kill()
    for server in servers:
        server.start()
    if first == "long":
        wait_until(lambda: all(server.cli("HGET", HASH, "marker") for server in servers), what="the markers of the running one")
    short = guarded(lab, servers, bootstrap=False, wait=False)
    rival = lab.keep(Rival(short))
    if first == "short":
        wait_until(lambda: all(server.cli("HGET", HASH, "marker") for server in servers), what="the markers of the other one")
        long.process.send_signal(signal.SIGCONT)
    rival.join(quarantine_seconds(long_ms) + patience(10))
    assert rival.error is None and rival.got, rival.error
    assert rival.got >= until, f"GIVEN TWICE: {until - rival.got:.3f} s before the first lease was over"
    assert rival.lease["fence"] > lease["fence"]
    assert all(number_of(server, "ttl_ms") == long_ms for server in servers)


def test_a_single_master(lab):
    """With one master nothing can be asked for what it forgot: unavailable, and then the numbers rest on clocks."""
    server = lab.redis()
    service = guarded(lab, [server])
    before = time.monotonic()
    lease = take(service)
    until = before + lease["validity_ms"] / 1000
    rival = lab.keep(Rival(service))
    start = time.monotonic()
    server.restart()
    end = follow_readiness(service, quarantine_seconds(), "restarted", "no-epoch")
    assert end - start >= quarantine_seconds()
    rival.join(patience(10))
    assert rival.got and rival.got > until, "GIVEN TWICE"
    assert rival.lease["fence"] > lease["fence"]
    wait_until(lambda: metric(service, "fence_floor_clocked", server) == 1, 3, "the metric")
    assert any(warning.startswith("fences: ") and "clock" in warning for warning in state_of(service, server)["warnings"])


def try_to_take(service, ttl_ms=TTL_MS):
    """The lease, or None where there is none."""
    answer = service.curl("POST", "/locks", body={"resource": LOCK, "ttl_ms": ttl_ms})
    return answer.json if answer.status == 201 else None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_redlockd_restarted(lab, workers):
    """Costs nothing where the masters are as they were: no quarantine, and the leases are there."""
    servers = lab.redises(3)
    before = guarded(lab, servers, "--workers", workers, ttl_ms=60000)
    lease = wait_until(lambda: try_to_take(before, 60000), what="a lease")
    before.kill()
    after = guarded(lab, servers, "--workers", workers, ttl_ms=60000, bootstrap=False)
    assert after.curl("POST", "/locks", body={"resource": LOCK}).code == "locked"
    assert after.release(lease).status == 204
    assert not after.log("master-quarantined")
