#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Wants locks, for takeover.py: prints "granted NAME" and "lost NAME", and releases at the end of its input.

    takeover_contender.py library|hold|kazoo SERVERS TTL NAME…      SERVERS: host:port,…; TTL in seconds
"""
import http.client
import json
import os
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients/python/src"))
WAIT_MS = 60000
ended = threading.Event()
printing = threading.Lock()


def say(event, name):
    with printing:
        print(event, name, flush=True)


def library(servers, ttl, names):
    """The client library for Python, with its defaults but for the ttl: one client of the program, as it advises."""
    import redlockd
    client = redlockd.Client([f"http://{server}" for server in servers])

    def want(name):
        while not ended.is_set():
            try:
                lease = client.acquire(name, ttl=ttl, wait=WAIT_MS / 1000)
            except redlockd.Error:
                continue  # nobody gave way, or no server could decide: asked again
            say("granted", name)
            while not ended.wait(0.2) and not lease.lost.is_set():
                pass
            if not ended.is_set():
                say("lost", name)
            lease.release()
            return
    return [threading.Thread(target=want, args=(name,)) for name in names]


def hold(servers, ttl, names):
    """A request with `hold` for each lock, at the next server if one fails."""
    def stream(server, name):
        """Returns whether the lock was had; its connection is closed at the end."""
        connection = http.client.HTTPConnection(server, timeout=WAIT_MS / 1000 + ttl)
        had = False
        try:
            body = {"resource": name, "hold": True, "ttl_ms": round(ttl * 1000), "wait_ms": WAIT_MS}
            connection.request("POST", "/locks", json.dumps(body))
            answer = connection.getresponse()
            while answer.status == 201 and (line := answer.readline()):
                event = json.loads(line)["event"]
                if event == "acquired":
                    had = True
                    say("granted", name)
                elif event in ("lost", "draining"):
                    return had
        except (OSError, http.client.HTTPException, ValueError):
            pass
        finally:
            connection.close()
        return had

    def want(name):
        tried = 0
        while not ended.is_set():
            if stream(servers[tried % len(servers)], name):
                say("lost", name)
                return
            tried += 1
    return [threading.Thread(target=want, args=(name,), daemon=True) for name in names]


def kazoo(servers, ttl, names):
    """The recipe Lock of kazoo, a session for the program."""
    from kazoo.client import KazooClient, KazooState
    client = KazooClient(",".join(servers), timeout=ttl)
    client.start(timeout=60)

    def want(name):
        lock = client.Lock(f"/takeover/{name}")
        lock.acquire()
        lost = threading.Event()
        client.add_listener(lambda state: lost.set() if state == KazooState.LOST else None)
        say("granted", name)
        while not ended.wait(0.2):
            if lost.is_set():
                say("lost", name)
                return
        lock.release()
    return [threading.Thread(target=want, args=(name,), daemon=True) for name in names]


def main():
    kind, servers, ttl, *names = sys.argv[1:]
    threads = {"library": library, "hold": hold, "kazoo": kazoo}[kind](servers.split(","), float(ttl), names)
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()
    for thread in threads if kind != "hold" else []:
        thread.join(5)
    os._exit(0)  # what still waits or holds ends with its connection


if __name__ == "__main__":
    main()
