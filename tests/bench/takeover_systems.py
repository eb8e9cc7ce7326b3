# SPDX-License-Identifier: MIT
"""The systems that takeover.py measures: their servers, and the commands of those who want locks. First what all have,
then redlockd's own, then those of others."""

import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import bench_stacks
import harness
from networks import SERVER

OPTIONS = ["--insecure", "--master-timeout-ms", "500"]  # a hundred holders begin at once, on few processors
CTL = pathlib.Path(harness.BINARY).with_name("redlockctl")
KAZOO = harness.ROOT / "build/tools/kazoo/bin/python"
CONTENDER = pathlib.Path(__file__).with_name("takeover_contender.py")


class System:
    """`ttl`: seconds after which a silent holder is out. `servers`: host:port, those of holders first. `is_member`: a
    server is one of those whose majority decides, so "all" strikes one of them, and not two. `says_waiting`: a waiter
    that has connected says so, as one that starts for seconds is to be waited for."""

    has_server, is_member, says_waiting = True, False, False
    immediate = {"end"}  # milliseconds: one lock after the other

    def __init__(self, ttl):
        self.ttl, self.folder, self.processes, self.servers = ttl, tempfile.mkdtemp(prefix="rl-takeover-"), [], []

    def holders(self, name):
        return self.command(self.servers, [name])

    def waiters(self, names):
        """Commands that want all of these."""
        return [self.command(self.servers[::-1], names)]

    def command(self, servers, names):
        raise NotImplementedError

    def end(self, holder):
        """Lets it release its lock."""
        holder.stdin.close()

    def kill_server(self):
        self.processes[0].kill()

    def strike_master(self, number):
        raise NotImplementedError

    def stop(self):
        for process in self.processes:
            harness.end_process(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def spawn(self, command):
        """A server, with its output in the folder."""
        with open(f"{self.folder}/log{len(self.processes)}", "wb") as log:
            environment = {"PATH": os.environ["PATH"], "HOME": self.folder}
            self.processes.append(subprocess.Popen([*harness.DIES_WITH_US, *command], stdin=subprocess.DEVNULL,
                                                   stdout=log, stderr=log, env=environment))


class Masters(System):
    """Three Redis servers."""

    def __init__(self, ttl, *options, tcp=False):
        super().__init__(ttl)
        self.masters = []
        try:
            self.masters += [harness.Redis(self.folder, *options, tcp=tcp) for _ in range(3)]
        except BaseException:
            self.stop()
            raise

    def strike_master(self, number):
        self.masters[-1].process.send_signal(number)

    def stop(self):
        for master in self.masters:
            master.kill()
        super().stop()


class Redlockd(Masters):
    """Two redlockd; holders prefer one, waiters the other."""

    kind = "library"

    def __init__(self, ttl):
        super().__init__(ttl)
        try:
            for _ in range(2):
                daemon = harness.Redlockd(self.folder, self.masters, *OPTIONS, listen=[f"{SERVER}:0"],
                                          log_requests=None)
                self.processes.append(daemon.process)
                self.servers.append(daemon.address)
        except BaseException:
            self.stop()
            raise

    def command(self, servers, names):
        return [sys.executable, CONTENDER, self.kind, ",".join(servers), self.ttl, *names]


class RedlockdHold(Redlockd):
    kind, immediate = "hold", {"end", "kill"}


class RedlockctlRun(Redlockd):
    """redlockctl run, a process for each lock."""

    def command(self, servers, names):
        options = [word for server in servers for word in ("--server", server)]
        return [CTL, "run", *names, "--ttl", f"{self.ttl}s", "--wait", "10m", *options, "--",
                "sh", "-c", f"echo granted {names[0]}; exec cat"]

    def waiters(self, names):
        return [self.command(self.servers[::-1], [name]) for name in names]


class Libraries(Masters):
    """Redlock in the program itself, over the masters' TCP ports."""

    has_server = False

    def __init__(self, ttl):
        super().__init__(ttl, "--bind", "0.0.0.0", "--protected-mode", "no", tcp=True)
        self.servers = [f"{SERVER}:{master.port}" for master in self.masters]


class Redsync(Libraries):
    """It renews by Extend(); waiters poll."""

    def command(self, servers, names):
        return [bench_stacks.TOOLS / "redsync", "-masters", ",".join(servers), "-expiry", f"{self.ttl}s", "-contend",
                ",".join(names)]


class Redisson(Libraries):
    """RedissonRedLock, with a watchdog that renews each third of its time limit; waiters are told of a release."""

    says_waiting = True

    def command(self, servers, names):
        folder = bench_stacks.TOOLS / "redisson"
        return ["java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{folder}/*",
                "Contender", ",".join(servers), self.ttl * 1000, *names]


class Members(System):
    """Three members of a consensus; holders and waiters know all, a follower first. Their leader is the `master`."""

    is_member = True

    def strike_master(self, number):
        self.leader.send_signal(number)

    def find_leader(self):
        """Sorts the servers: a follower first."""
        def found():
            return all(map(self.answers, self.servers)) and any(map(self.leads, self.servers))
        harness.wait_until(found, 60, "a leader")
        number = next(i for i, server in enumerate(self.servers) if self.leads(server))
        self.leader = self.processes[number]
        order = sorted(range(3), key=lambda i: (i == number, i))
        self.servers, self.processes = [self.servers[i] for i in order], [self.processes[i] for i in order]

    def answers(self, server):
        raise NotImplementedError

    def leads(self, server):
        raise NotImplementedError


class EtcdMembers(Members):
    """Three members of etcd."""

    def __init__(self, ttl):
        super().__init__(ttl)
        ports = random.sample(range(15000, 32000), 6)
        self.servers = [f"{SERVER}:{port}" for port in ports[:3]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[3:]]
        try:
            for i, server in enumerate(self.servers):
                self.spawn(bench_stacks.etcd_command(i, self.folder, f"http://{server}", peers))
            self.find_leader()
        except BaseException:
            self.stop()
            raise

    @staticmethod
    def status(server):
        try:
            request = urllib.request.Request(f"http://{server}/v3/maintenance/status", data=b"{}")
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return {}

    def answers(self, server):
        return bool(self.status(server).get("leader"))

    def leads(self, server):
        said = self.status(server)
        return said.get("leader", "0") == said.get("header", {}).get("member_id")


class Etcd(EtcdMembers):
    """etcdctl lock, the lock of etcd's library for Go, with a lease of the session."""

    def command(self, servers, names):
        client = ["env", "ETCDCTL_API=3", "etcdctl", "--endpoints", ",".join(servers)]
        return [*client, "lock", "--ttl", self.ttl, "--", names[0],
                "sh", "-c", f"echo granted {names[0]}; exec sleep infinity"]

    def end(self, holder):
        """Its command has no input, so the end is that of the command."""
        os.kill(harness.children_of(holder.pid)[-1], signal.SIGTERM)

    def waiters(self, names):
        return [self.command(self.servers[::-1], [name]) for name in names]


class ClientGo(EtcdMembers):
    """Leader election by client-go with its defaults, so `ttl` is its LeaseDuration. Two kube-apiserver are over the
    members of etcd: holders prefer one, waiters the other, as behind a load balancer."""

    is_member, says_waiting = False, True
    immediate: set[str] = set()  # waiters poll, every two to four seconds

    def __init__(self, ttl):
        super().__init__(ttl)
        try:
            self.token = secrets.token_hex(16)
            tokens, key = pathlib.Path(self.folder, "tokens"), pathlib.Path(self.folder, "key")
            tokens.write_text(f"{self.token},takeover,takeover\n")
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], stderr=subprocess.DEVNULL, check=True)
            stores = ",".join(f"http://{server}" for server in self.servers)
            self.servers = [f"{SERVER}:{port}" for port in random.sample(range(15000, 32000), 2)]
            for server in self.servers:
                port = server.partition(":")[2]
                self.spawn([str(bench_stacks.TOOLS / "kube-apiserver"), f"--etcd-servers={stores}",
                            f"--bind-address={SERVER}", f"--secure-port={port}", f"--cert-dir={self.folder}/{port}",
                            f"--token-auth-file={tokens}", "--authorization-mode=AlwaysAllow",
                            "--service-account-issuer=https://takeover",
                            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
                            "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"])
            harness.wait_until(lambda: all(map(self.is_ready, self.servers)), 120, "kube-apiserver")
        except BaseException:
            self.stop()
            raise
        self.processes = self.processes[3:] + self.processes[:3]

    def is_ready(self, server):
        try:
            headers = {"Authorization": f"Bearer {self.token}"}
            request = urllib.request.Request(f"https://{server}/readyz", headers=headers)
            context = ssl._create_unverified_context()
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return answer.status == 200
        except OSError:
            return False

    def command(self, servers, names):
        return [bench_stacks.TOOLS / "client-go", "-servers", ",".join(servers), "-token", self.token, "-contend",
                ",".join(names)]


