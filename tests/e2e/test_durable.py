# SPDX-License-Identifier: MIT
"""--durable-masters: a master that restarts with all that it answered votes at once, and anything else is a quarantine.

A lease is longer than the restarts, and a quarantine as long as the longest lease: where a lease is extended after a
restart, there was none. The metric of quarantines shows that, too.
"""

import contextlib
import pathlib
import shutil

import pytest

from guard_fixtures import HASH, Switch, clocked, metric, number_of, state_of, wait_state  # noqa: F401
from harness import wait_until

AOF = ["--appendonly", "yes", "--appendfsync", "always"]
TTL_MS = 60000  # the longest lease
REASONS = ("no-epoch", "restarted", "bad-epoch", "clock-forward", "rolled-back", "not-durable")


def durable(lab, masters, *options, bootstrap=True, **how):
    return lab.redlockd(masters, "--durable-masters", *(["--bootstrap"] if bootstrap else []), *options, **how)


def quarantines(service, servers):
    return {(server.url, reason): count for server in servers for reason in REASONS
            if (count := metric(service, "master_quarantines_total", server, reason=reason))}


def take_some(service, count=20):
    return [service.acquire(f"held/{i}", TTL_MS) for i in range(count)]


def extend_all(service, leases):
    for lease in leases:
        answer = service.curl("PUT", f"/locks/{lease['resource']}", body={"token": lease["token"], "ttl_ms": TTL_MS})
        assert answer.status == 200 and answer.json["fence"] == lease["fence"], answer


def check_order(service, leases):
    """Nobody else gets what is held, and the next holder has a larger fence."""
    for lease in leases:
        assert service.curl("POST", "/locks", body={"resource": lease["resource"]}).status == 409
        assert service.release(lease).status == 204
        assert service.acquire(lease["resource"], TTL_MS)["fence"] > lease["fence"]


@contextlib.contextmanager
def down(server):
    server.kill()
    yield
    server.start()


def restart_all(servers):
    for server in servers:
        server.kill()
    for server in servers:
        server.start()


def restart_in_turn(service, servers):
    for server in servers:
        server.restart()
        service.wait_voting(3)


RESTARTS = {"all are killed at once": lambda service, servers: restart_all(servers),
            "two, one right after the other": lambda service, servers: restart_in_turn(service, servers[:2]),
            "the same one again and again": lambda service, servers: restart_in_turn(service, servers[:1] * 3)}


@pytest.mark.parametrize("how", RESTARTS)
def test_leases_outlive_restarts(lab, how):
    """Also those that are not extended between two restarts."""
    servers = lab.redises(3, *AOF)
    service = durable(lab, servers)
    leases = take_some(service)
    RESTARTS[how](service, servers)
    service.wait_voting(3)
    extend_all(service, leases)
    check_order(service, leases)
    assert not quarantines(service, servers)


def test_another_redlockd_follows(lab):
    """One that was started since does not know what the master was: it goes by the others."""
    servers = lab.redises(3, *AOF)
    first = durable(lab, servers)
    leases = take_some(first, 3)
    for server in servers:
        server.kill()
    second = durable(lab, servers, bootstrap=False, wait=False)
    for server in servers:
        server.start()
    for service in (first, second):
        service.wait_voting(3)
        extend_all(service, leases)
        assert not quarantines(service, servers)


def test_a_redlockd_alone_that_was_started_since(lab):
    """Nobody knows how old the data are."""
    servers = lab.redises(3, *AOF)
    first = durable(lab, servers)
    lease = first.acquire("held", TTL_MS)
    first.kill()
    restart_all(servers)
    second = durable(lab, servers, bootstrap=False, wait=False)
    for server in servers:
        wait_state(second, server, "quarantined", "restarted", seconds=10)
    assert second.curl("PUT", "/locks/held", body={"token": lease["token"]}).status == 503


# ------------------------------------------------------------------------------------------------ what is no such restart


def restarts_as(service, server, *codes, meanwhile=lambda: None):
    with down(server):
        meanwhile()
    return wait_state(service, server, "quarantined", *codes)


def test_an_older_image(lab):
    """The append-only file of a moment ago."""
    servers = lab.redises(3, *AOF)
    service = durable(lab, servers)
    files, copy = pathlib.Path(servers[0].folder, "appendonlydir"), pathlib.Path(lab.folder, "image")
    shutil.copytree(files, copy)
    beat = number_of(servers[0], "beat")
    take_some(service, 3)
    wait_until(lambda: number_of(servers[0], "beat") > beat + 1, what="a heartbeat of later")
    wait_until(lambda: metric(service, "master_up", servers[0]), what="read")

    def put_back():
        shutil.rmtree(files)
        shutil.copytree(copy, files)
    restarts_as(service, servers[0], "rolled-back", meanwhile=put_back)


def test_an_empty_one(lab):
    servers = lab.redises(3, *AOF)
    service = durable(lab, servers)
    restarts_as(service, servers[0], "no-epoch", meanwhile=lambda: shutil.rmtree(pathlib.Path(servers[0].folder, "appendonlydir")))


