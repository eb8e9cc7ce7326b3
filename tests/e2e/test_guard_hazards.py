# SPDX-License-Identifier: MIT
"""The restart guard: masters that drop keys, are set up so that they may, follow or lead others, or are an older image
of themselves.

A master that dropped keys or was rolled back is quarantined for the longest lease. A wrong setting quarantines a master
only until it is corrected.
"""

import time

import pytest

from guard_fixtures import (HASH, LOCK, Course, Scene, Switch, quarantine_seconds, guarded, has_lock_on, metric, number_of, reconnect,
                            run_id_of, state_of, take, wait_state)
from harness import patience, wait_until

pytestmark = pytest.mark.slow  # waits for the ends of quarantines


def evicted_keys_of(server):
    return int(server.cli("INFO", "stats").partition("evicted_keys:")[2].split()[0])


def evict(server, policy, restore=True):
    """Makes a server evict whatever its policy lets it, for real, and gives it its memory back; all in one go. How many keys it dropped."""
    before = evicted_keys_of(server)
    commands = [("CONFIG", "SET", "maxmemory-policy", policy), ("CONFIG", "SET", "maxmemory", "1"), ("PING",), ("PING",)]
    back = [("CONFIG", "SET", "maxmemory", "0"), ("CONFIG", "SET", "maxmemory-policy", "noeviction")]
    server.pipeline([*commands, *(back if restore else [])])
    return evicted_keys_of(server) - before


# ------------------------------------------------------------------------------------------------- dropped keys


def test_everything_is_evicted(lab):
    """With the hash goes the epoch: the next command finds it."""
    scene = Scene(lab)
    scene.hold()
    since = time.monotonic()
    assert evict(scene.victim, "allkeys-random") >= 2
    scene.caused()
    scene.follow("evicted", "bad-epoch", "no-epoch", since=since)
    scene.check_not_given_twice()


def test_locks_are_evicted_and_the_hash_stays(lab):
    """Only keys that expire may go: the locks and not the hash. No script can see that; evicted_keys does, within a second."""
    scene = Scene(lab)
    scene.hold()
    scene.rival.kill()
    since = time.monotonic()
    assert evict(scene.victim, "volatile-lru") >= 1
    assert scene.victim.cli("HGET", HASH, "epoch") and not has_lock_on(scene.victim)
    scene.follow("evicted", since=since)
    # Nothing that it counted was lost, so nothing rests on clocks, and the others need not be asked.
    assert metric(scene.second, "fence_floor_clocked", scene.victim) == 0
    assert take(scene.second)["fence"] > scene.lease["fence"]


def test_a_count_that_is_set_back_and_grows_at_once(lab):
    """Between two heartbeats: what it shows then is smaller than before, and another count all the same."""
    servers = lab.redises(3)
    servers[0].pipeline([("SET", f"somebody's/{number}", "x", "PX", "60000") for number in range(10)])
    assert evict(servers[0], "volatile-ttl") == 10
    service = guarded(lab, servers)
    since = time.monotonic()
    servers[0].cli("SET", "somebody's", "x", "PX", "60000")
    servers[0].pipeline([("CONFIG", "RESETSTAT"), ("CONFIG", "SET", "maxmemory-policy", "volatile-ttl"), ("CONFIG", "SET", "maxmemory", "1"), ("PING",),
                         ("CONFIG", "SET", "maxmemory", "0"), ("CONFIG", "SET", "maxmemory-policy", "noeviction")])
    assert evicted_keys_of(servers[0]) == 1
    Course(service, servers[0], "evicted", since=since)


def check_given_in_the_blind_spot(scene, since, course):
    """Given twice before the heartbeat that found it, or not at all; and with a larger fence."""
    scene.rival.join(patience(10))
    assert scene.rival.got < course.stopped or scene.rival.got >= scene.until, f"GIVEN TWICE, {scene.rival.got - since:.3f} s after the hazard"
    assert scene.rival.lease["fence"] > scene.lease["fence"]


def test_locks_are_evicted_and_somebody_asks_at_once(lab):
    """The second until the heartbeat is a blind spot of the guard: given twice in it, and only in it, and with a larger fence."""
    scene = Scene(lab)
    scene.hold()
    since = time.monotonic()
    assert evict(scene.victim, "volatile-lru") >= 1
    scene.caused()
    course = scene.follow("evicted", since=since)
    check_given_in_the_blind_spot(scene, since, course)


def test_evicted_while_nobody_was_connected(lab):
    """The count of the last heartbeat is in the hash: each new connection compares it."""
    servers = lab.redises(3)
    switch = lab.keep(Switch(lab.folder, servers[1]))
    scene = Scene(lab, servers=servers, place=switch)
    beat = number_of(scene.victim, "beat")
    wait_until(lambda: number_of(scene.victim, "beat") >= beat + 4, what="the count is written down")
    scene.hold()
    since = time.monotonic()
    switch.cut()
    wait_state(scene.second, switch, "down")
    assert evict(scene.victim, "volatile-lru") >= 1
    switch.heal()
    scene.caused()
    scene.follow("evicted", since=since)
    scene.check_not_given_twice()


