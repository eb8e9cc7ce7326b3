# SPDX-License-Identifier: MIT
"""The same request again (Idempotency-Key): the answer is the lease that the first one was granted."""
import json
import socket
import struct

import pytest

import harness
from harness import connect_to, quote, read_response, wait_until
from key_fixtures import Key, Keyed
from proxy import Proxy
from test_hold import Stream
from waiting_fixtures import wait_for_queue


def key_of(name):
    return name.ljust(16, "-")


def head(key, content):
    return f"POST /locks HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {key_of(key)}\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()


def ask(service, resource, key, ttl_ms=30000, **members):
    return service.curl("POST", "/locks", headers={"Idempotency-Key": key_of(key)}, body={"resource": resource, "ttl_ms": ttl_ms, **members})


def check_same(again, lease):
    assert again.status == 200, again
    assert (again.json["token"], again.json["fence"]) == (lease["token"], lease["fence"])


class Asked:
    """A request that stays under way, over a connection of its own."""

    def __init__(self, service, resource, key, ttl_ms=30000, **members):
        self.plain = connect_to(service.address, 60)
        self.plain.sendall(head(key, json.dumps({"resource": resource, "ttl_ms": ttl_ms, **members})))

    def answer(self):
        return read_response(self.plain, "POST")

    def cut(self):
        self.plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.plain.close()


@pytest.fixture(scope="module")
def pair():
    """Two redlockd over the same masters."""
    with harness.Lab() as lab:
        servers = lab.redises(3)
        yield [lab.redlockd(servers), lab.redlockd(servers)]


def test_the_same_lease_again(pair, resource):
    first = ask(pair[0], resource, "one", ttl_ms=15000, owner="me")
    assert first.status == 201 and "location" in first.headers
    for service in pair:
        again = ask(service, resource, "one", ttl_ms=20000, owner="me")
        check_same(again, first.json)
        assert "location" not in again.headers
        assert (again.json["ttl_ms"], again.json["owner"]) == (20000, "me")
        assert 0 < again.json["validity_ms"] < 20000
    assert ask(pair[1], resource, "two").code == "locked"
    assert pair[0].release(again.json).status == 204
    assert ask(pair[0], resource, "one").status == 201


def test_a_shorter_ttl_does_not_shorten(pair, resource):
    first = ask(pair[0], resource, "one", ttl_ms=60000)
    check_same(ask(pair[1], resource, "one", ttl_ms=1000), first.json)
    state = wait_until(lambda: pair[0].curl("GET", f"/locks/{quote(resource)}").json)
    assert state["remaining_ms"] > 30000 and state["held"] and "one" not in json.dumps(state)


def test_after_the_lease_has_ended(pair, resource):
    first = ask(pair[0], resource, "one", ttl_ms=2000)
    wait_until(lambda: not any(server.cli("GET", resource) for server in pair[0].masters))
    second = ask(pair[1], resource, "one", ttl_ms=2000)
    assert second.status == 201 and second.json["token"] != first.json["token"] and second.json["fence"] > first.json["fence"]
    wait_until(lambda: not any(server.cli("GET", resource) for server in pair[0].masters))
    assert ask(pair[1], resource, "two").json["fence"] > second.json["fence"]
    assert ask(pair[0], resource, "one").code == "locked"


@pytest.mark.parametrize("headers", [[""], ["a" * 15], ["a" * 20 + " b"], ["é" * 16], ["x" * 129], ["a" * 16] * 2, ["a" * 16, ""]])
def test_a_bad_key_is_refused(pair, resource, headers):
    more = [part for value in headers for part in ("-H", f"Idempotency-Key: {value}" if value else "Idempotency-Key;")]
    answer = pair[0].curl("POST", "/locks", *more, body={"resource": resource})
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert answer.json["errors"] == [{"field": "Idempotency-Key", "reason": "must be 16 to 128 visible ASCII characters, given once: unique for each acquisition, "
                                                               "as a UUID is"}]
    assert not any(server.cli("GET", resource) for server in pair[0].masters), "nothing was sent"


def test_the_longest_key_and_other_routes(pair, resource):
    key = "".join(chr(c) for c in range(0x21, 0x7f)) + "x" * 34
    lease = Asked(pair[0], resource, key).answer()
    assert lease.status == 201
    again = Asked(pair[0], resource, key).answer()
    check_same(again, lease.json)
    assert pair[0].curl("PUT", f"/locks/{quote(resource)}", headers={"Idempotency-Key": "a b"}, body={"token": again.json["token"]}).status == 200


