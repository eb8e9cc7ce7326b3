# SPDX-License-Identifier: MIT
"""A forced release: DELETE /locks/{resource}?force=true takes a lock from its holder, without a token.

Where a test needs the moment between the two steps (looking who holds it, and releasing that one's token), it stops one
master: the look waits for its answer until --master-timeout-ms, while the other two, a majority, serve everybody else.
"""

import contextlib
import json
import signal
import threading
import time

import pytest

from fixtures import certified
from harness import patience, quote, read_response, wait_until
from waiting_fixtures import check_nothing_is_left, crowd, next_answered  # noqa: F401

LOOK_MS = 5000  # how long the look waits for a stopped master
TOKENS = [digit * 40 for digit in "abcdef"]


def force(service, resource, fence=None):
    return service.curl("DELETE", f"/locks/{quote(resource)}?force=true" + ("" if fence is None else f"&fence={fence}"))


def lines(service):
    return service.log("forced-release")


def extend(service, lease):
    return service.curl("PUT", "/locks/" + quote(lease["resource"]), body={"token": lease["token"]})


def wait_free(service, resource):
    """Until it is released on the third master, too: the lease would last longer than this waits."""
    wait_until(lambda: all(server.cli("EXISTS", resource) == 0 for server in service.masters), what="released on all masters")


def state(service, resource):
    return service.curl("GET", "/locks/" + quote(resource)).json


