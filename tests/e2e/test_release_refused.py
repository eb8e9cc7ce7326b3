# SPDX-License-Identifier: MIT
"""A release that a master refuses is repeated until the lease is over, so that the next holder does not wait for its end."""

import contextlib
import pathlib
import threading
import time

import pytest

from harness import Resp, SLOW, RedisError, wait_until
from proxy import Proxy
from waiting_fixtures import crowd  # noqa: F401

TTL_MS = 3600000  # longer than any test waits: a lock that becomes free was released
LONG = ["--max-ttl-ms", str(TTL_MS)]


def fail_snapshot(server):
    server.cli("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes", "save", "3600 1")
    with contextlib.suppress(FileExistsError):
        (pathlib.Path(server.folder) / "dump.rdb").mkdir()  # the snapshot cannot be put in its place
    server.cli("BGSAVE")
    wait_until(lambda: "rdb_last_bgsave_status:err" in server.cli("INFO", "persistence"), what="a failed snapshot")


def begin_endless_script(server):
    server.cli("CONFIG", "SET", "lua-time-limit", "1")
    endless = Resp(server.path, 5)
    endless.send("EVAL", "while true do end", "0")

    def is_busy():
        try:
            return not server.cli("PING")
        except RedisError as error:
            return "BUSY" in str(error)
    wait_until(is_busy, what="a busy server")
    endless.close()


def end_endless_script(server):
    server.cli("SCRIPT", "KILL")

    def answers():
        with contextlib.suppress(RedisError):
            return server.cli("PING") == "PONG"
    wait_until(answers, what="the end of the script")


BREAK = {
    "acl": lambda server: server.cli("ACL", "SETUSER", "default", "-@write"),
    "acl-script": lambda server: server.cli("ACL", "SETUSER", "default", "-evalsha"),
    "noreplicas": lambda server: server.cli("CONFIG", "SET", "min-replicas-to-write", "1"),
    "misconf": fail_snapshot,
    "readonly": lambda server: server.cli("REPLICAOF", "127.0.0.1", "1"),
    "busy": begin_endless_script,
}
MEND = {
    "acl": lambda server: server.cli("ACL", "SETUSER", "default", "+@all"),
    "acl-script": lambda server: server.cli("ACL", "SETUSER", "default", "+@all"),
    "noreplicas": lambda server: server.cli("CONFIG", "SET", "min-replicas-to-write", "0"),
    "misconf": lambda server: server.cli("CONFIG", "SET", "stop-writes-on-bgsave-error", "no"),
    "readonly": lambda server: server.cli("REPLICAOF", "NO", "ONE"),
    "busy": lambda server: end_endless_script(server),
}


def scripts_of(server):
    """How many scripts by their digest it has executed or refused."""
    return sum(int(number) for line in server.cli("INFO", "commandstats").split("\r\n") if line.startswith("cmdstat_evalsha:")
               for number in [line.split("calls=")[1].split(",")[0], line.split("rejected_calls=")[1].split(",")[0]])


def released(servers, name="x"):
    return all(server.cli("EXISTS", name) == 0 for server in servers)


@pytest.mark.parametrize("how", sorted(MEND))
def test_two_of_three_refuse(lab, how):
    service = lab.service(3, "--master-timeout-ms", str(round(500 * SLOW)), *LONG)
    lease = service.acquire("x", TTL_MS)
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in service.masters), what="the key on all masters")
    for server in service.masters[:2]:
        BREAK[how](server)
    answer = service.release(lease)
    assert answer.status == 503 and answer.code == "no-quorum", answer
    for server in service.masters[:2]:
        MEND[how](server)
    wait_until(lambda: released(service.masters), what="released on all masters")
    service.wait_voting(3)
    service.acquire("x", TTL_MS)


@pytest.mark.parametrize("mode, request_, path", [
    ("shared", {"resource": "x", "mode": "shared"}, "/locks/x"),
    ("slots", {"resource": "x", "slots": 2}, "/locks/x"),
    ("set", {"resources": ["x", "y"]}, "/locks"),
])
def test_other_kinds_of_leases(lab, mode, request_, path):
    service = lab.service(3, *LONG)
    lease = service.curl("POST", "/locks", body={**request_, "ttl_ms": TTL_MS}).json
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in service.masters), what="the key on all masters")
    for server in service.masters[:2]:
        BREAK["noreplicas"](server)
    body = {"token": lease["token"], **({"resources": ["x", "y"]} if mode == "set" else {})}
    assert service.curl("DELETE", path, body=body).status == 503
    for server in service.masters[:2]:
        MEND["noreplicas"](server)
    wait_until(lambda: released(service.masters) and released(service.masters, "y"), what="released on all masters")


