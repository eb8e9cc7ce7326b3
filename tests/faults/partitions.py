# SPDX-License-Identifier: MIT
"""`faults.py --network`: every master, redlockd and client on a host of its own (hosts.py), and faults in the wires between them alone: partitions, also
one-way ones, loss, delay that lets packets overtake each other, doubled packets, packets that vanish because they are large, hosts that are gone while
their peers still have connections to them. Processes are killed only behind a wire that is cut. Then the checkers of every run (checkers.py).

The monotonic clocks of the redlockd differ by days, where the kernel has time namespaces: no time of one host may be compared with one of another.
"""

import collections
import json
import os
import random
import subprocess
import time

import checkers
import cluster as parts
import harness
import hosts as machines

MASTERS, DAEMONS, CLIENTS = ("m0", "m1", "m2"), ("d0", "d1"), ("c0", "c1", "c2")
THREADS = 4  # of each client
AHEAD_S = {"d0": 3 * 86400, "d1": 40 * 86400}
TTL_MS = (300, 3000)
MASTER_TIMEOUT_MS = 150
PATIENCE_S = 60


class Faults:
    """Draws faults from a seed, one or two at a time. A fault is a function that begins it and returns the one that ends it."""

    def __init__(self, cluster, seed):
        self.cluster, self.hosts, self.random = cluster, cluster.hosts, random.Random(f"network {seed}")
        self.log, self.counts = [], collections.Counter()
        self.kinds = [self.partition, self.one_way, self.halves, self.lossy, self.slow, self.doubling, self.black_hole, self.no_route,
                      self.daemon_gone, self.master_gone, self.client_gone]

    def run(self, seconds):
        """Each kind once, however long that takes, then any."""
        end, order = time.monotonic() + seconds, self.random.sample(self.kinds, len(self.kinds))
        while order or time.monotonic() < end:
            first = order.pop() if order else self.random.choice(self.kinds)
            others = [kind for kind in self.kinds if kind != first]  # nothing is killed twice
            heals = [self.begin(kind) for kind in (first, *self.random.sample(others, self.random.choice((0, 0, 1))))]
            time.sleep(self.random.choice((0.3, 1, 2, 4)))
            self.hosts.command(reset=True)
            for what, heal in heals:
                heal()
                self.note(what, "over")
            time.sleep(self.random.uniform(0.2, 2.5))

    def begin(self, kind):
        what, heal = kind()
        self.counts[kind.__name__] += 1
        self.note(what, "begins")
        return what, heal

    def note(self, what, when):
        self.log.append({"at": parts.now_us(), "what": what, "when": when})

    def some(self, names):
        return self.random.sample(names, self.random.randint(1, len(names) - 1))

    def set(self, links, **rule):
        self.hosts.command(links=links, set=rule)
        return lambda: None

    def both_ways(self, ours, others):
        return self.hosts.links(ours, others) + self.hosts.links(others, ours)

    def all_of(self, name):
        return self.both_ways([name], list(self.hosts.addresses))

    def partition(self):
        ours, others = self.some(DAEMONS), self.some(MASTERS)
        return f"partition of {ours} and {others}", self.set(self.both_ways(ours, others), lose=1)

    def one_way(self):
        sides = self.random.choice(((DAEMONS, MASTERS), (MASTERS, DAEMONS), (CLIENTS, DAEMONS), (DAEMONS, CLIENTS)))
        ours, others = (self.some(side) for side in sides)
        return f"nothing of {ours} reaches {others}", self.set(self.hosts.links(ours, others), lose=1)

    def halves(self):
        ours = self.some(list(self.hosts.addresses))
        return f"{ours} are cut off", self.set(self.both_ways(ours, [name for name in self.hosts.addresses if name not in ours]), lose=1)

    def lossy(self):
        names, share = self.some(MASTERS + DAEMONS), self.random.choice((0.02, 0.1, 0.4))
        return f"{names} lose {share:.0%}", self.set([link for name in names for link in self.all_of(name)], lose=share)

    def slow(self):
        names, most = self.some(MASTERS + DAEMONS), self.random.choice((5, 40, 200))
        return f"{names} delay by up to {most} ms", self.set([link for name in names for link in self.all_of(name)], delay_ms=[0, most])

    def doubling(self):
        names = self.some(MASTERS + DAEMONS + CLIENTS)
        links = [link for name in names for link in self.all_of(name)]
        return f"{names} have packets doubled, and out of order", self.set(links, double=0.3, delay_ms=[0, 3])

    def black_hole(self):
        ours, others = self.random.choice(((DAEMONS, MASTERS), (MASTERS, DAEMONS), (DAEMONS, CLIENTS)))
        largest = self.random.choice((100, 250))
        return f"packets of {ours} for {others} above {largest} bytes vanish", self.set(self.hosts.links(self.some(ours), others), largest=largest)

    def no_route(self):
        name = self.random.choice(MASTERS + DAEMONS)
        self.hosts.set_device(name, "down")
        return f"{name} has no route", lambda: self.hosts.set_device(name, "up")

    def server_gone(self, server, **how):
        """Its peers keep connections that nobody answers. It is started again before its wires carry anything."""
        self.set(self.all_of(server.name), lose=1)
        server.kill()
        return lambda: server.start(**how)

    def daemon_gone(self):
        daemon = self.random.choice(self.cluster.daemons)
        return f"the host of {daemon.name} loses its power", self.server_gone(daemon)

    def master_gone(self):
        master, empty = self.random.choice(self.cluster.masters), self.random.random() < 0.5
        return f"the host of {master.name} loses its power{', and its disk' if empty else ''}", self.server_gone(master, empty=empty)

    def client_gone(self):
        name = self.random.choice(CLIENTS)
        return f"the host of {name} is gone", self.set(self.all_of(name), lose=1)


