# SPDX-License-Identifier: MIT
"""One measurement: a load on a stack for some seconds, and what it cost whom."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import subprocess

import harness

HERE = pathlib.Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
tags = (f"{os.getpid()}-{number}" for number in itertools.count())


def cpu_seconds(pids):
    """What these processes took of the processors so far."""
    fields = [pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS


def others_seconds(own):
    """What all processes but `own` took of the processors so far, with their children that have ended. /proc/stat counts by ticks, and misses short turns."""
    total = 0
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ends meanwhile
            total += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15])) if int(folder.name) not in own else 0
    return total / TICKS


def wrk(stack, load, connections, seconds, more=None):
    """Requests a second, latencies, and the processor time of each kind of process for a request."""
    environment = {"PATH": os.environ["PATH"], "LOAD": load, "TAG": next(tags), **stack.load_environment(), **(more or {})}
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(HERE / "wrk" / "load.lua"), f"http://{stack.addresses[0]}/"]
    before = {kind: cpu_seconds(pids) for kind, pids in stack.pids().items()}
    done = subprocess.run([*harness.DIES_WITH_US, *command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120 + seconds * 2,
                          check=True)
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    return with_costs(figures, stack, before)


def with_costs(figures, stack, before):
    figures["per_s"] = round(figures["requests"] / figures["seconds"], 1)
    for kind, pids in stack.pids().items():
        figures[f"cpu_us_{kind}"] = round((cpu_seconds(pids) - before[kind]) * 1e6 / max(1, figures["requests"]), 1)
    return figures


def rate_command(stack, per_second, seconds, connections=64):
    command = [str(harness.ROOT / "build" / "release" / "hot_lock"), "rate", "--service", "etcd" if stack.load == "etcd" else "redlockd", "--servers",
               stack.addresses[0], "--waiters", str(connections), "--rate", str(per_second), "--seconds", str(seconds), "--resource", next(tags)]
    return [*harness.DIES_WITH_US, *command]


def at_rate(stack, per_second, seconds, connections=64):
    """So many acquisitions a second, whether the service keeps up or not; times count from when each was to be sent (hot_rate.c)."""
    before = {kind: cpu_seconds(pids) for kind, pids in stack.pids().items()}
    done = subprocess.run(rate_command(stack, per_second, seconds, connections), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 + seconds * 4, check=True)
    found = json.loads(done.stdout)
    took = found["took_us"]
    figures = {"requests": found["answered"], "seconds": seconds, "errors": found["refused"] + found["dropped"], "p50_us": took.get("median", 0),
               "p99_us": took.get("p99", 0), "p999_us": took.get("p999", 0), "max_us": took.get("max", 0)}
    return with_costs(figures, stack, before)


def direct(stack, connections, seconds):
    """The peer's library without HTTP, in a process of its own; its processor time is that of the calls."""
    before = {"service": 0.0, "masters": cpu_seconds(stack.pids()["masters"])}
    used = os.times()
    done = subprocess.run([*harness.DIES_WITH_US, *stack.direct_command(seconds, connections)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60 + seconds * 2, check=True)
    now = os.times()
    found = json.loads(done.stdout)
    figures = {"requests": found["acquisitions"], "seconds": found["seconds"], "errors": 0, "per_s": round(found["acquisitions"] / found["seconds"], 1)}
    spent = now.children_user + now.children_system - used.children_user - used.children_system
    figures["cpu_us_service"] = round(spent * 1e6 / max(1, figures["requests"]), 1)
    figures["cpu_us_masters"] = round((cpu_seconds(stack.pids()["masters"]) - before["masters"]) * 1e6 / max(1, figures["requests"]), 1)
    return figures


def script_source(name):
    """A script as it is embedded (cmake/embed.cmake)."""
    folder = harness.ROOT / "server" / "scripts"
    text = (folder / f"{name}.lua").read_text()
    return re.sub(r"^\t?--include (\S+)$", lambda found: (folder / "lib" / found[1]).read_text().rstrip("\n"), text, flags=re.M)


def master_alone(master, connections, pipeline, requests):
    """The acquire script in its full shape, straight from redis-benchmark: what one master can do, and what one round trip takes."""
    sha = master.cli("SCRIPT", "LOAD", script_source("acquire"))
    arguments = ["EVALSHA", sha, "2", "alone:__rand_int__", "redlockd:master", "-" * 16, "9999999999999999", "", "0 86400000", "0" * 40, "10000", ":", "77", "1", ""]
    command = ["redis-benchmark", "-s", master.path, "-c", str(connections), "-P", str(pipeline), "-n", str(requests), "-r", "1000000000", "--csv", *arguments]
    before = cpu_seconds([master.process.pid])
    done = subprocess.run([*harness.DIES_WITH_US, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=True)
    row = [field.strip('"') for field in re.findall(r'"[^"]*"', done.stdout.strip().splitlines()[-1])]
    return {"requests": requests, "per_s": float(row[1]), "p50_us": round(float(row[4]) * 1000), "p99_us": round(float(row[6]) * 1000), "errors": 0,
            "cpu_us_masters": round((cpu_seconds([master.process.pid]) - before) * 1e6 / requests, 1)}
