# SPDX-License-Identifier: MIT
"""SIGHUP takes a changed address in --masters-file: another server in the place of a master, which is checked as at a start. No redlockd is restarted, and
no lease is counted from a server that did not grant it. Passwords and certificates: test_masters_reload.py."""

import contextlib
import json
import re
import threading
import time

import pytest

from fixtures import certified
from harness import wait_until
from master_checks import QUARANTINE_TTL_MS, check_a_majority_serves, master_of, short_quarantines, wait_for_reason
from proxy import Proxy
from reload_fixtures import MastersFile, reload, serve
from waiting_fixtures import crowd  # noqa: F401


def tcp_url(server):
    return f"redis://127.0.0.1:{server.port}"


def replace(service, file, servers, new, old=0):
    """The address of `new` instead of that of a master; returns the line of the log."""
    urls = [server if isinstance(server, str) else server.url for server in servers]
    urls[old] = new if isinstance(new, str) else new.url
    file.write(*urls)
    return reload(service)


def begin(lab, servers, *options):
    file = MastersFile(lab)
    file.write(*(server.url for server in servers))
    return serve(lab, file, *options), file


def quarantines(service):
    return sum(value for name, value in service.metrics().items() if name.startswith("redlockd_master_quarantines_total{"))


def series_of(service):
    """The addresses in the labels of the metrics."""
    return {found for name in service.metrics() for found in re.findall(r'master="([^"]*)"', name)}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_empty_server_in_place_of_one_that_is_gone(lab, workers):
    """As at a start: quarantined until the leases are over that the old one may have granted, then with the fences of the others."""
    servers, new = lab.redises(3), lab.redis()
    service, file = begin(lab, servers, "--workers", workers, *short_quarantines())
    fence = service.acquire("held", QUARANTINE_TTL_MS)["fence"]
    servers[0].kill()
    line = replace(service, file, servers, new)
    assert line["moved"] == f"{servers[0].url} -> {new.url}", line
    master = wait_for_reason(service, new, "no-epoch:")
    assert master["state"] == "quarantined" and master["quarantine_remaining_ms"] > 0, master
    check_a_majority_serves(service, "meanwhile")
    assert new.cli("EXISTS", "meanwhile") == 0
    service.wait_voting(3)
    assert service.acquire("held", QUARANTINE_TTL_MS)["fence"] > fence
    wait_until(lambda: new.cli("EXISTS", "held") == 1, what="the new one takes part")
    urls = {server.url for server in [new, *servers[1:]]}
    assert series_of(service) == urls and {master["address"] for master in service.curl("GET", "/masters").json["masters"]} == urls
    assert [one["master"] for one in service.log("master") if one.get("reason", "").startswith("replaced: ")] in ([], [servers[0].url] * int(workers))


def test_the_old_one_still_runs(lab, crowd):  # noqa: F811
    """Both connections to it end, and its votes are not counted any more. Those that wait or hold meanwhile go on."""
    servers, new = lab.redises(3), lab.redis()
    service, file = begin(lab, servers, *short_quarantines())
    lease = service.acquire("x", QUARANTINE_TTL_MS)
    waiter = crowd.wait(service, "x", wait_ms=60000, ttl_ms=QUARANTINE_TTL_MS)
    wait_until(lambda: service.curl("GET", "/locks/x").json["waiters"] == 1, what="a waiter")
    replace(service, file, servers, new)
    wait_until(lambda: "name=redlockd" not in servers[0].cli("CLIENT", "LIST") and servers[0].cli("PUBSUB", "CHANNELS") == [], what="no connection")
    wait_until(lambda: [one["master"] for one in service.log("master") if one.get("reason", "").startswith("replaced: ")] == [servers[0].url], what="the line in the log")
    assert service.curl("PUT", "/locks/x", body={"token": lease["token"], "ttl_ms": QUARANTINE_TTL_MS}).status == 200
    assert service.release(lease).status == 204
    waiter.granted()
    service.acquire("y", QUARANTINE_TTL_MS)
    assert servers[0].cli("EXISTS", "y") == 0
    service.wait_voting(3)


