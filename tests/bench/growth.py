# SPDX-License-Identifier: MIT
"""How memory grows: connections that do nothing, requests that wait, locks that are held; and whether it grows with time alone."""

import resource
import socket
import time

import bench_stacks as stacks
import harness
import load

CONNECTIONS, WAITERS, LOCKS = (10, 1000, 10000), (10, 1000, 10000), (1000, 100000, 1000000)
LEAK_SECONDS, REST_S = 60, 13  # idle connections rest after --request-timeout-ms and a second
ROOM = ("--max-connections", "30000", "--max-connections-per-address", "0", "--max-waiters", "20000", "--max-waiters-per-resource", "20000", "--max-ttl-ms", "3600000",
        "--idle-timeout-ms", "600000")


def resident_mb(pid):
    pages = int(open(f"/proc/{pid}/statm", encoding="ascii").read().split()[1])
    return pages * resource.getpagesize() / 1e6


def used_mb(master):
    return int(master.cli("INFO", "memory").split("used_memory:")[1].split()[0]) / 1e6


def sizes(stack):
    return {"redlockd_mb": round(resident_mb(stack.daemon.process.pid), 1), "masters_mb": round(used_mb(stack.masters.redis[0]), 1)}


def connect(stack, count, request=None):
    host, port = stack.addresses[0].rsplit(":", 1)
    opened = []
    for _ in range(count):
        opened.append(socket.create_connection((host, int(port)), timeout=30))
        if request:
            opened[-1].sendall(request)
    return opened


def close(connections):
    for one in connections:
        one.close()


def gauge(stack, name):
    return stack.daemon.metrics()[name]


def idle(stack):
    for count in CONNECTIONS:
        opened = connect(stack, count)
        harness.wait_until(lambda count=count: gauge(stack, "redlockd_http_connections") > count, 60)
        yield {"what": "connections that have not spoken yet", "count": count, **sizes(stack)}
        for one in opened:
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for one in opened:
            assert one.recv(4096), "it was closed"
        yield {"what": "idle connections, each after one request", "count": count, **sizes(stack)}
        time.sleep(REST_S)
        yield {"what": "the same at rest", "count": count, **sizes(stack), "note": f"{REST_S} s later"}
        close(opened)
        harness.wait_until(lambda: gauge(stack, "redlockd_http_connections") < 10, 60)


def waiting(stack):
    """Each on a connection of its own; a hundred locks with a hundredth of them each. Beside them what others get."""
    before = load.wrk(stack, "acquire", 16, 3)["per_s"]
    held = [stack.daemon.acquire(f"waited/{number}", ttl_ms=600000) for number in range(100)]
    for count in WAITERS:
        opened = []
        for number in range(count):
            body = b'{"resource":"waited/%d","wait_ms":60000}' % (number % 100)
            opened += connect(stack, 1, b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        harness.wait_until(lambda count=count: gauge(stack, "redlockd_waiters") >= 0.99 * count, 60)  # one may have met a master that stood still
        found = sizes(stack)
        beside = load.wrk(stack, "acquire", 16, 3)["per_s"]
        yield {"what": "waiters, on 100 locks", "count": count, **found, "others": round(beside / before, 3), "note": f"others: {beside:.0f} acquisitions a second, {beside / before:.2f} of without"}
        close(opened)
        harness.wait_until(lambda: gauge(stack, "redlockd_waiters") == 0, 60)
    for lease in held:
        stack.daemon.release(lease)


def holding(stack):
    """Set as the acquire script does, by redlockd."""
    done = 0
    for count in LOCKS:
        while done < count:
            done += acquire_many(stack, done, min(count - done, 10000))
        yield {"what": "locks held", "count": count, **sizes(stack)}


def acquire_many(stack, first, count, parallel=32):
    opened = connect(stack, parallel)
    for number in range(first, first + count, parallel):
        wanted = opened[:min(parallel, first + count - number)]
        for offset, one in enumerate(wanted):
            body = b'{"resource":"held/%d","ttl_ms":3600000}' % (number + offset)
            one.sendall(b"POST /locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        for one in wanted:
            answer = one.recv(4096)
            assert answer.startswith(b"HTTP/1.1 201"), answer
    close(opened)
    return count


def with_time(stack):
    """As many acquisitions and releases as fit into a minute: memory in between and at the end."""
    requests, began = 0, time.monotonic()
    while time.monotonic() - began < LEAK_SECONDS:
        requests += load.wrk(stack, "pair", 64, 10)["requests"]
        yield {"what": "acquisitions and releases, one after the other", "count": requests, **sizes(stack)}


def measure():
    wanted = 65536
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    found = []
    for kind in (idle, waiting, holding, with_time):
        stack = stacks.Redlockd(options=ROOM)
        try:
            for one in kind(stack):
                print(f"  {one['what']}, {one['count']}: {one['redlockd_mb']} MB", flush=True)
                found.append(one)
        finally:
            stack.stop()
    return found
