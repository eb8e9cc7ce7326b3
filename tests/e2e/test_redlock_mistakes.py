# SPDX-License-Identifier: MIT
"""The mistakes that Redlock libraries make, and this one must not: one test for each that can be shown from outside."""

import json
import re
import socket
import struct
import time

import pytest

import redis_clock
from fixtures import certified, needs_localhost
from harness import SLOW, read_response, run_redlockd, wait_until
from proxy import Proxy

TIMEOUT_MS = round(min(1000 * SLOW, 5000))


def with_proxies(lab, *options, count=3, env=None):
    servers = lab.redises(count)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, *options, env=env)
    service.release(service.acquire("warm-up"))  # the scripts are loaded everywhere
    wait_until(lambda: not any(server.cli("EXISTS", "warm-up") for server in servers), what="warm-up over")
    return service, servers, proxies


def tokens_sent(proxy, resource):
    """The tokens that went to one master for a resource, in order, each time one was sent."""
    commands = [command for command in proxy.commands("EVALSHA") if resource in command]
    return [re.match("[0-9a-f]{40}", arg)[0] for command in commands for arg in command[2:] if re.match("[0-9a-f]{40}(:|$)", arg)]


def split_the_vote(servers, resource, hold_ms):
    """Two other libraries have one master each of three: none has a majority. After hold_ms both are free again."""
    for server, stranger in zip(servers[:2], ("a" * 40, "b" * 40)):
        assert server.cli("SET", resource, stranger, "PX", hold_ms, "NX") == "OK"


def test_one_token_over_several_tries(lab):
    """Each try has its own, and validity counts from the last one."""
    pause_ms = round(3500 + 250 * SLOW)
    service, servers, proxies = with_proxies(lab, "--retry-min-ms", str(pause_ms), "--retry-max-ms", str(pause_ms))
    split_the_vote(servers, "x", pause_ms - 500)
    start = time.monotonic()
    lease = service.acquire("x", 20000)
    assert time.monotonic() - start > pause_ms / 1000, "there was a pause"
    assert lease["validity_ms"] > 20000 - 202 - pause_ms
    for proxy in proxies:
        # The answer goes out as soon as a majority has decided: the third master may get its command later.
        wait_until(lambda: lease["token"] in tokens_sent(proxy, "x"), what="the second try at this master")
        tokens = tokens_sent(proxy, "x")
        first = [token for token in tokens if token != lease["token"]]
        assert first, "there was a first try"
        # Try 1 and its release carry the same token, and try 2 another one: no late release can hit it.
        assert len(set(first)) == 1 and len(first) >= 2, tokens
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in servers), what="the second try on all masters")
    assert all(server.cli("GET", "x").startswith(lease["token"]) for server in servers)


def test_a_split_vote_that_stays_is_said_to_be_one(lab):
    service, servers, _ = with_proxies(lab, "--retry-min-ms", "10", "--retry-max-ms", "20", "--retry-count", "2")
    split_the_vote(servers, "x", 60000)
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 503 and answer.code == "split-vote", answer
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json["votes"]["granted"] <= 1 and answer.json["votes"]["refused"] >= 2
    wait_until(lambda: servers[2].cli("EXISTS", "x") == 0, what="given back")


def test_a_timed_out_acquire_that_the_master_applied_later(lab):
    service = lab.service(3, "--master-timeout-ms", str(TIMEOUT_MS))
    for server in service.masters[:2]:
        server.stop()
    answer = service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": 60000})
    assert answer.status == 503 and answer.code == "no-quorum", answer
    assert answer.json["votes"]["failed"] == 2
    for server in service.masters[:2]:
        server.cont()
    service.wait_voting(3)
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in service.masters), what="given back")
    # And free for the next one.
    service.acquire("x")


def test_a_timed_out_acquire_whose_replies_came_late(lab):
    service, servers, proxies = with_proxies(lab, "--master-timeout-ms", str(TIMEOUT_MS))
    for proxy in proxies:
        proxy.reply_delay = 2 * TIMEOUT_MS / 1000
    answer = service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": 60000})
    assert answer.status == 503, answer
    for proxy in proxies:
        proxy.heal()
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), what="given back")
    for proxy in proxies:
        sent = tokens_sent(proxy, "x")
        assert sent == [] or len(sent) >= 2, "each acquire is followed by its release"


def test_an_extension_that_recreates_an_expired_key(lab):
    service = lab.service(3)
    lease = service.acquire("x", 2000)
    wait_until(lambda: not any(server.cli("EXISTS", "x") for server in service.masters), what="expired")
    answer = service.curl("PUT", "/locks/x", body={"token": lease["token"], "ttl_ms": 60000})
    assert answer.status == 410 and answer.code == "lease-expired", answer
    assert answer.json["votes"]["masters"] == 3
    assert [server.cli("EXISTS", "x") for server in service.masters] == [0, 0, 0]


