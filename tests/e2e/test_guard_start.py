# SPDX-License-Identifier: MIT
"""The restart guard at the beginning and at the end of a quarantine: new clusters, --bootstrap, what other masters must tell, what is refused.

test_guard_restart.py has the hazards themselves.
"""

import re
import time

import pytest

from guard_fixtures import (HASH, LOCK, TTL_MS, Course, Rival, Switch, quarantine_seconds, code_of, follow_readiness, guarded, hold, limits,
                            metric, number_of, reconnect, state_of, take, wait_state)
from harness import patience, run_redlockd, wait_until
from test_fences import bucket_of, clock, is_growing  # noqa: F401

pytestmark = pytest.mark.slow  # waits for the ends of quarantines

HOUR_MS = 3600 * 1000
AOF = ["--appendonly", "yes", "--appendfsync", "always"]


def clusters_of(servers):
    return {server.cli("HGET", HASH, "cluster") for server in servers}


# ------------------------------------------------------------------------------------------------ new clusters


@pytest.mark.parametrize("masters", [1, 3])
def test_new_masters_without_bootstrap(lab, masters):
    """New, or has everything been lost? Nothing can tell, so the longest lease is waited for, and /readyz says so."""
    servers = lab.redises(masters)
    start = time.monotonic()
    service = guarded(lab, servers, bootstrap=False, wait=False)
    refused = service.curl("POST", "/locks", body={"resource": LOCK})
    assert refused.status == 503 and refused.code == "no-quorum", refused
    wait_until(lambda: state_of(service, servers[0])["state"] == "quarantined", what="the reason")
    told = state_of(service, servers[0])
    seconds = re.search(r"it votes in (\d+\.\d) s, when these have expired; --bootstrap avoids the wait if all masters are new", told["reason"])[1]
    assert 0 < float(seconds) <= quarantine_seconds() and abs(float(seconds) * 1000 - told["quarantine_remaining_ms"]) <= 100, told
    end = follow_readiness(service, quarantine_seconds(), "no-epoch")
    assert end - start >= quarantine_seconds()
    service.wait_voting(masters)
    take(service)
    assert len(clusters_of(servers)) == 1


@pytest.mark.parametrize("masters", [1, 2, 3, 5])
def test_bootstrap(lab, masters):
    """It is new, we are told: no quarantine, and nothing rests on clocks that was ever counted."""
    servers = lab.redises(masters)
    service = guarded(lab, servers)
    assert not service.log("master-quarantined")
    take(service)
    assert len(clusters_of(servers)) == 1
    assert len({server.cli("HGET", HASH, "epoch") for server in servers}) == masters
    assert len({server.cli("HGET", HASH, "digest") for server in servers}) == 1
    for server in servers:
        assert metric(service, "fence_floor_clocked", server) == 0 and state_of(service, server)["warnings"] == []
        assert number_of(server, "ttl_ms") == TTL_MS


def test_the_count_of_evictions_is_noted_at_the_first_look(lab):
    """Not with the heartbeat a second later: the next redlockd needs it to compare, also if this one ends before."""
    servers = lab.redises(3)
    guarded(lab, servers).stop()
    for server in servers:
        server.cli("HDEL", HASH, "evicted")
    guarded(lab, servers)
    assert [server.cli("HGET", HASH, "evicted") for server in servers] == ["0"] * 3


def wait_all_workers(service, voting):
    """Until whoever answers sees so many masters voting, which is seen by ten answers in a row."""
    def reached():
        return all(service.curl("GET", "/masters").json["quorum"]["voting"] == voting for _ in range(10))
    wait_until(reached, 5, "all workers")


def test_several_bootstrap_at_once(lab):
    """The order of the starts does not matter: all serve at once, and they are one cluster."""
    for _ in range(3):
        servers = lab.redises(3)
        orders = (servers, servers[::-1], [servers[1], servers[0], servers[2]])
        services = [guarded(lab, order, "--workers", "2", ttl_ms=60000, wait=False) for order in orders]
        for service in services:
            wait_all_workers(service, 3)
            assert not service.log("master-quarantined")
        assert len(clusters_of(servers)) == 1
        leases = [service.curl("POST", "/locks", body={"resource": LOCK}).status for service in services]
        assert sorted(leases) == [201, 409, 409], leases
        for service in services:
            service.stop()


