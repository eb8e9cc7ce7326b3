# SPDX-License-Identifier: MIT
"""The end of what a token allows while its requests are under way: the token ends, its issuer, rule or key is taken
away, keys are rotated. And many tokens at once."""

import concurrent.futures
import contextlib
import json
import os

import pytest

from harness import SLOW, run_redlockd, wait_until
from key_fixtures import Key
from test_hold import Stream
from token_fixtures import Issuer, Signer, Tokened, rule

WEB = rule({"sub": "web"}, "{sub}", ["a/"], ["acquire", "inspect"])
JOB = rule({"sub": "job*"}, "{sub}", ["a/"], ["acquire", "inspect"])


@pytest.fixture(name="issuer")
def fixture_issuer(lab):
    return Issuer(lab, "https://issuer.example", Signer("one"), Signer("two", "ES256"))


@pytest.fixture(name="world")
def fixture_world(lab, issuer):
    return Tokened(lab, [issuer.entry([WEB, JOB])], "--workers", "2")


@pytest.fixture(name="pool")
def fixture_pool():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield pool


class Scene:
    """By tokens: a holder, and a waiter behind a lock of the operator's."""

    def __init__(self, lab, pool, world):
        self.lab, self.pool, self.world, self.waiting = lab, pool, world, 0
        world.call("operator", "POST", "/locks", body={"resource": "a/line", "ttl_ms": 60000})

    def state(self, resource):
        return self.world.call("operator", "GET", "/locks/" + resource).json

    def holder(self, token, resource, **members):
        stream = self.lab.keep(Stream(self.world.redlockd, resource, "-H", f"Authorization: Bearer {token}", ttl_ms=60000, **members))
        stream.lease = stream.acquired()
        return stream

    def waiter(self, token):
        waiter = self.pool.submit(self.world.by, token, "POST", "/locks", "--max-time", "600", body={"resource": "a/line", "wait_ms": 60000})
        self.waiting += 1
        wait_until(lambda: self.state("a/line")["waiters"] == self.waiting, what="it waits")
        return waiter

    def lost(self, stream, resource):
        event, _ = stream.last()
        event.pop("at")
        assert event == {"event": "lost", "code": "unauthorized"}
        wait_until(lambda: not self.state(resource)["held"], what="the lock is free")

    def refused(self, waiter):
        answer = waiter.result(20 * SLOW)
        assert (answer.status, answer.code) == (401, "unauthorized")

    def goes_on(self, stream, waiter):
        lines = [stream.lines.get_nowait()[1] for _ in range(stream.lines.qsize())]
        assert all(line is not None and json.loads(line)["event"] in ("renewed", "wanted") for line in lines)
        assert not waiter.done()


@pytest.fixture(name="scene")
def fixture_scene(lab, pool, world):
    scene = Scene(lab, pool, world)
    yield scene

    def nobody_waits():
        """Each that still waits gets the lock at once, so that its thread ends."""
        world.call("operator", "DELETE", "/locks/a/line?force=true")
        return scene.state("a/line")["waiters"] == 0
    wait_until(nobody_waits, what="nobody waits")


def test_a_token_that_ends_ends_its_requests(scene, issuer):
    """Until a minute after exp, for clocks that differ; another token of the same caller goes on."""
    short, long = issuer.token(sub="web", seconds=-60 + max(10, round(6 * SLOW))), issuer.token(sub="web")
    held, waiter = scene.holder(short, "a/short"), scene.waiter(short)
    other, other_waiter = scene.holder(long, "a/long"), scene.waiter(long)
    scene.lost(held, "a/short")
    scene.refused(waiter)
    scene.goes_on(other, other_waiter)
    assert scene.world.by(short, "GET", "/whoami").status == 401
    assert scene.world.refusals() == {"expired": 1}


def extend(world, token, lease, many=False):
    item = {name: lease[name] for name in ("resource", "resources", "token") if name in lease} | {"ttl_ms": 60000}
    answer = world.by(token, "PUT", "/locks", body={"leases": [item]} if many else item)
    return answer.json["leases"][0].get("status", 200) if many else answer.status


def forbidden(scene, stream):
    """It went on until its caller lost the prefix: what ends with a token is `unauthorized`."""
    resource = stream.lease.get("resource") or stream.lease["resources"][0]
    wait_until(lambda: not scene.state(resource)["held"], what="the lease has ended")
    event, _ = stream.last()
    assert (event["event"], event["code"]) == ("lost", "forbidden")


