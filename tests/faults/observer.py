# SPDX-License-Identifier: MIT
"""The reports of the redlockds: /masters and /metrics, read twice a second during the run, and their logs, read at the
end."""

import collections
import json
import pathlib
import re
import threading

import harness
import cluster as parts
import waiting

TOKEN = re.compile(r"[0-9a-f]{40}")
METRICS = {"redlockd_late_commands_total": "late commands refused", "redlockd_master_clock_jumps_total": "clock jumps seen",
           "redlockd_fence_second_rounds_total": "second rounds of a fence", "redlockd_wait_seconds_count": "waits"}


class Observer(threading.Thread):
    """Asks while the run goes on."""

    def __init__(self, daemons, masters):
        super().__init__(daemon=True)
        self.daemons, self.masters = daemons, masters
        self.ending = threading.Event()
        self.observations = []
        self.counters = {}  # (daemon, which life, metric): the last value seen
        self.clocked = {master.number: (parts.now_us(), None) for master in masters}  # when asked last, and its answer
        self.heads = waiting.Heads()
        self.floors = []    # when the epoch of a master was written with a floor that rests on clocks: between `after` and `before`

    def run(self):
        while not self.ending.wait(0.5):
            for daemon in self.daemons:
                self.look_at_masters(daemon)
                self.look_at_metrics(daemon)
            for master in self.masters:
                self.look_at_floor(master)
                self.heads.look_at(master)

    def look_at_masters(self, daemon):
        answer = daemon.call("GET", "/masters", timeout=0.5)
        if answer is None or answer.status != 200:
            return
        masters = answer.json["masters"]
        self.observations.append({
            "at": parts.now_us(), "daemon": daemon.number, "states": [master["state"] for master in masters],
            "reasons": [(master["reason"] or "").partition(":")[0] for master in masters]})

    def look_at_metrics(self, daemon):
        life, answer = len(daemon.logs), daemon.call("GET", "/metrics", timeout=0.5)
        if answer is None or answer.status != 200:
            return
        for line in answer.body.decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name.partition("{")[0] in METRICS:
                self.counters[daemon.number, life, name] = float(value)

    def look_at_floor(self, master):
        """Past redlockd: its warning stays for a day, and here it matters when a floor was taken from clocks."""
        asked = parts.now_us()
        try:
            clocked = master.redis.cli("HGET", "redlockd:master", "clocked_us", timeout=0.2) if master.state() in ("S", "R") else None
        except (OSError, harness.RedisError):
            return
        after, before = self.clocked[master.number]
        if clocked and clocked != before:
            self.floors.append({"master": master.number, "after": after, "before": parts.now_us()})
        self.clocked[master.number] = asked, clocked or before

    def end(self):
        self.ending.set()
        self.join()

    def totals(self):
        """Of all redlockd and all their lives, as far as they were seen: the last half second before a kill is missing."""
        totals = collections.Counter()
        for (_, _, name), value in self.counters.items():
            which = re.search(r'(?:direction|result)="(\w+)"', name)
            totals[METRICS[name.partition("{")[0]] + (f" {which[1]}" if which else "")] += round(value)
        return totals

    def voting_share(self):
        """In how many of the answers a majority might vote."""
        able = sum(seen["states"].count("voting") > parts.MASTERS // 2 for seen in self.observations)
        return able / max(1, len(self.observations))


class Logs:
    """All logs of all lives of all redlockd."""

    def __init__(self, daemons, tokens):
        self.quarantines, self.tokens, self.faults = collections.Counter(), [], []
        for daemon in daemons:
            for path in daemon.logs:
                self.read(path, tokens)

    def read(self, path, tokens):
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
        if harness.SANITIZER.search(text) or "Assertion" in text:
            self.faults.append(f"{path}: {text[-3000:]}")
        for line in text.split("\n"):
            if any(token in tokens for token in TOKEN.findall(line)):
                self.tokens.append(f"{path}: {line}")
            if "event=master-quarantined " in line:
                self.quarantines[harness.parse_logfmt(line)["reason"].partition(":")[0]] += 1


def can_all_be_taken(cluster, seconds):
    """Whether each resource can be taken through each redlockd before the time is over: None, or what could not."""
    deadline = parts.now_us() + round(seconds * 1_000_000)
    todo = [(daemon, f"r/{number}") for daemon in cluster.daemons for number in range(parts.RESOURCES)]
    last = None
    while todo and parts.now_us() < deadline:
        daemon, resource = todo.pop(0)
        answer = daemon.call("POST", "/locks", {"resource": resource, "ttl_ms": min(1000, daemon.options["max-ttl-ms"])})
        if answer is not None and answer.status == 201:
            daemon.call("DELETE", "/locks/" + resource, {"token": answer.json["token"]})
            continue
        last = answer
        todo.append((daemon, resource))
    if not todo:
        return None
    masters = [json.dumps(answer.json) if (answer := daemon.call("GET", "/masters")) else "no answer" for daemon in cluster.daemons]
    return f"{len(todo)} could not be taken within {seconds:.1f} s, the last answer: {last}\n" + "\n".join(masters)