def test_workers_that_begin_together(lab):
    """One of them makes the new masters its own. The others find that at once, and not a second later: none is quarantined."""
    servers = lab.redises(5)
    for _ in range(8):
        for server in servers:
            server.cli("FLUSHALL")
        service = lab.redlockd(servers, "--workers", "4", "--bootstrap", "--master-timeout-ms", "500")
        assert service.log("master-quarantined") == []
        service.kill()


def test_bootstrap_where_all_have_been_restarted(lab):
    """With their data: these epochs are others' (run_id), but they show that it is not new."""
    servers = [lab.redis(*AOF) for _ in range(3)]
    guarded(lab, servers).kill()
    for server in servers:
        server.kill()
    start = time.monotonic()
    for server in servers:
        server.start()
    service = guarded(lab, servers, wait=False)
    assert follow_readiness(service, quarantine_seconds(), "restarted") - start >= quarantine_seconds()


@pytest.mark.parametrize("quarantined", [False, True], ids=["epoch", "marker"])
def test_bootstrap_where_the_one_that_remembers_cannot_be_reached(lab, quarantined):
    """Two new ones, the third is not there: it may have an epoch, and has."""
    servers = lab.redises(3)
    guarded(lab, servers).kill()
    if quarantined:
        servers[2].cli("HDEL", HASH, "epoch")
    servers[2].stop()
    start = time.monotonic()
    for server in servers[:2]:
        server.restart()
    service = guarded(lab, servers, wait=False)
    rival = lab.keep(Rival(service))
    wait_state(service, servers[0], "quarantined")
    wait_state(service, servers[1], "quarantined")
    wait_until(lambda: time.monotonic() > start + 1.0, what="it would be there")
    servers[2].cont()
    wait_state(service, servers[2], "quarantined" if quarantined else "voting")
    rival.join(quarantine_seconds() + patience(10))
    assert rival.got >= start + quarantine_seconds()


def test_the_reason_where_bootstrap_was_given(lab):
    """It is not suggested; what it waits for is said."""
    servers = lab.redises(3)
    servers[2].stop()
    service = guarded(lab, servers, ttl_ms=60000, wait=False)
    wait_state(service, servers[2], "down")
    # a few round trips, and so the first seconds, are not shown as a quarantine
    told = wait_state(service, servers[0], "quarantined", "no-epoch")
    assert "have expired, or at once when every master has answered (--bootstrap)" in told["reason"] and "avoids" not in told["reason"], told
    servers[2].cont()
    service.wait_voting(3)


def with_a_password(lab, server):
    server.cli("CONFIG", "SET", "requirepass", "secret")


def as_a_replica(lab, server):
    server.cli("REPLICAOF", "127.0.0.1", "1")


def with_another_hash(lab, server):
    server.cli("SET", HASH, "somebody else's")


def without_scripts(lab, server):
    server.cli("ACL", "SETUSER", "default", "-eval", "-evalsha")


UNUSABLE = {with_a_password: "NOAUTH", as_a_replica: "replica", with_another_hash: "WRONGTYPE", without_scripts: "NOPERM"}


@pytest.mark.parametrize("unusable", UNUSABLE, ids=lambda how: how.__name__)
def test_bootstrap_where_one_cannot_be_used(lab, unusable):
    """A mistake in the setting up of one master: the others serve after 3 s, without a quarantine, and what is wrong is said."""
    ttl_ms = 600000
    servers = lab.redises(3)
    unusable(lab, servers[1])
    service = guarded(lab, servers, ttl_ms=ttl_ms, wait=False)
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": LOCK}).status == 201, what="a lock")
    assert len(clusters_of([servers[0], servers[2]])) == 1
    assert {line["master"] for line in service.log("bootstrap-without")} == {servers[1].url}
    said = state_of(service, servers[1])
    assert said["state"] != "voting" and UNUSABLE[unusable] in said["reason"], said


