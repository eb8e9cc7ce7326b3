# SPDX-License-Identifier: MIT
"""Runs jobs under `redlockctl run`, one after the other in each thread, on the same resources as the clients.

Started with a JSON object: seed, threads, redlockctl (the program), servers (for each way the addresses of replicas), ca, resources (how many),
ttl_ms, wait_ms, folder. When its standard input ends it waits for the jobs under way and ends. It leaves a file for each job (job.py), how
each redlockctl ended (ends.jsonl), and when the machine stalled (stalls.jsonl).
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))

import harness  # noqa: E402
from client_connection import now_us  # noqa: E402

JOB = str(pathlib.Path(__file__).with_name("job.py"))
PATIENCE_S = 30
STEP_S, STALL_US = 0.02, 250_000


def watch_stalls(path, ending):
    """Writes down when this process was not scheduled for long: redlockctl beside it may have been as late."""
    with open(path, "w", encoding="utf-8", buffering=1) as stalls:
        before = now_us()
        while not ending.wait(STEP_S):
            now = now_us()
            if now - before > STALL_US:
                stalls.write(json.dumps({"at": before, "kind": "stall", "target": "machine", "what": f"{(now - before) / 1000:.0f} ms"}) + "\n")
            before = now


class Runner(threading.Thread):
    def __init__(self, number, settings, ending, ends):
        super().__init__(daemon=True)
        self.number, self.settings, self.ending, self.ends = number, settings, ending, ends
        self.random = random.Random(f"{settings['seed']} jobs {number}")

    def run(self):
        count = 0
        while not self.ending.wait(self.random.uniform(0.05, 0.3)):
            count += 1
            self.run_job(os.path.join(self.settings["folder"], f"job.{self.number}.{count}"))

    def run_job(self, path):
        settings, name = self.settings, f"r/{self.random.randrange(self.settings['resources'])}"
        way = self.random.choice(list(settings["servers"]))
        ours = self.random.sample(settings["servers"][way], len(settings["servers"][way]))
        servers = [word for server in ours for word in ("--server", server)]
        limits = ["--cacert", settings["ca"], "--ttl", f"{settings['ttl_ms']}ms", "--wait", f"{settings['wait_ms']}ms", "--timeout", "1s"]
        seconds, asked = self.random.choice((0.3, 1.5, 4)) * self.random.uniform(0.5, 1), now_us()
        job = [sys.executable, "-SE", JOB, path, str(asked), str(seconds)]
        command = [*harness.DIES_WITH_US, settings["redlockctl"], "run", name, *servers, *limits, "--", *job]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                said = process.communicate(timeout=PATIENCE_S * harness.SLOW)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                said = b"had not ended\n" + process.communicate()[1]
        end = {"resource": name, "way": way, "asked": asked, "ended": now_us(), "status": process.returncode,
               "said": said.decode(errors="replace")[-300:]}
        self.ends.write(json.dumps(end) + "\n")


def main():
    settings, ending = json.loads(sys.argv[1]), threading.Event()
    with open(os.path.join(settings["folder"], "ends.jsonl"), "w", encoding="utf-8", buffering=1) as ends:
        threading.Thread(target=watch_stalls, args=(os.path.join(settings["folder"], "stalls.jsonl"), ending), daemon=True).start()
        runners = [Runner(number, settings, ending, ends) for number in range(settings["threads"])]
        for runner in runners:
            runner.start()
        sys.stdin.read()
        ending.set()
        for runner in runners:
            runner.join()


if __name__ == "__main__":
    main()
