# SPDX-License-Identifier: MIT
"""What `./dev bench` measures, as processes: redlockd with so many masters and workers, etcd, and the services that one writes with a Redlock library.

Each stack is started new, lives in a folder of its own, and is ended by the ids of its processes. It has `addresses`, pids() of "service" and "masters",
load_environment() for wrk/load.lua, and stop(). Those of the hot lock also have `service` (hot_lock's name for how it is spoken to), calls(), how often
each Redis command was called so far on all masters together (empty for etcd), and version().
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

import harness
import proxy

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
TOOLS = harness.ROOT / "build" / "tools" / "bench"
MEMORY = "/dev/shm"  # a file system without a disk below


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

    service = "redlockd"

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

    def calls(self):
        total = {}
        for master in self.masters.redis:
            for name, count in master.calls().items():
                total[name] = total.get(name, 0) + count
        return total

    def version(self):
        redis = self.masters.redis[0].cli("INFO", "server").split("redis_version:")[1].split()[0]
        return {"redlockd": json.loads(self.daemon.curl("GET", "/version").body), "redis": redis}

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


def etcd_command(number, folder, client, peers):
    """One member of a cluster. `client`: its URL for clients; `peers`: the URLs of all members for each other."""
    cluster = ",".join(f"m{i}={peer}" for i, peer in enumerate(peers))
    return ["etcd", "--name", f"m{number}", "--data-dir", f"{folder}/m{number}", "--log-level", "warn", "--initial-cluster", cluster, "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peers[number], "--initial-advertise-peer-urls", peers[number]]


class EtcdServers:
    """`members` etcd-servers, one cluster. `memory`: its data is in memory, so that writing it through (fsync) costs nothing."""

    service = "etcd"

    def __init__(self, members, memory):
        self.folder = tempfile.mkdtemp(prefix="rl-bench-", dir=MEMORY if memory else None)
        self.processes = []
        ports = random.sample(range(15000, 32000), 2 * members)
        self.addresses = [f"127.0.0.1:{port}" for port in ports[:members]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
        try:
            for i in range(members):
                self._start(i, peers)
            for address in self.addresses:
                harness.wait_until(lambda where=address: self._healthy(where), 30, "etcd is healthy")
        except BaseException:
            self.stop()
            raise

    def _start(self, i, peers):
        command = etcd_command(i, self.folder, f"http://{self.addresses[i]}", peers)
        with open(os.path.join(self.folder, f"log{i}"), "wb") as log:
            environment = {"PATH": os.environ["PATH"], "HOME": self.folder}
            self.processes.append(subprocess.Popen([*harness.DIES_WITH_US, *command], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _healthy(self, address):
        for i, process in enumerate(self.processes):
            assert process.poll() is None, "etcd ended: " + pathlib.Path(self.folder, f"log{i}").read_text()[-1000:]
        try:
            with urllib.request.urlopen(f"http://{address}/health", timeout=5) as answer:
                return json.load(answer).get("health") == "true"
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError):
            return False

    def pids(self):
        return {"etcd": [process.pid for process in self.processes]}

    def calls(self):
        return {}

    def version(self):
        with urllib.request.urlopen(f"http://{self.addresses[0]}/version", timeout=5) as answer:
            return {"etcd": json.load(answer)["etcdserver"]}

    def stop(self):
        for process in self.processes:
            harness.end_process(process)
        shutil.rmtree(self.folder, ignore_errors=True)


class Etcd(EtcdServers):
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


# The stacks of the hot lock. Name: how it is started, and what it is called in the table.
HOT = {
    "redlockd-1": (lambda: Redlockd(replicas=1), "redlockd, 1 replica"),
    "redlockd-2": (lambda: Redlockd(replicas=2), "redlockd, 2 replicas"),
    "etcd-memory": (lambda: EtcdServers(1, True), "etcd, data in memory"),
    "etcd-disk": (lambda: EtcdServers(1, False), "etcd, data on disk"),
    "etcd-3": (lambda: EtcdServers(3, True), "etcd, 3 members, in memory"),
}