class Partitioned:
    """The run. Raises hosts.Unavailable where there can be no hosts."""

    def __init__(self, folder, seed):
        self.folder, self.seed, self.clients, self.processes = folder, seed, [], []
        self.hosts = machines.Hosts([*MASTERS, *DAEMONS, *CLIENTS], AHEAD_S)
        self.masters = [machines.Master(self.hosts, name, folder) for name in MASTERS]
        options = ("--min-ttl-ms", "100", "--max-ttl-ms", str(TTL_MS[1]), "--default-ttl-ms", str(TTL_MS[1]),
                   "--master-timeout-ms", str(round(MASTER_TIMEOUT_MS * harness.SLOW)), "--drain-ms", "500")
        self.daemons = [machines.Daemon(self.hosts, name, folder, self.masters, options) for name in DAEMONS]
        self.faults = Faults(self, seed)

    def start(self):
        for master in self.masters:
            master.start()
        for daemon in self.daemons:
            daemon.start("--bootstrap")
        for daemon in self.daemons:
            harness.wait_until(lambda one=daemon: is_ready(one), PATIENCE_S, f"{daemon.name} is ready")
        guarded, self.journal = os.path.join(self.folder, "g"), os.path.join(self.folder, "journal")
        self.processes.append(parts.start_python("guarded.py", guarded, self.journal, stdin=subprocess.PIPE))
        harness.wait_until(lambda: os.path.exists(guarded), what="the guarded resource")
        way = {"name": "tcp", "addresses": [daemon.public for daemon in self.daemons], "ca": None}
        for name in CLIENTS:
            settings = {"name": name, "seed": self.seed, "threads": THREADS, "ways": [way], "max_ttl_ms": [TTL_MS[1]] * len(DAEMONS),
                        "resources": parts.RESOURCES, "ttl_ms": TTL_MS, "wait_ms": parts.WAIT_MS, "guarded": guarded,
                        "history": os.path.join(self.folder, f"history.{name}"), "stops_itself": False}
            self.clients.append(machines.start_client(self.hosts, name, settings))

    def free(self):
        """Acquires each lock at each redlockd after all faults. Returns those that cannot be had."""
        def take(daemon, resource):
            answer = daemon.call("POST", "/locks", {"resource": resource, "ttl_ms": 1000})
            return answer is not None and answer.status == 201 and daemon.call("DELETE", "/locks", {"resource": resource, "token": answer.json["token"]})
        wrong = []
        for daemon in self.daemons:
            for resource in [f"r/{number}" for number in range(parts.RESOURCES)]:
                try:
                    harness.wait_until(lambda one=daemon, name=resource: take(one, name), PATIENCE_S)
                except AssertionError:
                    wrong.append(f"{resource} at {daemon.name}: {daemon.call('GET', '/masters')}")
        return wrong

    def run(self, seconds):
        """Returns whether a check failed."""
        self.start()
        self.faults.run(seconds)
        for process in (*self.clients, *self.processes):
            process.stdin.close()
            process.wait(harness.patience(60))
        free = self.free()
        ends = [wrong for wrong in (daemon.end() for daemon in self.daemons) if wrong]
        with open(os.path.join(self.folder, "faults"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(fault) + "\n" for fault in self.faults.log)
        return self.report(free, ends, self.hosts.end())

    def report(self, free, ends, packets):
        """Prints figures and checks; returns whether one failed."""
        events = [event for name in CLIENTS for event in parts.read_lines(os.path.join(self.folder, f"history.{name}"))]
        leases = checkers.leases_of(events)
        guarded = checkers.Guarded(parts.read_lines(self.journal), leases)
        during = sum(self.is_hurt(lease.received) for lease in leases.values())
        unanswered = sum(event["status"] is None and event["kind"] != "idle" for event in events)
        extended = sum(len(lease.extensions) for lease in leases.values())
        print(f"{len(leases)} leases, {during} of them granted under a fault, extended {extended} times; {len(events)} requests, {unanswered} without an "
              f"answer; {guarded.taken} writes, {guarded.refused} refused, {guarded.stale_refused} of them of former holders")
        print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.counts.items())))
        print("packets: " + ", ".join(f"{name} {count}" for name, count in sorted(packets.items())))
        print("clocks of redlockd ahead by days: " + ", ".join(f"{name} {self.hosts.clocked[name] // 86400}" for name in DAEMONS))
        idle = [name for name in ("carried", "lost", "delayed", "doubled") if not packets.get(name)]
        fences, _ = checkers.find_inversions(leases.values())
        checks = [("no two leases overlap", checkers.find_overlaps(leases.values())), ("fences are in order", fences),
                  ("no fence twice", checkers.find_same_fences(leases.values())),
                  ("no fence changes", checkers.find_changed_fences(leases.values())),
                  ("grants are of the mode that was asked for", checkers.find_wrong_modes(events)),
                  ("no request that waits is refused early", checkers.find_impatient(events)),
                  ("the guarded resource took no stale write", guarded.stale_taken), ("no write is lost", guarded.lost),
                  ("every lock is free in the end", free), ("nothing ended by itself", ends),
                  ("there was something to check", [f"no packets {idle}, {during} leases"] if idle or not during else [])]
        for name, found in checks:
            print(f"{'FAILED' if found else 'passed'}: {name}" + "".join(f"\n    {self.tell(one)}" for one in found[:5]))
        failed = sum(bool(found) for _, found in checks)
        print(f"{len(checks) - failed} passed, {failed} failed", flush=True)
        return failed > 0

    def is_hurt(self, at):
        """Whether a fault was there at this time."""
        return sum({"begins": 1, "over": -1}[fault["when"]] for fault in self.faults.log if fault["at"] <= at) > 0

    def tell(self, found):
        leases = [one for one in found if isinstance(one, checkers.Lease)] if isinstance(found, tuple) else []
        begin = self.faults.log[0]["at"] if self.faults.log else 0
        around = [fault for fault in self.faults.log if leases and leases[0].sent - 5_000_000 <= fault["at"] <= leases[-1].received]
        return "\n      ".join([*(lease.tell(begin) for lease in leases),
                                *(f"{(fault['at'] - begin) / 1000:.1f} {fault['what']}: {fault['when']}" for fault in around)] or [str(found)])

    def kill_all(self):
        for process in (*self.clients, *self.processes):
            harness.end_process(process)
        for server in (*self.daemons, *self.masters):
            server.kill()
        self.hosts.kill()


def is_ready(daemon):
    assert daemon.process.poll() is None, f"{daemon.name} ended with {daemon.process.returncode}: see {daemon.logs[-1]}"
    answer = daemon.call("GET", "/readyz")
    return answer is not None and answer.status == 200
