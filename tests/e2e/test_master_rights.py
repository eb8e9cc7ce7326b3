# SPDX-License-Identifier: MIT
"""A master votes only after it has carried out every command that locks need. A Redis user with the documented rights
is enough; each missing right is named, also where commands are renamed; once it is granted the master votes without a
restart. Clients do not see these trials."""

import pathlib
import re
import time

import pytest

from harness import ROOT, wait_until
from waiting_fixtures import crowd  # noqa: F401

pytestmark = pytest.mark.slow  # waits for the ends of quarantines

HEARTBEAT_SECONDS = 1.0


def documented_user():
    """The ACL SETUSER of docs/reference/configuration.md, as arguments."""
    text = pathlib.Path(ROOT, "docs/reference/configuration.md").read_text(encoding="utf-8")
    return re.search(r"^(ACL SETUSER locks .*)$", text, re.M)[1].split()


COMMANDS = [word[1:] for word in documented_user() if word.startswith("+")]
NEEDED = [command for command in COMMANDS if command != "client|setname"]  # the name is for people


def shown(command):
    return command.replace("|", " ").upper()


def serve(lab, servers, wait=False):
    addresses = [f"redis://locks:secret@127.0.0.1:{server.port}/2" for server in servers]
    return lab.redlockd(addresses, "--key-prefix", "prod:", "--bootstrap", wait=wait)


def master(service, server):
    """The entry of a server in /masters, in any database."""
    return next(found for found in service.curl("GET", "/masters").json["masters"] if f":{server.port}" in found["address"])


def refused(service):
    """The commands that the metrics name."""
    return {re.search('command="([^"]*)"', name)[1] for name, value in service.metrics().items()
            if name.startswith("redlockd_master_command_refused{") and value == 1}


def wait_refused(service, server, *commands):
    """Until the master has no vote for want of exactly these commands, in /masters, the metrics and the log."""
    listed = ", ".join(commands)
    wait_until(lambda: f": {listed}: " in (master(service, server)["reason"] or ""), 10, f"{listed} as the reason")
    seen = master(service, server)
    assert seen["state"] in ("down", "quarantined"), seen
    wait_until(lambda: refused(service) == set(commands), 10, f"{commands} in the metrics")
    wait_until(lambda: any(f": {listed}: " in line["reason"] for line in [*service.log("master"), *service.log("master-quarantined")] if line["state"] != "voting"), 10, "the log")
    return seen


def check_steady(service, server, heartbeats=3, ask=True):
    """Neither a heartbeat nor what is asked meanwhile changes what is said: it never votes in between, and the reason stays."""
    first, end, looks = master(service, server), time.monotonic() + heartbeats * HEARTBEAT_SECONDS, 0
    while time.monotonic() < end or looks <= 10:
        if ask:
            lease = service.curl("POST", "/locks", body={"resource": f"steady/{looks}"})
            if lease.status == 201:
                service.release(lease.json)
        seen = master(service, server)
        assert (seen["state"], seen["reason"]) == (first["state"], first["reason"]), (looks, seen)
        looks += 1


def mend(service, server, *rights):
    server.cli("ACL", "SETUSER", "locks", *rights)
    wait_until(lambda: master(service, server)["state"] == "voting", 5, "a vote, without a restart")
    wait_until(lambda: refused(service) == set(), 5, "nothing refused by any master")
    assert master(service, server)["reason"] is None


