# SPDX-License-Identifier: MIT
"""Clients that leave while they wait: they lose their queue entry, and what was granted to them is given back at once,
unless its answer was written already.

Whether a client still got its answer cannot be told from a plain close(). shutdown() of both directions is the same for
the other side, but what had arrived before can still be read here: so each trial knows for sure whether the grant was
delivered. A lease that was delivered is the client's, and stays. An answer that was written in the very moment in which
its client left is lost, which cannot be noticed: that lease runs out (test_delivered.py).
"""

import collections
import os
import random
import re
import select
import socket
import struct
import subprocess
import threading
import time

import pytest

from harness import SCALE, SLOW, Resp, connect_to, curl_command, quote, read_response, wait_until
from proxy import Proxy
from waiting_fixtures import (Waiter, check_nothing_is_left, check_served_in_order, crowd, give_back, lines, releases,  # noqa: F401
                              total, wait_for_queue)

TRIALS = round(1000 * SCALE)
THREADS = 8
# The lease of one who leaves: it runs out where its answer was written and is lost.
LEAVER_TTL_MS = min(round(10000 * SLOW), 60000)


def close(waiter):
    waiter.plain.close()


def reset(waiter):
    waiter.plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    waiter.plain.close()


def close_for_writing(waiter):
    waiter.plain.shutdown(socket.SHUT_WR)


WAYS_TO_LEAVE = [close, reset, close_for_writing]


# ---- the socket ----

@pytest.mark.parametrize("over", ["tcp", "unix"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_socket_of_a_stream_ends_with_its_client_though_others_are_idle(lab, over, version):
    """libmicrohttpd notices the end of a stream only with the oldest of the connections, unless it is told to look."""
    listen = f"unix:{lab.folder}/listen"
    server = lab.redlockd(lab.redises(1), "--listen", listen)
    address = listen if over == "unix" else server.address
    body = '{"resource":"socket","hold":true}'
    with connect_to(address) as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(idle).status == 200
        before = sockets(server)
        with connect_to(address) as plain:
            plain.sendall(f"POST /locks HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            while b"acquired" not in (got := plain.recv(65536)):
                assert got
            opened = sockets(server) - before
            assert opened
        wait_until(lambda: not opened & sockets(server), what="its socket is closed")
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(idle).status == 200, "the idle connection did not end before"


def sockets(server):
    """A set of names, not a number: a connection from before may end meanwhile."""
    found = set()
    for entry in os.scandir(f"/proc/{server.process.pid}/fd"):
        try:
            found.add(os.readlink(entry.path))
        except FileNotFoundError:
            pass  # closed since it was listed
    return {name for name in found if name.startswith("socket:")}


# ---- the queue entry ----


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE)
@pytest.mark.parametrize("who", [0, 1, 2], ids=["the first", "one in the middle", "the last"])
def test_a_waiter_that_leaves_loses_its_entry(service, resource, crowd, leave, who):
    holder = service.acquire(resource)
    waiters = crowd.queue_up(service, resource, 3)
    expected = [places[:who] + places[who + 1:] for places in lines(service.masters, resource)]
    leave(waiters.pop(who))
    wait_for_queue(service.masters, resource, 2)
    assert lines(service.masters, resource) == expected
    check_served_in_order(releases(service, holder), waiters)


def test_all_leave_at_once(service, resource, crowd):
    holder = service.acquire(resource)
    waiters = crowd.queue_up(service, resource, 50)
    for waiter in waiters:
        waiter.leave()
    wait_for_queue(service.masters, resource, 0)
    assert service.release(holder).status == 204
    assert service.release(service.acquire(resource)).status == 204


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_a_client_that_is_killed(lab, crowd, unix):
    """A real curl."""
    servers = lab.redises(3)
    service = lab.redlockd(servers, listen=[f"unix:{lab.folder}/listen" if unix else "127.0.0.1:0"])
    service.acquire("x")
    command = curl_command(service.address, "POST", "/locks", body={"resource": "x", "wait_ms": 60000})
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_queue(servers, "x", 1)
    client.kill()
    client.wait()
    wait_for_queue(servers, "x", 0)


def test_what_a_client_sends_behind_its_request_does_not_hide_that_it_left(service, resource, crowd):
    holder = service.acquire(resource)
    waiter = crowd.queue_up(service, resource, 1)[0]
    waiter.send("GET", f"/locks/{quote(resource)}", {})
    waiter.plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
    waiter.leave()
    wait_for_queue(service.masters, resource, 0)
    assert service.release(holder).status == 204


def test_a_client_that_stays_and_sends_more_keeps_its_entry(service, resource, crowd):
    """Requests behind the one that waits are answered after it."""
    holder = service.acquire(resource)
    waiter = crowd.queue_up(service, resource, 1)[0]
    waiter.plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert not select.select([waiter], [], [], 0.5)[0]
    assert [len(places) for places in lines(service.masters, resource)] == [1, 1, 1]
    assert service.release(holder).status == 204
    answers = b""
    while not answers.endswith(b'{"status":"ok"}'):
        assert select.select([waiter], [], [], 30 * SLOW)[0], answers
        answers += waiter.plain.recv(65536)
    assert answers.startswith(b"HTTP/1.1 201 ") and answers.count(b"HTTP/1.1 200 ") == 1, answers
    assert service.release({"resource": resource, "token": re.search(rb'"token":"(\w+)"', answers)[1].decode()}).status == 204


# ---- the grant ----


class Holding(Proxy):
    """Replies are held back from when the master has given the lock to another client than the one with `token`, until heal()."""

    token = None

    def changed(self, data):
        if self.token and (self.redis.cli("GET", "x") or self.token)[:40] != self.token:
            with self.lock:
                if self.token:
                    self.replies.clear()
            self.replies.wait()
        return data

    def heal(self):
        with self.lock:
            self.token = None
        super().heal()


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE)
def test_granted_to_one_that_left(lab, crowd, leave):
    """The masters have granted it, their answers are under way, and the client leaves: the lease is released at
    once."""
    servers = lab.redises(3)
    proxies = [lab.keep(Holding(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies, "--master-timeout-ms", "30000")
    other = lab.redlockd(servers)
    holder = other.acquire("x")
    waiter = crowd.queue_up(service, "x", 1)[0]
    token = holder["token"]
    for proxy in proxies:
        proxy.token = token
    assert other.release(holder).status == 204
    granted = lambda: sum((server.cli("GET", "x") or token)[:40] != token for server in servers)
    wait_until(lambda: granted() >= 2, what="granted on a majority: the release may come to the last one later")
    leave(waiter)
    for proxy in proxies:
        proxy.heal()
    lease = crowd.wait(other, "x").granted()  # the lease that was granted would last for longer than this waits
    assert other.release(lease).status == 204
    if leave is close_for_writing and (answer := read_response(waiter.plain)):
        assert answer.status != 201, "it cannot have a lease that was given back"


def test_a_lease_that_was_delivered_stays(service, resource, crowd):
    """A client that has its answer may close its connection in any way, and still holds the lock."""
    for leave in WAYS_TO_LEAVE:
        client = crowd.wait(service, resource)
        lease = client.granted()
        leave(client)
        assert crowd.wait(service, resource, wait_ms=300).answer().status == 409
        assert service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]}).status == 200
        assert service.release(lease).status == 204


