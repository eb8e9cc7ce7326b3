# SPDX-License-Identifier: MIT
"""The program of docs/how-to/leader-election.md: three candidates and two followers, over two redlockd. The leader is killed, stopped, cut off."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading

import pytest

from ctl import url
from harness import DIES_WITH_US, ROOT, SLOW, clean_environment, connect_to, end_process, freeze, wait_until

PROGRAM = str(ROOT / "docs/how-to/leader.py")
TTL_MS = round(4000 * SLOW)
NAME = "leader/billing"


class Relay:
    """A way to a redlockd, which can be cut: then what is sent goes nowhere, and nothing comes back."""

    def __init__(self, service):
        self.service, self.pairs, self.is_cut = service, [], threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                pair = self.listener.accept()[0], connect_to(self.service.address)
                self.pairs.append(pair)
                for here, there in (pair, pair[::-1]):
                    threading.Thread(target=self._pass_on, args=(here, there), daemon=True).start()

    def _pass_on(self, here, there):
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                if not self.is_cut.is_set():
                    there.sendall(data)
            there.shutdown(socket.SHUT_WR)

    def kill(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()
        for one in (side for pair in self.pairs for side in pair):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Program:
    def __init__(self, scene, *arguments, servers=None):
        self.relays = [scene.lab.keep(Relay(service)) for service in scene.services] if servers is None else []
        servers = servers or [relay.url for relay in self.relays]
        self.path = os.path.join(scene.lab.folder, f"{os.urandom(4).hex()}.out")
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen([*DIES_WITH_US, sys.executable, PROGRAM, *arguments], stdin=subprocess.DEVNULL, stdout=out,
                                            env=clean_environment({"REDLOCKD": " ".join(servers), "TTL_MS": str(TTL_MS)}))

    def kill(self):
        end_process(self.process)

    def lines(self):
        with open(self.path, encoding="utf-8") as file:
            return [line.split() for line in file.read().split("\n")[:-1]]


class Scene:
    def __init__(self, lab):
        masters = lab.redises(3)
        self.lab, self.services = lab, [lab.redlockd(masters), lab.redlockd(masters)]
        for service in self.services:
            service.wait_voting(3)
        self.store = os.path.join(lab.folder, "store.db")
        self.ask("CREATE TABLE work (owner TEXT, fence INTEGER)")
        urls = [url(service) for service in self.services]
        self.followers = [lab.keep(Program(self, "follow", NAME, servers=servers)) for servers in (urls, urls[::-1])]
        self.candidates = {}
        for owner in ("one", "two", "three"):
            self.candidates[owner] = lab.keep(Program(self, "lead", NAME, owner, f"10.0.0.1:{len(self.candidates)}", self.store))

    def ask(self, query):
        with contextlib.closing(sqlite3.connect(self.store, timeout=20 * SLOW)) as store, store:
            return store.execute(query).fetchall()

    def known(self):
        """The leader that all followers agree on, if it is one."""
        last = [(follower.lines() or [["nobody"]])[-1] for follower in self.followers]
        return last[0][0] if last[0] == last[1] and len(last[0]) == 3 else None

    def wait_leader(self, apart_from=None):
        """Until all know another leader, which has done some work; returns it."""
        wait_until(lambda: self.known() not in (None, apart_from), TTL_MS / 1000 + 8, "all know the leader")
        leader = self.known()
        wait_until(lambda: self.worked(leader), what=f"{leader} works")
        return leader

    def worked(self, owner):
        return self.ask(f"SELECT count(*) FROM work WHERE owner = '{owner}'")[0][0]


@pytest.fixture
def scene(lab):
    return Scene(lab)


@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_a_leader_that_fails(scene, how):
    leader = scene.wait_leader()
    failed = scene.candidates[leader]
    if how == "killed":
        failed.process.kill()
    elif how == "stopped":
        freeze(failed.process)
    else:
        for relay in failed.relays:
            relay.is_cut.set()
    later = scene.wait_leader(leader)
    if how == "stopped":
        before = scene.worked(leader)
        failed.process.send_signal(signal.SIGCONT)
        wait_until(lambda: failed.lines()[-1][0] == "led", what="it knows that it led")
        assert scene.worked(leader) == before and scene.known() == later
    elif how == "cut off":
        wait_until(lambda: failed.lines()[-1][0] == "led", what="it knows that it led")
    fences = [fence for (fence,) in scene.ask("SELECT fence FROM work ORDER BY rowid")]
    assert fences == sorted(fences) and len(set(fences)) == 2
    for follower in scene.followers:
        heard = [int(line[2]) for line in follower.lines() if len(line) == 3]
        assert heard == sorted(set(heard)) == sorted(set(fences))


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_leader_that_is_asked_to_end_releases_the_lock(scene, number, status):
    """Its lease is over when it has ended, long before its time."""
    leader = scene.wait_leader()
    program = scene.candidates[leader]
    fence = int(next(line for line in reversed(program.lines()) if line[0] == "leads")[1])
    program.process.send_signal(number)
    assert program.process.wait(20 * SLOW) == status
    assert program.lines()[-1] == ["led", str(fence)]
    state = scene.services[0].curl("GET", f"/locks?resource={NAME}").json
    assert state.get("fence") != fence, state
    scene.wait_leader(leader)


def test_a_follower_whose_redlockd_ends(scene):
    leader = scene.wait_leader()
    scene.services[1].stop()
    scene.candidates[leader].process.kill()
    scene.wait_leader(leader)


def test_its_mistakes_are_told():
    done = subprocess.run([sys.executable, PROGRAM, "lead"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and "leader.py follow NAME" in done.stderr
