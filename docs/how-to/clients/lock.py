#!/usr/bin/env python3
"""Books apples into a store, one by one, while nobody else does: docs/how-to/clients.md says how and why.

    lock.py RESOURCE STORE [STEPS [STEP_MS [TTL_MS [WAIT_MS]]]]
"""
import http.client
import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid

URL = os.environ.get("REDLOCKD_URL", "http://127.0.0.1:8080").rstrip("/")
KEY = os.environ.get("REDLOCKD_KEY")


class Failure(Exception):
    """Why the program ends, and its exit status."""

    def __init__(self, exit_status, why):
        super().__init__(why)
        self.exit_status = exit_status


class AsItIs(urllib.request.HTTPErrorProcessor):
    """Every answer is an answer: no exception for a 409, no redirect."""

    def http_response(self, request, response):
        return response

    https_response = http_response


OPENER = urllib.request.build_opener(AsItIs)


def call(method, path, body, timeout, headers=()):
    """One request. Returns status, headers and body; the status is 0 where no answer of redlockd came."""
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    for name, value in [*headers, *([("Authorization", "Bearer " + KEY)] if KEY else [])]:
        request.add_header(name, value)
    try:
        with OPENER.open(request, timeout=timeout) as answer:
            return answer.status, answer.headers, json.loads(answer.read() or b"{}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return 0, {}, {"detail": f"no answer from {URL}: {getattr(error, 'reason', error)}"}


class Lease:
    """A lock that is renewed in the background until release(). Work only between two check()s that do not raise."""

    def __init__(self, resource, ttl_ms, wait_ms):
        self.path = "/locks/" + urllib.parse.quote(resource, safe="")
        self.ttl_ms, self.ttl, self.margin = ttl_ms, ttl_ms / 1000, ttl_ms / 5000
        self.why, self.lost, self.ended = "", threading.Event(), threading.Event()
        self.acquire(resource, time.monotonic() + wait_ms / 1000)
        self.supervisor = threading.Thread(target=self.keep, daemon=True)
        self.supervisor.start()

    def acquire(self, resource, until):
        again = [("Idempotency-Key", uuid.uuid4().hex)]  # if an answer is lost, the next request finds the lease
        while True:
            sent = time.monotonic()  # before the request: the lease lasts for so long from here, or longer
            wait_ms = min(max(round((until - sent) * 1000), 0), 60000)
            body = {"resource": resource, "ttl_ms": self.ttl_ms, "wait_ms": wait_ms}
            status, headers, answer = call("POST", "/locks", body, wait_ms / 1000 + 5, again)
            if status in (200, 201):
                self.stop_at = sent + (answer["validity_ms"] + 0.99 * answer.get("waited_ms", 0)) / 1000 - self.margin
                self.token, self.fence = answer["token"], answer["fence"]
                return print(f"acquired fence={self.fence}", flush=True)
            if status not in (0, 409, 429, 503):
                raise Failure(77 if status in (401, 403) else 64, answer["detail"])
            left = until - time.monotonic()
            if left <= 0:
                raise Failure(75 if status == 409 else 69, answer["detail"])
            time.sleep(min(left, int(headers.get("Retry-After", 1)) + random.random()))

    def keep(self):
        pause = self.ttl / 3
        while not self.ended.wait(pause):
            sent = time.monotonic()
            if sent >= self.stop_at:
                return
            timeout = min(self.ttl / 5, self.stop_at - sent)
            status, _, answer = call("PUT", self.path, {"token": self.token, "ttl_ms": self.ttl_ms}, timeout)
            if status == 200:
                self.stop_at = sent + answer["validity_ms"] / 1000 - self.margin
                print("renewed", flush=True)
            elif status in (409, 410):
                self.why = answer["detail"]
                return self.lost.set()
            pause = self.ttl / (3 if status == 200 else 10)  # no answer, 429, 503: the old end holds, ask again soon

    def check(self):
        """Looks at the clock itself: a supervisor that hangs in a request must not keep the work going."""
        if self.lost.is_set() or time.monotonic() >= self.stop_at:
            raise Failure(79, "lease lost: " + (self.why or "it could not be renewed in time"))

    def work(self, seconds):
        """Stands for work that can be broken off at once."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            self.lost.wait(min(until, self.stop_at) - time.monotonic())
        self.check()

    def release(self):
        self.ended.set()
        self.supervisor.join()  # a renewal that comes after the release would look like a loss
        status, _, answer = call("DELETE", self.path, {"token": self.token}, 2)
        print("released" if status == 204 else "not released: " + answer["detail"], flush=True)


def update(store, lease, change):
    """The resource refuses whoever is not the last holder: comparison and change are one statement."""
    store.execute("PRAGMA busy_timeout = %d" % (lease.margin * 1000))  # the longest step that cannot be broken off
    rows = store.execute(f"UPDATE stock SET {change}, fence = ?1 WHERE item = 'apples' AND fence <= ?1 RETURNING amount", (lease.fence,)).fetchall()
    if not rows:
        raise Failure(79, "fence refused: somebody else has had the lock since")
    return rows[0][0]


def main(resource, path, steps="5", step_ms="1000", ttl_ms="10000", wait_ms="20000"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is run
    store = sqlite3.connect(path, isolation_level=None)
    lease = Lease(resource, int(ttl_ms), int(wait_ms))
    try:
        amount = update(store, lease, "amount = amount")  # brings the fence there, then reads
        for _ in range(int(steps)):
            lease.work(int(step_ms) / 1000)
            amount = update(store, lease, f"amount = {amount + 1}")
            print(f"wrote {amount}", flush=True)
    finally:
        lease.release()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Failure as failure:
        print(f"lock: {failure}", file=sys.stderr)
        sys.exit(failure.exit_status)
