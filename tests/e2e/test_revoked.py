# SPDX-License-Identifier: MIT
"""Keys and certificates that are taken away, or may less, while their requests are under way: a reload (SIGHUP) ends
what its caller may not do any more, at once and on every worker, and does not affect others."""

import concurrent.futures
import json
import os
import signal

import pytest

from certificates import Authority
from harness import SLOW, connect_to, quote, read_response, wait_until
from key_fixtures import Key, Keyed
from test_hold import Stream

MANY = 6  # connections of a kind: they come to both workers
LONG_MS = min(round(30000 * SLOW), 60000)  # nothing is renewed or runs out meanwhile


@pytest.fixture(name="pool")
def fixture_pool():
    with concurrent.futures.ThreadPoolExecutor(4 * MANY) as pool:
        yield pool


def goes_on(stream):
    """Nothing but renewals has come."""
    lines = [stream.lines.get_nowait()[1] for _ in range(stream.lines.qsize())]
    return all(line is not None and json.loads(line)["event"] in ("renewed", "wanted") for line in lines)


class Scene:
    """Holders, and waiters behind a lock of the operator's, each by the key of a name."""

    def __init__(self, lab, pool, keyed):
        self.lab, self.pool, self.keyed, self.waiting = lab, pool, keyed, 0
        self.lease = keyed.call("operator", "POST", "/locks", body={"resource": "a/line", "ttl_ms": 60000}).json

    def state(self, resource):
        return self.keyed.call("operator", "GET", "/locks/" + quote(resource)).json

    def holders(self, name, prefix="a/", count=MANY, ttl_ms=LONG_MS):
        streams = [self.lab.keep(Stream(self.keyed.redlockd, f"{prefix}{name}-{i}", "-H", f"X-Api-Key: {self.keyed.keys[name].secret}", ttl_ms=ttl_ms))
                   for i in range(count)]
        for stream in streams:
            stream.lease = stream.acquired()
        return streams

    def waiters(self, name, count=MANY, seconds=600):
        waiters = [self.pool.submit(self.keyed.call, name, "POST", "/locks", "--max-time", str(seconds), body={"resource": "a/line", "wait_ms": 60000})
                   for _ in range(count)]
        self.waiting += count
        wait_until(lambda: self.state("a/line")["waiters"] == self.waiting, what="they wait")
        return waiters

    def half(self, name, resource):
        """A request whose body is still to come; returns what completes it."""
        body = json.dumps({"resource": resource, "ttl_ms": 30000}).encode()
        plain = connect_to(self.keyed.redlockd.address)
        plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n" % (self.keyed.keys[name].secret.encode(), len(body)) + body[:9])

        def complete():
            with plain:
                plain.sendall(body[9:])
                return read_response(plain)
        return complete

    def lost(self, streams, code):
        """They end as lost, and their locks are free."""
        for stream in streams:
            event, _ = stream.last()
            event.pop("at")
            assert event == {"event": "lost", "code": code}
            wait_until(lambda resource=stream.resource: not self.state(resource)["held"], what="the lock is free")

    def refused(self, waiters, status, code):
        for waiter in waiters:
            answer = waiter.result(20 * SLOW)
            assert (answer.status, answer.code) == (status, code)
            assert ("www-authenticate" in answer.headers) == (status == 401)

    def undisturbed(self, streams, waiters):
        """They hold as before; and wait, in the same order, until they get it."""
        assert all(goes_on(stream) and self.state(stream.resource)["fence"] == stream.lease["fence"] for stream in streams)
        assert not any(waiter.done() for waiter in waiters)
        wait_until(lambda: self.state("a/line")["waiters"] == len(waiters), what="nobody else waits")
        self.keyed.redlockd.release(self.lease)
        for waiter in concurrent.futures.as_completed(waiters, 60 * SLOW):
            assert waiter.result().status == 201
            self.keyed.redlockd.release(waiter.result().json)
        for stream in streams:
            stream.kill()


def key(name, rights=("acquire",), prefixes=("a/", "b/"), **more):
    return Key(name, list(prefixes), list(rights), **more)


@pytest.fixture(name="make")
def fixture_make(lab, pool):
    def make(*keys):
        return Scene(lab, pool, Keyed(lab, keys, "--workers", "2").wait_ready())
    return make


