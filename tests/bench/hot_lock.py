# SPDX-License-Identifier: MIT
"""The hot lock: one resource wanted by many, at redlockd and at etcd, in turns. `./dev bench hot`; README.md says what the figures mean.

    hot_lock.py  this file: the rounds   bench_stacks.py  the processes that are measured      table.py  medians, the table, the aims
    hot_lock.c   the load generator, with hot_loop.c, hot_alone.c, hot_order.c (the three measurements), hot_client.c, hot_http.c, hot_figures.c

In each round every stack is started new, measured alone on the machine, and ended; each round begins with another stack. What
came out of every single measurement is written to the result file, not only the medians. The exit status is 0 if all of it ran,
whether or not the aims were reached.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))

import bench_stacks as stacks  # noqa: E402
import harness  # noqa: E402
import table  # noqa: E402
from load import cpu_seconds  # noqa: E402

ORDER_WAITERS = 200


def parse_arguments():
    parser = argparse.ArgumentParser(description="The hot-lock benchmark: see tests/bench/README.md.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="how long each measurement lasts")
    parser.add_argument("--waiters", default="2,20,200", help="comma list")
    parser.add_argument("--stacks", default=",".join(stacks.HOT), help="comma list of " + ", ".join(stacks.HOT))
    parser.add_argument("--generator", required=True, help="the program built of hot_lock.c")
    parser.add_argument("--output", default="build/results/hot_lock.json")
    given = parser.parse_args()
    given.waiters = [int(number) for number in given.waiters.split(",")]
    given.stacks = given.stacks.split(",")
    unknown = set(given.stacks) - set(stacks.HOT)
    if unknown:
        parser.error(f"no such stack: {', '.join(sorted(unknown))}")
    return given


def generate(given, stack, mode, *options):
    """One run of the load generator: its figures, and per grant the processor time of everybody and the Redis commands of a master."""
    command = [given.generator, mode, "--service", stack.service, "--servers", ",".join(stack.addresses), *options]
    calls, cpu = stack.calls(), {kind: cpu_seconds(pids) for kind, pids in stack.pids().items()}
    done = subprocess.run([*harness.DIES_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=180, check=True)
    figures = json.loads(done.stdout)
    grants = figures.get("grants_total") or figures["grants"]
    figures["cpu_us_per_grant"] = {kind: round((cpu_seconds(pids) - cpu[kind]) * 1e6 / grants, 1) for kind, pids in stack.pids().items()}
    figures["cpu_us_per_grant"]["generator"] = round(figures["own_cpu_s"] * 1e6 / grants, 1)
    more = {name: count - calls.get(name, 0) for name, count in stack.calls().items()}
    figures["calls_per_grant_and_master"] = {name: round(count / grants / 3, 2) for name, count in sorted(more.items()) if count / grants / 3 >= 0.005}
    return figures


def measure(given, name):
    """One stack, all that is asked for; [(what, waiters, figures)]."""
    stack = stacks.HOT[name][0]()
    window = ["--seconds", str(given.seconds)]
    try:
        results = [("alone", 0, generate(given, stack, "alone", *window))]
        for waiters in given.waiters:
            results.append(("loop", waiters, generate(given, stack, "loop", "--waiters", str(waiters), *window)))
        results.append(("order", ORDER_WAITERS, generate(given, stack, "order", "--waiters", str(ORDER_WAITERS), "--repeats", "2")))
        return results, stack.version()
    finally:
        stack.stop()


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"processors": len(os.sched_getaffinity(0)), "model": models[0] if models else "", "kernel": os.uname().release, "load_before": os.getloadavg()[0]}


def main():
    given = parse_arguments()
    began = {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine()}
    found, versions = [], {}
    for number in range(given.rounds):
        at = number % len(given.stacks)
        for name in given.stacks[at:] + given.stacks[:at]:
            print(f"round {number + 1} of {given.rounds}: {name}", file=sys.stderr, flush=True)
            results, version = measure(given, name)
            versions.update(version)
            found += [{"round": number, "stack": name, "what": what, "waiters": waiters, "figures": figures} for what, waiters, figures in results]
    summary = table.summary(found)
    aims = table.aims(found, summary)
    asked = {name: value for name, value in vars(given).items() if name not in ("generator", "output")}
    output = pathlib.Path(given.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**began, "versions": versions, "asked": asked, "aims": aims, "summary": summary, "measurements": found}, indent=1) + "\n")
    sys.stderr.flush()
    table.show(summary, aims)
    print(f"\nall figures: {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