def test_one_of_three_refuses(lab):
    """The lock is free, and the key that is left on the third master must not count for the next holder's votes for long."""
    service = lab.service(3, *LONG)
    lease = service.acquire("x", TTL_MS)
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in service.masters), what="the key on all masters")
    BREAK["acl"](service.masters[0])
    assert service.release(lease).status == 204
    assert service.masters[0].cli("EXISTS", "x") == 1
    MEND["acl"](service.masters[0])
    wait_until(lambda: released(service.masters), what="released on the third master")


def test_a_waiter_gets_the_lock(lab, crowd):  # noqa: F811
    service = lab.service(3, *LONG)
    lease = service.acquire("x", TTL_MS)
    waiter = crowd.wait(service, "x", wait_ms=60000)
    wait_until(lambda: service.curl("GET", "/locks/x").json["waiters"] == 1, what="a waiter")
    for server in service.masters[:2]:
        BREAK["acl"](server)
    assert service.release(lease).status == 503
    for server in service.masters[:2]:
        MEND["acl"](server)
    waiter.granted()


def test_the_release_of_a_failed_attempt(lab):
    """One master grants, the others do not, and the one that granted refuses the release."""
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--master-timeout-ms", str(round(10000 * SLOW)), "--retry-count", "1", *LONG)
    service.release(service.acquire("warm-up"))
    for server in servers[1:]:
        server.cli("SET", "x", "somebody else's", "PX", TTL_MS)
    for proxy in proxies[1:]:
        proxy.gate.clear()
    answers = []
    asks = threading.Thread(target=lambda: answers.append(service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": TTL_MS})))
    asks.start()
    wait_until(lambda: servers[0].cli("EXISTS", "x") == 1, what="granted by one master")
    BREAK["acl"](servers[0])
    for proxy in proxies[1:]:
        proxy.gate.set()
    asks.join()
    assert answers[0].status == 409, answers
    assert servers[0].cli("EXISTS", "x") == 1
    MEND["acl"](servers[0])
    wait_until(lambda: released(servers[:1]), what="released by the one that granted")


def test_many_releases_at_once(lab):
    """Their number in flight is bounded while the master refuses, and all are carried out when it does not any more."""
    service = lab.service(3, "--workers", "2", *LONG)
    names = [f"r{number}" for number in range(300)]
    client = service.client()
    leases = [client.call("POST", "/locks", {"resource": name, "ttl_ms": TTL_MS}).json for name in names]
    for server in service.masters[:2]:
        BREAK["noreplicas"](server)
    for lease in leases:
        assert client.call("DELETE", f"/locks/{lease['resource']}", {"token": lease["token"]}).status == 503
    before, start = scripts_of(service.masters[0]), time.monotonic()
    wait_until(lambda: scripts_of(service.masters[0]) >= before + 500, what="releases are repeated")
    repeated, took = scripts_of(service.masters[0]) - before, time.monotonic() - start
    assert repeated <= 2 * 32 * (took / 0.1 + 2), (repeated, took)  # of each worker 32 commands in a tenth of a second
    for server in service.masters[:2]:
        MEND["noreplicas"](server)
    wait_until(lambda: service.masters[0].cli("EXISTS", *names) == 0 and service.masters[1].cli("EXISTS", *names) == 0, what="all released")
    client.close()


def test_one_that_is_refused_for_ever_delays_no_other(lab):
    """Rights by key: a command for both would be refused as a whole."""
    service = lab.service(1, *LONG)
    leases = [service.acquire(name, TTL_MS) for name in ("x", "y")]
    server = service.masters[0]
    server.cli("ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all")
    server.auth = ["locks", "secret"]
    server.cli("ACL", "SETUSER", "default", "resetkeys", "~redlockd:*")
    for lease in leases:
        assert service.release(lease).status == 503
    server.cli("ACL", "SETUSER", "default", "~y")
    wait_until(lambda: released([server], "y"), what="the other one is released")
    assert server.cli("EXISTS", "x") == 1
    server.cli("ACL", "SETUSER", "default", "~*")
    wait_until(lambda: released([server]), what="released, too")


def test_a_lease_that_is_over_is_not_released_any_more(lab):
    """The repetition ends with the longest lease."""
    server = lab.redis()
    proxy = lab.keep(Proxy(lab.folder, server))
    service = lab.redlockd([proxy], "--max-ttl-ms", "4000", "--default-ttl-ms", "4000")
    lease = service.acquire("x", 4000)

    def repeated():
        return sum(lease["token"] in command for command in proxy.commands("EVALSHA"))
    BREAK["noreplicas"](server)
    assert service.release(lease).status == 503
    wait_until(lambda: repeated() >= 4, what="it is repeated")

    def is_over():
        before = repeated()
        time.sleep(1)  # ten times the pause between two repetitions
        return repeated() == before
    wait_until(is_over, what="it is repeated no more")
