#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server that answers wrongly, to try a client of any language with: docs/reference/client-rules.md says how.

    python3 tests/clients/hostile_server.py --list
    python3 tests/clients/hostile_server.py [--case NAME] [--port 8080] [--tls CERTIFICATE KEY]

It prints the addresses of two servers: the hostile one, and one that answers usefully. It prints each request, and at
its end (Ctrl-C) whether the client kept the rule of each case that was tried. The exit status is 1 if it did not.
"""

import argparse
import pathlib
import signal
import ssl
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "e2e")]

from fake_server import ANSWERS, FakeRedlockd  # noqa: E402

import hostile_cases  # noqa: E402


class Trial:
    def __init__(self, only, port, tls):
        self.only, self.began, self.tried, self.connections, self.printing = (
            only,
            time.monotonic(),
            {},
            {},
            threading.Lock(),
        )
        self.second = FakeRedlockd(0, "unnamed", lambda call: self.serve("second", call, ANSWERS[call.kind]), tls)
        self.first = FakeRedlockd(port, "unnamed", lambda call: self.serve("first", call, self.answer), tls)

    def answer(self, call):
        hostile_cases.behave(call, self.only)

    def serve(self, which, call, answer):
        case = self.only or hostile_cases.CASES.get(call.name.split("/")[0])
        if case is not None and call.kind != "health":
            self.tried[call.name] = case
        try:
            answer(call)
        finally:
            with self.printing:
                number = self.connections.setdefault(id(call.connection), len(self.connections) + 1)
                print(
                    f"{call.came - self.began:8.3f} s  {which} server, connection {number}: "
                    f"{call.method} {call.path} {call.name}: "
                    f"{call.answered or 'no whole answer'}",
                    flush=True,
                )

    def report(self):
        """Whether the client kept all rules."""
        kept = {name: case.kept(self.first, self.second, name) for name, case in self.tried.items()}
        for name, case in self.tried.items():
            print(f"{'kept' if kept[name] else 'BROKEN'}: {name}: the client {hostile_cases.MUST[case.must]}")
        return all(kept.values())


def main():
    parser = argparse.ArgumentParser(description="A server that answers wrongly, to try a client of redlockd with.")
    parser.add_argument(
        "--list", action="store_true", help="print the cases: name, request, and how the client must behave"
    )
    parser.add_argument(
        "--case",
        choices=hostile_cases.CASES,
        metavar="NAME",
        help="this one for all locks; by default the name of the lock chooses",
    )
    parser.add_argument("--port", type=int, default=0, help="of the hostile server; by default any that is free")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"), help="files in PEM")
    options = parser.parse_args()
    if options.list:
        for case in hostile_cases.CASES.values():
            asks = "".join(f", with {name}={value}" for name, value in case.asks.items()) + (
                ", two resources" if case.several else ""
            )
            print(f"{case.name}: {case.call}{asks}: the client {hostile_cases.MUST[case.must]}")
        return 0
    tls = None
    if options.tls:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*options.tls)
    trial = Trial(options.case and hostile_cases.CASES[options.case], options.port, tls)
    print(f"hostile server: {trial.first.address}\nsecond server: {trial.second.address}", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except KeyboardInterrupt:
        pass
    return 0 if trial.report() else 1


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