HELD = [("a/plain", {}), ("a/shared", {"mode": "shared"}), ("a/slot", {"slots": 2}), (["a/set/1", "a/set/2"], {})]


def test_a_newer_token_goes_on_with_a_held_lease(scene, issuer):
    """Its client sends it with the token of the lease, to any worker. Newer tokens of others do not count, nor those of
    the caller without the token of the lease: otherwise a stolen token could be used as long as its owner lives."""
    short = issuer.token(sub="web", seconds=-60 + max(8, round(8 * SLOW)))
    newer, job = issuer.token(sub="web"), issuer.token(sub="job")
    renewed = [scene.holder(short, resource, **members) for resource, members in HELD]
    alone, stolen, others = (scene.holder(short, f"a/{name}") for name in ("alone", "stolen", "others"))
    for i, stream in enumerate(renewed):
        assert extend(scene.world, newer, stream.lease, many=i % 2 > 0) == 200
    assert scene.world.by(newer, "GET", "/whoami").status == 200
    assert extend(scene.world, newer, {**stolen.lease, "token": "0" * 40}) == 409
    assert extend(scene.world, job, others.lease) == 200
    for stream in (alone, stolen, others):
        wait_until(lambda: not scene.state(stream.lease["resource"])["held"], 20 * SLOW, "the lease has ended")  # noqa: B023
        scene.lost(stream, stream.lease["resource"])
    assert scene.world.by(short, "GET", "/whoami").status == 401
    remove_prefix(scene.world, issuer)
    for stream in renewed:
        forbidden(scene, stream)


def test_a_newer_token_by_another_key(scene, issuer):
    """Keys are rotated while a connection holds a lease: the old token does not count any more, the newer one does."""
    held = scene.holder(issuer.token(sub="web"), "a/web")
    newer = issuer.token(sub="web", signer=issuer.signers[1], seconds=7200)
    assert extend(scene.world, newer, held.lease) == 200
    remove_key(scene.world, issuer)
    assert scene.world.by(issuer.token(sub="web"), "GET", "/whoami").status == 401
    remove_prefix(scene.world, issuer)
    forbidden(scene, held)


def change_nothing(world, issuer):
    world.reload()


def remove_rule(world, issuer):
    world.set_issuers([issuer.entry([JOB])])


def remove_issuer(world, issuer):
    world.set_issuers([])


def remove_audience(world, issuer):
    world.set_issuers([issuer.entry([WEB, JOB], audience="other")])


def remove_prefix(world, issuer):
    world.set_issuers([issuer.entry([{**WEB, "prefixes": ["b/"]}, JOB])])


def replace_key(world, issuer):
    """The same kid, another key."""
    issuer.write(Signer("one"), issuer.signers[1])
    wait_until(lambda: world.redlockd.log("issuers-reloaded"), what="the file is read again")


def remove_key(world, issuer):
    issuer.write(issuer.signers[1])
    wait_until(lambda: world.redlockd.log("issuers-reloaded"), what="the file is read again")


@pytest.mark.parametrize("change", [remove_rule, remove_issuer, remove_audience, replace_key, remove_key])
def test_what_is_taken_away_ends_requests(scene, issuer, change):
    web = issuer.token(sub="web")
    held, waiter = scene.holder(web, "a/web"), scene.waiter(web)
    change(scene.world, issuer)
    scene.lost(held, "a/web")
    scene.refused(waiter)
    assert scene.world.by(web, "GET", "/whoami").status in (401, 403)


def test_a_lost_prefix_is_forbidden(scene, issuer):
    waiter = scene.waiter(issuer.token(sub="web"))
    remove_prefix(scene.world, issuer)
    answer = waiter.result(20 * SLOW)
    assert (answer.status, answer.code) == (403, "forbidden")


def test_others_are_not_affected(scene, issuer):
    job = issuer.token(sub="job", signer=issuer.signers[1])
    held, waiter = scene.holder(job, "a/job"), scene.waiter(job)
    for change in (change_nothing, remove_rule, remove_key):
        change(scene.world, issuer)
        assert scene.world.by(job, "GET", "/whoami").json["caller"] == "job"
    scene.goes_on(held, waiter)