def test_an_extension_that_recreates_what_a_majority_has_lost(lab):
    """Only a majority that has the token may give it back to the others (test_repair.py)."""
    service = lab.service(3)
    lease = service.acquire("x", 30000)
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in service.masters), what="acquired on all")
    for server in service.masters[:2]:
        server.cli("DEL", "x")
    assert service.curl("PUT", "/locks/x", body={"token": lease["token"], "ttl_ms": 60000}).status == 410
    wait_until(lambda: service.masters[2].cli("PTTL", "x") > 30000, what="all have answered")
    assert [server.cli("EXISTS", "x") for server in service.masters] == [0, 0, 1]


def test_an_extension_that_takes_over_anothers_lock(lab):
    """The lease ran out and another client has it: the old holder neither extends nor releases it."""
    service = lab.service(3)
    old = service.acquire("x", 2000)
    wait_until(lambda: not any(server.cli("EXISTS", "x") for server in service.masters), what="expired")
    new = service.acquire("x", 60000)
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in service.masters), what="acquired on all")
    assert service.curl("PUT", "/locks/x", body={"token": old["token"]}).status == 409
    assert service.release(old).status == 409
    assert all(server.cli("GET", "x").startswith(new["token"]) for server in service.masters)


def test_a_lease_handed_out_already_expired(lab):
    """A majority that came too late is released, with its own token."""
    service, servers, proxies = with_proxies(lab, "--master-timeout-ms", str(round(5000 * SLOW)))
    for proxy in proxies:
        proxy.reply_delay = 0.3
    answer = service.curl("POST", "/locks", body={"resource": "x", "ttl_ms": 200})
    assert answer.status == 503, answer
    assert answer.code == "no-quorum"
    longer = service.curl("POST", "/locks", body={"resource": "y", "ttl_ms": 60000})
    assert longer.status == 201 and longer.json["validity_ms"] <= 60000 - 602 - 300, longer
    wait_until(lambda: all(len(tokens_sent(proxy, "x")) >= 2 for proxy in proxies), what="the release is sent to all")
    assert all(len(set(tokens_sent(proxy, "x"))) == 1 for proxy in proxies)


def test_validity_is_not_checked_on_extend(lab):
    service, servers, proxies = with_proxies(lab, "--master-timeout-ms", str(round(5000 * SLOW)))
    lease = service.acquire("x", 60000)
    for proxy in proxies:
        proxy.reply_delay = 0.3
    answer = service.curl("PUT", "/locks/x", body={"token": lease["token"], "ttl_ms": 200})
    assert answer.status == 503 and answer.code == "no-quorum", answer
    longer = service.curl("PUT", "/locks/x", body={"token": lease["token"], "ttl_ms": 50000})
    assert longer.status == 200 and longer.json["validity_ms"] <= 50000 - 502 - 300, longer


@pytest.mark.parametrize("masters, dead", [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)])
def test_a_quorum_of_the_masters_that_happen_to_be_reachable(lab, masters, dead):
    """Half is not a majority, and all of those that are left is not either."""
    service = lab.service(masters)
    for server in service.masters[:dead - 1]:
        server.kill()
    service.wait_voting(masters - dead + 1)
    lease = service.acquire("enough")
    assert service.release(lease).status == 204
    service.masters[dead - 1].kill()
    service.wait_voting(masters - dead)
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 503 and answer.code == "no-quorum", answer
    votes = answer.json["votes"]
    assert votes["needed"] == masters // 2 + 1 and votes["masters"] == masters and votes["failed"] >= dead
    assert service.curl("GET", "/readyz").status == 503


def test_a_new_service_takes_the_reachable_masters_for_all(lab):
    servers = certified(lab, 5)
    for server in servers[:3]:
        server.kill()
    service = lab.redlockd(servers, wait=False)
    service.wait_voting(2)
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 503 and answer.json["votes"]["needed"] == 3, answer


def test_one_masters_error_reported_as_failure(lab):
    """A majority granted, one master answered with an error: that is a lease."""
    service = lab.service(3)
    for command in (("CONFIG", "SET", "maxmemory", "1"), ("REPLICAOF", "127.0.0.1", "1"), ("CONFIG", "SET", "requirepass", "x")):
        service.masters[1].cli(*command)
        lease = service.acquire("x")
        assert service.curl("PUT", "/locks/x", body={"token": lease["token"]}).status == 200, command
        assert service.release(lease).status == 204, command


def test_release_of_an_expired_lease_treated_as_an_error_and_retried(lab):
    service, servers, proxies = with_proxies(lab)
    lease = service.acquire("x", 2000)
    wait_until(lambda: not any(server.cli("EXISTS", "x") for server in servers), what="expired")
    wait_until(lambda: all(tokens_sent(proxy, "x") == [lease["token"]] for proxy in proxies), what="the acquire was sent")
    answer = service.release(lease)
    assert answer.status == 410
    service.stop()
    for proxy in proxies:  # redlockd has ended: no more follows than what the proxy has still to read
        wait_until(lambda one=proxy: len(tokens_sent(one, "x")) >= 2, what="the release")
        assert tokens_sent(proxy, "x") == [lease["token"]] * 2, "one acquire, one release"


