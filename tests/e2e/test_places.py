# SPDX-License-Identifier: MIT
"""A wait that goes on in another request keeps its place in the queue: through another redlockd, over a restart, for each mode; a place is taken by
nobody else, and one that is left behind is removed."""

import functools
import itertools
import json
import signal
import threading
import time
import uuid

import pytest

import harness
from harness import read_response, wait_until
from waiting_fixtures import Waiter, crowd, line, wait_for_queue  # noqa: F401

KEPT = 2.0  # seconds
MODES = {"exclusive": {}, "shared": {"mode": "shared"}, "slots": {"slots": 1}, "set": {}}


class Asking(Waiter):
    """A request of a wait that may go on in another one. `ended`: when its place began to be kept, at the earliest."""

    def __init__(self, through, resource, key, **how):
        self.key = key
        super().__init__(through, resource, **how)
        self.ended = self.since + how.get("wait_ms", 60000) / 1000

    def answer(self, seconds=10.0):
        answer = super().answer(seconds)
        self.ended = min(self.ended, time.monotonic())
        return answer

    def send(self, method, path, body):
        content = json.dumps(body).encode()
        self.plain.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {self.key}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
                           + content)


@pytest.fixture
def asks(crowd):  # noqa: F811
    """Begins a request, in the queue when it returns if so many are there then."""
    def ask(through, resource, key=None, queued=None, **how):
        waiter = Asking(through, resource, key or uuid.uuid4().hex, **how)
        before = [one.ended for one in crowd.made if getattr(one, "key", None) == waiter.key]
        ask.is_late = ask.is_late or bool(before) and time.monotonic() - max(before) > KEPT / 2
        crowd.made.append(waiter)
        if queued is not None:
            wait_for_queue(through.masters, resource, queued)
        return waiter
    ask.is_late = False
    return ask


def while_kept(test):
    """Again, with another name, where a busy machine was so late with the next request of a wait that its place may have been over."""
    @functools.wraps(test)
    def again(**fixtures):
        for number in range(5):
            fixtures["asks"].is_late = False
            try:
                return test(**{**fixtures, "resource": f"{fixtures['resource']}/{number}"})
            except AssertionError:
                if not fixtures["asks"].is_late:
                    raise
        raise AssertionError("the machine is too busy")
    return again


@pytest.fixture(scope="module")
def pair():
    """Two redlockd over the same masters."""
    with harness.Lab() as lab:
        servers = lab.redises(3)
        yield lab.redlockd(servers), lab.redlockd(servers)


def check_kept(answer, status=409):
    assert (answer.status, answer.json["place_kept_ms"]) == (status, 2000), answer


def check_not_kept(answer):
    assert "place_kept_ms" not in answer.json, answer


def arrivals(server, resource):
    """Those of the entries of one master, in their order."""
    return [entry[17:33] for entry in line(server, resource)]


def replicas(server, resource):
    return [entry[:16] for entry in line(server, resource)]


def check_next(first, second):
    """The first one is granted, and the second one after it."""
    first.granted()
    assert not second.is_answered()
    first.release()
    second.granted()
    second.release()


# ---- what a place costs others ----


@pytest.mark.parametrize("mode", MODES)
def test_waits_that_go_on_nowhere_do_not_keep_a_free_lock_free(lab, mode):
    """Each wait is too short for the place before it to run out, and leaves a place of its own."""
    service = lab.service(3)

    def ask(members):
        return service.curl("POST", "/locks", body={**names, **members, "wait_ms": 100}, headers={"Idempotency-Key": uuid.uuid4().hex})
    others = {} if mode == "shared" else MODES[mode]  # shared requests do not wait for each other
    for number in range(10):  # a busy machine may be late
        names = {"resources": [f"r{number}", f"s{number}"]} if mode == "set" else {"resource": f"r{number}"}
        holder = service.curl("POST", "/locks", body={**names, "ttl_ms": 60000}).json
        since = time.monotonic()
        check_kept(ask(MODES[mode]))
        assert service.curl("DELETE", "/locks", body={**names, "token": holder["token"]}).status == 204
        shorter = ask(others)
        if time.monotonic() - since < 0.75 * KEPT:
            break
    assert shorter.status == 409 and shorter.json["place_kept_ms"] < 2000, shorter
    wait_until(lambda: ask(others).status == 201, what="the lock")


# ---- the place is found again ----