def test_keys_are_rotated_with_overlap(scene, issuer):
    """The file has the old and the new key for a while; nobody notices."""
    old, new = issuer.signers[0], Signer("three")
    held, waiter = scene.holder(issuer.token(sub="web", signer=issuer.signers[1]), "a/web"), scene.waiter(issuer.token(sub="web", signer=issuer.signers[1]))
    before = issuer.token(sub="web", signer=new)
    assert scene.world.by(before, "GET", "/whoami").status == 401
    issuer.write(old, issuer.signers[1], new)
    wait_until(lambda: scene.world.by(before, "GET", "/whoami").status == 200, what="the new key counts")
    assert scene.world.by(issuer.token(sub="web", signer=old), "GET", "/whoami").status == 200
    issuer.write(issuer.signers[1], new)
    wait_until(lambda: scene.world.by(issuer.token(sub="web", signer=old), "GET", "/whoami").status == 401, what="the old key does not count")
    scene.goes_on(held, waiter)


def test_a_mounted_config_map(lab):
    """Kubernetes swaps a symlink to a folder: the file's own path does not change."""
    mount = os.path.join(lab.folder, "mount")
    issuer = Issuer(lab, "https://kubernetes.default.svc", Signer("one"), path=os.path.join(lab.folder, "unused.json"))

    def publish(version, *signers):
        folder = os.path.join(mount, version)
        os.makedirs(folder)
        with open(os.path.join(folder, "jwks.json"), "w", encoding="utf-8") as out:
            json.dump({"keys": [one.jwk() for one in signers]}, out)
        os.symlink(version, os.path.join(mount, "..data_tmp"))
        os.rename(os.path.join(mount, "..data_tmp"), os.path.join(mount, "..data"))

    publish("..1", issuer.signers[0])
    os.symlink("..data/jwks.json", os.path.join(mount, "jwks.json"))
    issuer.path = os.path.join(mount, "jwks.json")
    world, new = Tokened(lab, [issuer.entry([WEB])]), Signer("two")
    assert world.by(issuer.token(sub="web", signer=new), "GET", "/whoami").status == 401
    publish("..2", new)
    wait_until(lambda: world.by(issuer.token(sub="web", signer=new), "GET", "/whoami").status == 200, what="the new key counts")
    assert world.by(issuer.token(sub="web"), "GET", "/whoami").status == 401


@pytest.mark.parametrize("text", ["", "{", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}', " " * ((1 << 18) + 1)],
                         ids=["empty", "cut", "no keys", "secret", "too large"])
def test_a_bad_file_changes_nothing(world, issuer, text):
    token = issuer.token(sub="web")
    issuer.write_text(text)
    failed = wait_until(lambda: world.redlockd.log("issuers-reload-failed"), what="the log says so")[0]
    assert "issuers[0].jwks_file: " + issuer.path in failed["message"]
    assert world.by(token, "GET", "/whoami").status == 200
    os.unlink(issuer.path)
    wait_until(lambda: len(world.redlockd.log("issuers-reload-failed")) == 2, what="the log says that it is gone")
    assert world.by(issuer.token(sub="web", jti="2"), "GET", "/whoami").status == 200
    issuer.write()
    wait_until(lambda: world.redlockd.log("issuers-reloaded"), what="a good file is read")


def test_a_bad_file_concerns_no_other(lab, issuer):
    """Neither another issuer, whose keys are rotated, nor a key that is removed by SIGHUP. Its own issuer stays as it was."""
    other, new = Issuer(lab, "https://other.example", Signer("old")), Signer("new")
    world = Tokened(lab, [issuer.entry([WEB]), other.entry([JOB])], keys=[Key("leaked", ["a/"], ["acquire"])])
    issuer.write_text("{")
    wait_until(lambda: len(world.redlockd.log("issuers-reload-failed")) == 1, what="the log says so")
    other.write(new)
    wait_until(lambda: len(world.redlockd.log("issuers-reload-failed")) == 2, what="it is bad still")
    rotated = other.token(sub="job", signer=new)
    wait_until(lambda: world.by(rotated, "GET", "/whoami").status == 200, what="the new key counts")
    assert world.by(other.token(sub="job"), "GET", "/whoami").status == 401
    assert world.by(issuer.token(sub="web"), "GET", "/whoami").status == 200
    assert world.call("leaked", "GET", "/whoami").status == 200
    leaked = world.keys["leaked"]
    world.write([])
    world.reload()
    wait_until(lambda: world.by(leaked.secret, "GET", "/whoami").status == 401, what="the key is removed")
    assert "issuers[0].jwks_file: " + issuer.path in world.redlockd.log("issuers-reload-failed")[2]["message"]
    assert world.by(issuer.token(sub="web", jti="2"), "GET", "/whoami").status == 200
    issuer.write(issuer.signers[1])
    wait_until(lambda: world.by(issuer.token(sub="web"), "GET", "/whoami").status == 401, what="a good file is read")


