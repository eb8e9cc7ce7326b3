"""The latencies at half of the highest rate, while one of three masters is stopped, continues, is killed, and comes back empty."""

import itertools
import json
import os
import subprocess
import time

import bench_stacks as stacks
import load

CONNECTIONS, SECONDS, WARMUP = 64, 60, 2
# At the second: what is done to the last master (a method of harness.Redis), and the name of the segment until the next one. The master that comes back
# has no vote while leases of 10 s last that it may have forgotten; the last segment begins when it surely votes again.
SEGMENTS = ((0, None, "healthy"), (12, "stop", "stopped"), (20, "cont", "continued"), (28, "kill", "killed"), (36, "start", "restarted, empty"),
            (50, None, "healthy again"))


def state_of_last(client):
    """The state of the last master as redlockd reports it: "down: timeout"."""
    one = client.call("GET", "/masters").json["masters"][-1]
    return one["state"] + (f": {one['reason']}" if one.get("reason") else "")


def harm(stack, generator, began):
    """Carries out the faults at their seconds. Returns them and the changes of state that redlockd reported, as (nanoseconds of the monotonic clock, text),
    and how many processors others took in each second."""
    master, client, events, last, due = stack.masters.redis[-1], stack.daemon.client(), [], None, list(SEGMENTS)
    others, each = load.Others(lambda: [os.getpid(), generator.pid, *itertools.chain(*stack.pids().values())]), []
    while len(each) < SECONDS + 1:
        if time.monotonic() >= began + len(each):
            each.append(others.processors())
        if due and time.monotonic() >= began + due[0][0]:
            _, method, _ = due.pop(0)
            if method:
                events.append((time.monotonic_ns(), method))
                getattr(master, method)()
        state = state_of_last(client)
        if state != last:
            events.append((time.monotonic_ns(), state))
            last = state
        time.sleep(0.02)
    client.close()
    return events, each[1:]


def highest_rate(seconds):
    stack = stacks.Redlockd()
    try:
        return load.wrk(stack, "acquire", CONNECTIONS, seconds)["per_s"]
    finally:
        stack.stop()


def measure(seconds):
    highest = highest_rate(seconds)
    stack = stacks.Redlockd()
    try:
        command = load.rate_command(stack, round(highest / 2), SECONDS, CONNECTIONS)
        command += ["--warmup", str(WARMUP), "--cuts", ",".join(str(second) for second, _, _ in SEGMENTS[1:])]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as generator:
            events, others = harm(stack, generator, time.monotonic() + WARMUP)
            text, _ = generator.communicate(timeout=60)
        assert generator.returncode == 0, "the load ended early"
    finally:
        stack.stop()
    found = json.loads(text)
    for (_, _, name), segment in zip(SEGMENTS, found["segments"]):
        segment["name"] = name
    for second, processors in zip(found["by_second"], others):
        second["others"] = processors
    found.update(highest=highest, events=[[round((at - found["began_ns"]) / 1e9, 3), what] for at, what in events])
    print(f"  half of {highest:.0f}/s: {found['events']}", flush=True)
    return found
