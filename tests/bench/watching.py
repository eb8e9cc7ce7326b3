# SPDX-License-Identifier: MIT
"""Many watchers of one resource that changes: what a change costs redlockd and the masters, and when the last watcher has its event.

The watchers are connections of a process of its own, on the event stream, read by epoll. All times are of CLOCK_MONOTONIC, which processes share.
"""

import multiprocessing
import re
import resource
import select
import statistics
import time

import bench_stacks as stacks
import growth
import harness
import load

WATCHERS = (1, 10000)
RATE, ALONE = 100, 5  # changes a second; changes that come one by one
REQUEST = b"GET /locks/watched HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
IDS = re.compile(rb"\nid: ([0-9]+|free)\n")
TAIL = 64  # bytes of the last piece: an id may lie across two


def read_streams(stack, count, pipe):
    """In the process of the watchers. Answers each fence that is asked for when all have seen it: the time of the last one, and the events so far."""
    opened = {one.fileno(): one for one in growth.connect(stack, count, REQUEST)}
    last, rests, seen, events, wanted = {}, {}, {}, 0, None
    poll = select.epoll()
    for fd in (*opened, pipe.fileno()):
        poll.register(fd, select.EPOLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == pipe.fileno():
                wanted = pipe.recv()
                continue
            data = rests.get(fd, b"") + opened[fd].recv(65536)
            found, rests[fd] = list(IDS.finditer(data)), data[-TAIL:]
            if found:
                rests[fd] = data[max(found[-1].end(), len(data) - TAIL):]
                events += len(found)
                last[fd] = found[-1][1]
                so_far = seen.get(last[fd], (0, 0))[0]
                seen[last[fd]] = so_far + 1, time.monotonic()
        if wanted and seen.get(wanted, (0, 0))[0] == count:
            pipe.send((seen[wanted][1], events))
            seen, wanted = {}, None


def change(client, lease):
    """Acquires, or releases what is held; again if too few masters answered in time. The lease, when the answer was here, and how often it was refused."""
    refused = 0
    while True:
        if lease:
            answer = client.call("DELETE", "/locks/watched", {"token": lease["token"]})
        else:
            answer = client.call("POST", "/locks", {"resource": "watched", "ttl_ms": 60000})
        if answer.status in (201, 204, 410):  # 410: it was released although the answer before was a 503
            assert answer.status != 410 or refused, answer
            return answer.json if answer.status == 201 else None, time.monotonic(), refused
        refused += 1
        assert refused < 100, answer


def costs(stack):
    scripts = sum(master.calls().get("evalsha", 0) for master in stack.masters.redis)
    return {"scripts": scripts, **{kind: load.cpu_seconds(pids) for kind, pids in stack.pids().items()}}


def told(pipe, lease, changed):
    """Seconds from a change to the last watcher's event, and how many events all had."""
    pipe.send(str(lease["fence"]).encode())
    assert pipe.poll(120), "not all watchers have seen the last state"
    last, events = pipe.recv()
    return last - changed, events


def one_by_one(pipe, client):
    """Milliseconds from an acquisition's answer to the last watcher's event, each change after the last was seen by all, and the events so far."""
    took, lease = [], None
    for _ in range(ALONE):
        lease, changed, _ = change(client, None)
        seconds, events = told(pipe, lease, changed)
        took.append(seconds * 1000)
        change(client, lease)
    return took, events


def watch(stack, pipe, count, seconds):
    harness.wait_until(lambda: stack.daemon.metrics()["redlockd_watchers"] == count, 120)
    client, lease, refused = stack.daemon.client(), None, 0
    alone, events_before = one_by_one(pipe, client)
    before, began = costs(stack), time.monotonic()
    changes = seconds * RATE // 2 * 2 + 1  # odd: ends with a holder, whose fence is looked for
    for number in range(changes):
        time.sleep(max(0, began + number / RATE - time.monotonic()))
        lease, changed, more = change(client, lease)
        refused += more
    behind, events = told(pipe, lease, changed)
    spent = changed - began + behind  # telling the last change is part of the cost
    used = {kind: value - before[kind] for kind, value in costs(stack).items()}
    events -= events_before
    client.close()
    return {"watchers": count, "changes": changes, "refused": refused, "changes_per_s": round(changes / (changed - began), 1),
            "scripts_per_change": round(used["scripts"] / (changes + refused), 2), "cpu_redlockd": round(used["service"] / spent, 2),
            "cpu_masters": round(used["masters"] / spent, 3), "events_per_s": round(events / spent), "cpu_us_event": round(used["service"] / events * 1e6, 1),
            "last_ms": round(behind * 1000, 1), "alone_ms": round(statistics.median(alone), 1), "alone_max_ms": round(max(alone), 1)}


def measure(seconds=10):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = []
    for count in WATCHERS:
        stack = stacks.Redlockd(options=growth.ROOM)
        ours, theirs = multiprocessing.Pipe()
        reader = multiprocessing.Process(target=read_streams, args=(stack, count, theirs), daemon=True)
        try:
            reader.start()
            found.append(watch(stack, ours, count, seconds))
            print(f"  {found[-1]}", flush=True)
        finally:
            reader.kill()
            reader.join()
            stack.stop()
    return found