# ---- a thousand times ----


class Trial:
    """One lock, its holder, one who waits for it and leaves, and one who wants it after that.

    It leaves at a random moment around the release, or as soon as one master has granted it the lock (`at_the_grant`). Now and then it closes
    its side for writing only: it counts as gone, but if it is told a lease all the same, that has to be one (`half`).
    The other one waits in the queue behind (`behind`), comes when the first has left (`after`), or has no wait_ms and asks again and again (`asks`)."""

    def __init__(self, services, number, moments):
        self.resource = f"trial/{number}"  # needs no quoting
        self.mode = ("behind", "after", "asks")[number % 3]
        self.leaver_at, self.other_at = random.choice(services), random.choice(services)
        self.holder = Waiter(random.choice(services), self.resource, wait_ms=None)
        self.moments, self.at_the_grant = moments, number % 2 == 1
        self.half = number % 5 == 4
        self.delivered = False
        self.seconds = None

    def run(self):
        self.holder.granted()
        leaver = Waiter(self.leaver_at, self.resource, ttl_ms=LEAVER_TTL_MS)
        wait_for_queue(self.leaver_at.masters, self.resource, 1)
        other = Waiter(self.other_at, self.resource) if self.mode == "behind" else None
        if other:
            wait_for_queue(self.leaver_at.masters, self.resource, 2)
        try:
            self._finish(leaver, other, max(self._part(leaver)))
        finally:
            leaver.plain.close()

    def _part(self, leaver):
        """The release, and the leaver's end before or after it; both times."""
        moment = random.uniform(*self.moments)
        if moment < 0 and not self.at_the_grant:
            leaver.plain.shutdown(socket.SHUT_WR if self.half else socket.SHUT_RDWR)
            left = time.monotonic()
            spin_until(lambda: time.monotonic() > left - moment)
        self.holder.send("DELETE", f"/locks/{self.resource}", {"token": self.holder.lease["token"]})
        released = time.monotonic()
        if moment >= 0 or self.at_the_grant:
            spin_until(self._granted_somewhere(leaver) if self.at_the_grant else lambda: time.monotonic() > released + moment)
            leaver.plain.shutdown(socket.SHUT_WR if self.half else socket.SHUT_RDWR)
            left = time.monotonic()
        return left, released

    def _granted_somewhere(self, leaver):
        """A condition: one of the masters has granted it to another client than the holder; or there is an answer
        already."""
        connection = Resp(random.choice(self.leaver_at.masters).path, 5 * SLOW)

        def is_granted():
            connection.send("GET", self.resource)
            done = (connection.receive() or self.holder.lease["token"])[:40] != self.holder.lease["token"] or leaver.is_answered()
            if done:
                connection.close()
            return done
        return is_granted

    def _finish(self, leaver, other, since):
        answer = read_response(leaver.plain)
        if answer is not None:  # it had its lease before it left: it is its own, and it gives it back
            assert answer.status == 201, answer
            self.delivered = True
            leaver.plain.close()
            give_back(self.other_at, answer.json)
            since = time.monotonic()
        if self.mode == "asks":
            other = self._ask()
        elif other is None:
            other = Waiter(self.other_at, self.resource)
        if not other.lease:
            other.granted(20)
        self.seconds = time.monotonic() - since
        other.release()
        other.leave()
        assert read_response(self.holder.plain).status == 204
        self.holder.leave()

    def _ask(self):
        deadline = time.monotonic() + 20 * SLOW
        while True:
            other = Waiter(self.other_at, self.resource, wait_ms=None)
            answer = other.answer()
            if answer.status == 201:
                other.lease = answer.json
                return other
            assert answer.status in (409, 503) and answer.code in ("locked", "split-vote"), answer
            assert time.monotonic() < deadline, f"{self.resource}: still locked"
            other.leave()


