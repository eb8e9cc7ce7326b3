#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Elects a leader, and shows it: docs/how-to/leader-election.md explains it.

    leader.py lead NAME OWNER ADDRESS STORE    works while it leads, and waits while it does not
    leader.py follow NAME                      prints the leader at each change

STORE is an SQLite file with a table: CREATE TABLE work (owner TEXT, fence INTEGER).
REDLOCKD has the addresses of redlockd, with blanks between them. TTL_MS is the time after which a leader that fails is replaced.
SIGTERM and Ctrl-C release the lock, so that the next leader need not wait for the end of the lease.
"""
import http.client
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

SERVERS = os.environ.get("REDLOCKD", "http://127.0.0.1:8080").split()
TTL_MS = int(os.environ.get("TTL_MS", "10000"))
WAIT_MS = 60000
STEP = TTL_MS / 1000 / 20  # seconds from one piece of work to the next


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # it cannot be set, and counts the sleep of the machine


def path(name):
    return "/locks/" + urllib.parse.quote(name, safe="")


def call(server, method, where, body, timeout, **headers):
    """The status and the answer; status 0 if none came."""
    names = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server + where, json.dumps(body).encode(), names, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or "{}")
    except urllib.error.HTTPError as error:
        return error.code, {}
    except (OSError, http.client.HTTPException, ValueError):
        return 0, {}


def acquire(name, owner, address):
    """Waits for the lock, however long that takes."""
    key = uuid.uuid4().hex  # if an answer is lost, the next request finds the lease
    body = {"resource": name, "owner": owner, "metadata": {"address": address}, "ttl_ms": TTL_MS, "wait_ms": WAIT_MS}
    for server in itertools.cycle(SERVERS):
        status, lease = call(server, "POST", "/locks", body, WAIT_MS / 1000 + 5, Idempotency_Key=key)
        if status in (200, 201):
            return lease
        if status != 409:
            time.sleep(random.uniform(0.1, 0.5))


def extend(name, lease, until):
    """The end of the lease, by now(): as before if nobody answers, 0 if it is lost."""
    for server in SERVERS:
        asked = now()  # before the request: the answer may be late
        status, answer = call(server, "PUT", path(name), {"token": lease["token"], "ttl_ms": TTL_MS}, TTL_MS / 1000 / 6)
        if status == 200:
            return asked + answer["validity_ms"] / 1000
        if status in (409, 410):
            return 0
    return until


def release(name, lease):
    """Ends the lease, if it is not over: the first server that answers decides."""
    for server in SERVERS:
        if call(server, "DELETE", path(name), {"token": lease["token"]}, 1)[0] in (204, 409, 410):
            return


def work(store, owner, fence):
    """A piece of work. False: the store has seen a later leader."""
    with sqlite3.connect(store, timeout=1) as database:
        done = database.execute("INSERT INTO work SELECT ?, ? WHERE ? >= (SELECT coalesce(max(fence), 0) FROM work)", (owner, fence, fence))
        return done.rowcount == 1


def lead(name, owner, address, store):
    while True:
        lease = acquire(name, owner, address)
        until = extend(name, lease, 0)
        extended = now()
        print("leads", lease["fence"], flush=True)
        try:
            while now() < until and work(store, owner, lease["fence"]):
                time.sleep(STEP)
                if now() > extended + TTL_MS / 3000:
                    until, extended = extend(name, lease, until), now()
        finally:
            print("led", lease["fence"], flush=True)
            release(name, lease)


def follow(name):
    seen, tag = 0, ""
    for server in itertools.cycle(SERVERS):
        request = urllib.request.Request(server + path(name), headers={"Accept": "text/event-stream", "Last-Event-ID": tag})
        try:
            with urllib.request.urlopen(request, timeout=20) as stream:  # a comment comes every 15 s
                for line in stream:
                    field, _, value = line.decode().strip().partition(": ")
                    if field == "id":
                        tag = value
                    state = json.loads(value) if field == "data" else {}
                    if state.get("held") and state.get("fence", 0) >= seen:  # a smaller one belongs to an earlier leader
                        seen = state["fence"]
                        print(state["owner"], state["metadata"]["address"], seen, flush=True)
                    elif state:
                        print("nobody" if state["held"] is False else "unknown", flush=True)
        except (OSError, http.client.HTTPException):
            time.sleep(0.2)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # raised in lead(), which then releases the lock
    try:
        {"lead": lead, "follow": follow}[sys.argv[1]](*sys.argv[2:])
    except (IndexError, KeyError, TypeError):
        sys.exit(__doc__)
    except KeyboardInterrupt:
        sys.exit(130)