def test_a_lease_does_not_count_the_vote_of_the_new_one(lab):
    """It was granted by the old server and one more. Without the old one no majority knows it, and no other lease is granted before it is over."""
    servers, new = lab.redises(3), lab.redis()
    proxy = lab.keep(Proxy(lab.folder, servers[2]))
    service, file = begin(lab, [*servers[:2], proxy], *short_quarantines())
    proxy.cut()
    service.wait_voting(2)
    start = time.monotonic()
    lease = service.acquire("x", QUARANTINE_TTL_MS)
    servers[0].kill()
    proxy.heal()
    replace(service, file, [*servers[:2], proxy], new)
    wait_for_reason(service, new, "no-epoch:")
    assert service.curl("PUT", "/locks/x", body={"token": lease["token"], "ttl_ms": QUARANTINE_TTL_MS}).status != 200

    def granted():
        answer = service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": QUARANTINE_TTL_MS})
        assert answer.status in (201, 409, 503), answer
        return answer.status == 201 and answer.json
    other = wait_until(granted, what="the next lease")
    assert time.monotonic() - start > lease["validity_ms"] / 1000 and other["fence"] > lease["fence"]
    service.wait_voting(3)


def test_a_server_that_was_replaced_and_is_back(lab):
    """Its epoch is as good as before, but it has missed the leases that the other one voted for."""
    servers, new = lab.redises(3), lab.redis()
    service, file = begin(lab, servers, *short_quarantines())
    replace(service, file, servers, new)
    service.wait_voting(3)
    fence = service.acquire("x", QUARANTINE_TTL_MS)["fence"]
    file.write(*(server.url for server in servers))
    reload(service)
    master = wait_for_reason(service, servers[0], "rolled-back:")
    assert master["state"] == "quarantined", master
    service.wait_voting(3)
    assert service.acquire("x", QUARANTINE_TTL_MS)["fence"] > fence


def test_no_lease_is_given_twice_by_a_server_that_is_back(lab):
    """The lease has the votes of the server that replaced it and of one that cannot be reached now; it and the third one have never seen the lease."""
    servers, new = lab.redises(3), lab.redis()
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers[1:]]
    service, file = begin(lab, [servers[0], *proxies], *short_quarantines())
    replace(service, file, [servers[0], *proxies], new)
    service.wait_voting(3)
    proxies[1].cut()
    service.wait_voting(2)
    start = time.monotonic()
    lease = service.acquire("x", QUARANTINE_TTL_MS)
    proxies[0].cut()
    proxies[1].heal()
    file.write(*(server.url for server in [servers[0], *proxies]))
    reload(service)
    while time.monotonic() - start < lease["validity_ms"] / 1000:
        answer = service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": QUARANTINE_TTL_MS})
        assert answer.status in (409, 503) or time.monotonic() - start > lease["validity_ms"] / 1000, answer
    proxies[0].heal()
    service.wait_voting(3)
    assert service.acquire("x", QUARANTINE_TTL_MS)["fence"] > lease["fence"]


def test_the_same_server_at_another_address(lab):
    """It keeps its vote: nothing was forgotten."""
    servers = lab.redises(3, tcp=True)
    file = MastersFile(lab)
    file.write(*(f"unix:{server.path}" for server in servers))
    service = serve(lab, file)
    lease = service.acquire("x", 60000)
    file.write(*(tcp_url(server) for server in servers))
    line = reload(service)
    assert line["moved"].count(" -> ") == 3, line
    wait_until(lambda: service.curl("PUT", "/locks/x", body={"token": lease["token"], "ttl_ms": 60000}).status == 200, what="extended")
    service.wait_voting(3)
    assert quarantines(service) == 0
    assert service.release(lease).status == 204


def test_nobody_is_at_the_new_address(lab):
    servers = lab.redises(3)
    service, file = begin(lab, servers)
    away = lab.folder + "/nobody"
    replace(service, file, servers, f"unix:{away}")
    master = wait_for_reason(service, f"unix:{away}", "no such file")
    assert master["state"] == "down" and master["version"] is None and master["run_id"] is None, master
    wait_until(lambda: any(one["master"] == f"unix:{away}" and one["state"] == "down" for one in service.log("master")), what="the line of the log")
    check_a_majority_serves(service, "x")
    file.write(*(server.url for server in servers))
    reload(service)
    service.wait_voting(3)
    assert quarantines(service) == 0


def test_a_hung_server_is_replaced(lab):
    servers, new = lab.redises(3), lab.redis()
    service, file = begin(lab, servers, *short_quarantines())
    servers[0].stop()
    check_a_majority_serves(service, "x")
    wait_for_reason(service, servers[0], "timeout")
    replace(service, file, servers, new)
    wait_for_reason(service, new, "no-epoch:")
    service.wait_voting(3)