def append_only_file(server):
    return max(pathlib.Path(server.folder, "appendonlydir").glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))


@pytest.mark.parametrize("torn", [b"*3\r\n$3\r\nSET\r\n$4\r\nlo", b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$4\r\nlost\r\n$1\r\nx\r\n"],
                         ids=["command", "transaction"])
def test_a_torn_end(lab, torn):
    """A crash in the middle of a write: what is torn was never answered, and Redis drops it."""
    servers = lab.redises(3, *AOF)
    service = durable(lab, servers)
    leases = take_some(service, 3)
    with down(servers[0]), append_only_file(servers[0]).open("ab") as file:
        file.write(torn)
    servers[1].restart()
    service.wait_voting(3)
    extend_all(service, leases)
    assert servers[0].cli("EXISTS", "lost") == 0
    assert not quarantines(service, servers)


def test_a_lost_end(lab):
    """A disk that has not kept what it acknowledged, back to before the last heartbeat."""
    servers = lab.redises(3, *AOF)
    service = durable(lab, servers)
    size, beat = append_only_file(servers[0]).stat().st_size, number_of(servers[0], "beat")
    wait_until(lambda: number_of(servers[0], "beat") > beat + 1, what="two heartbeats")

    def cut():
        with append_only_file(servers[0]).open("r+b") as file:
            file.truncate(size)
    restarts_as(service, servers[0], "rolled-back", meanwhile=cut)


def test_a_replica_that_was_promoted(lab):
    """It has the epoch of its master and perhaps not its last writes."""
    servers = lab.redises(3, *AOF, "--repl-diskless-sync", "no", tcp=True)
    switch = lab.keep(Switch(lab.folder, servers[0]))
    service = durable(lab, [switch, *servers[1:]])
    replica = lab.redis(*AOF, "--replicaof", "127.0.0.1", str(servers[0].port))
    wait_state(service, switch, "quarantined", "replicas-attached")
    wait_until(lambda: number_of(replica, "beat") > 0, what="replicated")
    replica.cli("REPLICAOF", "NO", "ONE")
    switch.lead_to(replica)
    assert "it was a replica" in wait_state(service, switch, "quarantined", "not-durable")["reason"]
    replica.restart("--replicaof", "no", "one")
    wait_until(lambda: quarantines(service, [switch]).keys() & {(switch.url, "restarted"), (switch.url, "no-epoch")}, what="quarantined when it has restarted")


# ------------------------------------------------------------------------------------------------ settings

WEAK = {"appendonly": ("no", "yes"), "appendfsync": ("everysec", "always"), "no-appendfsync-on-rewrite": ("yes", "no")}


@pytest.mark.parametrize("setting", WEAK)
def test_a_weak_setting(lab, setting):
    """At the first look, and when it changes: it does not vote, and its epoch is gone, so a restart is none of a durable master."""
    weak, durable_value = WEAK[setting]
    servers = lab.redises(3, *AOF)
    servers[0].cli("CONFIG", "SET", setting, weak)
    service = durable(lab, servers, wait=False)
    service.wait_voting(2)
    told = f"not-durable: {setting} is {weak}; set {durable_value}"
    assert wait_state(service, servers[0], "quarantined", "not-durable")["reason"] == told
    servers[1].cli("CONFIG", "SET", setting, weak)
    assert wait_state(service, servers[1], "quarantined", "not-durable")["reason"] == told
    wait_until(lambda: servers[1].cli("HGET", HASH, "epoch") is None, what="no epoch")
    servers[1].cli("CONFIG", "SET", setting, durable_value)
    wait_until(lambda: told not in (state_of(service, servers[1])["reason"] or ""), what="mended")


def test_config_is_forbidden(lab):
    servers = lab.redises(3, *AOF)
    servers[0].cli("ACL", "SETUSER", "default", "-config")
    service = durable(lab, servers, wait=False)
    service.wait_voting(2)
    assert wait_state(service, servers[0], "quarantined", "not-durable")["reason"].startswith("not-durable: CONFIG GET: NOPERM")
    assert service.curl("POST", "/locks", body={"resource": "r"}).status == 201


def test_a_rewrite_is_no_weakness(lab):
    servers = lab.redises(3, *AOF)
    service = durable(lab, servers)
    leases = take_some(service, 3)
    for server in servers:
        server.cli("DEBUG", "SLEEP", 0)
        server.cli("BGREWRITEAOF")
        server.restart()
        service.wait_voting(3)
    extend_all(service, leases)
    assert not quarantines(service, servers)


# ------------------------------------------------------------------------------------------------ all agree


@pytest.mark.parametrize("first", [["--durable-masters"], []], ids=["durable", "plain"])
def test_all_redlockd_agree(lab, first):
    """The option is part of the digest."""
    servers = lab.redises(3, *AOF)
    lab.redlockd(servers, "--bootstrap", *first)
    with pytest.raises(AssertionError, match="layout 4 for 3 durable masters"):
        lab.redlockd(servers, *([] if first else ["--durable-masters"]))