def test_a_bad_file_of_a_new_issuer(lab, issuer):
    """It has no keys from before, so the keys file stays as it was. An issuer of another name is new, too."""
    world = Tokened(lab, [issuer.entry([WEB])])
    issuer.write_text("{")
    wait_until(lambda: world.redlockd.log("issuers-reload-failed"), what="the log says so")
    world.issuers = [issuer.entry([WEB], issuer="https://new.example")]
    world.write([])
    world.reload("keys-reload-failed")
    assert world.by(issuer.token(sub="web"), "GET", "/whoami").status == 200


@pytest.mark.parametrize("break_it, message", [
    (lambda issuer: os.unlink(issuer.path), "No such file"),
    (lambda issuer: issuer.write_text("[]"), "keys: must be a list"),
    (lambda issuer: os.chmod(issuer.path, 0o666), "issuers[0].jwks_file: "),
], ids=["gone", "no keys", "writable"])
def test_a_bad_file_at_the_start(lab, world, issuer, break_it, message):
    """Status 2, with the file and the member; --check-config finds it, too."""
    break_it(issuer)
    for more in ([], ["--check"]):
        done = run_redlockd("--masters", "redis://127.0.0.1:1", "--keys", world.path, *more)
        assert done.returncode == 2
        assert issuer.path in done.stderr and message in done.stderr


def test_a_thousand_first_tokens(world, issuer, pool):
    """All are verified, whatever comes first, and none is refused; each caller is itself."""
    tokens = [issuer.token(sub=f"job{i}", signer=issuer.signers[1]) for i in range(200)]

    def names(part):
        with contextlib.closing(world.redlockd.client()) as client:
            return [client.call("GET", "/whoami", headers={"Authorization": f"Bearer {token}"}).json["caller"] for token in part]
    found = [name for part in pool.map(names, [tokens[i::8] for i in range(8)]) for name in part]
    assert sorted(found) == sorted(f"job{i}" for i in range(200))
    assert world.refusals() == {}


def test_clients_that_leave_while_their_token_waits(world, issuer):
    """Hundreds come at once and go at once; nobody else notices, nothing is granted that stays, and the end is clean."""
    heads = [b"POST /locks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 26\r\n\r\n" % issuer.token(sub=f"job{i}").encode()
             for i in range(300)]
    for half in (heads[:150], heads[150:]):
        crowd = [world.redlockd.connect() for _ in half]
        for plain, head in zip(crowd, half):
            plain.sendall(head + b'{"resource":"a/leave/now"}')
        for plain in crowd:
            plain.close()
    assert world.by(issuer.token(sub="web"), "GET", "/whoami").status == 200
    wait_until(lambda: world.call("operator", "GET", "/metrics").body.count(b"redlockd_operations_in_flight 0\n") == 1, what="nothing is under way")
    world.redlockd.stop()
    assert world.redlockd.log("end")[-1]["status"] == "0"


def resident_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.mark.slow
def test_a_hundred_thousand_tokens(lab, issuer):
    """Memory is bounded: the second half of the tokens needs no more than a little."""
    world = Tokened(lab, [issuer.entry([JOB])], "--workers", "1", "--log-requests", "none")
    with contextlib.closing(world.redlockd.client()) as client:
        def use(first, end):
            for i in range(first, end):
                token = issuer.token(sub=f"job{i}", signer=issuer.signers[1])
                assert client.call("GET", "/whoami", headers={"Authorization": f"Bearer {token}"}).status == 200
            return resident_kib(world.redlockd.process)
        half, full = use(0, 20000), use(20000, 100000)
    assert full < half + 4096