@pytest.mark.parametrize("kind, state, reason", [
    ("twice", "quarantined", "duplicate: "), ("replica", "quarantined", "replica: "), ("evicts", "quarantined", "maxmemory-policy: "),
    ("digest", "quarantined", "digest: "), ("cluster", "quarantined", "cluster: "), ("password", "down", "auth: ")])
def test_a_server_that_may_not_vote(lab, kind, state, reason):
    servers = lab.redises(3, tcp=True)
    service, file = begin(lab, servers, *short_quarantines())
    new = {"twice": lambda: f"unix:{servers[1].path}", "replica": lambda: lab.redis("--replicaof", "127.0.0.1", "1"),
           "evicts": lambda: lab.redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"), "digest": lambda: certified(lab, 1)[0],
           "cluster": lambda: certified(lab, 3)[0], "password": lambda: lab.redis("--requirepass", "s3cret", auth=["s3cret"])}[kind]()
    replace(service, file, servers, new)
    assert wait_for_reason(service, new, reason)["state"] == state
    check_a_majority_serves(service, "x")
    file.write(*(server.url for server in servers))
    reload(service)
    service.wait_voting(3)


def test_held_by_a_connection(lab):
    """The stream of a held lease goes on, and the lease is renewed, while a master is replaced."""
    servers, new = lab.redises(3), lab.redis()
    service, file = begin(lab, servers, *short_quarantines())
    plain = service.connect()
    body = json.dumps({"resource": "x", "ttl_ms": QUARANTINE_TTL_MS, "hold": True})
    plain.sendall(f"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    stream = plain.makefile("rb")
    assert b" 201 " in stream.readline()
    lost, renewed = [], threading.Event()

    def read():
        with contextlib.suppress(OSError, ValueError):
            for line in stream:
                if b"lost" in line or b"draining" in line:
                    lost.append(line)
                if b"renewed" in line:
                    renewed.set()
    reader = threading.Thread(target=read)
    reader.start()
    servers[0].kill()
    replace(service, file, servers, new)
    service.wait_voting(3)
    renewed.clear()
    assert renewed.wait(30) and not lost, lost
    plain.shutdown(2)
    reader.join()
    assert not lost, lost


def vote_at(service, urls):
    masters = service.curl("GET", "/masters").json["masters"]
    return [(one["address"], one["state"]) for one in masters] == [(url, "voting") for url in urls]


def test_addresses_change_under_load(lab):
    """Each master moves in turn between two addresses of its own. No lease is lost; a 503 is possible for a lease that has been granted by two masters,
    while the connection to one of them is new."""
    servers = lab.redises(3, tcp=True)
    service, file = begin(lab, servers, "--workers", "2")
    over, wrong, done = threading.Event(), [], [0]

    def until(status, *request):
        answer = request[0].call(*request[1:])
        while answer.status == 503 and answer.json["code"] in ("no-quorum", "split-vote"):
            answer = request[0].call(*request[1:])
        if answer.status not in status:
            wrong.append(answer)
        return answer

    def work(name):
        client = service.client()
        while not over.is_set() and not wrong:
            lease = until([201], client, "POST", "/locks", {"resource": name, "ttl_ms": 30000, "wait_ms": 30000})
            if lease.status == 201:
                until([200], client, "PUT", f"/locks/{name}", {"token": lease.json["token"]})
                until([204, 410], client, "DELETE", f"/locks/{name}", {"token": lease.json["token"]})  # 410: the first one was carried out in part
            done[0] += 1
        client.close()
    threads = [threading.Thread(target=work, args=(f"r{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(6):
        urls = [tcp_url(server) if turn // 3 % 2 == 0 and number <= turn % 3 or turn // 3 % 2 and number > turn % 3 else f"unix:{server.path}"
                for number, server in enumerate(servers)]
        file.write(*urls)
        reload(service)
        # the connections are spread over the workers: each must have been seen
        wait_until(lambda: wrong or all(vote_at(service, urls) for _ in range(12)), what="all vote")  # noqa: B023
        seen = done[0]
        wait_until(lambda: wrong or done[0] > seen + 8, what="work goes on")  # noqa: B023
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert quarantines(service) == 0
    assert master_of(service, urls[0])["state"] == "voting"