def spin_until(condition):
    """Fractions of a millisecond count here."""
    until = time.monotonic() + 10 * SLOW
    while not condition():
        assert time.monotonic() < until


def usual_handover(service):
    """How long it takes here from a release to the next answer, at the median."""
    took = []
    for number in range(15):
        holder = Waiter(service, f"usual/{number}", wait_ms=None)
        holder.granted()
        waiter = Waiter(service, f"usual/{number}")
        wait_for_queue(service.masters, f"usual/{number}", 1)
        start = time.monotonic()
        holder.release()
        waiter.granted()
        took.append(time.monotonic() - start)
        waiter.release()
        holder.leave()
        waiter.leave()
    return sorted(took)[7]


@pytest.mark.slow
def test_a_thousand_leave_around_their_grant(lab):
    """A lock is left to run out only where its answer was written. Otherwise another client can have it before that."""
    services = [lab.redlockd(lab.redises(3), "--workers", "2")]
    services.append(lab.redlockd(services[0].masters))
    usual = usual_handover(services[0])
    moments = (-usual, THREADS * usual)  # all trials share the machine
    numbers, trials, failures, lock = iter(range(10 * TRIALS)), [], [], threading.Lock()

    def undelivered():
        return sum(not trial.delivered for trial in trials)

    def work():
        while not failures:
            with lock:
                if undelivered() >= TRIALS:
                    return
                number = next(numbers)
            try:
                trial = Trial(services, number, moments)
                trial.run()
                trials.append(trial)
            except BaseException as failure:  # noqa: BLE001
                failures.append(failure)
    start = time.monotonic()
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    report(trials, time.monotonic() - start, usual, services)
    lost = lost_answers(trials, services)
    assert max(trial.seconds for trial in trials if trial not in lost) < LEAVER_TTL_MS / 1000, "a lease ran out that nobody was told of"
    found = sum(total(service, "redlockd_leases_abandoned_total") for service in services)
    print(f"{len(lost)} answers lost; {found:.0f} clients found gone before theirs was written")
    assert len(lost) < found, "an answer is lost only where the client leaves while it is being written"
    gone = sum(total(service, "redlockd_wait_seconds_count", result="gone") for service in services)
    assert 0.2 * TRIALS < gone < 0.99 * undelivered(), "the moments lie around the grant: some left before it, others before its answer"
    check_nothing_is_left(services[0].masters)


def lost_answers(trials, services):
    """Those whose client got no answer, though the log says that it was written: besides the holder's and that of the one who came last."""
    written = collections.Counter(line["resource"] for service in services for line in service.log("request")
                                  if line["method"] == "POST" and line.get("status") == "201")
    return [trial for trial in trials if not trial.delivered and written[trial.resource] == 3]


def report(trials, seconds, usual, services):
    print(f"{len(trials)} trials in {seconds:.1f} s; a usual hand-over takes {1000 * usual:.1f} ms")
    for delivered in (False, True):
        took = sorted(trial.seconds for trial in trials if trial.delivered == delivered)
        if took:
            at = {name: 1000 * took[min(len(took) - 1, int(len(took) * part))] for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1))}
            print("delivered" if delivered else "not delivered", len(took), " ".join(f"{name} {ms:.1f} ms" for name, ms in at.items()))
    gone = sum(total(service, "redlockd_wait_seconds_count", result="gone") for service in services)
    print(f"not delivered: {gone:.0f} left before the grant, the others after it")
