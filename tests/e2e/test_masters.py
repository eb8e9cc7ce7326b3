# SPDX-License-Identifier: MIT
"""Masters that are ill or gone: what the callers then get, and what /masters says.

Addresses that lead to something else: test_master_addresses.py. Masters that forgot: test_guard_*.py."""

import pytest

from fixtures import certified
from harness import SLOW, wait_until
from master_checks import (QUARANTINE_TTL_MS, TIMEOUT_MS, check_a_majority_serves, check_no_quorum, check_votes_without_one,
                           master_of, short_quarantines, wait_for_reason)
from proxy import Proxy


def test_masters_that_are_well(service):
    seen = service.curl("GET", "/masters").json
    assert seen["quorum"] == {"needed": 2, "voting": 3, "masters": 3}
    assert len(seen["masters"]) == 3
    for server in service.masters:
        master = master_of(service, server)
        info = dict(line.split(":", 1) for line in server.cli("INFO", "server").split("\r\n") if ":" in line)
        assert master["state"] == "voting" and master["reason"] is None and master["warnings"] == []
        version = f"valkey {info['valkey_version']}" if "valkey_version" in info else info["redis_version"]
        assert master["version"] == version and master["run_id"] == info["run_id"]
        assert master["rtt_us"] > 0
    assert service.curl("GET", "/readyz").json == {"status": "ready", "quorum": seen["quorum"]}


def test_one_killed_and_back(lab):
    """It comes back without its memory: it is quarantined for as long as the longest lease lasts, and requests do not
    wait for it."""
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS, *short_quarantines())
    dead = service.masters[1]
    dead.kill()
    check_a_majority_serves(service, "at-once")
    master = wait_for_reason(service, dead, "connect", "refused", "down", "closed", "lost", "no such file")
    assert master["state"] == "down"
    later = wait_until(lambda: (one := master_of(service, dead))["state_ms"] > master["state_ms"] and one, what="it is down for longer")
    assert later["state_ms"] < master_of(service, service.masters[0])["state_ms"], "the others have voted since before"
    check_a_majority_serves(service, "later")
    check_votes_without_one(service, "x")
    dead.restart()
    master = wait_for_reason(service, dead, "restarted:", "no-epoch:")
    assert master["state"] == "quarantined" and master["quarantine_remaining_ms"] > 0
    check_a_majority_serves(service, "quarantined")
    check_votes_without_one(service, "x")
    assert dead.cli("EXISTS", "quarantined") == 0
    service.wait_voting(3)
    assert master_of(service, dead)["reason"] is None
    service.acquire("after", QUARANTINE_TTL_MS)
    wait_until(lambda: dead.cli("EXISTS", "after") == 1, what="the restarted master takes part")


def test_two_killed_and_one_back(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS, "--restart-guard", "off")
    held = service.acquire("held")
    for server in service.masters[:2]:
        server.kill()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    check_no_quorum(service, "x")
    assert service.curl("PUT", "/locks/held", body={"token": held["token"]}).status == 503
    assert service.masters[2].cli("EXISTS", "x") == 0
    service.masters[0].restart()
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready again")
    check_a_majority_serves(service, "y")


@pytest.mark.slow
def test_two_killed_and_both_back(lab):
    """One of them alone is not enough: the other one may remember a fence that no other master knows. When it, too, is
    back without its memory, none does."""
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS, *short_quarantines())
    fence = service.acquire("held", QUARANTINE_TTL_MS)["fence"]
    for server in service.masters[:2]:
        server.kill()
    wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="not ready")
    check_no_quorum(service, "x")
    service.masters[0].restart()
    master = wait_for_reason(service, service.masters[0], "fence-recovery:")
    assert master["state"] == "quarantined" and master["quarantine_remaining_ms"] is None
    check_no_quorum(service, "x")
    ready = service.curl("GET", "/readyz")
    assert "fence-recovery: " in ready.json["detail"] and "retry_after_ms" not in ready.json, ready
    service.masters[1].restart()
    service.wait_voting(3)
    assert service.acquire("held", QUARANTINE_TTL_MS)["fence"] > fence
    check_a_majority_serves(service, "y")


