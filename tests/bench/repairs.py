#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A master that comes back empty while many leases are renewed: how long until all have all votes again, and what others notice."""

import argparse
import json
import multiprocessing
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import bench_stacks as stacks  # noqa: E402
import growth  # noqa: E402

TTL_MS = 60000
PARALLEL, RENEWALS = 64, 3  # connections of the renewals; renewals in the time of a lease
ROOM = ("--max-ttl-ms", str(TTL_MS), "--max-hold-ms", "0")
PACE = 0.01  # seconds between two pairs of the client that measures


def send(connection, method, members):
    body = json.dumps(members).encode()
    connection.sendall(b"%s /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (method, len(body), body))


def exchange(connections, method, requests):
    """One request on each connection. The bodies of the answers, None for a refusal."""
    for connection, members in zip(connections, requests):
        send(connection, method, members)
    answers = [connection.recv(16384) for connection, _ in zip(connections, requests)]
    return [json.loads(answer.partition(b"\r\n\r\n")[2]) if answer[9:10] == b"2" else None for answer in answers]


def renew(stack, count, pipe):
    """In a process of its own: takes the leases, renews each three times in its time, and tells at the end how many renewals there were and how many were refused."""
    connections, held = growth.connect(stack, PARALLEL), []
    for first in range(0, count, PARALLEL):
        wanted = [{"resource": f"renewed/{number}", "ttl_ms": TTL_MS} for number in range(first, min(first + PARALLEL, count))]
        while wanted:  # again where too few masters answered in time
            answers = exchange(connections, b"POST", wanted)
            held += [{"resource": one["resource"], "token": one["token"], "ttl_ms": TTL_MS} for one in answers if one]
            wanted = [members for members, one in zip(wanted, answers) if not one]
    pipe.send(len(held))
    began, sent, refused = time.monotonic(), 0, 0
    while True:
        for first in range(0, count, PARALLEL):
            if pipe.poll(max(0.0, began + TTL_MS / 1000 / RENEWALS * first / count - time.monotonic())):
                pipe.send((sent, refused))
                return
            answers = exchange(connections, b"PUT", held[first:first + PARALLEL])
            sent += len(answers)
            refused += answers.count(None)
        began += TTL_MS / 1000 / RENEWALS


def pairs(client, until):
    """Another client's acquisitions and releases, until `until` says so: milliseconds of each pair, sorted, and how many were refused."""
    took, refused = [], 0
    while not took or not until():
        began = time.monotonic()
        lease = client.call("POST", "/locks", {"resource": "another", "ttl_ms": 1000})
        ended = lease.status == 201 and client.call("DELETE", "/locks", {"resource": "another", "token": lease.json["token"]}).status == 204
        refused += not ended
        took.append((time.monotonic() - began) * 1000)
        time.sleep(max(0.0, began + PACE - time.monotonic()))
    return sorted(took), refused


def after(seconds):
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() >= ends


def masters_say(client):
    answer = client.call("GET", "/masters").json
    return sum(one["state"] == "voting" for one in answer["masters"]), answer["leases_below_full"]


def show(label, found):
    took, refused = found
    print(f"  another client, {label}: {len(took)} pairs, ms median {took[len(took) // 2]:.2f}, p99 {took[len(took) * 99 // 100]:.2f}, longest {took[-1]:.1f}; refused {refused}", flush=True)


def measure(count):
    stack = stacks.Redlockd(options=ROOM)
    ours, theirs = multiprocessing.Pipe()
    renewing = multiprocessing.Process(target=renew, args=(stack, count, theirs), daemon=True)
    try:
        renewing.start()
        assert ours.recv() == count, "not all leases were granted"
        client, last = stack.daemon.client(), stack.masters.redis[-1]
        show("before", pairs(client, after(10)))
        last.kill()
        last.start()
        began = time.monotonic()
        show("while the master has no vote", pairs(client, lambda: masters_say(client)[0] == 3))
        voted = time.monotonic()
        show("while keys come back", pairs(client, lambda: masters_say(client)[1] == 0))
        full = time.monotonic()
        assert last.cli("DBSIZE") > count
        show("afterwards", pairs(client, after(10)))
        ours.send("end")
        sent, refused = ours.recv()
        print(f"{count} leases: the master votes after {voted - began:.1f} s, and all leases have all votes {full - voted:.1f} s later; "
              f"{sent} renewals, {refused} refused; {stack.daemon.metrics()['redlockd_repairs_total']:.0f} repairs", flush=True)
        client.close()
    finally:
        renewing.kill()
        renewing.join()
        stack.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="1,1000,100000", help="comma list: how many leases are renewed")
    for count in parser.parse_args().counts.split(","):
        measure(int(count))


if __name__ == "__main__":
    main()
