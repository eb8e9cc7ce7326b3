# SPDX-License-Identifier: MIT
"""`faults.py --rolling`: masters are restarted one after the other, for the whole run, while some clients hold their locks all the time, each over
one way (direct, or through a proxy) and at two redlockd in turn. The next master is restarted as soon as `redlockctl health --restart-safe`
says that it may be. No lease may be lost, none may change its fence, and in the end each lies on all masters.
"""

import os
import random
import ssl
import subprocess
import threading
import time

import cluster as parts
import deployment
import harness

TTL_MS = round(2000 * harness.SLOW)
MODES: tuple[dict, ...] = ({}, {"mode": "shared"}, {"slots": 4}, {"resources": 2})
PATIENCE_S = 60 * harness.SLOW
CTL = os.path.join(os.path.dirname(harness.BINARY), "redlockctl")


class Holder(threading.Thread):
    """Holds one lease, and extends it when a third of it is over; at another server if one fails."""

    def __init__(self, way, daemons, number):
        super().__init__(name=f"{way['name']} {number}", daemon=True)
        self.addresses = [way["addresses"][daemon] for daemon in daemons]
        self.tls = ssl.create_default_context(cafile=way["ca"]) if way["ca"] else None
        mode = dict(MODES[number % len(MODES)])
        names = [f"held/{way['name']}/{number}/{i}" for i in range(mode.pop("resources", 1))]
        self.named: dict = {"resources": names} if len(names) > 1 else {"resource": names[0]}
        self.mode, self.ending, self.wrong, self.extended, self.failed = mode, threading.Event(), [], 0, 0
        self.until = time.monotonic() + TTL_MS / 1000
        self.lease = self.call("POST", **self.named, **mode, ttl_ms=TTL_MS)
        assert self.lease and "token" in self.lease, f"{self.name}: {self.lease}"

    @property
    def names(self):
        return self.named.get("resources") or [self.named["resource"]]

    def call(self, method, **body):
        """The JSON of the first answer that is one of redlockd's about the lease; None: there is none."""
        for address in self.addresses:
            try:
                client = harness.Client(address, self.tls)
                answer = client.call(method, "/locks", body)
                client.close()
            except OSError:
                answer = None
            if answer and answer.status in (200, 201, 204, 409, 410):
                return answer.json if answer.body else {}
            self.failed += 1
        return None

    def run(self):
        while not self.ending.wait(TTL_MS / 3000) and not self.wrong:
            self.addresses.reverse()
            sent = time.monotonic()
            answer = self.call("PUT", **self.named, token=self.lease["token"], ttl_ms=TTL_MS)
            if answer and answer.get("fence") == self.lease["fence"]:
                self.until = sent + answer["validity_ms"] / 1000
                self.extended += 1
            elif answer:
                self.wrong.append(f"{self.name}: {answer}")
            elif time.monotonic() > self.until:
                self.wrong.append(f"{self.name}: no server extended it in time")

    def release(self):
        self.ending.set()
        self.join()
        if not self.wrong and self.call("DELETE", **self.named, token=self.lease["token"]) != {}:
            self.wrong.append(f"{self.name}: not released")


class Rolling:
    def __init__(self, cluster, seed):
        self.cluster, self.random = cluster, random.Random(f"rolling {seed}")
        self.holders, self.restarts, self.longest_s = [], 0, 0.0
        self.servers = ",".join(cluster.ways.url("unix", daemon.number) for daemon in cluster.daemons)

    def hold(self):
        daemons = [number for number in range(parts.DAEMONS) if number != self.cluster.shape.narrow]
        for way in self.cluster.ways.ways:
            self.holders += [Holder(way, daemons, number) for number in range(len(MODES))]
        for holder in self.holders:
            holder.start()

    def why_unsafe(self):
        """None: the next master may be restarted."""
        done = subprocess.run([CTL, "--server", self.servers, "health", "--restart-safe", "--timeout", "5s"], capture_output=True, text=True,
                              env=harness.clean_environment(), check=False)
        return done.stderr if done.returncode else None

    def roll(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            harness.wait_until(lambda: not self.why_unsafe(), PATIENCE_S, f"the next master may be restarted ({self.why_unsafe()})")
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            master = self.cluster.masters[self.restarts % parts.MASTERS]
            master.kill()
            time.sleep(self.random.choice((0, 0, 0.5)))
            master.start(empty=self.random.random() < 0.5)
            self.restarts += 1

    def missing(self):
        """Keys that a master lacks, though it votes and each lease was extended since."""
        keys = [name for holder in self.holders for name in holder.names]
        return [f"{master.name} lacks {key}" for master in self.cluster.masters for key in keys if master.cli("EXISTS", key) != 1]

    def run(self, seconds):
        for daemon in self.cluster.daemons:
            daemon.options["max-ttl-ms"] = max(TTL_MS, deployment.NARROW_MAX_TTL_MS)
        self.cluster.start_daemons("--bootstrap")
        self.hold()
        self.roll(seconds)
        harness.wait_until(lambda: not self.why_unsafe(), PATIENCE_S, "all leases have all votes")
        missing = self.missing()
        for holder in self.holders:
            holder.release()
        return self.report(missing)

    def report(self, missing):
        """Prints the checks; returns whether one failed."""
        extended, again = sum(holder.extended for holder in self.holders), sum(holder.failed for holder in self.holders)
        print(f"{self.restarts} restarts of {parts.MASTERS} masters, {len(self.holders)} leases of {TTL_MS} ms extended {extended} times, "
              f"{again} requests at the next server; at most {self.longest_s:.1f} s until the next restart")
        crashed = [daemon.name for daemon in self.cluster.daemons if daemon.process.poll() is not None]
        checks = [("no lease is lost", [wrong for holder in self.holders for wrong in holder.wrong]),
                  ("each lease lies on all masters", missing), ("nothing ended by itself", crashed),
                  ("there was something to check", [] if self.restarts > 1 and extended > self.restarts else [f"{self.restarts} restarts"])]
        for name, found in checks:
            print(f"{'FAILED' if found else 'passed'}: {name}" + "".join(f"\n    {line}" for line in found[:5]))
        failed = sum(bool(found) for _, found in checks)
        print(f"{len(checks) - failed} passed, {failed} failed", flush=True)
        return failed > 0
