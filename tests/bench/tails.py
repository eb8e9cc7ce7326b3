# SPDX-License-Identifier: MIT
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
    and how many processors others took in each segment."""
    master, client, events, last, others = stack.masters.redis[-1], stack.daemon.client(), [], None, []
    own = {os.getpid(), generator.pid}
    for second, method in [*((second, method) for second, method, _ in SEGMENTS), (SECONDS, None)]:
        while time.monotonic() < began + second:
            state = state_of_last(client)
            if state != last:
                events.append((time.monotonic_ns(), state))
                last = state
            time.sleep(0.02)
        own.update(itertools.chain(*stack.pids().values()))
        others.append((time.monotonic(), load.others_seconds(own)))
        if method:
            events.append((time.monotonic_ns(), method))
            getattr(master, method)()
    client.close()
    return events, [round((used - before) / (until - since), 2) for (since, before), (until, used) in itertools.pairwise(others)]


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
        command = load.rate_command(stack, round(highest / 2), SECONDS + 1, CONNECTIONS)  # in the last second, which does not count, late ones are sent
        command += ["--warmup", str(WARMUP), "--cuts", ",".join(str(second) for second in [*(second for second, _, _ in SEGMENTS[1:]), SECONDS])]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as generator:
            events, others = harm(stack, generator, time.monotonic() + WARMUP)
            text, _ = generator.communicate(timeout=60)
        assert generator.returncode == 0, "the load ended early"
    finally:
        stack.stop()
    found = json.loads(text)
    del found["by_second"][SECONDS:], found["segments"][len(SEGMENTS):]
    for (_, _, name), segment, processors in zip(SEGMENTS, found["segments"], others):
        segment.update(name=name, others=processors)
    found.update(highest=highest, events=[[round((at - found["began_ns"]) / 1e9, 3), what] for at, what in events])
    print(f"  half of {highest:.0f}/s: {found['events']}", flush=True)
    return found