class Forced:
    """A forced release that is under way: its answer is read when the test asks for it."""

    def __init__(self, service, resource, more=""):
        self.service = service
        before = [server.calls().get("evalsha", 0) for server in service.masters[:2]]
        self.plain = service.connect(30)
        self.plain.sendall(f"DELETE /locks/{quote(resource)}?force=true{more} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: all(server.calls().get("evalsha", 0) > count for server, count in zip(service.masters, before, strict=False)), what="the look")

    def answer(self):
        try:
            return read_response(self.plain)
        finally:
            self.plain.close()


@contextlib.contextmanager
def stopped(server):
    server.stop()
    try:
        yield
    finally:
        server.cont()


# --------------------------------------------------------------------------------------------------- held, or not


def test_a_held_lock_is_free_at_once(service, resource):
    lease = service.acquire(resource, 60000, owner="worker-7")
    answer = force(service, resource)
    assert (answer.status, answer.body) == (204, b"")
    assert state(service, resource)["held"] is False
    wait_free(service, resource)

    # the old holder is told
    assert (extend(service, lease).status, service.release(lease).status) == (410, 410)
    after = service.acquire(resource)
    assert after["fence"] > lease["fence"]
    assert [extend(service, lease).code, service.release(lease).code] == ["not-owner", "not-owner"]
    assert service.release(after).status == 204

    line, = wait_until(lambda: [line for line in lines(service) if line["resource"] == resource], what="its line in the log")
    assert line["level"] == "warn" and line["outcome"] == "released"
    assert (line["owner"], int(line["fence"])) == ("worker-7", lease["fence"])
    assert line["address"].startswith("127.0.0.1") and line["id"]
    assert lease["token"] not in service.stderr() and after["token"] not in service.stderr()


def test_what_is_asked_for_wrongly_takes_nothing(service, resource):
    lease = service.acquire(resource)
    path = "/locks/" + quote(resource)
    wrong = [("?force=false", None, {}, "force"), ("?force=", None, {}, "force"), ("?force=1", None, {}, "force"), ("?force=TRUE", None, {}, "force"),
             ("?force=true&force=true", None, {}, "force"), ("?force=true", {"token": lease["token"]}, {}, "body"),
             ("?force=true", None, {"Lock-Token": lease["token"]}, "Lock-Token"), ("?Force=true", None, {}, "Force"),
             ("?fence=1", {"token": lease["token"]}, {}, "fence"), ("?force=true&fence=0", None, {}, "fence"), ("?force=true&fence=", None, {}, "fence"),
             ("?force=true&fence=9007199254740992", None, {}, "fence"), (f"?force=true&fence={lease['fence']}x", None, {}, "fence")]
    for query, body, headers, field in wrong:
        answer = service.curl("DELETE", path + query, body=body, headers=headers)
        assert answer.status == 400 and [error["field"] for error in answer.json["errors"]] == [field], (query, answer)
    assert extend(service, lease).status == 200
    assert service.release(lease).status == 204
    assert not [line for line in lines(service) if line["resource"] == resource]


# The keys of other programs: of another library, of another type, and one that begins as ours do.
FOREIGN = [("SET", "somebody-else's"), ("SET", TOKENS[0]), ("HSET", "field", "value"), ("RPUSH", "one", "two"), ("SET", "")]


def dump(server, resource):
    return server.cli("TYPE", resource), server.cli("PTTL", resource), server.cli("OBJECT", "ENCODING", resource)


@pytest.mark.parametrize("command", FOREIGN, ids=lambda command: "-".join(command)[:16])
def test_a_key_of_another_program_is_left_alone(service, resource, command):
    for server in service.masters:
        server.cli(command[0], resource, *command[1:])
    before = [dump(server, resource) for server in service.masters]
    answer = force(service, resource)
    assert (answer.status, answer.code) == (409, "not-owner") and "did not write" in answer.json["detail"]
    assert [dump(server, resource) for server in service.masters] == before
    line, = wait_until(lambda: [line for line in lines(service) if line["resource"] == resource], what="its line in the log")
    assert line["outcome"] == "not-owner"
    for server in service.masters:
        server.cli("DEL", resource)


def test_a_key_of_another_program_on_one_master_keeps_nobody_from_it(service, resource):
    other = service.masters[2]
    other.cli("HSET", resource, "field", "value")
    service.acquire(resource)
    assert force(service, resource).status == 204
    wait_until(lambda: [server.cli("EXISTS", resource) for server in service.masters] == [0, 0, 1], what="released on the two others")
    assert force(service, resource).status == 410  # one master is no majority
    other.cli("DEL", resource)


# --------------------------------------------------------------------------------------------------- the fence of the holder


def test_only_the_holder_with_that_fence(service, resource):
    old = service.acquire(resource, owner="old")
    assert service.release(old).status == 204
    new = service.acquire(resource, owner="new")
    for fence in (old["fence"], new["fence"] + 1, 1, 2 ** 53 - 1):
        answer = force(service, resource, fence)
        assert (answer.status, answer.code) == (409, "not-owner") and "another fence" in answer.json["detail"], answer
        assert answer.json["votes"]["granted"] == 0
    assert extend(service, new).status == 200
    assert force(service, resource, new["fence"]).status == 204
    wait_free(service, resource)
    assert force(service, resource, new["fence"]).status == 410
    seen = wait_until(lambda: found if len(found := [line for line in lines(service) if line["resource"] == resource]) == 6 else None, what="its lines in the log")
    assert [line["outcome"] for line in seen] == ["not-owner"] * 4 + ["released", "lease-expired"]
    assert ["fence" in line for line in seen] == [False] * 4 + [True, False] and (seen[4]["owner"], int(seen[4]["fence"])) == ("new", new["fence"])


def test_a_fence_and_a_key_of_another_program(service, resource):
    for server in service.masters:
        server.cli("SET", resource, "somebody-else's", "PX", 60000)
    answer = force(service, resource, 1)
    assert (answer.status, answer.code) == (409, "not-owner") and "did not write" in answer.json["detail"]
    assert all(server.cli("DEL", resource) == 1 for server in service.masters)


def test_waiters_and_a_fence(lab, crowd):  # noqa: F811
    """A second forced release of the same holder does not release the waiter that has got the lock."""
    service = lab.service(3)
    lease = service.acquire("wanted")
    waiters = crowd.queue_up(service, "wanted", 2)
    assert force(service, "wanted", lease["fence"] - 1).status == 409
    assert not any(waiter.is_answered() for waiter in waiters)
    assert force(service, "wanted", lease["fence"]).status == 204
    first = waiters[0].granted()
    assert force(service, "wanted", lease["fence"]).code == "not-owner"
    assert not waiters[1].is_answered()
    assert force(service, "wanted", first["fence"]).status == 204
    waiters[1].granted()
    waiters[1].release()
    check_nothing_is_left(service.masters)


# --------------------------------------------------------------------------------------------------- who waits


def test_the_first_that_waits_has_it(lab, crowd):  # noqa: F811
    service = lab.service(3)
    lease = service.acquire("wanted")
    waiters = crowd.queue_up(service, "wanted", 3)
    assert force(service, "wanted").status == 204
    assert next_answered(waiters) is waiters[0]
    assert waiters[0].granted()["fence"] > lease["fence"]
    assert not any(waiter.is_answered() for waiter in waiters[1:])
    assert extend(service, lease).code == "not-owner"

    # and the next one likewise; the last one is served as ever
    assert force(service, "wanted").status == 204
    assert next_answered(waiters[1:]) is waiters[1]
    assert waiters[1].granted()["fence"] > waiters[0].lease["fence"]
    waiters[1].release()
    waiters[2].granted()
    waiters[2].release()
    check_nothing_is_left(service.masters)


def test_a_waiter_of_another_redlockd_has_it(lab, crowd):  # noqa: F811
    service = lab.service(3)
    other = lab.redlockd(service.masters, "--bootstrap=false")
    service.acquire("wanted")
    waiter, = crowd.queue_up(other, "wanted", 1)
    assert force(service, "wanted").status == 204
    waiter.granted()
    assert force(other, "wanted").status == 204


@pytest.mark.parametrize("taken", [False, True])
def test_a_connection_that_holds_it_hears_of_it(service, resource, taken):
    plain = service.connect(30)
    content = json.dumps({"resource": resource, "ttl_ms": 6000, "hold": True}).encode()
    plain.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
    reader = plain.makefile("rb")

    def event():
        while not (line := reader.readline()).startswith(b"{"):
            assert line, "the stream ended"
        return json.loads(line)
    lease = event()
    assert lease["event"] == "acquired"
    assert force(service, resource).status == 204
    after = service.acquire(resource) if taken else None
    while (said := event())["event"] == "renewed":  # one was on its way
        pass
    assert (said["event"], said["code"]) == ("lost", "not-owner" if taken else "lease-expired")
    plain.close()
    if taken:
        assert after["fence"] > lease["fence"]
        assert service.release(after).status == 204


# --------------------------------------------------------------------------------------------------- masters that are away


def test_one_master_is_down(lab):
    service = lab.service(3)
    service.acquire("kept")
    service.masters[1].kill()
    assert force(service, "kept").status == 204
    assert service.release(service.acquire("kept")).status == 204


def test_two_masters_are_down(lab):
    service = lab.service(3)
    lease = service.acquire("kept", 60000)
    service.masters[0].kill()
    service.masters[1].kill()
    service.wait_voting(1)
    answer = force(service, "kept")
    assert (answer.status, answer.code) == (503, "no-quorum") and int(answer.headers["retry-after"]) >= 1
    assert answer.json["votes"]["failed"] == 2
    assert service.masters[2].cli("GET", "kept")[:40] == lease["token"]
    line, = wait_until(lambda: lines(service), what="its line in the log")
    assert line["outcome"] == "no-quorum"


# --------------------------------------------------------------------------------------------------- between the two steps


@pytest.fixture
def slow_look(lab):
    """A redlockd whose look takes LOOK_MS while a master is stopped."""
    return lab.redlockd(certified(lab, 3), "--bootstrap=false", f"--master-timeout-ms={LOOK_MS}", "--drain-ms", str(4 * LOOK_MS))


def test_a_newcomer_is_not_harmed(slow_look):
    old = slow_look.acquire("wanted", owner="old")
    with stopped(slow_look.masters[2]):
        forced = Forced(slow_look, "wanted")
        assert slow_look.release(old).status == 204
        new = slow_look.acquire("wanted", owner="new")
        answer = forced.answer()
        assert (answer.status, answer.code) == (409, "not-owner") and "another one came" in answer.json["detail"], answer
        assert extend(slow_look, new).status == 200
    line, = wait_until(lambda: lines(slow_look), what="its line in the log")
    assert line["outcome"] == "not-owner" and "owner" not in line and "fence" not in line
    assert state(slow_look, "wanted")["owner"] == "new"
    assert slow_look.release(new).status == 204


def test_a_waiter_that_came_in_between_is_not_harmed(slow_look, crowd):  # noqa: F811
    old = slow_look.acquire("wanted")
    waiter, = crowd.queue_up(slow_look, "wanted", 1)
    with stopped(slow_look.masters[2]):
        forced = Forced(slow_look, "wanted")
        assert slow_look.release(old).status == 204
        waiter.granted()
        assert forced.answer().status == 409
        assert extend(slow_look, waiter.lease).status == 200
    waiter.release()


def test_redlockd_is_killed_between_the_steps(lab, slow_look):
    lease = slow_look.acquire("wanted", 60000, owner="me")
    with stopped(slow_look.masters[2]):
        forced = Forced(slow_look, "wanted")
        slow_look.process.send_signal(signal.SIGKILL)
        slow_look.process.wait()
        assert forced.answer() is None
    after = lab.redlockd(slow_look.masters, "--bootstrap=false")
    seen = state(after, "wanted")
    assert (seen["held"], seen["owner"], seen["fence"]) == (True, "me", lease["fence"])
    assert extend(after, lease).status == 200
    assert force(after, "wanted").status == 204
    check_nothing_is_left(slow_look.masters)


# --------------------------------------------------------------------------------------------------- left-overs


def leave(service, resource, tokens, ttl_ms=60000):
    """Leaves what a killed redlockd leaves: a token on each of those masters that no client extends or releases."""
    for server, token in zip(service.masters, tokens, strict=False):
        if token:
            server.cli("SET", resource, f"{token}:0:7::dead", "PX", ttl_ms)


@pytest.mark.parametrize("tokens", [TOKENS, [None, TOKENS[0]]], ids=["keeps everybody out", "on one master"])
def test_a_left_over_runs_out_by_itself(lab, tokens):
    """It is no lease, and no forced release is needed: each key has an end."""
    service = lab.service(3, "--retry-count=1")
    leave(service, "stuck", tokens, ttl_ms=1500)
    answer = force(service, "stuck")
    assert (answer.status, answer.code) == (410, "lease-expired"), answer
    wait_until(lambda: service.curl("POST", "/locks", body={"resource": "stuck"}).status == 201, what="the end of what was left")
    assert force(service, "stuck").status == 204
    check_nothing_is_left(service.masters)


# --------------------------------------------------------------------------------------------------- under load


def test_forced_and_contended(service, resource):
    """Clients acquire and release, one forces. All answers are expected ones, fences grow, and no key is left."""
    seen, fences, began = set(), [], time.monotonic()

    def goes_on():
        """For two seconds, and on a busy machine until a lock was taken away."""
        return time.monotonic() < began + (2 if ("force", 204) in seen else patience(10))

    def work():
        client = service.client()
        while goes_on():
            answer = client.call("POST", "/locks", {"resource": resource, "ttl_ms": 5000, "wait_ms": 2000})
            seen.add(("POST", answer.status))
            if answer.status != 201:
                continue
            lease = answer.json
            fences.append(lease["fence"])
            answer = client.call("DELETE", f"/locks/{quote(resource)}", {"token": lease["token"]})
            seen.add(("DELETE", answer.status))
        client.close()

    def take_away():
        client = service.client()
        while goes_on():
            seen.add(("force", client.call("DELETE", f"/locks/{quote(resource)}?force=true").status))
        client.close()
    threads = [threading.Thread(target=work) for _ in range(4)] + [threading.Thread(target=take_away)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fences) == len(set(fences))
    allowed = {"POST": {201, 409, 503}, "DELETE": {204, 409, 410}, "force": {204, 409, 410}}
    assert all(status in allowed[call] for call, status in seen), seen
    assert ("force", 204) in seen
    wait_until(lambda: all(server.cli("EXISTS", resource) == 0 for server in service.masters), what="nothing is left")