def test_a_key_is_taken_away(make):
    gone, stays = key("gone", max_waiting=100), key("stays", max_waiting=100)
    scene = make(gone, stays)
    held, kept = scene.holders("gone"), scene.holders("stays")
    waiting = scene.waiters("gone")
    patient = scene.waiters("stays", 1)
    complete = scene.half("gone", "a/half")
    scene.keyed.write([stays])
    scene.keyed.reload()
    scene.lost(held, "unauthorized")
    scene.refused(waiting, 401, "unauthorized")
    answer = complete()
    assert (answer.status, answer.code) == (401, "unauthorized") and not scene.state("a/half")["held"]
    scene.undisturbed(kept, patient)
    lines = [line for line in scene.keyed.redlockd.log("request") if line.get("hold") == "unauthorized"]
    assert [line["caller"] for line in lines] == ["gone"] * MANY


def test_a_lone_waiter_is_told_at_once(make):
    """Nothing else happens meanwhile that would wake the worker."""
    scene = make(key("gone"))
    waiting = scene.waiters("gone", 1, seconds=round(10 * SLOW))
    scene.keyed.write([])
    scene.keyed.reload()
    assert waiting[0].result(20 * SLOW).code == "unauthorized"


@pytest.mark.parametrize("change", [{"rights": ["inspect"]}, {"prefixes": ["b/"]}])
def test_a_key_may_less(make, change):
    """403 and `forbidden`; what it still may do goes on."""
    less, stays = key("less"), key("stays")
    scene = make(less, stays)
    held, elsewhere, kept = scene.holders("less"), scene.holders("less", "b/"), scene.holders("stays")
    waiting = scene.waiters("less")
    complete = scene.half("less", "a/half")
    less.entry.update(change)
    scene.keyed.write([less, stays])
    scene.keyed.reload()
    if "rights" in change:
        held, elsewhere = held + elsewhere, []
    scene.lost(held, "forbidden")
    scene.refused(waiting, 403, "forbidden")
    assert complete().code == "forbidden"
    scene.undisturbed(kept + elsewhere, [])


def test_the_old_hash_of_a_key_is_taken_away(make):
    """Callers with the new one stay, though both were the same key."""
    old, new = key("both"), key("new")
    old.entry["sha256"] = [old.entry["sha256"], new.entry["sha256"]]
    scene = make(old)
    held = scene.holders("both")
    scene.keyed.keys["new"] = new
    kept = scene.holders("new")
    waiting = scene.waiters("both")
    old.entry["sha256"] = new.entry["sha256"]
    scene.keyed.write([old])
    scene.keyed.reload()
    scene.lost(held, "unauthorized")
    scene.refused(waiting, 401, "unauthorized")
    scene.undisturbed(kept, [])


def test_a_key_gets_another_name_and_other_limits(make):
    """The same key by its hash: no request is affected, and waiters count for the new name."""
    one = key("one", max_waiting=MANY)
    scene = make(one)
    kept, patient = scene.holders("one"), scene.waiters("one")
    one.entry.update(name="other", max_waiting=1, max_ttl_ms=1000, rate=1000)
    scene.keyed.write([one])
    scene.keyed.reload()
    scene.keyed.keys["other"] = one
    assert scene.keyed.call("other", "POST", "/locks", body={"resource": "a/line", "ttl_ms": 1000, "wait_ms": 60000}).status == 429
    scene.keyed.write([one])  # from the new name to the same one
    scene.keyed.reload()
    scene.keyed.keys["other"] = one
    scene.undisturbed(kept, patient)
    assert scene.keyed.call("other", "POST", "/locks", body={"resource": "a/line", "ttl_ms": 1000, "wait_ms": 100}).status == 201


def test_a_bad_file_disturbs_nobody(make):
    one = key("one")
    scene = make(one)
    kept, patient = scene.holders("one"), scene.waiters("one")
    scene.keyed.write_text('{"keys":[{"name":"x"}]}')
    scene.keyed.reload("keys-reload-failed")
    assert scene.keyed.call("one", "GET", "/masters").status == 200  # each worker has gone on since
    scene.undisturbed(kept, patient)


def test_holders_are_renewed_after_a_reload(make):
    one = key("one")
    scene = make(one)
    kept = scene.holders("one", ttl_ms=round(4000 * SLOW))
    scene.keyed.write([one])
    scene.keyed.reload()
    for stream in kept:
        assert [stream.event()["event"] for _ in range(3)] == ["renewed"] * 3


# ---- certificates ----


class Guarded:
    """A redlockd over HTTPS that asks for certificates."""

    def __init__(self, lab, folder, names=None):
        self.authority = Authority(folder)
        server = self.authority.issue("server", "IP:127.0.0.1", usage="serverAuth")
        self.gone, self.stays = self.authority.issue("gone", "DNS:gone.example"), self.authority.issue("stays", "URI:spiffe://example/stays")
        self.keys = Keyed(lab, [], "--workers", "2", "--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", self.authority.certificate,
                          trust=self.authority.certificate, entries=names).wait_ready()

    def stream(self, lab, client, resource):
        stream = lab.keep(Stream(self.keys.redlockd, resource, "--cacert", self.authority.certificate, "--cert", client.certificate, "--key", client.key, ttl_ms=LONG_MS))
        stream.lease = stream.acquired()
        return stream


