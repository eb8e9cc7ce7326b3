#!/usr/bin/env python3
"""Acquisitions of another client, alone and beside clients that inspect locks with many holders as fast as they can."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import harness  # noqa: E402

TTL_MS = 60000
PACE = 0.002  # seconds between two acquisitions
DIFFERENT = 'local n = 0\nrequest = function() n = n + 1 return wrk.format("GET", "/locks/different/" .. n % %d) end\n'


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
    print(f"{label:32} ms median {median:.2f}, {median / alone:.2f} times that of it alone; p99 {took[len(took) * 99 // 100]:.2f}; refused {refused}{load}", flush=True)


def beside(service, path, options, clients, client, seconds, numbers):
    url = f"http://{service.address}"
    load = subprocess.Popen(["wrk", "-t1", f"-c{clients}", f"-d{seconds + 2}", *options, url + path], stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    found = acquire(client, seconds, numbers)
    said = load.communicate()[0]
    wrong = re.search(r"Non-2xx.*: (\d+)", said)
    return found, f"; {float(re.search(r'Requests/sec: *([0-9.]+)', said)[1]):.0f} inspections a second, {wrong[1] if wrong else 0} failed"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=24, help="connections that inspect")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    given = parser.parse_args()
    with harness.Lab() as lab:
        service = lab.redlockd(lab.redises(3), log_requests=None)
        client, numbers = service.client(), iter(range(10**9))
        fill(client, given.clients)
        script = os.path.join(lab.folder, "different.lua")
        pathlib.Path(script).write_text(DIFFERENT.replace("%d", str(given.clients)), encoding="utf-8")
        alone = acquire(client, given.seconds, numbers)
        median = alone[0][len(alone[0]) // 2]
        show("alone", alone, median)
        for label, path, options in (("one lock, 1,024 holders on slots", "/locks/slots", ()), ("one lock, 100 shared holders", "/locks/different/0", ()),
                                     ("a lock each, 100 shared holders", "", ("-s", script))):
            found, load = beside(service, path, options, given.clients, client, given.seconds, numbers)
            show(label, found, median, load)
        client.close()


if __name__ == "__main__":
    main()