def test_a_count_that_is_set_back(lab):
    """CONFIG RESETSTAT is no eviction, and does not hide the next one. Keys evicted before the master got its epoch do not matter."""
    servers = lab.redises(3)
    servers[0].pipeline([("SET", f"somebody's/{number}", "x", "PX", "60000") for number in range(10)])
    assert evict(servers[0], "volatile-ttl") == 10
    service = guarded(lab, servers)
    beat = number_of(servers[0], "beat")
    wait_until(lambda: number_of(servers[0], "beat") >= beat + 1, what="a heartbeat")
    servers[0].cli("CONFIG", "RESETSTAT")
    wait_until(lambda: number_of(servers[0], "beat") >= beat + 3, what="heartbeats")
    assert state_of(service, servers[0])["state"] == "voting"
    since = time.monotonic()
    servers[0].cli("SET", "somebody's", "x", "PX", "60000")
    assert evict(servers[0], "volatile-ttl") == 1
    Course(service, servers[0], "evicted", since=since)


def test_a_count_that_is_set_back_while_nobody_was_connected(lab):
    """The highest number that it had reached is unknown."""
    servers = lab.redises(3)
    servers[1].pipeline([("SET", f"somebody's/{number}", "x", "PX", "60000") for number in range(10)])
    assert evict(servers[1], "volatile-ttl") == 10
    switch = lab.keep(Switch(lab.folder, servers[1]))
    scene = Scene(lab, servers=servers, place=switch)
    wait_until(lambda: number_of(scene.victim, "evicted") == 10, what="the count is written down")
    scene.hold()
    since = time.monotonic()
    switch.cut()
    wait_state(scene.second, switch, "down")
    assert evict(scene.victim, "volatile-lru") >= 1
    scene.victim.cli("CONFIG", "RESETSTAT")
    switch.heal()
    scene.caused()
    scene.follow("evicted", since=since)
    scene.check_not_given_twice()


# ------------------------------------------------------------------------------------------- settings and roles


def no_memory(scene):
    scene.victim.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "100mb")


def enough_memory(scene):
    scene.victim.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")


def attach_replica(scene):
    scene.replica = scene.lab.redis("--replicaof", "127.0.0.1", str(scene.victim.port))


def detach_replica(scene):
    scene.replica.kill()


def become_replica(scene):
    scene.victim.cli("REPLICAOF", "127.0.0.1", "1")


def become_master(scene):
    scene.victim.cli("REPLICAOF", "NO", "ONE")


SETTINGS = {"maxmemory-policy": (no_memory, enough_memory), "replicas-attached": (attach_replica, detach_replica),
            "replica": (become_replica, become_master)}


@pytest.mark.parametrize("code", SETTINGS)
def test_a_wrong_setting(lab, code):
    """No vote until it is mended, and at once then: nothing was forgotten."""
    cause, mend = SETTINGS[code]
    servers = [lab.redis(), lab.redis("--repl-diskless-sync", "no", tcp=True), lab.redis()]
    scene = Scene(lab, servers=servers)
    scene.hold()
    since = time.monotonic()
    cause(scene)
    scene.caused()
    course = Course(scene.second, scene.victim, code, since=since, mend=lambda: mend(scene))
    assert course.quarantined["quarantine_remaining_ms"] is None
    scene.check_not_given_twice()
    wait_state(scene.second, scene.victim, "voting")
    assert number_of(scene.victim, "floor") == 0 and not scene.victim.cli("HGET", HASH, "marker"), "its epoch is the one that it had"


def test_wrong_from_the_start(lab):
    """The same where it is found at the first connection: three masters, of which two may not vote."""
    evicts = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]
    servers = [lab.redis(), lab.redis(*evicts), lab.redis("--replicaof", "127.0.0.1", "1")]
    service = guarded(lab, servers, wait=False)
    wait_state(service, servers[1], "quarantined", "maxmemory-policy")
    wait_state(service, servers[2], "quarantined", "replica")
    answer = service.curl("GET", "/readyz")
    assert answer.status == 503 and "maxmemory-policy" in answer.json["detail"] and "replica" in answer.json["detail"], answer
    servers[1].cli("CONFIG", "SET", "maxmemory", "0")
    servers[2].cli("REPLICAOF", "NO", "ONE")
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, quarantine_seconds() + 5, "ready")
    service.wait_voting(3)
    take(service)


def test_replicas_that_are_allowed(lab):
    servers = [lab.redis(), lab.redis("--repl-diskless-sync", "no", tcp=True), lab.redis()]
    service = guarded(lab, servers, "--allow-replicas")
    replica = lab.redis("--replicaof", "127.0.0.1", str(servers[1].port))
    wait_until(lambda: "connected_slaves:1" in servers[1].cli("INFO", "replication"), what="attached")
    wait_until(lambda: number_of(replica, "beat") > 0, what="replicated")
    beat = number_of(servers[1], "beat")
    wait_until(lambda: number_of(servers[1], "beat") >= beat + 2, what="heartbeats")
    assert state_of(service, servers[1])["state"] == "voting"
    lease = take(service)
    wait_until(lambda: has_lock_on(replica), what="replicated")
    assert service.release(lease).status == 204
    assert not service.log("master-quarantined")


