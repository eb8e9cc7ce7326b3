# SPDX-License-Identifier: MIT
"""What `./dev bench` measures, as processes: redlockd with so many masters and workers, etcd, and the services that one writes with a Redlock library.

Each stack is started new, lives in a folder of its own, and is ended by the ids of its processes. It has `addresses`, pids() of "service" and "masters",
load_environment() for wrk/load.lua, and stop().
"""

import json
import pathlib
import random
import shutil
import subprocess
import tempfile
import urllib.request

import harness
import proxy
import stacks

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
TOOLS = harness.ROOT / "build" / "tools" / "bench"


class Masters:
    """Redis servers on Unix sockets, without persistence, with the hz of those that come with redlockd."""

    def __init__(self, folder, count):
        self.redis = []
        try:
            for _ in range(count):
                self.redis.append(harness.Redis(folder, "--hz", "100"))
        except BaseException:
            self.stop()
            raise

    def pids(self):
        return [one.process.pid for one in self.redis if one.process.poll() is None]

    def stop(self):
        for one in self.redis:
            if harness.process_state(one.process.pid) == "T":
                one.cont()
            one.kill()


class Stack:
    load, pair = "acquire", "pair"

    def __init__(self, masters):
        self.folder = tempfile.mkdtemp(prefix="rl-bench-")
        self.processes, self.addresses = [], []
        self.masters = Masters(self.folder, masters)

    def pids(self):
        return {"service": [process.pid for process in self.processes], "masters": self.masters.pids()}

    def load_environment(self):
        return {}

    def stop(self):
        for process in self.processes:
            harness.end_process(process)
        self.masters.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redlockd(Stack):
    """All defaults, as in ./dev run. `binary`: another redlockd. `fault`: what is done to the last master once all of them vote: "stop", "kill", or "delay" (20 ms before each reply)."""

    def __init__(self, masters=3, workers=1, fault=None, options=(), binary=harness.BINARY, replicas=1):
        super().__init__(masters)
        self.proxy = None
        try:
            given = list(self.masters.redis)
            if fault == "delay":
                self.proxy = proxy.Proxy(self.folder, given[-1])
                given[-1] = self.proxy
            harness.BINARY = binary
            for _ in range(replicas):
                self.daemon = harness.Redlockd(self.folder, given, "--master-timeout-ms", "50", "--workers", str(workers), *options, log_requests=None)
                self.processes.append(self.daemon.process)
                self.addresses.append(self.daemon.address)
            self.spoil(fault)
        except BaseException:
            self.stop()
            raise

    def spoil(self, fault):
        last = self.masters.redis[-1]
        if fault == "stop":
            last.stop()
        elif fault == "kill":
            last.kill()
        elif fault == "delay":
            self.proxy.reply_delay = 0.02
        if fault in ("stop", "kill"):
            self.daemon.wait_voting(len(self.masters.redis) - 1)

    def pids(self):
        return super().pids()

    def stop(self):
        if self.proxy:
            self.proxy.kill()
        super().stop()


class Peer(Stack):
    """A service over the same kind of masters, written with a Redlock library."""

    def __init__(self, masters=3):
        super().__init__(masters)
        self.addresses = [f"127.0.0.1:{random.randrange(15000, 32000)}"]
        try:
            with open(f"{self.folder}/log", "wb") as log:
                self.processes.append(subprocess.Popen([*harness.DIES_WITH_US, *self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            harness.wait_until(self.answers, 30, "the peer answers")
        except BaseException:
            self.stop()
            raise

    def paths(self):
        return ",".join(one.path for one in self.masters.redis)

    def answers(self):
        assert self.processes[0].poll() is None, pathlib.Path(self.folder, "log").read_text()[-1000:]
        try:
            return harness.curl(self.addresses[0], "POST", "/locks", body={"resource": "is it there", "ttl_ms": 1000}).status in (201, 409)
        except (AssertionError, OSError, subprocess.SubprocessError):
            return False


class Redsync(Peer):
    """Go: github.com/go-redsync/redsync."""

    def command(self):
        return [str(TOOLS / "redsync"), "-masters", self.paths(), "-listen", self.addresses[0]]

    def direct_command(self, seconds, parallel):
        return [str(TOOLS / "redsync"), "-masters", self.paths(), "-direct", str(seconds), "-parallel", str(parallel)]


class NodeRedlock(Peer):
    """Node: npm's redlock and ioredis."""

    def command(self):
        return ["node", str(PEERS / "node-redlock" / "service.mjs"), self.paths(), self.addresses[0]]

    def direct_command(self, seconds, parallel):
        return ["node", str(PEERS / "node-redlock" / "service.mjs"), self.paths(), "direct", str(seconds), str(parallel)]


class Etcd(stacks.EtcdStack):
    """Its lock service through the JSON gateway, under one lease for all locks; data in memory, so that no disk is waited for."""

    load, pair = "etcd", "etcd-pair"

    def __init__(self, members):
        super().__init__(members, True)
        with urllib.request.urlopen(f"http://{self.addresses[0]}/v3/lease/grant", b'{"TTL":600}', timeout=10) as answer:
            self.lease = json.load(answer)["ID"]

    def pids(self):
        return {"service": super().pids()["etcd"], "masters": []}

    def load_environment(self):
        return {"ETCD_LEASE": self.lease}
