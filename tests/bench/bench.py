# SPDX-License-Identifier: MIT
"""redlockd measured against its own limits, against what else one could take, and with faults: `./dev bench`. README.md says what the figures mean.

    bench.py         this file: what is measured, in turns    load.py    one measurement            bench_report.py  medians, table, plots, aims
    bench_stacks.py  the processes that are measured          wrk/       what wrk asks for          peers/     the services written with libraries

A round measures everything once; each begins with another stack, and the stacks of a part follow one another at once, so that what is compared was
measured within the same minutes. Every single measurement is in the result file. The exit status is 0 if all of it ran, whatever came out.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import bench_stacks as stacks  # noqa: E402
import growth  # noqa: E402
import harness  # noqa: E402
import load  # noqa: E402
import bench_report  # noqa: E402
import sharing  # noqa: E402
import tails  # noqa: E402
import watching  # noqa: E402


def redlockd_loads(connections):
    return [(name, count, lambda stack, seconds, name=name, count=count: load.wrk(stack, name, count, seconds))
            for name in ("healthz", "acquire", "pair", "refused") for count in connections]


def service_loads(connections):
    return [*[("acquire", count, lambda stack, seconds, count=count: load.wrk(stack, stack.load, count, seconds)) for count in connections],
            *[("pair", count, lambda stack, seconds, count=count: load.wrk(stack, stack.pair, count, seconds)) for count in connections if count > 1]]


def rate_loads(rates):
    return [(f"{rate} a second", 64, lambda stack, seconds, rate=rate: load.at_rate(stack, rate, seconds)) for rate in rates]


def direct_loads(connections):
    return [("direct", count, lambda stack, seconds, count=count: load.direct(stack, count, seconds)) for count in connections]


def master_loads():
    def run(connections, pipeline, requests):
        return lambda stack, _: load.master_alone(stack.masters.redis[0], connections, pipeline, requests)
    return [("script, one client", 1, run(1, 1, 20000)), ("script, pipelined", 64, run(4, 16, 200000))]


# part: [(stack, how it is started, what is measured of it)]
def parts(given):
    several, most = given.connections, [max(given.connections)] if 64 not in given.connections else [64]
    return {
        "masters": [(f"redlockd, {n} masters", lambda n=n: stacks.Redlockd(masters=n), redlockd_loads(several)) for n in (1, 3, 5, 7)],
        "script": [("one master", lambda: stacks.Redlockd(masters=1), master_loads())],
        "workers": [(f"redlockd, {n} workers", lambda n=n: stacks.Redlockd(workers=n), redlockd_loads(most)) for n in (1, 2)],
        "peers": [("redlockd", stacks.Redlockd, [*service_loads(several)]),
                  ("redsync in Go", stacks.Redsync, [*service_loads(several), *direct_loads(most)]),
                  ("redlock in Node", stacks.NodeRedlock, [*service_loads(several), *direct_loads(most)]),
                  ("etcd, 1 member", lambda: stacks.Etcd(1), service_loads(several)),
                  ("etcd, 3 members", lambda: stacks.Etcd(3), service_loads(several))],
        "rate": [(name, start, rate_loads(given.rates)) for name, start in
                 (("redlockd", stacks.Redlockd), ("redsync in Go", stacks.Redsync), ("redlock in Node", stacks.NodeRedlock), ("etcd, 3 members", lambda: stacks.Etcd(3)))],
        **({"before": before_part(given)} if given.before else {}),
        "faults": [(f"one of five {words}", lambda fault=fault: stacks.Redlockd(masters=5, fault=fault), service_loads(most))
                   for words, fault in (("healthy", None), ("stopped", "stop"), ("killed", "kill"), ("20 ms away", "delay"))],
    }


def before_part(given):
    """This redlockd and another one."""
    loads = redlockd_loads([1, 64] if 64 in given.connections else given.connections)
    return [("this redlockd", stacks.Redlockd, loads), ("redlockd before", lambda: stacks.Redlockd(binary=given.before), loads)]


def measure(given, part, entries, round_number, found):
    turn = round_number % len(entries)
    for name, start, loads in entries[turn:] + entries[:turn]:
        stack = start()
        try:
            for what, connections, run in loads:
                figures = run(stack, given.seconds)
                found.append({"part": part, "round": round_number, "stack": name, "what": what, "connections": connections, "figures": figures})
                print(f"  {name}, {what}, {connections}: {figures['per_s']:.0f}/s", flush=True)
        finally:
            stack.stop()


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": model, "processors": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}


def parse_arguments():
    parser = argparse.ArgumentParser(description="The benchmarks: see tests/bench/README.md.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="how long each measurement lasts")
    parser.add_argument("--connections", default="1,16,64,256", help="comma list")
    parser.add_argument("--rates", default="2000,10000,20000", help="comma list: acquisitions a second, of the part rate")
    parser.add_argument("--parts", default="masters,script,workers,peers,rate,faults,growth,watch,share,tails,hot", help="comma list")
    parser.add_argument("--before", help="another redlockd, built before a change: measured in turns with this one")
    parser.add_argument("--output", default="build/results/bench", help="folder: bench.json, bench.md and the plots")
    given = parser.parse_args()
    given.connections = [int(number) for number in given.connections.split(",")]
    given.rates = [int(number) for number in given.rates.split(",")]
    given.parts = [*filter(None, given.parts.split(","))] + (["before"] if given.before else [])
    unknown = set(given.parts) - {"growth", "watch", "share", "tails", "hot"} - set(parts(given))
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return given


def main():
    given = parse_arguments()
    folder = pathlib.Path(given.output)
    folder.mkdir(parents=True, exist_ok=True)
    found, result = [], {"began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine(), "seconds": given.seconds}
    for round_number in range(given.rounds):
        for part, entries in parts(given).items():
            if part in given.parts:
                print(f"round {round_number + 1} of {given.rounds}: {part}", flush=True)
                measure(given, part, entries, round_number, found)
    result.update(measurements=found, growth=None, watch=None, share=None, tails=None)
    (folder / "bench.json").write_text(json.dumps(result, indent=1))
    if "growth" in given.parts:
        result["growth"] = growth.measure()
    if "watch" in given.parts:
        result["watch"] = [one for _ in range(given.rounds) for one in watching.measure(given.seconds)]
    if "share" in given.parts:
        result["share"] = [one for _ in range(given.rounds) for one in sharing.measure(given.seconds)]
    if "tails" in given.parts:
        result["tails"] = [tails.measure(given.seconds) for _ in range(given.rounds)]
    if "hot" in given.parts:  # it has a table of its own
        generator = harness.ROOT / "build" / "release" / "hot_lock"
        subprocess.run([sys.executable, str(HERE / "hot_lock.py"), "--generator", str(generator), "--output", str(folder / "hot_lock.json"), "--rounds", str(given.rounds)],
                       check=True)
    (folder / "bench.json").write_text(json.dumps(result, indent=1))
    bench_report.write(result, folder)


if __name__ == "__main__":
    main()
