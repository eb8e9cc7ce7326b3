#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Renewals of 256 leases: in one request, in 256 requests on one kept connection, and in 256 on 16 connections, in turns over the same stack."""

import argparse
import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import bench_stacks as stacks  # noqa: E402
import growth  # noqa: E402
import load  # noqa: E402

COUNT, MANY = 256, 16  # leases; connections
ROOM = ("--max-ttl-ms", "600000", "--max-hold-ms", "0")


def request(method, members):
    body = json.dumps(members, separators=(",", ":")).encode()
    return b"%s /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (method, len(body), body)


def receive(connection):
    """The body of an answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 18)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 18)
    return json.loads(body)


def one_by_one(connections, requests):
    """How many were refused: too few masters answered in time, as on a busy machine."""
    refused = 0
    for first in range(0, COUNT, len(connections)):
        for connection, one in zip(connections, requests[first:]):
            connection.sendall(one)
        refused += sum("token" not in receive(connection) for connection in connections)
    return refused


def at_once(connections, requests):
    connections[0].sendall(requests[0])
    return COUNT - sum("token" in one for one in receive(connections[0])["leases"])


def measure(stack, rounds, seconds):
    """{way: [figures of each round]}"""
    connections = growth.connect(stack, MANY)
    items = []
    for number in range(COUNT):
        connections[0].sendall(request(b"POST", {"resource": f"bulk/{number}", "ttl_ms": 600000}))
        items.append({"resource": f"bulk/{number}", "token": receive(connections[0])["token"], "ttl_ms": 600000})
    singles, many = [request(b"PUT", item) for item in items], [request(b"PUT", {"leases": items})]
    ways = {"one request": (at_once, connections[:1], many), "256 requests, 1 connection": (one_by_one, connections[:1], singles),
            f"256 requests, {MANY} connections": (one_by_one, connections, singles)}
    found = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (renew, over, requests) in ways.items():
            before = {kind: load.cpu_seconds(pids) for kind, pids in stack.pids().items()}
            began, times, refused = time.monotonic(), [], 0
            while time.monotonic() < began + seconds:
                start = time.monotonic()
                refused += renew(over, requests)
                times.append((time.monotonic() - start) * 1000)
            figures = {"ms": statistics.median(times), "refused": refused / len(times) / COUNT * 100}
            for kind, pids in stack.pids().items():
                figures[kind] = (load.cpu_seconds(pids) - before[kind]) * 1e6 / len(times) / COUNT
            found[way].append(figures)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of each way in a round")
    options = parser.parse_args()
    stack = stacks.Redlockd(options=ROOM)
    try:
        found = measure(stack, options.rounds, options.seconds)
    finally:
        stack.stop()
    for way, rounds in found.items():
        middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        print(f"{way}: " + ", ".join([f"{middle.pop('ms'):.1f} ms, {middle.pop('refused'):.1f} % refused", *(f"{name} {value:.1f} µs for each lease" for name, value in middle.items())]))


if __name__ == "__main__":
    main()
