# SPDX-License-Identifier: MIT
"""Clients that come and go without order: they wait for long or briefly, hold, leave while they wait, die while they
hold. Through several redlockd with several workers. One has a lock at a time, each is answered in time, and nothing is
left."""

import random
import socket
import threading
import time

import pytest

from harness import SCALE, read_response
from waiting_fixtures import Waiter, check_nothing_is_left, give_back, total

pytestmark = pytest.mark.slow  # seconds of churn

SECONDS = 4 + 6 * SCALE
CLIENTS = 12
RESOURCES = ["churn/a", "churn/b", "churn/c"]
SHORT_TTL_MS = 300  # of those that die with the lock


class Book:
    """The holders of locks, as far as clients can know them, and all violations seen."""

    def __init__(self):
        self.lock, self.holds = threading.Lock(), {name: [] for name in RESOURCES}
        self.counts, self.failures = {}, []

    def note(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def hold(self, resource, fence, since, until):
        with self.lock:
            self.holds[resource].append((fence, since, until))

    def check(self):
        """In the order of their fences the holders came one after the other: the next one was answered after the one before began to let go."""
        for resource, holds in self.holds.items():
            holds.sort()
            assert len({fence for fence, _, _ in holds}) == len(holds), f"{resource}: a fence twice"
            for (_, _, until), (fence, since, _) in zip(holds, holds[1:]):
                assert until <= since, f"{resource}: {fence} was granted {since - until:.6f} s after the one before had ended"


def live(book, services, over):
    """One client after the other, each on a connection of its own."""
    while not over.is_set() and not book.failures:
        try:
            visit(book, random.choice(services), random.choice(RESOURCES), random.random())
        except BaseException as failure:  # noqa: BLE001
            book.failures.append(failure)


def visit(book, service, resource, fate):
    """`fate`, 0 … 1: what becomes of this client."""
    wait_ms = random.choice([0, 30, 1000, 20000])
    dies = fate > 0.95
    client = Waiter(service, resource, wait_ms=wait_ms, ttl_ms=SHORT_TTL_MS if dies else 30000)
    try:
        if fate < 0.15:
            leave_early(book, client)
            return
        answer = client.answer(wait_ms / 1000 + 3)
        if answer.status != 201:
            assert answer.code in ("locked", "split-vote", *(["no-quorum"] if dies else [])), answer  # too late for so short a lease
            assert answer.code != "locked" or answer.json["waited_ms"] >= wait_ms, answer
            book.note(answer.code)
            return
        client.lease, since = answer.json, time.monotonic()
        if dies:  # its lease counts from when it asked
            book.note("died")
            book.hold(resource, client.lease["fence"], since, since)
            return
        time.sleep(random.uniform(0, 0.01))  # it works
        book.hold(resource, client.lease["fence"], since, time.monotonic())
        client.release()
        book.note("released")
    finally:
        client.leave()


def leave_early(book, client):
    """Ends its connection after a while. An answer that had come by then can still be read: if it is a lease, the
    client releases it."""
    time.sleep(random.uniform(0, 0.03))
    client.plain.shutdown(socket.SHUT_RDWR)
    answer = read_response(client.plain)
    if answer is not None and answer.status == 201:
        give_back(client.through, answer.json)
    book.note("left")


def test_churn(lab):
    masters = lab.redises(3)
    services = [lab.redlockd(masters, "--workers", "2"), lab.redlockd(masters)]
    book, over = Book(), threading.Event()
    threads = [threading.Thread(target=live, args=(book, services, over)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    over.wait(SECONDS)
    over.set()
    for thread in threads:
        thread.join()
    print(book.counts)
    assert not book.failures, book.failures
    book.check()
    assert all(book.counts.get(what, 0) > 0 for what in ("released", "died", "left")), book.counts
    assert sum(total(service, "redlockd_waiters") for service in services) == 0
    check_nothing_is_left(masters)