def test_a_redis_cluster(lab):
    """One node of a Redis Cluster fails over whenever the cluster sees fit, to a node that has not seen the last locks."""
    servers, node = lab.redises(3), lab.redis("--cluster-enabled", "yes", tcp=True)
    switch = lab.keep(Switch(lab.folder, servers[1]))
    service = guarded(lab, [servers[0], switch, servers[2]])
    switch.lead_to(node)
    seen = wait_state(service, switch, "quarantined", "redis-cluster")
    assert seen["quarantine_remaining_ms"] is None
    assert metric(service, "master_quarantined", switch, reason="redis-cluster") == 1
    assert service.curl("GET", "/locks/free").json["votes"]["quarantined"] == 1
    take(service)
    assert node.cli("DBSIZE") == 0
    switch.lead_to(servers[1])
    wait_state(service, switch, "voting")


def test_an_old_version(lab):
    """A server that says it is older than 6.2 (a real one that a proxy lets lie)."""
    servers = lab.redises(3)
    switch = lab.keep(Switch(lab.folder, servers[1]))
    switch.disguise = b"redis_version:7.", b"redis_version:5."
    service = guarded(lab, [servers[0], switch, servers[2]], wait=False)
    wait_state(service, switch, "quarantined", "version")
    assert metric(service, "master_quarantined", switch, reason="version") == 1


# --------------------------------------------------------------------------------------------------- older images


def test_an_older_image_behind_connections_that_stand(lab):
    """DEBUG RELOAD puts a snapshot back into the running server. The heartbeat finds it; the second until then is a blind spot of the guard."""
    servers = [lab.redis(), lab.redis("--enable-debug-command", "yes"), lab.redis()]
    scene = Scene(lab, servers=servers)
    scene.victim.cli("SAVE")
    beat = number_of(scene.victim, "beat")
    wait_until(lambda: number_of(scene.victim, "beat") >= beat + 5, 10, "heartbeats after the image")
    scene.hold()
    since = time.monotonic()
    scene.victim.cli("DEBUG", "RELOAD", "NOSAVE")
    scene.caused()
    assert scene.lease["token"] not in (scene.victim.cli("GET", LOCK) or ""), "no older image"
    course = scene.follow("rolled-back", since=since)
    check_given_in_the_blind_spot(scene, since, course)


@pytest.mark.parametrize("told_by", ["heartbeat", "client-id"])
def test_an_older_image_of_a_machine(lab, told_by):
    """A server that was put back to what it was: same run_id, an epoch that fits, and no lock.

    The image is a real server that has read the victim's data of then; a proxy lends it the run_id. Each of the two things that tell it is
    enough alone.
    """
    servers = lab.redises(3)
    switch = lab.keep(Switch(lab.folder, servers[1]))
    scene = Scene(lab, servers=servers, place=switch)
    for _ in range(50 if told_by == "client-id" else 0):
        scene.victim.cli("PING")
    reconnect(scene.victim)  # with larger client ids
    scene.first.wait_voting(3)
    scene.second.wait_voting(3)
    scene.victim.cli("SAVE")
    image = image_of(lab, scene.victim)
    beat = number_of(scene.victim, "beat")
    wait_until(lambda: number_of(scene.victim, "beat") >= beat + 5, 10, "heartbeats after the image")
    if told_by == "client-id":
        image.cli("HINCRBY", HASH, "beat", "1000000")
    if told_by == "heartbeat":
        for _ in range(300):
            image.cli("PING")
    assert image.cli("HGET", HASH, "epoch") == scene.victim.cli("HGET", HASH, "epoch")
    scene.hold()
    since = time.monotonic()
    switch.lead_to(image, as_if=scene.victim)
    scene.caused()
    assert not has_lock_on(image)
    scene.follow("rolled-back", since=since)
    scene.check_not_given_twice()
    wait_until(lambda: run_id_of(scene.victim).decode() == state_of(scene.second, switch)["run_id"], what="it looks like the same server")


def image_of(lab, server):
    """Another server with the data that the first one saved."""
    return lab.redis("--dir", server.folder)


def test_without_the_guard_an_older_image_gives_it_twice(lab):
    """That the test above sees what the guard prevents."""
    servers = lab.redises(3)
    switch = lab.keep(Switch(lab.folder, servers[1]))
    scene = Scene(lab, "--restart-guard", "off", servers=servers, place=switch, ttl_ms=30000)
    scene.victim.cli("SAVE")
    image = image_of(lab, scene.victim)
    scene.hold()
    switch.lead_to(image, as_if=scene.victim)
    scene.rival.join(patience(10))
    assert scene.rival.got and scene.rival.got < scene.until - 5, "not given twice?"