def test_bootstrap_of_two_that_can_use_different_masters(lab):
    """One of them lacks the password of the master that gets the first cluster id: both must end in one cluster, with all masters."""
    servers = sorted((lab.redis(tcp=True) for _ in range(3)), key=lambda server: server.cli("INFO", "server").partition("run_id:")[2])
    servers[0].cli("CONFIG", "SET", "requirepass", "secret")
    open_ones = [f"redis://127.0.0.1:{server.port}" for server in servers[1:]]
    without = guarded(lab, [f"redis://127.0.0.1:{servers[0].port}", *open_ones], wait=False)
    complete = guarded(lab, [f"redis://:secret@127.0.0.1:{servers[0].port}", *open_ones], wait=False)
    complete.wait_voting(3)
    without.wait_voting(2)


def that_serves_nothing_stale(lab, server):
    server.cli("CONFIG", "SET", "replica-serve-stale-data", "no")
    as_a_replica(lab, server)


@pytest.mark.parametrize("unusable", [as_a_replica, that_serves_nothing_stale], ids=lambda how: how.__name__)
def test_bootstrap_where_one_that_cannot_vote_remembers(lab, unusable):
    """A replica by now, but its hash shows that the cluster is not new: the other two have lost their memory."""
    servers = lab.redises(3)
    first = guarded(lab, servers)
    start = time.monotonic()
    take(first)
    first.kill()
    unusable(lab, servers[1])
    for server in (servers[0], servers[2]):
        server.restart()
    service = guarded(lab, servers, wait=False)
    rival = lab.keep(Rival(service))
    rival.join(quarantine_seconds() + patience(10))
    assert rival.got >= start + quarantine_seconds()


# -------------------------------------------------------------------------------- what other masters must tell


def set_back(clock):  # noqa: F811
    return clock(-2 * HOUR_MS)


def test_fences_grow_over_the_loss_of_a_master(lab, resource, clock):  # noqa: F811
    """The numbers that it counted to come back from the others, not from a clock: this one is two hours behind.

    Two masters have the last number; one of them forgets; the other one goes away. The others know it only from each
    other.
    """
    servers = lab.redises(3)
    service = guarded(lab, servers)
    fences = [hold(service, resource) for _ in range(3)]
    wait_until(lambda: number_of(servers[2], bucket_of(resource)) == fences[-1], what="all know the number")
    servers[2].cli("HDEL", HASH, bucket_of(resource))
    since = time.monotonic()
    servers[1].restart()
    Course(service, servers[1], "restarted", "no-epoch", since=since)
    assert number_of(servers[1], "floor") >= fences[-1]
    assert metric(service, "fence_floor_clocked", servers[1]) == 0 and not state_of(service, servers[1])["warnings"]
    behind = guarded(lab, servers, env=set_back(clock))
    servers[0].kill()
    behind.wait_voting(2)
    fences += [hold(behind, resource) for _ in range(3)]
    assert is_growing(fences), fences


def check_clocked(service, servers):
    """At least one of them had to begin with a clock; the others may have learned from it."""
    clocked = [server for server in servers if number_of(server, "clocked_us") > 0]
    wait_until(lambda: clocked == [server for server in servers if metric(service, "fence_floor_clocked", server)], 3, "the metric")
    assert clocked
    for server in servers:
        warnings = state_of(service, server)["warnings"]
        assert bool(warnings) == (server in clocked)
        assert not warnings or (warnings[0].startswith("fences: ") and "clock" in warnings[0])


def test_fences_after_everything_was_lost(lab, resource, clock):  # noqa: F811
    """No master remembers: the order rests on clocks, which a warning says. The clock of redlockd is behind, which does
    not matter, since those of the masters are right."""
    servers = lab.redises(3)
    service = guarded(lab, servers)
    fences = [hold(service, resource)]
    service.kill()
    for server in servers:
        server.restart()
    behind = guarded(lab, servers, bootstrap=False, wait=False, env=set_back(clock))
    follow_readiness(behind, quarantine_seconds(), "no-epoch")
    behind.wait_voting(3)
    fences += [hold(behind, resource) for _ in range(3)]
    assert is_growing(fences), fences
    check_clocked(behind, servers)
    check_clocked(guarded(lab, servers), servers)  # a later redlockd learns it from the masters