@pytest.mark.parametrize("mode", MODES)
@while_kept
def test_a_wait_goes_on_at_another_redlockd(pair, asks, resource, mode):
    """What came at first is served first, whichever redlockd it asks again."""
    members = {"resources": [resource, resource + "/other"]} if mode == "set" else MODES[mode]
    held = pair[0].acquire(resource)
    first = asks(pair[0], resource, queued=1, wait_ms=400, **members)
    second = asks(pair[1], resource, queued=2)
    [arrival, _] = arrivals(pair[0].masters[0], resource)
    check_kept(first.answer())
    again = asks(pair[1], resource, first.key, **members)
    own = replicas(pair[0].masters[0], resource)[1]
    wait_until(lambda: all(replicas(server, resource) == [own, own] for server in pair[0].masters), what="it has its place again")
    assert all(arrivals(server, resource)[0] == arrival for server in pair[0].masters)
    assert pair[0].release(held).status == 204
    again.granted()
    assert not second.is_answered()
    body = {"token": again.lease["token"]} | ({"resources": members["resources"]} if mode == "set" else {"resource": resource})
    path = "/locks" if mode == "set" else "/locks/" + harness.quote(resource)
    body.pop("resource", None)
    assert pair[0].curl("DELETE", path, body=body).status == 204
    second.granted()
    second.release()


@while_kept
def test_a_wait_goes_on_again_and_again(pair, asks, resource):
    held = pair[0].acquire(resource)
    first = asks(pair[0], resource, queued=1, wait_ms=300)
    second = asks(pair[1], resource, queued=2)
    for through in (pair[1], pair[0], pair[1]):
        check_kept(first.answer())
        first = asks(through, resource, first.key, wait_ms=300)
    check_kept(first.answer())
    first = asks(pair[0], resource, first.key)
    wait_until(lambda: all(arrivals(server, resource) == sorted(arrivals(server, resource)) and
                           len(set(replicas(server, resource))) == 2 for server in pair[0].masters), what="both wait")
    assert pair[0].release(held).status == 204
    check_next(first, second)


@while_kept
def test_a_wait_goes_on_after_its_redlockd_ended(lab, asks, resource):
    servers = lab.redises(3)
    ends, stays = lab.redlockd(servers), lab.redlockd(servers)
    held = stays.acquire(resource)
    first = asks(ends, resource, queued=1)
    second = asks(stays, resource, queued=2)
    ends.process.send_signal(signal.SIGTERM)
    check_kept(first.answer(), 503)
    ends.process.wait(harness.patience(20))
    again = asks(stays, resource, first.key)
    wait_until(lambda: all(len(set(replicas(server, resource))) == 1 for server in servers), what="it has its place again")
    assert stays.release(held).status == 204
    check_next(again, second)


@while_kept
def test_a_master_is_down(lab, asks, resource):
    """A majority keeps the place and gives it."""
    servers = lab.redises(3)
    one, other = lab.redlockd(servers), lab.redlockd(servers)
    servers[2].kill()
    for service in (one, other):
        service.wait_voting(2)
    held = one.acquire(resource)
    first = asks(one, resource, queued=1, wait_ms=400)
    second = asks(other, resource, queued=2)
    check_kept(first.answer())
    again = asks(other, resource, first.key)
    wait_until(lambda: all(len(set(replicas(server, resource))) == 1 for server in servers[:2]), what="it has its place again")
    assert one.release(held).status == 204
    check_next(again, second)


# ---- nobody else's ----


@pytest.mark.parametrize("other", [{"key": "another-key-of-16"}, {"owner": "other"}, {"metadata": {"job": 2}}, {"mode": "shared"}, {"slots": 1}],
                         ids=lambda other: next(iter(other)))
@while_kept
def test_a_place_is_nobody_elses(pair, asks, resource, other):
    """A request that differs in key, owner, metadata or mode comes last, and the place is still there for the right one."""
    held = pair[0].acquire(resource)
    first = asks(pair[0], resource, queued=1, wait_ms=400)
    second = asks(pair[1], resource, queued=2)
    check_kept(first.answer())
    stranger = asks(pair[1], resource, **{"key": first.key, **other}, queued=3)
    entries = [entry for entry in line(pair[0].masters[0], resource)]
    again = asks(pair[1], resource, first.key)
    wait_until(lambda: all(len(set(replicas(server, resource))) == 1 for server in pair[0].masters), what="the right one has it")
    assert entries[0][17:33] == arrivals(pair[0].masters[0], resource)[0]
    assert pair[0].release(held).status == 204
    again.granted()
    again.release()
    second.granted()
    second.release()
    stranger.granted()


