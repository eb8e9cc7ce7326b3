# SPDX-License-Identifier: MIT
"""What is measured, as processes: redlockd over three redis-servers, and etcd. Each stack is started new, lives in a folder of its own, and is ended
by the ids of its processes. While one is measured nothing else runs.

A stack has: `service` (hot_lock's name for how it is spoken to), `addresses` (where clients may connect), pids() by kind of process, and calls(), how
often each Redis command was called so far on all masters together (empty for etcd).
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

MASTERS = 3
MEMORY = "/dev/shm"  # a file system without a disk below


class RedlockdStack:
    """`replicas` redlockd over the same masters, with the options that ./dev run has: nothing but defaults."""

    service = "redlockd"

    def __init__(self, replicas):
        self.folder = tempfile.mkdtemp(prefix="rl-bench-")
        self.masters, self.daemons = [], []
        try:
            for _ in range(MASTERS):
                self.masters.append(harness.Redis(self.folder))
            for _ in range(replicas):
                self.daemons.append(harness.Redlockd(self.folder, self.masters, "--master-timeout-ms", "50"))
        except BaseException:
            self.stop()
            raise
        self.addresses = [daemon.address for daemon in self.daemons]

    def pids(self):
        return {"redlockd": [daemon.process.pid for daemon in self.daemons], "redis": [master.process.pid for master in self.masters]}

    def calls(self):
        total = {}
        for master in self.masters:
            for name, count in master.calls().items():
                total[name] = total.get(name, 0) + count
        return total

    def version(self):
        redis = self.masters[0].cli("INFO", "server").split("redis_version:")[1].split()[0]
        return {"redlockd": json.loads(self.daemons[0].curl("GET", "/version").body), "redis": redis}

    def stop(self):
        for daemon in self.daemons:
            daemon.kill()
        for master in self.masters:
            master.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class EtcdStack:
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
        client = f"http://{self.addresses[i]}"
        cluster = ",".join(f"m{j}={peer}" for j, peer in enumerate(peers))
        command = ["etcd", "--name", f"m{i}", "--data-dir", os.path.join(self.folder, f"m{i}"), "--log-level", "warn", "--initial-cluster", cluster,
                   "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peers[i],
                   "--initial-advertise-peer-urls", peers[i]]
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


# Name: how it is started, and what it is called in the table.
STACKS = {
    "redlockd-1": (lambda: RedlockdStack(1), "redlockd, 1 replica"),
    "redlockd-2": (lambda: RedlockdStack(2), "redlockd, 2 replicas"),
    "etcd-memory": (lambda: EtcdStack(1, True), "etcd, data in memory"),
    "etcd-disk": (lambda: EtcdStack(1, False), "etcd, data on disk"),
    "etcd-3": (lambda: EtcdStack(3, True), "etcd, 3 members, in memory"),
}