def test_two_of_three_forgot(lab, resource, clock):  # noqa: F811
    """One that remembers is too few to know every number, since a lease may have been on the other two alone."""
    servers = lab.redises(3)
    service = guarded(lab, servers)
    fences = [hold(service, resource)]
    since = time.monotonic()
    for server in servers[:2]:
        server.restart()
    Course(service, servers[0], "restarted", "no-epoch", since=since)
    service.wait_voting(3)
    check_clocked(service, servers)
    assert not number_of(servers[2], "clocked_us")
    behind = guarded(lab, servers, env=set_back(clock))
    fences += [hold(behind, resource) for _ in range(3)]
    assert is_growing(fences), fences


def test_two_forgot_and_the_third_is_away(lab):
    """The numbers that they forgot are lost, with or without the third master: so they do not wait for it."""
    servers = lab.redises(3)
    before = guarded(lab, servers)
    lease = take(before)
    before.kill()
    for server in servers:
        server.kill()
    start = time.monotonic()
    for server in servers[:2]:
        server.start()
    service = guarded(lab, servers, bootstrap=False, wait=False)
    end = follow_readiness(service, quarantine_seconds(), "no-epoch")
    assert end - start >= quarantine_seconds()
    assert hold(service) > lease["fence"]
    check_clocked(service, servers[:2])


def test_new_masters_of_which_one_is_away(lab):
    """It could have an epoch, so --bootstrap does not help; but the wait does."""
    servers = lab.redises(3)
    servers[1].kill()
    start = time.monotonic()
    service = guarded(lab, servers, wait=False)
    assert follow_readiness(service, quarantine_seconds(), "no-epoch") - start >= quarantine_seconds()
    hold(service)
    servers[1].start()
    service.wait_voting(3)
    assert len(clusters_of(servers)) == 1


@pytest.mark.parametrize("comes_back", ["as-it-was", "empty"])
def test_one_forgot_and_another_one_is_away(lab, comes_back):
    """The master that is away may know a number that no other does: the other one waits for it, with that reason."""
    servers = lab.redises(3)
    service = guarded(lab, servers)
    lease = take(service)
    servers[2].stop()
    start = time.monotonic()
    servers[1].restart()
    wait_state(service, servers[1], "quarantined", "restarted", "no-epoch")
    seen = wait_state(service, servers[1], "quarantined", "fence-recovery", seconds=quarantine_seconds() + 2)
    assert time.monotonic() - start >= quarantine_seconds()
    assert seen["quarantine_remaining_ms"] is None and len(seen["reason"].split()) > 3, seen
    answer = service.curl("GET", "/readyz")
    assert answer.status == 503 and "fence-recovery" in answer.json["detail"], answer
    assert metric(service, "master_quarantined", servers[1], reason="fence-recovery") == 1
    rival = Rival(service)
    wait_until(lambda: rival.tries >= 5 and time.monotonic() > start + quarantine_seconds() + 1.0, what="it stays so")
    assert rival.got is None and code_of(state_of(service, servers[1])) == "fence-recovery"
    if comes_back == "empty":
        servers[2].restart()
        wait_state(service, servers[1], "voting", seconds=4)
        wait_until(lambda: metric(service, "fence_floor_clocked", servers[1]) == 1, 3, "it is said")
    else:
        servers[2].cont()
        wait_state(service, servers[1], "voting", seconds=4)
        assert metric(service, "fence_floor_clocked", servers[1]) == 0
    rival.join(patience(10))
    assert rival.lease["fence"] > lease["fence"]
    service.wait_voting(3)


# ------------------------------------------------------------------------------------------------- what is refused


def refused(masters, *options):
    """Starts a redlockd that must refuse to start; returns its output."""
    result = run_redlockd("--listen", "127.0.0.1:0", "--masters", ",".join(master.url for master in masters), *limits(), *options)
    assert result.returncode == 2, result
    lines = [line for line in result.stderr.splitlines() if "level=error" in line or line.startswith("redlockd: ")]
    return next(line for line in lines if "event=end" not in line)


