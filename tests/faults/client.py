# SPDX-License-Identifier: MIT
"""One client process: some threads, each of which takes leases, works under them, and writes down what it saw.

Started with one argument, a JSON object (see main), and ends when its standard input ends. A thread is one client, with connections
of its own to each replica over several ways (client_connection.py). Each request goes over any of them, so most leases are extended and
released over another connection, and through another replica, than they were acquired on. A client takes a lease as README.md says: it
counts from when it sent the request, brings its fence to the guarded resource before it reads there, and writes only while its deadline is
not over. Except for the clients that are paused: some sleep past the end of their lease and write then without a look at the clock, some
processes stop themselves (SIGSTOP) before they write, and are continued by the program that started them. About half of the requests wait in
the queue (`wait_ms`), and some of those close their connection while they do. Of each four resources one is taken alone only, one also shared,
one also on slots, and one in any way; who shares neither reads nor writes the guarded resource. The history is one line of JSON for each answer or each failure
to get one (checkers.py says what is in it).
"""

import json
import os
import random
import signal
import socket
import sys
import threading

from client_connection import AFTERS, HTTP_TIMEOUT_S, History, Service, now_us


class Guarded:
    """The guarded resource, as one client sees it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rwb")

    def call(self, operation, lease, value=None):
        request = {"op": operation, "resource": lease["resource"], "fence": lease["fence"], "token": lease["token"], "value": value}
        self.file.write(json.dumps(request).encode() + b"\n")
        self.file.flush()
        return json.loads(self.file.readline())


class Client(threading.Thread):
    def __init__(self, name, settings, history, ending):
        super().__init__(name=name, daemon=True)
        self.random = random.Random(f"{settings['seed']} {name}")
        self.settings, self.ending = settings, ending
        first, *others = settings["ways"]
        self.ways = [first, *self.random.sample(others, min(2, len(others)))]
        self.service = Service(name, self.ways, history)
        self.guarded = Guarded(settings["guarded"])

    def run(self):
        while not self.ending.is_set():
            self.service.end_idle()
            lease = self.acquire()
            if lease["status"] == 201:
                self.use(lease)
                self.pause(self.random.uniform(0.02, 0.2))
            elif lease.get("code") == "locked" and self.random.random() < 0.4:
                self.pause(min(lease["retry_after_ms"] / 1000, 0.5))  # to the moment at which the holder's lease runs out
            else:
                self.pause(self.random.uniform(0.03, 0.2))
        self.service.end_idle(everything=True)

    def pause(self, seconds):
        self.ending.wait(max(0.0, seconds))

    def any_daemon(self):
        return self.random.randrange(len(self.settings["max_ttl_ms"]))

    def any_ttl_ms(self, daemon, short=0.0):
        """Within what this replica allows."""
        shortest, longest = self.settings["ttl_ms"]
        longest = 3 * shortest if self.random.random() < short else longest
        return min(self.random.randint(shortest, longest), self.settings["max_ttl_ms"][daemon])

    def any_mode(self, number):
        """What a request for this resource says of it."""
        shared, slots = {"mode": "shared"}, {"slots": self.random.choice((2, 3))}
        return self.random.choice((({},), ({}, shared, shared), ({}, slots, slots), ({}, shared, slots))[number % 4])

    def acquire(self):
        number, daemon = self.random.randrange(self.settings["resources"]), self.any_daemon()
        after = self.random.choices(list(AFTERS), list(AFTERS.values()))[0]
        is_idle = after == "idle"  # long enough that an idle timeout of a second ends before it
        ttl_ms = self.settings["max_ttl_ms"][daemon] if is_idle else self.any_ttl_ms(daemon, 0.5)
        body, stays_s = {"resource": f"r/{number}", "ttl_ms": ttl_ms, **self.any_mode(number)}, None
        if self.random.random() < 0.5:
            body["wait_ms"] = self.random.randint(*self.settings["wait_ms"])
            stays_s = self.random.random() * body["wait_ms"] / 1000 if self.random.random() < 0.25 else None
        return self.service.call("acquire", self.random.choice(self.ways), daemon, "POST", "/locks", body, stays_s, after,
                                 self.random.random() < 0.5)

    def use(self, lease):
        """The deadline is the client's own, by the rule of the README: from when it sent the request, and, after a wait, from then on plus 0.99
        of the wait; some extend at once instead."""
        deadline = lease["sent"] + int(0.99 * lease.get("waited_ms", 0) + lease["validity_ms"]) * 1000
        if lease.get("waited_ms") and self.random.random() < 0.3:
            deadline = self.ask_for_more(lease, deadline)
        if now_us() >= deadline:
            return
        alone = "mode" not in lease and "slot" not in lease
        entered = self.guarded.call("enter", lease) if alone else None
        quick = lease["after"] == "keep" and self.random.random() < 0.5
        if lease["after"] == "idle":
            self.pause(self.random.uniform(0.4, 0.9) * (deadline - now_us()) / 1e6)
        for _ in range(0 if quick else self.random.choice((0, 0, 1, 3))):
            self.wait_part(deadline)
            deadline = self.extend(lease, deadline)
        if not alone:
            self.leave(lease, deadline, self.random.random())
        elif not entered["taken"]:
            self.release(lease)
        else:
            self.work(lease, deadline, entered["value"] + 1, quick)

    def wait_part(self, deadline):
        self.pause(self.random.uniform(0.02, 0.5) * (deadline - now_us()) / 1e6)

    def extend(self, lease, deadline):
        return deadline if now_us() >= deadline else self.ask_for_more(lease, deadline)

    def ask_for_more(self, lease, deadline):
        """Returns the new deadline, which is the old one if the extension failed."""
        daemon = self.any_daemon()
        body = {"token": lease["token"], "ttl_ms": self.any_ttl_ms(daemon)}
        answer = self.service.call("extend", self.random.choice(self.ways), daemon, "PUT", "/locks/" + lease["resource"], body)
        return max(deadline, answer["sent"] + answer["validity_ms"] * 1000) if answer["status"] == 200 else deadline

    def work(self, lease, deadline, value, quick):
        """Writes once, and then gives the lease back or lets it run out."""
        lot = self.random.random()
        if lot < 0.06:  # paused by whatever: writes after the end of its lease without knowing
            self.pause((deadline - now_us()) / 1e6 + self.random.uniform(0, 1.5) * self.settings["ttl_ms"][1] / 1000)
            self.guarded.call("write", lease, value)
        elif lot < 0.12 and self.settings["stops_itself"]:
            os.kill(os.getpid(), signal.SIGSTOP)
            self.guarded.call("write", lease, value)
        else:
            if not quick:
                self.wait_part(deadline)
            if now_us() < deadline:
                self.guarded.call("write", lease, value)
        self.leave(lease, deadline, lot)

    def leave(self, lease, deadline, lot):
        if lot < 0.8:
            self.release(lease)
        else:
            self.pause((deadline - now_us()) / 1e6)

    def release(self, lease):
        body = {"token": lease["token"]}
        self.service.call("release", self.random.choice(self.ways), self.any_daemon(), "DELETE", "/locks/" + lease["resource"], body)


def main():
    """Settings: name, seed, threads, ways (client_connection.py), max_ttl_ms (of each replica), resources (how many), ttl_ms and wait_ms
    (shortest, longest), guarded (path), history (path), stops_itself."""
    settings = json.loads(sys.argv[1])
    ending, history = threading.Event(), History(settings["history"], threading.Lock())
    clients = [Client(f"{settings['name']}.{i}", settings, history, ending) for i in range(settings["threads"])]
    for client in clients:
        client.start()
    sys.stdin.read()
    ending.set()
    for client in clients:
        client.join(4 * HTTP_TIMEOUT_S + settings["wait_ms"][1] / 1000)


if __name__ == "__main__":
    main()