@pytest.mark.slow
@pytest.mark.parametrize("jump_seconds", [7200, -7200])
def test_wall_clock_time_in_the_client(lab, clock_library, jump_seconds):
    """The wall clock of redlockd alone jumps by two hours: no lease is longer or shorter for it."""
    clock = redis_clock.RedisClock(lab.folder, clock_library)
    service, servers, proxies = with_proxies(lab, "--master-timeout-ms", str(round(5000 * SLOW)), env=redis_clock.environment_of_redlockd(clock))
    hour = service.log()[-1]["ts"][:13]

    def call_across_a_jump(seconds, method, path, body, arrived):
        """The wall clock jumps while the call is under way: its commands are with the masters, their replies are not back."""
        for proxy in proxies:
            proxy.reply_delay = 1.0 * SLOW
        content = json.dumps(body).encode()
        plain = service.connect()
        plain.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        wait_until(arrived, what="the call is with the masters")
        clock.set_offset_ms(seconds * 1000)
        answer = read_response(plain)
        plain.close()
        for proxy in proxies:
            proxy.heal()
        return answer
    acquired = call_across_a_jump(jump_seconds, "POST", "/locks", {"resource": "x", "ttl_ms": 60000},
                                  lambda: all(server.cli("EXISTS", "x") for server in servers))
    assert acquired.status == 201, acquired
    least, most = 0, 60000 - 602 - 1000 * SLOW
    assert least < acquired.json["validity_ms"] <= most, acquired
    wait_until(lambda: service.log()[-1]["ts"][:13] != hour, what="the jump is felt: it shows in the log")
    for server in servers:
        assert server.cli("PEXPIRE", "x", 50000) == 1
    extended = call_across_a_jump(-jump_seconds, "PUT", "/locks/x", {"token": acquired.json["token"], "ttl_ms": 60000},
                                  lambda: all(server.cli("PTTL", "x") > 50000 for server in servers))
    assert extended.status == 200 and least < extended.json["validity_ms"] <= most, extended
    assert service.curl("POST", "/locks", body={"resource": "x"}).status == 409
    assert 0 < service.curl("GET", "/locks/x").json["remaining_ms"] <= 60000
    assert service.release(acquired.json).status == 204


@pytest.mark.parametrize("how", ["closed", "reset", "half-closed"])
def test_a_lock_granted_to_somebody_whose_connection_is_gone(lab, how):
    service, servers, proxies = with_proxies(lab, "--master-timeout-ms", "30000")
    for proxy in proxies:
        proxy.replies.clear()
    body = b'{"resource":"x","ttl_ms":60000}'
    plain = service.connect()
    plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    wait_until(lambda: all(server.cli("EXISTS", "x") for server in servers), what="granted on all masters")
    if how == "half-closed":
        # Whether the client still reads is unknown: it counts as disconnected, or it gets its lease.
        plain.shutdown(socket.SHUT_WR)
        for proxy in proxies:
            proxy.heal()
        answer = plain.recv(65536)
        if answer.startswith(b"HTTP/1.1 201"):
            assert all(server.cli("EXISTS", "x") for server in servers)
            return
    elif how == "reset":
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    plain.close()
    for proxy in proxies:
        proxy.heal()
    wait_until(lambda: all(server.cli("EXISTS", "x") == 0 for server in servers), what="given back")
    service.acquire("x")


@needs_localhost
def test_the_same_master_listed_twice_under_two_names(lab):
    server = lab.redis(tcp=True)
    for masters in (f"{server.url},unix:{server.path}", f"{server.url},redis://localhost:{server.port}",
                    f"unix:{server.path},unix:{server.path}", f"{server.url}/0,{server.url}/1"):
        result = run_redlockd("--listen", "127.0.0.1:0", "--masters", masters)
        assert result.returncode == 2, (masters, result)


def test_the_same_master_found_twice_only_later(lab):
    """It was down at the start; when it comes it turns out to be one that is there already: it may not vote."""
    server, other, _ = certified(lab, 3)
    late = Proxy(lab.folder, server)
    lab.keep(late)
    late.cut()
    service = lab.redlockd([server, late, other], wait=False)
    wait_until(lambda: service.curl("GET", "/readyz").status == 200, what="ready with two of three")
    late.heal()

    def refused():
        if service.process.poll() is not None:
            return service.process.returncode == 2
        masters = service.curl("GET", "/masters").json["masters"]
        return [master["state"] for master in masters if "same" in str(master["reason"]).lower()]
    wait_until(refused, 15, "the double is noticed")
    if service.process.poll() is None:
        other.kill()
        wait_until(lambda: service.curl("GET", "/readyz").status == 503, what="one server is not two masters")


def test_a_replica_may_not_vote(lab):
    servers = [certified(lab, 3)[0], *(lab.redis("--replicaof", "127.0.0.1", "1", "--replica-read-only", "no") for _ in range(2))]
    service = lab.redlockd(servers, wait=False)
    wait_until(lambda: [master["state"] for master in service.curl("GET", "/masters").json["masters"]] == ["voting", "quarantined", "quarantined"],
               what="replicas quarantined")
    answer = service.curl("POST", "/locks", body={"resource": "x"})
    assert answer.status == 503 and answer.json["votes"]["quarantined"] == 2, answer
    assert [server.cli("EXISTS", "x") for server in servers[1:]] == [0, 0]
