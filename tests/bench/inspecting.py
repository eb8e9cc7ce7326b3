#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Acquisitions of another client, alone and beside clients that inspect locks with many holders, list them or are refused a slot, as fast as they can. Beside
as many clients that acquire other locks, which is what any load of that size costs."""

import argparse
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import harness  # noqa: E402

TTL_MS = 300000
PACE = 0.002  # seconds between two acquisitions
CASES = (
    ("plain acquisitions of other locks", 'wrk.format("POST", "/locks", nil, \'{"resource":"load/\' .. n .. \'","ttl_ms":300}\')'),
    ("one lock, 1,024 holders on slots", 'wrk.format("GET", "/locks/slots")'),
    ("one lock, 100 shared holders", 'wrk.format("GET", "/locks/different/0")'),
    ("a lock each, 100 shared holders", 'wrk.format("GET", "/locks/different/" .. n % CLIENTS)'),
    ("a list of these locks", 'wrk.format("GET", "/locks?prefix=different/")'),
    ("refused one of 1,024 slots", 'wrk.format("POST", "/locks", nil, \'{"resource":"slots","slots":1024}\')'),
)


def fill(client, clients):
    for _ in range(1024):
        assert client.call("POST", "/locks", {"resource": "slots", "slots": 1024, "ttl_ms": TTL_MS}).status == 201
    for number in range(clients):
        for _ in range(100):
            assert client.call("POST", "/locks", {"resource": f"different/{number}", "mode": "shared", "ttl_ms": TTL_MS}).status == 201


def acquire(client, seconds, numbers):
    """Milliseconds of each acquisition of a new name, sorted, and how many were refused."""
    took, refused, ends = [], 0, time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.monotonic()
        refused += client.call("POST", "/locks", {"resource": f"new/{next(numbers)}", "ttl_ms": 300}).status != 201
        took.append((time.monotonic() - began) * 1000)
        time.sleep(PACE)
    return sorted(took), refused


def show(label, found, alone, load=""):
    took, refused = found
    median = took[len(took) // 2]
    print(f"{label:34} ms median {median:.2f}, {median / alone:.2f} times that of it alone; p99 {took[len(took) * 99 // 100]:.2f}; refused {refused}{load}", flush=True)


def beside(service, script, clients, client, seconds, numbers):
    load = subprocess.Popen(["wrk", "-t1", f"-c{clients}", f"-d{seconds + 2}", "-s", script, f"http://{service.address}"], stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    found = acquire(client, seconds, numbers)
    said = load.communicate()[0]
    other = re.search(r"Non-2xx.*: (\d+)", said)
    return found, f"; {float(re.search(r'Requests/sec: *([0-9.]+)', said)[1]):.0f} requests a second beside it, {other[1] if other else 0} without 2xx"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=24, help="connections of the others")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    given = parser.parse_args()
    with harness.Lab() as lab:
        service = lab.redlockd(lab.redises(3), "--max-ttl-ms", str(TTL_MS), log_requests=None)
        client, numbers = service.client(), iter(range(10**9))
        fill(client, given.clients)
        alone = acquire(client, given.seconds, numbers)
        median = alone[0][len(alone[0]) // 2]
        show("alone", alone, median)
        script = pathlib.Path(lab.folder, "load.lua")
        for label, request in CASES:
            script.write_text(f"local n = 0\nrequest = function() n = n + 1 return {request.replace('CLIENTS', str(given.clients))} end\n", encoding="utf-8")
            found, load = beside(service, script, given.clients, client, given.seconds, numbers)
            show(label, found, median, load)
        client.close()


if __name__ == "__main__":
    main()