@while_kept
def test_a_place_is_taken_once(pair, asks, resource):
    """Two requests with one key: at most one has the place, on a majority, and the other its own."""
    held = pair[0].acquire(resource)
    first = asks(pair[0], resource, queued=1, wait_ms=400)
    [arrival] = arrivals(pair[0].masters[0], resource)
    check_kept(first.answer())
    both = [asks(service, resource, first.key) for service in pair]
    wait_until(lambda: all(len(set(replicas(server, resource))) == 2 and len(set(arrivals(server, resource))) == 2 for server in pair[0].masters),
               what="both wait, each since another time")
    old = [entry[:16] for server in pair[0].masters for entry in line(server, resource) if entry[17:33] == arrival]
    assert len([replica for replica in set(old) if old.count(replica) >= 2]) == 1
    assert pair[0].release(held).status == 204
    leases = [one.answer() for one in both]
    assert sorted(answer.status for answer in leases) == [200, 201] and len({answer.json["token"] for answer in leases}) == 1
    assert pair[0].release(leases[0].json).status == 204


# ---- where there is none ----


def test_no_place_without_a_key_or_a_wait(pair, asks, crowd, resource):  # noqa: F811
    held = pair[0].acquire(resource)
    check_not_kept(crowd.wait(pair[0], resource, wait_ms=200).answer())
    check_not_kept(asks(pair[0], resource, wait_ms=0).answer())
    wait_for_queue(pair[0].masters, resource, 0)
    leaves = asks(pair[0], resource, queued=1)
    leaves.leave()
    wait_for_queue(pair[0].masters, resource, 0)
    assert pair[0].release(held).status == 204


def test_a_place_left_behind_is_removed(pair, asks, resource):
    """The next one waits for it no longer than it is kept, and is served then."""
    held = pair[0].acquire(resource)
    first = asks(pair[0], resource, queued=1, wait_ms=400)
    second = asks(pair[1], resource, queued=2)
    check_kept(first.answer())
    assert pair[0].release(held).status == 204
    second.granted()
    wait_for_queue(pair[0].masters, resource, 0)
    second.release()


def test_places_that_are_left_behind_leave_nothing(lab, asks, resource):
    service = lab.service(3)
    held = service.acquire(resource)
    for waiter in [asks(service, resource, wait_ms=300) for _ in range(10)]:
        check_kept(waiter.answer())
    assert service.release(held).status == 204
    wait_until(lambda: all(server.cli("KEYS", "*") == ["redlockd:master"] for server in service.masters), what="nothing is left")


# ---- many of them ----


class Restarting:
    """A redlockd at one address, which is ended and started again."""

    def __init__(self, lab, masters, *options):
        self.lab, self.masters, self.options = lab, masters, options
        self.daemon = lab.redlockd(masters, *options)
        self.address = self.daemon.address

    def restart(self):
        self.daemon.stop(signal.SIGTERM, 30)
        self.daemon = self.lab.redlockd(self.masters, *self.options, listen=(self.address,))


def acquire_patiently(services, resource, number, granted, gaps):
    """One acquisition in as many requests as it takes, each at another redlockd; then the lock is passed on at once."""
    key, body = uuid.uuid4().hex, json.dumps({"resource": resource, "ttl_ms": 30000, "wait_ms": 60000, "owner": str(number)})
    left = None  # when the last request ended
    for service in itertools.cycle(services[number % 2:] + services[:number % 2]):
        try:
            plain = harness.connect_to(service.address, 60)
            head = f"POST /locks HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
            plain.sendall((head + body).encode())
            gaps.append(time.monotonic() - left if left else 0)
            answer = read_response(plain, "POST")
            plain.close()
            left = time.monotonic()
        except OSError:
            continue
        if answer is not None and answer.status in (200, 201):
            granted.append((answer.json["fence"], number, answer.json))
            return


def test_the_order_of_arrival_over_restarts(lab, resource):
    """Waits of many requests over two redlockd that are restarted in turn: the grants are in exactly the order of arrival."""
    count, masters, granted, gaps = 20, lab.redises(3), [], []
    services = [Restarting(lab, masters, "--max-wait-ms", "1500") for _ in range(2)]
    held = services[0].daemon.acquire(resource, ttl_ms=60000)
    threads = []
    for number in range(count):
        threads.append(threading.Thread(target=acquire_patiently, args=(services, resource, number, granted, gaps), daemon=True))
        threads[-1].start()
        wait_for_queue(masters, resource, number + 1)
    for service in services * 2:
        service.restart()
    assert services[0].daemon.release(held).status == 204
    for turn in range(count):
        wait_until(lambda: len(granted) > turn, 20, f"grant {turn}")
        if turn in (6, 13):
            services[turn % 2].restart()
        assert services[0].daemon.release(granted[turn][2]).status == 204
    for thread in threads:
        thread.join(harness.patience(20))
    order = [number for _, number, _ in sorted(granted, key=lambda each: each[0])]
    assert sorted(order) == list(range(count))
    assert order == list(range(count)) or max(gaps) > KEPT / 2, order  # a request that goes on too late has lost its place
