#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Durable masters under kill -9: three masters, two redlockd with --durable-masters, clients that lock, extend and release all the time, and
holders that keep a lease of 30 s. One master or all of them are killed at a random moment and started again, as often as told.

    durable.py --redlockd PROGRAM [--one N] [--all N] [--power-loss] [--weak] [--seed S]

The checks of checkers.py hold for the whole history, no lease is lost that has time left, and no master is quarantined. --power-loss: masters
lose what they have not synced (power_loss.c). --weak: the restart guard is off and masters sync once a second; then the checks must find
something, which is status 0.
"""

import argparse
import contextlib
import io
import os
import random
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "e2e")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redlockd", required=True)
    parser.add_argument("--one", type=int, default=200, metavar="N")
    parser.add_argument("--all", type=int, default=200, metavar="N")
    parser.add_argument("--power-loss", action="store_true")
    parser.add_argument("--weak", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    given = parse_arguments()
    os.environ["REDLOCKD"] = os.path.abspath(given.redlockd)

import checkers  # noqa: E402
import harness  # noqa: E402

LONG_MS, SHORT_MS, HOLDERS, CLIENTS = 30000, 2000, 4, 6


def now_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Caller(threading.Thread):
    """A client with a history of its own; at another redlockd when a connection fails."""

    def __init__(self, number, services, seed, holds):
        super().__init__(daemon=True)
        self.name, self.services, self.random, self.holds = f"c{number}", services, random.Random(f"{seed}/{number}"), holds
        self.events, self.lost, self.ending, self.client, self.server, self.until = [], [], threading.Event(), None, number % len(services), 0

    def call(self, kind, method, resource, token=None, ttl_ms=None):
        body = {key: value for key, value in {"resource": resource, "token": token, "ttl_ms": ttl_ms}.items() if value is not None}
        event = {"kind": kind, "client": self.name, "daemon": self.server, "resource": resource, "token": token, "sent": now_us(), "status": None}
        try:
            self.client = self.client or self.services[self.server].client()
            answer = self.client.call(method, "/locks", body)
            event["status"] = answer.status
            if answer.status in (200, 201):
                event.update(answer.json)
        except OSError:
            self.client, self.server = None, (self.server + 1) % len(self.services)
        event["received"] = now_us()
        self.events.append(event)
        if event["status"] in (200, 201):
            self.until = checkers.interval_of(event)[1]
        elif kind != "acquire" and event["status"] in (409, 410) and event["received"] < self.until:
            self.lost.append(event)
        return event

    def hold_one(self, resource):
        lease = self.call("acquire", "POST", resource, ttl_ms=LONG_MS)
        while lease["status"] == 201 and not self.ending.wait(0.05):
            if self.call("extend", "PUT", resource, lease["token"], LONG_MS)["status"] in (409, 410):
                return

    def lock_one(self, resource):
        lease = self.call("acquire", "POST", resource, ttl_ms=SHORT_MS)
        if lease["status"] != 201:
            self.ending.wait(self.random.uniform(0, 0.01))
            return
        for _ in range(self.random.randrange(3)):
            self.ending.wait(self.random.uniform(0, 0.02))
            if self.call("extend", "PUT", resource, lease["token"], SHORT_MS)["status"] in (409, 410):
                return
        self.call("release", "DELETE", resource, lease["token"])

    def run(self):
        while not self.ending.is_set():
            if self.holds:
                self.hold_one(f"held/{self.name}")
            else:
                self.lock_one(f"r{self.random.randrange(3)}")


class Run:
    def __init__(self, options, lab):
        self.options, self.random, self.lab = options, random.Random(options.seed), lab
        sync = "everysec" if options.weak else "always"
        how = {"env": {"LD_PRELOAD": self.build_power_loss()}} if options.power_loss else {}
        self.servers = self.lab.redises(3, "--appendonly", "yes", "--appendfsync", sync, **how)
        chosen = ["--restart-guard", "off"] if options.weak else ["--durable-masters"]
        self.services = [self.lab.redlockd(self.servers, "--bootstrap", *chosen, log_requests="errors") for _ in range(2)]
        self.callers = [Caller(i, self.services, options.seed, i < HOLDERS) for i in range(HOLDERS + CLIENTS)]

    def build_power_loss(self):
        library = os.path.join(self.lab.folder, "power_loss.so")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", library,
                        os.path.join(HERE, "power_loss.c")], check=True)
        return library

    def kill(self, servers):
        time.sleep(self.random.uniform(0, 0.15))  # the moment of the fault
        for server in servers:
            server.process.kill()
        for server in servers:
            server.kill()
        for server in servers:
            server.start(wait=False)
        for service in self.services:
            service.wait_voting(3)

    def go(self):
        began = time.monotonic()
        for caller in self.callers:
            caller.start()
        for i in range(max(self.options.one, self.options.all)):
            if i < self.options.one:
                self.kill([self.random.choice(self.servers)])
            if i < self.options.all:
                self.kill(self.servers)
        for caller in self.callers:
            caller.ending.set()
        for caller in self.callers:
            caller.join()
        self.seconds = time.monotonic() - began
        return self.report()

    def quarantines(self):
        return sum(count for service in self.services for name, count in service.metrics().items()
                   if name.startswith("redlockd_master_quarantines_total"))

    def report(self):
        events = sorted((event for caller in self.callers for event in caller.events), key=lambda event: event["sent"])
        leases = list(checkers.leases_of(events).values())
        found = {"overlaps": checkers.find_overlaps(leases), "inversions": checkers.find_inversions(leases)[0], "same fences": checkers.find_same_fences(leases),
                 "changed fences": checkers.find_changed_fences(leases), "leases lost that had time left": [one for caller in self.callers for one in caller.lost]}
        quarantines = self.quarantines()
        extended = sum(event["kind"] == "extend" and event["status"] == 200 for event in events)
        print(f"{self.options.one} times one, {self.options.all} times all, {self.seconds:.0f} s: {len(leases)} leases, {extended} extensions; "
              + ", ".join(f"{len(list(what))} {name}" for name, what in found.items()) + f"; {quarantines:.0f} quarantines")
        wrong = any(len(list(what)) for what in found.values())
        for name, what in found.items():
            for one in list(what)[:3]:
                print(name, one)
        return 0 if wrong == self.options.weak and (self.options.weak or quarantines == 0) else 1


def main():
    lab = harness.Lab().__enter__()
    try:
        return Run(given, lab).go()
    finally:
        with contextlib.redirect_stdout(sys.stderr if sys.exc_info()[0] else io.StringIO()):  # the logs of redlockd
            lab.__exit__(None, None, None)


if __name__ == "__main__":
    sys.exit(main())