def test_the_commands_of_the_scripts_are_documented():
    """So that none is left out of the ACL, nor of what is tried (server/masters/master_check.c), when a script takes a new one."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in pathlib.Path(ROOT, "server", "scripts").rglob("*.lua")}
    used = {name.lower() for source in sources.values() for name in re.findall(r"call\('([A-Z]+)'|local \w+ = \{'([A-Z]{4,})'", source) for name in name if name}
    check = pathlib.Path(ROOT, "server", "masters", "master_check.c").read_text(encoding="utf-8")
    probed = {name.lower() for name in re.findall(r"\{(?:PROBE|WRONG)\(([A-Z]+),", check)}
    tried = {name.lower() for name in re.findall(r"\{TRIAL\(([A-Z_]+),", check)}
    assert len(used) >= 15 and used <= set(COMMANDS) and used <= probed, (used - set(COMMANDS), used - probed)
    assert {f"{name}.lua" for name in tried} == {path.name for path in pathlib.Path(ROOT, "server", "scripts").glob("*.lua")}
    assert probed | {"subscribe", "select", "info", "client|setname", "client|id", "script|load"} == set(COMMANDS)


@pytest.mark.parametrize("command", NEEDED)
def test_a_documented_right_is_missing(lab, command):
    server = lab.redis(tcp=True)
    server.cli(*documented_user(), f"-{command}")
    service = serve(lab, [server])
    seen = wait_refused(service, server, shown(command))
    assert seen["state"] == "down" or "also refused: " in seen["reason"], seen
    assert "auth: " in seen["reason"] and "NOPERM" in seen["reason"], seen
    assert service.curl("GET", "/readyz").status == 503
    assert service.curl("POST", "/locks", body={"resource": "x"}).code == "no-quorum"
    mend(service, server, f"+{command}")
    service.release(service.acquire("x"))
    assert [key for key in server.pipeline([("SELECT", "2"), ("KEYS", "*")])[1] if key != "prod:redlockd:master"] == []


@pytest.mark.parametrize("command", ["EVALSHA", "EVAL", "SCRIPT", "SCAN", "SUBSCRIBE", "PUBLISH", "GETRANGE", "HSET", "ZADD", "DEL", "TIME"])
def test_all_masters_have_renamed_a_command(lab, command):
    servers = [lab.redis("--rename-command", command, f"gone-{command}", tcp=True) for _ in range(3)]
    for server in servers:
        server.cli(*documented_user())
    service = serve(lab, servers)
    name = {"SCRIPT": "SCRIPT LOAD"}.get(command, command)
    for server in servers:
        assert "ERR unknown command" in wait_refused(service, server, name)["reason"]
        assert "with args" not in master(service, server)["reason"]
    check_steady(service, servers[0])
    assert service.curl("GET", "/readyz").status == 503
    assert [line for line in service.log("master") if line["state"] == "voting"] == []


def test_all_that_is_missing_is_named_at_once(lab):
    server = lab.redis(tcp=True)
    server.cli(*documented_user(), "-@all", "+select", "+info", "+client|id", "+script|load", "+eval")
    service = serve(lab, [server])
    missing = ["EVALSHA", "TIME", "GETRANGE", "SET", "DEL", "EXISTS", "PTTL", "PEXPIRE", "PEXPIREAT", "SCAN", "HGET", "HMGET", "HSET", "HDEL",
               "HINCRBY", "ZADD", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZRANK", "ZREM", "ZREMRANGEBYRANK", "ZSCORE", "PUBLISH", "SUBSCRIBE"]
    seen = wait_refused(service, server, *missing)
    assert "NOPERM" in seen["reason"] and seen["reason"][-1] not in ",: ", seen
    mend(service, server, *(f"+{name}" for name in COMMANDS))


@pytest.mark.parametrize("rights, commands, word", [
    (["resetkeys", "~prod:redlockd:*"], "GETRANGE, SET, DEL, EXISTS, PTTL, PEXPIRE, PEXPIREAT, HDEL, ZADD, ZCARD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZRANK, ZREM, ZREMRANGEBYRANK, ZSCORE",
     "keys"),
    (["resetchannels"], "PUBLISH, SUBSCRIBE", "channels"),
], ids=["keys", "channel"])
def test_a_pattern_is_missing(lab, crowd, rights, commands, word):  # noqa: F811
    server = lab.redis(tcp=True)
    server.cli(*documented_user(), *rights)
    service = serve(lab, [server])
    assert word in wait_refused(service, server, *commands.split(", "))["reason"]
    check_steady(service, server)
    mend(service, server, "~prod:*", "&prod:redlockd:wake")
    lease = service.acquire("x")
    waiter = crowd.wait(service, "x")
    wait_until(lambda: service.curl("GET", "/locks/x").json["waiters"] == 1, what="a waiter")
    assert service.release(lease).status == 204
    waiter.granted()


@pytest.mark.parametrize("command", ["evalsha", "set", "hset", "zadd", "time", "publish", "eval"])
def test_a_right_is_taken_away_while_it_votes(lab, crowd, command):  # noqa: F811
    """The first command that needs the right shows it; from then on all missing rights are named all the time."""
    servers = [lab.redis(tcp=True) for _ in range(3)]
    for server in servers:
        server.cli(*documented_user())
    service = serve(lab, servers, wait=True)
    service.wait_voting(3)
    service.acquire("held", 60000)
    for server in servers:
        server.cli("ACL", "SETUSER", "locks", f"-{command}")
    if command == "publish":  # no script fails for want of it: it is found on the next connection
        for server in servers:
            server.cli("CLIENT", "KILL", "USER", "locks")
    service.curl("POST", "/locks", body={"resource": "held", "wait_ms": 10})
    service.curl("POST", "/locks", body={"resource": "x"})
    for server in servers:
        wait_refused(service, server, shown(command))
    check_steady(service, servers[0])
    ready = service.curl("GET", "/readyz")
    assert ready.status == 503 and shown(command) in str(ready.json), ready
    voted = [line for line in service.log("master") if line["state"] == "voting"]
    assert len(voted) in (3, 6) if command == "publish" else len(voted) == 3, voted
    for server in servers:
        mend(service, server, f"+{command}") if server is servers[-1] else server.cli("ACL", "SETUSER", "locks", f"+{command}")
    service.wait_voting(3)
    service.release(service.acquire("y"))


def test_the_channel_is_taken_away_while_somebody_waits(lab, crowd):  # noqa: F811
    server = lab.redis(tcp=True)
    server.cli(*documented_user())
    service = serve(lab, [server], wait=True)
    lease = service.acquire("x", 60000)
    waiter = crowd.wait(service, "x", wait_ms=60000)
    wait_until(lambda: server.cli("PUBSUB", "NUMSUB", "prod:redlockd:wake")[1] == 1, what="it listens")
    server.cli("ACL", "SETUSER", "locks", "resetchannels")  # Redis ends the connection that had subscribed
    wait_refused(service, server, "PUBLISH", "SUBSCRIBE")
    mend(service, server, "&prod:redlockd:wake")
    wait_until(lambda: server.cli("PUBSUB", "NUMSUB", "prod:redlockd:wake")[1] == 1, what="it listens again")
    assert service.release(lease).status == 204
    waiter.granted()


@pytest.mark.parametrize("how", ["oom", "misconf", "noreplicas"])
def test_a_master_that_may_not_write(lab, how):
    """Each command that writes fails: said steadily, from the start and later, until it is mended."""
    server = lab.redis("--dbfilename", "dump", tcp=True)
    service = lab.redlockd([server], "--bootstrap")
    break_it = {
        "oom": [("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")],
        "misconf": [("CONFIG", "SET", "save", "1000 1000")],
        "noreplicas": [("CONFIG", "SET", "min-replicas-to-write", "1")],
    }[how]
    mend_it = {"oom": ("CONFIG", "SET", "maxmemory", "0"), "misconf": ("CONFIG", "SET", "stop-writes-on-bgsave-error", "no"),
               "noreplicas": ("CONFIG", "SET", "min-replicas-to-write", "0")}[how]
    for command in break_it:
        server.cli(*command)
    if how == "misconf":
        (pathlib.Path(server.folder) / "dump").mkdir()  # the snapshot cannot be put in its place
        server.cli("BGSAVE")
        wait_until(lambda: "rdb_last_bgsave_status:err" in server.cli("INFO", "persistence"), what="a failed snapshot")

    def down():
        service.curl("POST", "/locks", body={"resource": "x"})
        return ": SET, " in (master(service, server)["reason"] or "")
    wait_until(down, 10, "all that fails is named")
    word = {"oom": "oom: ", "misconf": "MISCONF", "noreplicas": "NOREPLICAS"}[how]
    assert word in master(service, server)["reason"], master(service, server)
    check_steady(service, server)
    again = lab.redlockd([server], wait=False)
    wait_until(lambda: word in (master(again, server)["reason"] or ""), 10, "the reason at the start")
    check_steady(again, server)
    server.cli(*mend_it)
    for each in (service, again):
        wait_until(lambda one=each: master(one, server)["state"] == "voting", 5, "it votes")
    service.release(service.acquire("x"))


def test_a_quarantined_master_names_what_is_missing(lab):
    servers = [lab.redis(tcp=True) for _ in range(3)]
    for server in servers:
        server.cli(*documented_user())
    service = serve(lab, servers, wait=True)
    service.wait_voting(3)
    servers[0].restart()
    servers[0].cli(*documented_user(), "-evalsha", "-zrem", "-publish")
    wait_until(lambda: "also refused: auth: EVALSHA, ZREM, PUBLISH: NOPERM" in (master(service, servers[0])["reason"] or ""), 10, "the quarantine and the rights")
    seen = master(service, servers[0])
    assert seen["state"] == "quarantined" and seen["quarantine_remaining_ms"] > 0, seen
    reason = seen["reason"]
    check_steady(service, servers[0])
    servers[0].cli("ACL", "SETUSER", "locks", "+evalsha", "+zrem", "+publish")
    wait_until(lambda: master(service, servers[0])["reason"] == reason.partition("; also refused: ")[0], 5, "the quarantine alone")
    assert master(service, servers[0])["state"] == "quarantined"


def test_nobody_sees_the_trying(lab, crowd):  # noqa: F811
    """Waiters, a holder and a listing of another redlockd, while one connects again and again: no key of theirs changes, nothing is left."""
    service = lab.service(3)
    lease = service.acquire("x", 60000)
    waiter = crowd.wait(service, "x", wait_ms=60000)
    wait_until(lambda: service.curl("GET", "/locks/x").json["waiters"] == 1, what="a waiter")
    keys = [set(server.cli("KEYS", "*")) - {key for key in server.cli("KEYS", "*") if "alive" in key} for server in service.masters]
    other = lab.redlockd(service.masters)
    for _ in range(10):
        for server in service.masters:
            server.cli("CLIENT", "KILL", "TYPE", "normal")
        assert [lock["resource"] for lock in wait_until(lambda: service.curl("GET", "/locks").json.get("locks"), what="a listing")] == ["x"]
        other.wait_voting(3)
    service.wait_voting(3)
    for server, before in zip(service.masters, keys, strict=True):
        now = set(server.cli("KEYS", "*"))
        assert {key for key in now if "alive" not in key} == before, now
        assert not [key for key in now if "check" in key] and server.cli("TTL", "redlockd:master") == -1
    assert not waiter.is_answered()
    assert service.release(lease).status == 204
    waiter.granted()