class ZooKeeper(Members):
    """The recipe Lock of kazoo; the time limit of the session is `ttl`."""

    def __init__(self, ttl):
        super().__init__(ttl)
        ports = random.sample(range(15000, 32000), 9)
        self.servers = [f"{SERVER}:{port}" for port in ports[:3]]
        try:
            for i in range(3):
                folder = pathlib.Path(self.folder, f"m{i + 1}")
                folder.mkdir()
                (folder / "myid").write_text(f"{i + 1}\n")
                quorum = [f"server.{j + 1}=127.0.0.1:{ports[3 + j]}:{ports[6 + j]}" for j in range(3)]
                (folder / "zoo.cfg").write_text("\n".join([
                    "tickTime=2000", "initLimit=10", "syncLimit=5", f"dataDir={folder}", "maxClientCnxns=0",
                    "admin.enableServer=false", "4lw.commands.whitelist=srvr", f"clientPort={ports[i]}",
                    f"clientPortAddress={SERVER}", *quorum, ""]))
                self.spawn(["java", "-Xmx128m", "-cp", "/etc/zookeeper/conf:/usr/share/java/*",
                            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")])
            self.find_leader()
        except BaseException:
            self.stop()
            raise

    @staticmethod
    def mode(server):
        host, _, port = server.partition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(b"srvr")
                return connection.makefile().read().partition("Mode: ")[2].split("\n")[0]
        except OSError:
            return ""

    def answers(self, server):
        return self.mode(server) in ("leader", "follower")

    def leads(self, server):
        return self.mode(server) == "leader"

    def command(self, servers, names):
        return [KAZOO, CONTENDER, "kazoo", ",".join(servers), self.ttl, *names]


# Name: what makes it, its time limit, how the table calls it.
SYSTEMS = {
    "redlockd-hold": (RedlockdHold, 10, "redlockd, `hold`, lease of 10 s"),
    "redlockd-10": (Redlockd, 10, "redlockd, Python library, lease of 10 s"),
    "redlockd-30": (Redlockd, 30, "redlockd, Python library, lease of 30 s (default)"),
    "redlockctl-10": (RedlockctlRun, 10, "`redlockctl run`, lease of 10 s"),
    "redlockctl-30": (RedlockctlRun, 30, "`redlockctl run`, lease of 30 s (default)"),
    "etcd-10": (Etcd, 10, "`etcdctl lock`, 10 s (default)"),
    "etcd-30": (Etcd, 30, "`etcdctl lock`, 30 s"),
    "client-go-15": (ClientGo, 15, "client-go leader election, lease of 15 s (default)"),
    "zookeeper-10": (ZooKeeper, 10, "ZooKeeper and kazoo, session of 10 s (default)"),
    "redsync-8": (Redsync, 8, "redsync, expiry of 8 s (default), renewed each third"),
    "redsync-10": (Redsync, 10, "redsync, expiry of 10 s, renewed each third"),
    "redisson-10": (Redisson, 10, "Redisson, watchdog of 10 s"),
    "redisson-30": (Redisson, 30, "Redisson, watchdog of 30 s (default)"),
}
