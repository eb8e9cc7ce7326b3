# SPDX-License-Identifier: MIT
"""Thousands of requests at the same moment: they are answered one after another, and none with an error of the
masters."""

import collections
import json
import select
import signal

from harness import SLOW, connect_to, freeze

COUNT = 3000
BURSTS = 2  # so many have to be granted
TRIES = 8  # the masters have to answer in less time than a busy machine may leave them


def request(name):
    body = json.dumps({"resource": name, "ttl_ms": 1000}).encode()
    return b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def all_at_once(service, burst):
    """One request on each of COUNT connections, all there before redlockd reads the first: how many got which status."""
    connections = {plain.fileno(): plain for plain in (connect_to(service.address) for _ in range(COUNT))}
    statuses, waited_for = collections.Counter(), select.epoll()
    try:
        freeze(service.process)
        for i, plain in enumerate(connections.values()):
            waited_for.register(plain, select.EPOLLIN)
            plain.sendall(request(f"burst/{burst}/{i}"))
        service.process.send_signal(signal.SIGCONT)
        left = set(connections)
        while left:
            ready = waited_for.poll(30 * SLOW)
            assert ready, f"{len(left)} have no answer; {statuses}"
            for descriptor, _ in ready:
                statuses[connections[descriptor].recv(65536)[9:12].decode()] += 1
                waited_for.unregister(descriptor)
                left.remove(descriptor)
    finally:
        service.process.send_signal(signal.SIGCONT)
        waited_for.close()
        for plain in connections.values():
            plain.close()
    return statuses


def test_bursts_are_granted(many_files, lab):
    """Without a bound on what is under way at once fewer than half of them are."""
    service = lab.service(3, f"--master-timeout-ms={round(50 * SLOW)}")
    seen, granted = [], 0
    while granted < BURSTS and len(seen) < TRIES:
        service.wait_voting(3)
        seen.append(all_at_once(service, len(seen)))
        granted += seen[-1]["201"] > 0.6 * COUNT
    assert all(sum(statuses.values()) == COUNT and set(statuses) <= {"201", "503"} for statuses in seen), seen
    assert granted == BURSTS, seen
