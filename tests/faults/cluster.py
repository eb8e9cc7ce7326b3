# SPDX-License-Identifier: MIT
"""The processes of a run: redis-servers, the network between, redlockd, proxies, the guarded resource, clients, jobs.
All in one folder.

Everything is started by the main thread, since the kernel kills what was started when the *thread* that started it ends
(DIES_WITH_US), and is ended by its pid. Faults are chosen in nemesis.py. A caller must not ask a class for anything
that its process cannot do because it is dead or stopped.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import deployment
import harness
import redis_clock

HERE = pathlib.Path(__file__).resolve().parent
MASTERS, DAEMONS = 5, deployment.REPLICAS
AOF = {0, 1, 3}  # these masters keep an append-only file, fsync at every write; the others keep nothing
AOF_OPTIONS = ("--appendonly", "yes", "--appendfsync", "always")
TTL_MS = (100, 1500)
WAIT_MS = (30, 2500)
LONG_TTL_MS = 6000  # the bound of one replica in the end, see restarts.py
MASTER_TIMEOUT_MS = 100
RESOURCES = 8
SECOND = 1_000_000  # all times are microseconds where nothing else is said


def now_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def quarantine_ms(ttl_ms=TTL_MS[1]):
    """How long a master is quarantined: the longest lease, its drift, 2 s."""
    return ttl_ms * 1.01 + 2 + 2000


def start(command, **how):
    return subprocess.Popen([*harness.DIES_WITH_US, *command], **how)


def start_python(script, *args, **how):
    return start([sys.executable, str(HERE / script), *args], **how)


class Stoppable:
    """Something with a process that may be stopped."""

    process: subprocess.Popen | None = None

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def cont(self):
        self.process.send_signal(signal.SIGCONT)

    def state(self):
        return harness.process_state(self.process.pid)


class Master(Stoppable):
    """A redis-server whose clock can be moved."""

    def __init__(self, folder, number, library):
        self.number = number
        self.has_aof = number in AOF
        self.clock = redis_clock.RedisClock(folder, library)
        self.redis = harness.Redis(folder, *(AOF_OPTIONS if self.has_aof else ()), env=self.clock.environment(), wait=False)
        self.name = f"master {number}"

    @property
    def process(self):
        return self.redis.process

    def wait(self):
        harness.wait_until(lambda: self.redis._answers_or_ended() == "answers", what=self.name)

    def kill(self):
        self.redis.kill()

    def start(self, empty):
        """Again; `empty`: without what it kept in its file, if it has one."""
        if empty and self.has_aof:
            shutil.rmtree(os.path.join(self.redis.folder, "appendonlydir"), ignore_errors=True)
        self.redis.start()

    def cli(self, *args):
        return self.redis.cli(*args, timeout=2)

    def used_memory(self):
        return int(re.search(r"^used_memory:(\d+)", self.cli("INFO", "memory"), re.M)[1])


class Network:
    """All proxies: see network.py. A pair is (daemon, master)."""

    def __init__(self, folder, masters):
        self.folder = folder
        pairs = [(daemon, master) for daemon in range(DAEMONS) for master in range(MASTERS)]
        self.connections = os.path.join(folder, "connections")
        listed = os.path.join(folder, "pairs")
        with open(listed, "w", encoding="utf-8") as file:
            json.dump([[self.name(pair), self.path(pair), masters[pair[1]].redis.path] for pair in pairs], file)
        self.process = start_python("network.py", listed, self.connections, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    @staticmethod
    def name(pair):
        return f"{pair[0]}-{pair[1]}"

    def path(self, pair):
        return os.path.join(self.folder, f"n{self.name(pair)}")

    def command(self, pairs, cut=False, **state):
        self.process.stdin.write(json.dumps({"names": [self.name(pair) for pair in pairs], "set": state, "cut": cut}) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", "the network ended"

    def heal(self, pairs, cut=False):
        self.command(pairs, cut=cut, refuse=False, hold_up=False, hold_down=False, delay_ms=0)

    def end(self):
        harness.end_process(self.process)


class Asked:
    """Something that answers HTTP."""

    address: str

    def call(self, method, path, body=None, timeout=5.0):
        """One request; None where there is no answer."""
        try:
            with harness.connect_to(self.address, timeout) as plain:
                data = b"" if body is None else json.dumps(body).encode()
                head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
                plain.sendall(head.encode() + data)
                return harness.read_response(plain, method)
        except OSError:
            return None


class Daemon(Stoppable, Asked):
    """A redlockd. Each life has a log of its own; the addresses stay."""

    def __init__(self, number, network, cluster, clock):
        self.folder, self.number, self.clock = cluster.folder, number, clock
        self.name = f"redlockd {number}"
        self.address = cluster.ways.addresses["unix"][number]
        masters = ",".join("unix:" + network.path((number, master)) for master in range(MASTERS))
        self.command = [harness.BINARY, *cluster.ways.options(number), "--masters", masters, "--min-ttl-ms", str(TTL_MS[0]),
                        "--default-ttl-ms", str(deployment.NARROW_MAX_TTL_MS), "--master-timeout-ms",
                        str(round(MASTER_TIMEOUT_MS * harness.SLOW)), *cluster.options]
        self.options = dict(cluster.shape.options[number])
        self.logs, self.process = [], None

    def start(self, *options):
        self.logs.append(os.path.join(self.folder, f"log{self.number}.{len(self.logs)}"))
        environment = harness.clean_environment(self.clock.environment() if self.clock else None)
        shaped = [word for name, value in self.options.items() for word in (f"--{name}", str(value))]
        with open(self.logs[-1], "wb") as log:
            self.process = start([*self.command, *shaped, *options], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def begin_to_end(self):
        """As an operator does; see has_ended()."""
        self.process.send_signal(signal.SIGTERM)

    def drain_s(self):
        """How long it may take to end after SIGTERM."""
        return (1 + self.options["drain-ms"] / 1000 + 5) * harness.SLOW

    def kill(self):
        harness.end_process(self.process)

    def end(self):
        """Ends it as an operator would; returns what was wrong about that, or None."""
        if self.process.poll() is not None:
            return f"{self.name} had ended with {self.process.returncode} by itself"
        self.begin_to_end()
        try:
            self.process.wait(self.drain_s())
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} does not end on SIGTERM"
        return None if self.process.returncode == 0 else f"{self.name} ended with {self.process.returncode}"


class ClientProcess(Stoppable):
    """See client.py."""

    def __init__(self, cluster, name, threads):
        self.name, self.threads = f"clients {name}", threads
        self.history = os.path.join(cluster.folder, f"history.{name}")
        settings = {"name": name, "seed": cluster.seed, "threads": threads, "ways": cluster.ways.ways, "max_ttl_ms": cluster.shape.max_ttl_ms,
                    "resources": RESOURCES, "ttl_ms": TTL_MS, "wait_ms": WAIT_MS, "guarded": cluster.guarded_path, "history": self.history,
                    "stops_itself": threads == 1}
        self.process = start_python("client.py", json.dumps(settings), stdin=subprocess.PIPE)

    def begin_to_end(self):
        self.process.stdin.close()

    def has_ended(self):
        self.cont()  # it may have stopped itself just now
        return self.process.poll() is not None


class Jobs:
    """See jobs.py. They use the replicas that allow the longest lease: another one would refuse to extend it."""

    name = "jobs"

    def __init__(self, cluster, threads):
        self.folder = os.path.join(cluster.folder, "jobs")
        os.mkdir(self.folder)
        wide = [number for number in range(DAEMONS) if number != cluster.shape.narrow]
        servers = {way: [cluster.ways.url(way, number) for number in wide] for way in ("tcp", "tls", "unix", "nginx", "haproxy-never")}
        settings = {"seed": cluster.seed, "threads": threads, "redlockctl": os.path.join(os.path.dirname(harness.BINARY), "redlockctl"),
                    "servers": servers, "ca": cluster.ways.ca, "resources": RESOURCES, "ttl_ms": TTL_MS[1], "wait_ms": WAIT_MS[1], "folder": self.folder}
        self.process = start_python("jobs.py", json.dumps(settings), stdin=subprocess.PIPE)

    def read(self):
        """The lines of each job, how each redlockctl ended, and stalls of the machine."""
        paths = sorted(pathlib.Path(self.folder).glob("job.*"))
        others = [read_lines(os.path.join(self.folder, name)) for name in ("ends.jsonl", "stalls.jsonl")]
        return [lines for lines in map(read_lines, paths) if lines], *others


class Cluster:
    """All of them. `options`: for every redlockd."""

    def __init__(self, folder, seed, options):
        self.folder, self.seed, self.options = folder, seed, options
        self.everything, self.clients, self.jobs = [], [], None
        self.shape, self.ways = deployment.Shape(seed, TTL_MS[1]), deployment.Ways(folder)
        library = redis_clock.build(folder)
        self.masters = [self.keep(Master(folder, number, library)) for number in range(MASTERS)]
        for master in self.masters:
            master.wait()
        self.network = self.keep(Network(folder, self.masters))
        clocked = not has_sanitizer(harness.BINARY)  # a sanitizer wants to be the first library of a process
        self.daemons = []
        for number in range(DAEMONS):
            clock = redis_clock.RedisClock(folder, library) if clocked else None
            self.daemons.append(self.keep(Daemon(number, self.network, self, clock)))
        self.proxies = [self.keep(proxy) for proxy in deployment.start_proxies(self.ways)]
        self.guarded_path, self.journal = os.path.join(folder, "g"), os.path.join(folder, "journal")
        self.guarded = start_python("guarded.py", self.guarded_path, self.journal, stdin=subprocess.PIPE)
        self.looks, self.long_history = os.path.join(folder, "looks"), os.path.join(folder, "history.long")
        self.witness = start_python("witness.py", json.dumps([master.redis.path for master in self.masters]), self.looks, stdin=subprocess.PIPE)

    def keep(self, thing):
        self.everything.append(thing)
        return thing

    def start_daemons(self, *options):
        for daemon in self.daemons:
            daemon.start(*options)
        for daemon in self.daemons:
            harness.wait_until(lambda one=daemon: is_ready(one), quarantine_ms() / 1000 + 20, f"{daemon.name} ready")

    def start_clients(self, counts, jobs):
        """A process for each of `counts`, with as many threads, and so many threads that run jobs."""
        harness.wait_until(lambda: os.path.exists(self.guarded_path), what="the guarded resource")
        for number, threads in enumerate(counts):
            self.clients.append(self.keep(ClientProcess(self, f"c{number}", threads)))
        self.jobs = self.keep(Jobs(self, jobs))

    def end_clients(self):
        self.jobs.process.stdin.close()
        for client in self.clients:
            client.begin_to_end()
        for client in self.clients:
            harness.wait_until(lambda one=client: one.has_ended(), 60, f"the end of {client.name}")
        for process in (self.jobs.process, self.guarded, self.witness):
            process.stdin.close()  # it writes out what it has
            process.wait(60 * harness.SLOW)

    def kill_all(self):
        for thing in self.everything:
            if thing.process:
                harness.end_process(thing.process)
        harness.end_process(self.guarded)
        harness.end_process(self.witness)


def is_ready(daemon):
    status = daemon.process.poll()
    assert status is None, f"{daemon.name} ended with {status}: {pathlib.Path(daemon.logs[-1]).read_text()[-2000:]}"
    answer = daemon.call("GET", "/readyz")
    return answer is not None and answer.status == 200


def has_sanitizer(binary):
    return re.search(rb"lib[at]san\.so|__[at]san_init", pathlib.Path(binary).read_bytes()) is not None


def read_lines(path):
    """A file of JSON lines; a last line that is not whole is left out."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]
