# SPDX-License-Identifier: MIT
"""Drills: two holders of a lock each take one from a stock, and the first one writes after its lease is over. Without a kit an update is lost each time,
with it none is."""

import contextlib
import os
import pathlib
import signal
import sys

import pytest

from ctl import LOST, Run
from harness import ROOT, SLOW, children_of, process_state, wait_until
from kits import KITS, LockLost

ROUNDS = 200
STOCK = 1000
README = (ROOT / "clients" / "fences" / "README.md").read_text("utf-8")
HOLDER = pathlib.Path(__file__).with_name("holder.py")


class Lock:
    """Of redlockd. Each lease ends where the next one begins, by force: its holder does not know."""

    def __init__(self, service, resource):
        self.client, self.resource, self.held = service.client(), resource, False

    def lease(self):
        """Returns the fence."""
        if self.held:
            assert self.client.call("DELETE", f"/locks/{self.resource}?force=true").status == 204
        answer = self.client.call("POST", "/locks", {"resource": self.resource, "ttl_ms": 60000})
        assert answer.status == 201, answer
        self.held = True
        return answer.json["fence"]


def drill(former, later, lock, guarded, former_is_last):
    """Both read; the later one writes, and the former one right before it or after it. Returns how many updates are lost."""
    fences, written = {}, 0

    def read(kit):
        return kit.enter(fences[kit]) if guarded else kit.read()

    def write(kit, amount):
        nonlocal written
        try:
            if guarded:
                kit.write(fences[kit], amount)
            else:
                kit.write_plain(amount)
            written += 1
        except LockLost:
            assert kit is former
    fences[former] = lock.lease()
    before = read(former)
    fences[later] = lock.lease()
    seen = read(later)
    for kit, amount in ((later, seen), (former, before)) if former_is_last else ((former, before), (later, seen)):
        write(kit, amount - 1)
    return written - (before - read(later))


def test_two_hundred_drills(open_kit, service, record_property):
    former, later = open_kit(), open_kit()
    lock = Lock(service, f"stock/{later.item}")
    first = lock.lease()
    later.write_plain(STOCK)
    later.enter(first)
    later.write(first, STOCK)
    plain, guarded = (sum(drill(former, later, lock, how, turn % 2 == 0) for turn in range(ROUNDS)) for how in (False, True))
    lock.client.close()
    record_property(f"lost of {ROUNDS}", f"{open_kit.kit.title}: {plain} unguarded, {guarded} guarded")
    assert (plain, guarded) == (ROUNDS, 0)
    assert f"in {ROUNDS} drills" in README and f": {plain} without a kit, {guarded} with each kit." in README


def job(lab, service, open_kit, mode):
    """`redlockctl run` with a holder that has read."""
    run = Run(lab, f"stock/{open_kit.item}", command=[sys.executable, "-B", str(HOLDER), open_kit.kit.__name__, open_kit.place, open_kit.item, mode, "."],
              servers=[service], ttl_ms=round(2000 * SLOW))
    run.file("read")
    return run


def proceed(run):
    with open(run.folder / "go", "wb") as pipe:
        pipe.write(b"x")


STOPS = [(KITS[0], "plain"), *((kit, "guarded") for kit in KITS)]


@pytest.mark.parametrize(("open_kit", "mode"), STOPS, indirect=["open_kit"], ids=[f"{kit.__name__}-{mode}" for kit, mode in STOPS])
def test_a_holder_that_is_stopped(open_kit, service, lab, mode):
    """With its supervisor, as a machine that stands still, until the next one is done. It goes on before its supervisor, which would end it."""
    kit = open_kit()
    kit.write_plain(STOCK)
    kit.enter(1)
    kit.write(1, STOCK)
    run = job(lab, service, open_kit, mode)
    pid = int(run.file("read"))
    others = [run.process.pid, *(child for child in children_of(run.process.pid) if child != pid)]
    for one in (*others, pid):
        os.kill(one, signal.SIGSTOP)
    wait_until(lambda: all(process_state(one) == "T" for one in (*others, pid)), what="SIGSTOP")
    later = job(lab, service, open_kit, mode)
    proceed(later)
    assert (later.wait(), later.file("written")) == (0, str(STOCK - 1))
    proceed(run)
    os.kill(pid, signal.SIGCONT)
    assert run.file("written") == ("refused" if mode == "guarded" else str(STOCK - 1))
    for one in others:
        with contextlib.suppress(ProcessLookupError):  # the one that went on before has ended it
            os.kill(one, signal.SIGCONT)
    assert run.wait() == LOST
    assert (kit.enter(2**53 - 1) if mode == "guarded" else kit.read()) == STOCK - 1