def test_one_stopped_and_continued(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    hung = service.masters[0]
    hung.stop()
    check_a_majority_serves(service, "at-once")
    wait_for_reason(service, hung, "timeout", "silent", "timed out", "answer")
    check_a_majority_serves(service, "later")
    check_votes_without_one(service, "x")
    hung.cont()
    service.wait_voting(3)
    service.acquire("after")
    wait_until(lambda: hung.cli("EXISTS", "after") == 1, what="the continued master takes part")
    # Nothing of what was asked while it slept is left.
    wait_until(lambda: hung.cli("EXISTS", "at-once", "later") == 0, what="no zombies")


def test_one_that_loads_its_file(lab):
    servers = certified(lab, 3)
    servers[0].cli("DEBUG", "POPULATE", "3000", "key", "100")
    servers[0].cli("SAVE")
    servers[0].kill()
    servers[0].start(wait=False, options=["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"])
    service = lab.redlockd(servers, "--master-timeout-ms", TIMEOUT_MS, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    wait_for_reason(service, servers[0], "loading")
    check_a_majority_serves(service, "x")
    check_votes_without_one(service, "x")


def test_one_is_a_replica(lab):
    servers = [*certified(lab, 3)[:2], lab.redis("--replicaof", "127.0.0.1", "1")]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready")
    master = wait_for_reason(service, servers[2], "replica")
    assert master["state"] == "quarantined"
    check_a_majority_serves(service, "x")
    check_votes_without_one(service, "x")


def test_one_is_out_of_memory(lab):
    service = lab.service(3)
    full = service.masters[2]
    full.cli("CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "noeviction")
    full.pipeline([("SET", f"fill{i}", "x" * 10000) for i in range(500)])
    check_a_majority_serves(service, "x")
    wait_until(lambda: service.curl("GET", "/locks/x").status == 200)
    # Whether it may go on voting between two errors is its own affair; that it fails must be seen.
    errors = [name for name, value in service.metrics().items() if "error" in name and "oom" in name.lower() and value > 0]
    assert errors, service.metrics()
    for server in service.masters[:2]:
        server.cli("CONFIG", "SET", "maxmemory", "1mb", "maxmemory-policy", "noeviction")
        server.pipeline([("SET", f"fill{i}", "x" * 10000) for i in range(500)])
    answer = service.curl("POST", "/locks", body={"resource": "y"})
    assert answer.status == 503 and answer.code == "no-quorum", answer


def test_nobody_there_at_the_start(lab):
    """It starts, says that it is not ready, and becomes ready when the masters come."""
    servers = lab.redises(3)
    for server in servers:
        server.kill()
    service = lab.redlockd(servers, wait=False)
    ready = service.curl("GET", "/readyz")
    assert ready.status == 503 and ready.code == "no-quorum" and ready.json["detail"]
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 503 and answer.code == "no-quorum"
    assert answer.json["votes"]["failed"] + answer.json["votes"]["quarantined"] >= 2
    for server in servers:
        server.start()
    service.wait_voting(3)
    service.acquire("x")


def test_script_flush_does_not_matter(lab):
    service = lab.service(3)
    lease = service.acquire("x")
    calls = [lambda: service.curl("PUT", "/locks/x", body={"token": lease["token"]}).status == 200,
             lambda: service.curl("POST", "/locks", body={"resource": "x"}).status == 409,
             lambda: service.curl("GET", "/locks/x").json["held"] is True,
             lambda: service.curl("DELETE", "/locks/x", body={"token": lease["token"]}).status == 204,
             lambda: service.curl("POST", "/locks", body={"resource": "x"}).status == 201]
    for call in calls:
        for server in service.masters:
            server.cli("SCRIPT", "FLUSH")
        assert call()


def test_eviction_policy_is_warned_of(lab):
    """As long as there is no bound to the memory it does no harm. Where there is one the master may not vote."""
    servers = [*lab.redises(2), lab.redis("--maxmemory-policy", "allkeys-lru")]
    service = lab.redlockd(servers)
    master = master_of(service, servers[2])
    assert any("maxmemory" in warning or "allkeys-lru" in warning for warning in master["warnings"]), master
    assert master_of(service, servers[0])["warnings"] == []
    assert any("warning" in name and value > 0 for name, value in service.metrics().items())
    assert any(line["level"] == "warn" and "maxmemory" in str(line) for line in service.log()), service.stderr()
    servers[2].cli("CONFIG", "SET", "maxmemory", "100mb")
    master = wait_for_reason(service, servers[2], "maxmemory-policy: allkeys-lru ")
    assert master["state"] == "quarantined" and master["quarantine_remaining_ms"] is None and master["warnings"] == []
    check_a_majority_serves(service, "x")
    check_votes_without_one(service, "x")
    service.acquire("held")
    wait_until(lambda: all(server.cli("EXISTS", "held") for server in servers[:2]), what="the key on the others")
    assert servers[2].cli("EXISTS", "held") == 0
    servers[2].cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
    service.wait_voting(3)
    assert master_of(service, servers[2])["warnings"] == []


def test_a_release_reaches_a_master_that_was_stopped_during_the_acquire(lab):
    service = lab.service(3, "--master-timeout-ms", TIMEOUT_MS)
    for number in range(3):
        sleeper = service.masters[number]
        sleeper.stop()
        lease = service.acquire(f"x{number}", 60000)
        assert service.release(lease).status == 204
        sleeper.cont()
        service.wait_voting(3)
        wait_until(lambda name=f"x{number}", one=sleeper: one.cli("EXISTS", name) == 0, what="no zombie")
        assert [server.cli("EXISTS", f"x{number}") for server in service.masters] == [0, 0, 0]


def test_a_release_reaches_a_master_that_was_cut_off(lab):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies)
    lease = service.acquire("x", 60000)
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in servers), what="the key on all masters")
    proxies[0].cut()
    service.wait_voting(2)
    assert service.release(lease).status == 204
    assert servers[0].cli("EXISTS", "x") == 1
    proxies[0].heal()
    wait_until(lambda: servers[0].cli("EXISTS", "x") == 0, 15, "given back after the reconnection")