def by_certificate(name, certificate):
    return {"name": name, "certificates": [certificate], "prefixes": [""], "rights": ["acquire"]}


def test_a_certificate_is_taken_out_of_the_file(lab, pool, tmp_path):
    gone, stays = by_certificate("gone", "gone.example"), by_certificate("stays", "spiffe://example/stays")
    guarded = Guarded(lab, tmp_path, [gone, stays])
    held = [guarded.stream(lab, guarded.gone, f"gone-{i}") for i in range(MANY)]
    kept = [guarded.stream(lab, guarded.stays, f"stays-{i}") for i in range(MANY)]
    waiting = [pool.submit(guarded.keys.redlockd.curl, "POST", "/locks", "--cert", guarded.gone.certificate, "--key", guarded.gone.key, "--max-time", "600",
                           body={"resource": "stays-0", "wait_ms": 60000}) for _ in range(MANY)]
    wait_until(lambda: guarded.keys.call("operator", "GET", "/locks/stays-0").json["waiters"] == MANY, what="they wait")
    guarded.keys.write([], [stays])
    guarded.keys.reload()
    for stream in held:
        event, _ = stream.last()
        assert (event["event"], event["code"]) == ("lost", "unauthorized")
        wait_until(lambda resource=stream.resource: not guarded.keys.call("operator", "GET", f"/locks/{resource}").json["held"], what="the lock is free")
    for waiter in waiting:
        assert waiter.result(20 * SLOW).code == "unauthorized"
    for stream in kept:
        assert goes_on(stream) and guarded.keys.call("operator", "GET", f"/locks/{stream.resource}").json["fence"] == stream.lease["fence"]


@pytest.mark.parametrize("with_keys", [False, True])
def test_an_authority_is_taken_away(lab, pool, tmp_path, with_keys):
    """Certificates that it signed count no more, also where a name is in the keys file; those of one that stays are not disturbed."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = os.path.join(lab.folder, "authorities.pem")

    def trust(*authorities):
        with open(trusted + ".new", "wb") as out:
            for authority in authorities:
                with open(authority.certificate, "rb") as certificate:
                    out.write(certificate.read())
        os.rename(trusted + ".new", trusted)
    trust(old, new)
    server, gone, stays = new.issue("server", "IP:127.0.0.1", usage="serverAuth"), old.issue("gone", "DNS:gone.example"), new.issue("stays", "DNS:stays.example")
    options = ["--workers", "2", "--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", trusted]
    if with_keys:
        entries = [by_certificate("gone", "gone.example"), by_certificate("stays", "stays.example")]
        daemon = Keyed(lab, [], *options, trust=new.certificate, entries=entries).wait_ready().redlockd
    else:
        daemon = lab.service(3, *options, trust=new.certificate, wait=False)
        wait_until(lambda: daemon.curl("GET", "/readyz").status == 200, what="ready")

    def shown(client):
        return ["--cert", client.certificate, "--key", client.key]

    def streams(client, name):
        made = [lab.keep(Stream(daemon, f"{name}-{i}", "--cacert", new.certificate, *shown(client), ttl_ms=LONG_MS)) for i in range(MANY)]
        return [(stream, stream.acquired()) for stream in made]

    def free(resource):
        return all(master.cli("GET", resource) is None for master in daemon.masters)
    held, kept = streams(gone, "gone"), streams(stays, "stays")
    waiting = [pool.submit(daemon.curl, "POST", "/locks", *shown(gone), "--max-time", "600", body={"resource": "stays-0", "wait_ms": 60000}) for _ in range(MANY)]
    wait_until(lambda: sum(master.cli("ZCARD", "redlockd:queue:stays-0") for master in daemon.masters) == 3 * MANY, what="they wait")
    trust(new)
    daemon.process.send_signal(signal.SIGHUP)
    for stream, _ in held:
        event, _ = stream.last()
        assert (event["event"], event["code"]) == ("lost", "unauthorized")
        wait_until(lambda resource=stream.resource: free(resource), what="the lock is free")
    for waiter in waiting:
        answer = waiter.result(20 * SLOW)
        assert answer.code == "unauthorized" and "authority" in answer.json["detail"]
    for stream, lease in kept:
        assert goes_on(stream) and all(master.cli("GET", stream.resource).startswith(lease["token"]) for master in daemon.masters)
