#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long nobody has a lock after its holder fails: the time from an event to the next grant, by system and event.

    takeover.py [--systems NAME,…] [--events NAME,…] [--repeat 100] [--at-once 25] [--output FOLDER]

A trial is a lock with a holder, a process of its own, and somebody who waits. An event strikes the holders of all locks
of a round in one moment, or one after the other if a takeover takes milliseconds. They began at moments that are spread
over a renewal. If the holder keeps its lock through an event, there is no takeover, and the trial counts as kept. A
grant is timed when its line is read here. Results are kept in takeover.json, by system and event, and make takeover.md
and takeover.svg. Servers and waiters are in one network namespace, holders in another one. It needs root, and what
./dev bench takeover installs; client-go needs a kube-apiserver, which takes minutes to build.
"""
import argparse
import contextlib
import functools
import json
import math
import os
import pathlib
import random
import selectors
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import bench_report  # noqa: E402
import harness  # noqa: E402
from networks import PREPARE, SERVER  # noqa: E402
from takeover_systems import SYSTEMS  # noqa: E402

EVENTS = {
    "end": "the holder releases", "kill": "holder: kill -9", "stop": "holder: SIGSTOP", "host": "its host is gone",
    "server": "its server: kill -9", "master-kill": "a master or member: kill -9",
    "master-stop": "a master or member: SIGSTOP", "all": "holder, server and master: kill -9"}
KEEP = {"stop", "server", "master-kill", "master-stop"}  # the holder may keep its lock


# ---- processes that want locks ----


class Contenders:
    """The lines of processes, with the moment at which each was read."""

    def __init__(self):
        self.selector, self.processes, self.seen = selectors.DefaultSelector(), [], {}

    def start(self, command, within=()):
        process = subprocess.Popen([*harness.DIES_WITH_US, *within, *map(str, command)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=harness.clean_environment())
        os.set_blocking(process.stdout.fileno(), False)
        self.selector.register(process.stdout, selectors.EVENT_READ, [b""])
        self.processes.append(process)
        return process

    def read(self, seconds):
        """Reads what there is, for at most so long if there is nothing."""
        for key, _ in self.selector.select(seconds):
            text = os.read(key.fd, 65536)
            at = time.monotonic()
            if not text:
                self.selector.unregister(key.fileobj)
            *lines, key.data[0] = (key.data[0] + text).split(b"\n")
            for line in lines:
                event, _, name = line.decode().partition(" ")
                self.seen.setdefault((event, name), at)

    def listen(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(max(0.0, end - time.monotonic()))

    def wait(self, event, names, seconds):
        """Until all names have had the event, or so long: {name: moment} of those that have."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not all((event, name) in self.seen for name in names):
            self.read(min(0.5, max(0.0, end - time.monotonic())))
        return {name: self.seen[event, name] for name in names if (event, name) in self.seen}

    def end(self):
        for process in self.processes:
            for pid in (*harness.children_of(process.pid), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.selector.close()


def tree(process):
    """A parent first: it must not see its child end."""
    return [process.pid, *harness.children_of(process.pid)]


def strike(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# ---- a round ----


class Round:
    def __init__(self, system, far, names):
        self.system, self.far, self.names = system, far, names
        self.holding, self.waiting = Contenders(), Contenders()

    def begin(self):
        """Holders one after the other, within the time between two renewals; then those who wait."""
        pause = self.system.ttl / 3 / len(self.names)
        self.holders = []
        for name in self.names:
            self.holders.append(self.holding.start(self.system.holders(name), self.far.command))
            self.holding.listen(pause)
        had = self.holding.wait("granted", self.names, harness.patience(60))
        assert len(had) == len(self.names), f"{len(had)} of {len(self.names)} holders have their lock"
        for command in self.system.waiters(self.names):
            self.waiting.start(command)
        if self.system.says_waiting:
            began = self.waiting.wait("waiting", self.names, harness.patience(60))
            assert len(began) == len(self.names), f"{len(began)} of {len(self.names)} locks have one who waits"
        # Long enough for all to begin to wait, and another moment within a renewal each time.
        self.waiting.listen(self.system.ttl / 3 * random.uniform(1, 2))
        early = [name for name in self.names if ("granted", name) in self.waiting.seen]
        assert not early, f"granted beside a holder: {early}"

    def strike(self, event, holders):
        """Returns when."""
        pids = [pid for holder in holders for pid in tree(holder)] if event in ("kill", "stop", "all") else []
        at = time.monotonic()
        if event == "end":
            for holder in holders:
                self.system.end(holder)
        elif event == "host":
            self.far.cut()
        strike(pids, signal.SIGSTOP)
        strike(pids if event != "stop" else [], signal.SIGKILL)
        if event == "server" or (event == "all" and self.system.has_server and not self.system.is_member):
            self.system.kill_server()
        if event in ("master-kill", "master-stop", "all"):
            self.system.strike_master(signal.SIGSTOP if event == "master-stop" else signal.SIGKILL)
        return at

    def run(self, event):
        """(seconds until the next grant of each lock that was taken over, number of those that their holder kept)"""
        try:
            self.begin()
            limit = 2 * self.system.ttl + 10 if event in KEEP else harness.patience(3 * self.system.ttl)
            one_by_one = event in self.system.immediate
            granted = {}
            for some in [[name] for name in self.names] if one_by_one else [self.names]:
                at = self.strike(event, [self.holders[self.names.index(name)] for name in some])
                had = self.waiting.wait("granted", some, limit)
                self.holding.read(0)
                lost = [name for name in some if name not in had and ("lost", name) in self.holding.seen]
                had |= self.waiting.wait("granted", lost, harness.patience(3 * self.system.ttl))
                granted |= {name: moment - at for name, moment in had.items()}
            kept = [name for name in self.names if name not in granted and ("lost", name) not in self.holding.seen]
            nobody = [name for name in self.names if name not in granted and name not in kept]
            assert not nobody and (event in KEEP or not kept), f"never granted again: {nobody or kept}"
            return list(granted.values()), len(kept)
        finally:
            self.holding.end()
            self.waiting.end()


class Far:
    """The network namespace of the holders."""

    def __init__(self):
        command = [*harness.DIES_WITH_US, "unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"]
        self.holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n", "unshare --net: it needs root"
        self.command = ["nsenter", f"--target={self.holder.pid}", "--net", "--"]
        subprocess.run(["sh", "-c", PREPARE, "sh", str(self.holder.pid)], check=True)

    def cut(self):
        """Nothing of the holders arrives any more, and nothing tells the servers."""
        subprocess.run([*self.command, "ip", "route", "add", "blackhole", SERVER], check=True)

    def end(self):
        harness.end_process(self.holder)
        self.holder.stdout.close()
        # unless it has gone with the namespace
        subprocess.run(["ip", "link", "delete", "cable"], stderr=subprocess.DEVNULL, check=False)


def measure(name, event, repeat, at_once):
    make, ttl, _ = SYSTEMS[name]
    took, kept, rounds = [], 0, math.ceil(repeat / at_once)
    for number in range(rounds):
        far = Far()
        system = None
        try:
            system = make(ttl)
            locks = [f"{name}-{event}-{number}-{i}" for i in range(min(at_once, repeat - number * at_once))]
            some, its_kept = Round(system, far, locks).run(event)
            took, kept = took + some, kept + its_kept
        finally:
            if system:
                system.stop()
            far.end()
    return {"took_s": sorted(round(one, 4) for one in took), "kept": kept, "ttl_s": ttl}


# ---- the report ----


def rank(values, share):
    """The nearest rank: at least this share of the values are no larger."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def cell(found):
    if not found:
        return "–"
    took = found["took_s"]
    if not took:
        return "kept"
    values = rank(took, 0.5), rank(took, 0.99), took[-1]
    in_ms = values[-1] < 1
    text = "/".join(f"{value * 1000:.0f}" if in_ms else f"{value:.1f}" for value in values) + (" ms" if in_ms else " s")
    return text + (f" ({found['kept']} of {found['kept'] + len(took)} kept)" if found["kept"] else "")


def draw(results, systems, events, folder):
    """A band for each system, with a line for each event that had takeovers."""
    colors = dict(zip(EVENTS, ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#333333"]))
    lines = {name: [event for event in events if results[name].get(event, {}).get("took_s")] for name in systems}
    height = 0.1 * sum(len(some) + 1 for some in lines.values()) + 1.5
    with bench_report.picture(folder, "takeover", 10, height) as axes:
        dots, middles, at = {}, [], 0.0
        for number, name in enumerate(systems):
            end = at + len(lines[name])
            axes.axhspan(at - 1, end, color="#f2f2f2" if number % 2 else "#ffffff", zorder=0)
            middles.append((at + end - 1) / 2)
            for event in lines[name]:
                took = results[name][event]["took_s"]
                axes.plot([max(one, 0.001) for one in (took[0], took[-1])], [at, at], color=colors[event])
                dots[event], = axes.plot([max(rank(took, 0.5), 0.001)], [at], "o", color=colors[event], markersize=4)
                at += 1
            at = end + 1
        axes.set_yticks(middles, [SYSTEMS[name][2].replace("`", "") for name in systems])
        axes.set_ylim(at - 1, -1)
        axes.set_xscale("log")
        axes.set_xlabel("seconds until the next grant: the dot is the median, the line from the least to the most")
        known = [event for event in events if event in dots]
        axes.legend([dots[event] for event in known], [EVENTS[event] for event in known], fontsize=7,
                    loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def report(results, folder):
    """The table (p50, p99 and most of each) and the picture."""
    systems = [name for name in SYSTEMS if name in results]
    events = [event for event in EVENTS if any(event in results[name] for name in systems)]
    lines = [[SYSTEMS[name][2], *(cell(results[name].get(event)) for event in events)] for name in systems]
    text = bench_report.table(["p50/p99/most", *(EVENTS[event] for event in events)], lines)
    (folder / "takeover.md").write_text(text, encoding="utf-8")
    draw(results, systems, events, folder)
    return text


# ---- all of it ----


def names_of(known, text):
    wanted = text.split(",") if text else list(known)
    for name in wanted:
        if name not in known:
            raise argparse.ArgumentTypeError(f"no such name: {name}; there are {', '.join(known)}")
    return wanted


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, known, remark in (("--systems", list(SYSTEMS), " (a kube-apiserver takes minutes to build)"),
                                  ("--events", list(EVENTS), "")):
        text = ", ".join(known) + remark
        parser.add_argument(option, type=functools.partial(names_of, known), default=known, help=text)
    parser.add_argument("--repeat", type=int, default=100, help="trials of each system and event")
    parser.add_argument("--at-once", type=int, default=25, help="trials of a round")
    parser.add_argument("--output", type=pathlib.Path, default=harness.ROOT / "build/results/takeover")
    given = parser.parse_args()
    for name in ("repeat", "at_once"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(given, name)}, and must be at least 1")
    return given


def main():
    given = parse_arguments()
    if os.environ.get("TAKEOVER_INSIDE") != str(os.getppid()):
        command = ["unshare", "--net", sys.executable, *sys.argv]
        environment = {**os.environ, "TAKEOVER_INSIDE": str(os.getpid())}
        inside = subprocess.Popen([*harness.DIES_WITH_US, *command], env=environment)
        signal.signal(signal.SIGTERM, lambda *_: inside.terminate())
        sys.exit(inside.wait())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given.output.mkdir(parents=True, exist_ok=True)
    kept = given.output / "takeover.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name in given.systems:
        for event in given.events:
            if event == "server" and not SYSTEMS[name][0].has_server:
                continue
            results.setdefault(name, {})[event] = measure(name, event, given.repeat, given.at_once)
            print(f"{name:14} {event:12} {cell(results[name][event])}", flush=True)
            kept.write_text(json.dumps(results), encoding="utf-8")
    print(report(results, given.output))


if __name__ == "__main__":
    main()