def test_a_failed_acquire_is_released_where_the_master_was_cut_off(lab):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies)
    service.release(service.acquire("warm-up"))
    for _ in range(5):  # the answer to a heartbeat may come first, and the cut before the script is carried out
        for proxy in proxies[:2]:
            proxy.cut_at_script = True
        answer = service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": 60000})
        assert answer.status == 503 and answer.code == "no-quorum", answer
        if [server.cli("EXISTS", "x") for server in servers[:2]] == [1, 1]:
            break
        for proxy in proxies[:2]:
            proxy.heal()
        service.wait_voting(3)
        wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), 15, "nothing is left of it")
    assert [server.cli("EXISTS", "x") for server in servers[:2]] == [1, 1]
    wait_until(lambda: servers[2].cli("EXISTS", "x") == 0, what="released where it can be reached")
    for proxy in proxies[:2]:
        proxy.heal()
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), 15, "given back after the reconnection")


def test_a_slow_master_costs_nothing(lab):
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--master-timeout-ms", str(round(5000 * SLOW)))
    proxies[1].gate.clear()  # no answer comes until all requests have got theirs
    for number in range(3):
        service.acquire(f"x{number}")
    assert master_of(service, proxies[1])["state"] == "voting"
    proxies[1].gate.set()


def test_the_connection_of_a_master_can_be_killed_at_any_time(lab):
    service = lab.service(3)
    client = service.client()
    for number in range(30):
        service.masters[number % 3].cli("CLIENT", "KILL", "TYPE", "normal")
        answer = client.call("POST", "/locks", {"resource": f"x{number}", "ttl_ms": 60000})
        assert answer.status in (201, 503), answer
        if answer.status == 503:
            assert answer.json["code"] in ("no-quorum", "split-vote")
        else:
            assert client.call("DELETE", f"/locks/x{number}", {"token": answer.json["token"]}).status in (204, 410, 503)
        wait_until(lambda: client.call("GET", "/readyz").status == 200, what="ready")
    service.wait_voting(3)
    client.close()


def test_a_master_that_came_back_as_another_process_is_warned_of(lab):
    """Only where the guard is off; else it is quarantined."""
    servers = lab.redises(3)
    service = lab.redlockd(servers, "--restart-guard", "off")
    assert not any("restarted" in warning for master in service.curl("GET", "/masters").json["masters"] for warning in master["warnings"])
    servers[0].kill()
    servers[0].restart()
    wait_until(lambda: any(warning.startswith("restarted:") for warning in master_of(service, servers[0])["warnings"]), what="the warning")
    assert not master_of(service, servers[1])["warnings"]
    assert any("restarted" in event["warning"] for event in service.log("master-warning"))
    assert master_of(service, servers[0])["state"] == "voting"


def test_a_master_that_never_came_up_is_logged(lab):
    servers = certified(lab, 3)
    servers[2].kill()
    service = lab.redlockd(servers)
    wait_until(lambda: [event for event in service.log("master") if event["state"] == "down"], what="the log line")
    assert [event for event in service.log("master") if event["state"] == "down"][0]["reason"].startswith("connection: ")