@pytest.mark.parametrize("members", [{"owner": "five"}, {"metadata": {"job": 5}}, {"mode": "shared"}, {"slots": 1}, {"slots": 2}, {"resources": ["other"]}])
def test_another_request_with_the_same_key_is_refused(pair, resource, members):
    """What five machines have in common by mistake gives them no common lease, as long as they differ in something."""
    first = ask(pair[0], resource, "nightly-report-job", owner="one", metadata={"job": 1})
    assert first.status == 201
    body = {"resource": resource, "owner": "one", "metadata": {"job": 1}, **members}
    if "resources" in body:
        body["resources"] = [body.pop("resource"), *body["resources"]]
    answer = pair[1].curl("POST", "/locks", headers={"Idempotency-Key": key_of("nightly-report-job")}, body=body)
    assert (answer.status, answer.code) == (409, "locked"), answer
    check_same(ask(pair[1], resource, "nightly-report-job", owner="one", metadata={"job": 1}), first.json)


def test_keys_are_not_logged(lab, resource):
    service = lab.service(3, "--log-level", "debug")
    first = ask(service, resource, "very-secret-key")
    check_same(ask(service, resource, "very-secret-key"), first.json)
    assert "very-secret" not in service.stderr()
    assert all("very-secret" not in (server.cli("GET", resource) or "") for server in service.masters)


def test_the_key_of_another_caller(lab, resource):
    names = ("billing", "orders")
    keyed = Keyed(lab, [Key(name, [""], ["acquire"]) for name in names]).wait_ready()

    def post(name, key):
        return keyed.call(name, "POST", "/locks", body={"resource": resource}, headers={"Idempotency-Key": key_of(key)})

    first = post("billing", "one")
    assert first.status == 201
    assert post("orders", "one").code == "locked"
    check_same(post("billing", "one"), first.json)


@pytest.mark.parametrize("how", ["the same", "another", "a new one"])
def test_an_answer_that_was_cut_off(lab, how):
    """After each eighth byte of the answer, and before the first one: also while the request is under way."""
    servers = lab.redises(3)
    service, other = lab.redlockd(servers), lab.redlockd(servers)
    size, at, tokens = 1, -2, set()
    while at < size:
        resource, key = f"cut/{at}", f"key-{at}"
        first = Asked(service, resource, key, owner="o" * (at % 7))
        if at >= 0:
            taken = b""
            while len(taken) < at:
                taken += first.plain.recv(at - len(taken))
            size = 480
        if at > 0 or at == -1:
            wait_until(lambda: servers[0].cli("GET", resource), what="on this master, too")
        first.cut()
        if how == "a new one" and at % 80 == 0:
            service.stop()
            service = lab.redlockd(servers)
        through = other if how == "another" else service
        holder = (servers[0].cli("GET", resource) or "")[:40]
        again = ask(through, resource, key, owner="o" * (at % 7))
        assert again.status in ((200,) if at > 0 else (200, 201)), (at, again)
        if at > 0:
            assert again.json["token"] == holder
        check_same(ask(other, resource, key, owner="o" * (at % 7)), again.json)
        assert again.json["token"] not in tokens
        tokens.add(again.json["token"])
        at += 1 if at < 0 else 8
        size = size if at < 300 else at


def test_a_retry_while_the_first_one_waits(pair, resource):
    holder = pair[0].acquire(resource)
    first = Asked(pair[0], resource, "one", wait_ms=60000)
    wait_for_queue(pair[0].masters, resource, 1)
    between = Asked(pair[1], resource, "other", wait_ms=60000)
    wait_for_queue(pair[0].masters, resource, 2)
    again = [Asked(service, resource, "one", wait_ms=60000) for service in pair]
    wait_for_queue(pair[0].masters, resource, 4)
    assert pair[0].release(holder).status == 204
    lease = first.answer()
    assert lease.status == 201, lease
    for one in again:
        check_same(one.answer(), lease.json)
    assert pair[0].release(lease.json).status == 204
    assert between.answer().status == 201


def test_a_retry_that_missed_the_message(lab, resource):
    """A waiting request hears from no master that a lease of its key was confirmed, since its connections for messages are cut. It looks when they are
    back, although another one waits before it."""
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service, deaf = lab.redlockd(servers), lab.redlockd(proxies)
    holder = service.acquire(resource)
    first = Asked(service, resource, "one", wait_ms=60000)
    wait_for_queue(servers, resource, 1)
    between = Asked(deaf, resource, "other", wait_ms=60000)
    wait_for_queue(servers, resource, 2)
    again = Asked(deaf, resource, "one", wait_ms=60000)
    wait_for_queue(servers, resource, 3)
    for proxy in proxies:
        proxy.swallow = True
    assert service.release(holder).status == 204
    lease = first.answer()
    assert lease.status == 201, lease
    for proxy in proxies:
        proxy.cut()
        proxy.heal()
    check_same(again.answer(), lease.json)
    assert service.release(lease.json).status == 204
    assert between.answer().status == 201