@pytest.mark.parametrize("bootstrap", [[], ["--bootstrap"]], ids=["", "bootstrap"])
def test_another_number_of_masters_is_refused(lab, bootstrap):
    """Two majorities that do not overlap: of three, and of five of which these are three."""
    servers = lab.redises(5)
    service = guarded(lab, servers[:3])
    message = refused(servers, *bootstrap)
    assert any(server.url in message for server in servers[:3]) and "masters" in message, message
    assert "3" in message or "number" in message
    assert not any(server.cli("HGET", HASH, "epoch") for server in servers[3:])
    assert len({server.cli("HGET", HASH, "digest") for server in servers[:3]}) == 1
    assert refused(servers[:2], *bootstrap)
    take(service)
    service.wait_voting(3)
    assert not service.log("master-quarantined")


def test_a_master_of_another_cluster(lab):
    """Of as many masters: its epoch is as it should be, but for others' leases."""
    servers, others = lab.redises(3), lab.redises(3)
    guarded(lab, others).stop()
    switch = lab.keep(Switch(lab.folder, servers[0]))
    service = guarded(lab, [switch, *servers[1:]])
    switch.lead_to(others[0])
    wait_state(service, switch, "quarantined", "cluster")
    assert metric(service, "master_quarantined", switch, reason="cluster") == 1
    take(service)
    assert others[0].cli("EXISTS", LOCK) == 0
    switch.lead_to(servers[0])
    wait_state(service, switch, "voting")


def test_two_addresses_of_one_server_are_refused(lab):
    servers, both = lab.redises(2), lab.redis(tcp=True)

    class Same:
        url = f"unix:{both.path}"
    message = refused([servers[0], both, Same])
    assert both.url in message and Same.url in message, message


def test_two_addresses_that_come_to_lead_to_one_server(lab):
    """It has one vote; with the third master that is still a majority, and with one address put right it is as before, at once."""
    servers = lab.redises(3)
    switch = lab.keep(Switch(lab.folder, servers[1]))
    service = guarded(lab, [servers[0], switch, servers[2]], ttl_ms=600000)  # a quarantine would outlast the test
    switch.lead_to(servers[0])
    wait_until(lambda: "duplicate" in [code_of(state_of(service, one)) for one in (servers[0], switch)], what="found")
    assert service.curl("GET", "/masters").json["quorum"]["voting"] == 2
    doubled = next(one for one in (servers[0], switch) if code_of(state_of(service, one)) == "duplicate")
    assert metric(service, "master_quarantined", doubled, reason="duplicate") == 1
    servers[2].stop()
    answer = service.curl("POST", "/locks", body={"resource": LOCK})
    assert answer.status == 503 and answer.json["votes"]["granted"] <= 1, f"one server has two votes: {answer}"
    servers[2].cont()
    switch.lead_to(servers[1])
    wait_state(service, doubled, "voting")
    service.wait_voting(3)


def test_two_masters_change_places(lab):
    """They are the same two as before: each has its memory and an epoch that says so. Nothing is forgotten, nothing given twice."""
    servers = lab.redises(3)
    switches = [lab.keep(Switch(lab.folder, server)) for server in servers[:2]]
    first, second = (guarded(lab, [*switches, servers[2]]) for _ in range(2))
    start = time.monotonic()
    lease = take(first)
    until = start + lease["validity_ms"] / 1000
    rival = lab.keep(Rival(second))
    for switch, server in zip(switches, servers[1::-1]):
        switch.lead_to(server)
    rival.join(patience(10))
    assert rival.got and rival.got > until, "GIVEN TWICE"
    assert rival.lease["fence"] > lease["fence"]
    second.wait_voting(3)


def test_a_hash_of_another_type(lab):
    """A foreign key in the place of the hash: errors, no votes, and no harm."""
    servers = lab.redises(3)
    service = guarded(lab, servers)
    servers[0].cli("SET", HASH, "x")
    answers = [service.curl("POST", "/locks", body={"resource": f"{LOCK}/{number}"}) for number in range(5)]
    assert [answer.status for answer in answers] == [201] * 5
    wait_until(lambda: state_of(service, servers[0])["state"] != "voting", 3, "it does not vote")
    since = time.monotonic()
    servers[0].cli("DEL", HASH)
    wait_state(service, servers[0], "voting", seconds=quarantine_seconds() + 4)
    assert time.monotonic() - since >= quarantine_seconds()
    reconnect(servers[0])
    service.wait_voting(3)