def test_a_retry_after_the_first_one_has_left(pair, resource):
    holder = pair[0].acquire(resource)
    first = Asked(pair[0], resource, "one", wait_ms=60000)
    wait_for_queue(pair[0].masters, resource, 1)
    again = Asked(pair[1], resource, "one", wait_ms=60000)
    wait_for_queue(pair[0].masters, resource, 2)
    first.cut()
    assert pair[0].release(holder).status == 204
    answer = again.answer()
    assert answer.status in (200, 201), answer
    assert pair[1].curl("PUT", f"/locks/{quote(resource)}", body={"token": answer.json["token"]}).status == 200


@pytest.mark.parametrize("wait_ms", [None, 20000])
def test_several_at_once(pair, resource, wait_ms):
    """All of them get one lease."""
    more = {"wait_ms": wait_ms} if wait_ms else {}
    for turn in range(15):
        name = f"{resource}/{turn}"
        answers = [one.answer() for one in [Asked(pair[i % 2], name, "one", **more) for i in range(4)]]
        assert sorted(answer.status for answer in answers) == [200, 200, 200, 201], answers
        assert len({(answer.json["token"], answer.json["fence"]) for answer in answers}) == 1


def test_a_stream_again(pair, resource):
    streams = [Stream(pair[0], resource, "-H", f"Idempotency-Key: {key_of('one')}", ttl_ms=4500)]
    assert streams[0].head()[0] == 201
    lease = streams[0].event()
    streams.append(Stream(pair[1], resource, "-H", f"Idempotency-Key: {key_of('one')}", ttl_ms=4500))
    assert streams[1].head()[0] == 200
    again = streams[1].event()
    assert again["event"] == "acquired" and (again["token"], again["fence"]) == (lease["token"], lease["fence"])
    harness.end_process(streams[0].process)
    assert streams[1].event()["event"] == "renewed"
    assert streams[1].event()["event"] == "renewed"
    harness.end_process(streams[1].process)
    state = pair[0].curl("GET", f"/locks/{quote(resource)}").json
    assert state["held"], "the connection is gone, but its client may come back"
    check_same(ask(pair[0], resource, "one", ttl_ms=4500), lease)
    wait_until(lambda: not pair[0].curl("GET", f"/locks/{quote(resource)}").json["held"], 10, "its time is up")


def test_a_note_that_was_lost(lab, resource):
    """The lease is granted, but the key reaches one master only, and the answers are lost. The next request gets that lease."""
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    other = lab.redlockd(servers)

    service = lab.redlockd(proxies, "--master-timeout-ms", "20000")
    for proxy in proxies:
        proxy.swallow = True
    first = Asked(service, resource, "one")
    wait_until(lambda: all(server.cli("GET", resource) for server in servers))
    again = ask(other, resource, "one")
    assert again.status in (409, 503), "the first one has not been granted, and is released soon"
    for proxy in proxies:
        proxy.cut()
        proxy.heal()
    lost = first.answer()
    assert lost.status in (201, 503), lost
    granted = wait_until(lambda: (answer := ask(other, resource, "one")).status in (200, 201) and answer)
    if lost.status == 201:
        check_same(granted, lost.json)
    service.wait_voting(3)
    check_same(ask(service, resource, "one"), granted.json)


def test_one_master_is_enough_for_the_note(pair, resource):
    """The key was noted on one master alone: the lease was granted, so it is given again. A master that holds what is left of one alone does not count."""
    lease = ask(pair[0], resource, "one").json
    wait_until(lambda: all(":?" not in (server.cli("GET", resource) or ":?") for server in pair[0].masters))
    for server in pair[0].masters[1:]:
        token, until, fence, key, owner = server.cli("GET", resource).split(":", 4)
        server.cli("SET", resource, f"{token}:{until}:{fence}:?{key}:{owner}", "KEEPTTL")
    # the two others refuse it if their answers are always the first ones
    wait_until(lambda: ask(pair[1], resource, "one").status != 409, what="the answer of the master with the note")
    check_same(ask(pair[1], resource, "one"), lease)
    for server in pair[0].masters[1:]:
        server.cli("DEL", resource)
    new = ask(pair[1], resource, "one")
    assert new.status == 201 and new.json["fence"] > lease["fence"]


def test_a_request_that_never_ended(pair, resource):
    """A redlockd died between the grant and the note: nothing tells whether the lease was granted, so its time runs out."""
    for server in pair[0].masters:
        server.cli("SET", resource, "1" * 40 + ":0:7:?0123456789abcdef:", "PX", 60000)
    assert ask(pair[0], resource, "one").code == "locked"
