#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Hostile loads against a real redlockd over three real redis-servers, and what becomes of a well-behaved client meanwhile.

    ./dev hostile [--seconds S] [LOAD…]     all loads, with redlockd's default deadlines (or --request-seconds, --idle-seconds); prints a table

The same loads, with short deadlines, are the tests in test_hostile.py. See README.md for what is measured."""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import harness  # noqa: E402
from harness import Lab  # noqa: E402
from certificates import Authority, build_absurd_client  # noqa: E402
from crowd import Crowd  # noqa: E402
from good import GoodClient, connect, read_answer  # noqa: E402
from loads import LOADS  # noqa: E402
from meter import Span, descriptors, resident_mib  # noqa: E402

DESCRIPTORS = 8000  # that this program needs
CONNECTIONS = 5000  # open at the same time, at most
CONNECTION_KIB = 96  # of redlockd's memory, at most; over TLS
KEEPS_MIB = 64      # memory that it may keep after a flood
KERNEL_KIB = 256    # for the buffers of one connection, at most
SLACK_SECONDS = 3.0  # a deadline is looked at when something happens; a busy machine may be late
KEY = "rlk_" + "a" * 43


def raise_limit():
    """As many descriptors as may be; what we start inherits that."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS, f"the hard limit of descriptors is {hard}: at least {DESCRIPTORS} are needed"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def before_others():
    """While this lasts our session gets the processor before other sessions, where Linux divides by session and we may (root); else nothing happens."""
    path, was = "/proc/self/autogroup", None
    try:
        with open(path, encoding="ascii") as file:
            was = file.read().split()[-1]
        with open(path, "w", encoding="ascii") as file:
            file.write("-15")
    except (OSError, IndexError):
        was = None
    try:
        yield
    finally:
        if was is not None:
            with open(path, "w", encoding="ascii") as file:
                file.write(was)


class Service:
    """A redlockd for loads of one kind, and what is asked of it besides. `guarded`: with keys and a TLS port, which is where the loads go that need one."""

    def __init__(self, lab, guarded, request_seconds, idle_seconds):
        self.lab = lab
        self.credentials = (b"Authorization: Bearer " + KEY.encode(),) if guarded else ()
        raise_limit()
        options = ["--request-timeout-ms", str(round(request_seconds * 1000)), "--idle-timeout-ms", str(round(idle_seconds * 1000))]
        listen = ["unix:" + os.path.join(lab.folder, f"l{guarded}"), "http://127.0.0.1:0"]
        if guarded:
            options += self._guards(lab)
            listen.append("https://127.0.0.1:0")
        self.daemon = lab.redlockd(lab.redises(3), *options, listen=listen, wait=False)
        self.pid = self.daemon.process.pid
        ports = [int(address.rpartition(":")[2]) for address in self.daemon.addresses[1:]]
        self.plain, self.tls = ("127.0.0.1", ports[0]), ("127.0.0.1", ports[-1])
        harness.wait_until(lambda: self.ask(b"/readyz")[0] == 200, 20, "ready")
        self.good = lab.keep(GoodClient(self.plain, extra=[line.decode() for line in self.credentials]))
        harness.wait_until(lambda: self.good.look()[0] > 100, 20, "the good client has begun")

    @staticmethod
    def _guards(lab):
        authority = Authority(lab.folder)
        server = authority.issue("server", "IP:127.0.0.1")
        path = os.path.join(lab.folder, "keys.json")
        everything = {"name": "good", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "prefixes": [""], "rights": ["acquire", "inspect", "list", "admin"]}
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"keys": [everything]}, file)
        os.chmod(path, 0o600)
        return ["--keys", path, "--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.certificate]

    def start_absurd_clients(self, count, chains):
        """For each chain and version of TLS a process that makes so many connections (absurd_client.c)."""
        program, port = build_absurd_client(self.lab.folder), str(self.tls[1])
        return [subprocess.Popen([program, port, version, str(count), words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
                for words in chains for version in ("1.2", "1.3")]

    def ask(self, path):
        """Status and body of one GET, from an address of its own."""
        plain = connect(*self.plain, "127.0.0.9")
        try:
            lines = b"".join(line + b"\r\n" for line in self.credentials)
            plain.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n" % (path, lines))
            return read_answer(plain, b"")[:2]
        finally:
            plain.close()


class Stage:
    """The surroundings of a load, and the checks of its outcome."""

    def __init__(self, service, load, seconds, request_seconds, idle_seconds, source):
        self.service, self.load = service, load
        self.seconds, self.request_seconds, self.idle_seconds = seconds, request_seconds, idle_seconds
        self.credentials = service.credentials
        self.crowd = Crowd(service.tls if load.name.startswith("tls_") else service.plain, source)
        self.span, self.wrong = None, []

    def look(self, seconds=0.01):
        """Moves the sockets: waits for so long at most if there is nothing to do."""
        self.crowd.step(seconds)
        self.span.look()

    def expect(self, condition, what):
        if not condition:
            self.wrong.append(f"not so: {what}")

    def expect_no_lock(self, prefix, but):
        """Grants whose clients had left have been released; `but`: resources of which that is unknown."""
        def left():
            status, content = self.service.ask(b"/locks?limit=1000&prefix=" + prefix)
            return {lock["resource"] for lock in json.loads(content)["locks"]} - {name.decode() for name in but} if status == 200 else None
        try:
            harness.wait_until(lambda: left() == set(), 5, "no lock")
        except AssertionError:
            self.wrong.append(f"locks were left behind: {left()}")

    def _most(self, limit):
        """The longest that something may take, in seconds."""
        deadlines = {"request": self.request_seconds, "idle": self.idle_seconds, "both": self.request_seconds + self.idle_seconds, None: float("inf")}
        return (deadlines[limit] + SLACK_SECONDS if limit in deadlines else limit) * harness.SLOW

    def outcomes(self):
        """{(label, outcome): [how many, shortest, longest]}; notes in `wrong` what must not be."""
        found = {}
        for member in self.crowd.all:
            row = found.setdefault((member.label, member.outcome), [0, member.seconds, member.seconds])
            row[:] = [row[0] + 1, min(row[1], member.seconds), max(row[2], member.seconds)]
        for (label, outcome), (count, _, longest) in found.items():
            allowed = self.load.outcomes.get(label, {})
            if outcome not in allowed:
                self.wrong.append(f"{label}: {count} came out as {outcome}, not as {' or '.join(allowed)}")
            elif longest > self._most(allowed[outcome]):
                self.wrong.append(f"{label}: {outcome} after {longest:.1f} s, {self._most(allowed[outcome]):.1f} s are allowed")
        last = max((member.closed - member.opened if member.closed else float("inf")) for member in self.crowd.all)
        if last > self._most(self.load.ends):
            self.wrong.append(f"one was open for {last:.1f} s")
        for label in self.load.outcomes:
            if not any(label == one for one, _ in found):
                self.wrong.append(f"{label}: there were none")
        return found


class Result:
    """One load: what was measured before, during and after."""

    def __init__(self, load, before, during, stage, descriptors_before, descriptors_after, mib_before, mib_after):
        self.load, self.before, self.during = load, before, during
        self.found = stage.outcomes()
        self.closed = [member.closed - member.opened for member in stage.crowd.all if member.closed and member.how != "left" and member.statuses]
        self.descriptors_before, self.descriptors_after, self.mib_before, self.mib_after = descriptors_before, descriptors_after, mib_before, mib_after
        self.share = during.rate / before.rate if before.rate else 0
        self.wrong = list(stage.wrong)
        if during.mistakes:
            self.wrong.append(f"the good client saw {during.mistakes} mistakes")
        if descriptors_after > descriptors_before:
            self.wrong.append(f"{descriptors_before} descriptors before, {descriptors_after} after")
        connections = min(len(stage.crowd.all), CONNECTIONS)
        self._bound("memory", mib_before, during.peak_mib, connections * CONNECTION_KIB / 1024 + KEEPS_MIB)
        self._bound("memory that is kept", mib_before, mib_after, KEEPS_MIB)
        self._bound("kernel memory", 0, during.peak_kernel_mib, connections * KERNEL_KIB / 1024 + KEEPS_MIB)

    def _bound(self, what, before, now, most):
        if now - before > most:
            self.wrong.append(f"{what}: {before:.0f} MiB became {now:.0f} MiB; {most:.0f} MiB more would be all right")

    def row(self):
        """Of the table (see HEAD)."""
        before, during = self.before, self.during
        return (f"| {self.load.title} | {before.rate:,.0f}/s | {during.rate:,.0f}/s | {self.share:.2f} | {during.longest_ms:.0f} ms | "
                f"{before.processor:.0%} | {during.processor:.0%} | {self.mib_before:.0f} | {during.peak_mib:.0f} | {self.mib_after:.0f} | "
                f"{during.peak_kernel_mib:.0f} | {self.descriptors_before} | {self.descriptors_after} | {self.ended()} |")

    def ended(self):
        """How they ended, in few words."""
        by_outcome = {}
        for (_, outcome), (count, shortest, longest) in self.found.items():
            row = by_outcome.setdefault(outcome, [0, shortest, longest])
            row[:] = [row[0] + count, min(row[1], shortest), max(row[2], longest)]
        parts = [f"{count} {outcome} after {shortest:.1f}–{longest:.1f} s" for outcome, (count, shortest, longest) in sorted(by_outcome.items())]
        if self.closed:
            parts.append(f"closed after {min(self.closed):.1f}–{max(self.closed):.1f} s")
        return ", ".join(parts)


def measure(service, seconds):
    span = Span(service.pid, service.good)
    while time.monotonic() < span.began + seconds:
        time.sleep(0.02)
        span.look()
    return span.end()


SOURCES = iter(f"127.0.1.{i}" for i in range(1, 250))  # another one each time: no ports that are still in use


def run_load(service, load, seconds, request_seconds, idle_seconds):
    descriptors_before, mib_before = descriptors(service.pid), resident_mib(service.pid)
    before = measure(service, seconds)
    stage = Stage(service, load, seconds, request_seconds, idle_seconds, next(SOURCES))
    stage.span = Span(service.pid, service.good)
    load.run(stage)
    during = stage.span.end()
    with contextlib.suppress(AssertionError):
        harness.wait_until(lambda: descriptors(service.pid) <= descriptors_before and resident_mib(service.pid) <= mib_before + KEEPS_MIB, 5,
                           "the descriptors are closed, the memory given back")
    result = Result(load, before, during, stage, descriptors_before, descriptors(service.pid), mib_before, resident_mib(service.pid))
    stage.crowd.leave_all()
    return result


SHARE = 0.5  # of its rate that the good client must keep
COLUMNS = ("load", "good client before", "during", "share", "longest answer", "CPU before", "during", "MiB before", "peak", "after", "peak in the kernel",
           "descriptors before", "after", "how they ended")
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=10,
                        help="how long the good client is measured before each load, and how long a load without an end of its own goes on")
    parser.add_argument("--request-seconds", type=float, default=10, help="--request-timeout-ms of redlockd (default: its own)")
    parser.add_argument("--idle-seconds", type=float, default=60, help="--idle-timeout-ms of redlockd (default: its own)")
    parser.add_argument("--list", action="store_true", help="names of the loads")
    parser.add_argument("loads", metavar="LOAD", nargs="*", help="only these")
    options = parser.parse_args()
    unknown = set(options.loads) - {load.name for load in LOADS}
    if unknown:
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    return options


def main():
    options = arguments()
    if options.list:
        print("\n".join(f"{load.name:16} {load.title}" for load in LOADS))
        return 0
    wanted = [load for load in LOADS if not options.loads or load.name in options.loads]
    wrong = []
    print(HEAD, flush=True)
    for kind in ("plain", "guarded"):
        of_kind = [load for load in wanted if load.service == kind]
        if not of_kind:
            continue
        with contextlib.redirect_stdout(None), before_others(), Lab() as lab:
            service = Service(lab, kind == "guarded", options.request_seconds, options.idle_seconds)
            for load in of_kind:
                result = run_load(service, load, options.seconds, options.request_seconds, options.idle_seconds)
                print(result.row(), file=sys.__stdout__, flush=True)
                wrong += [f"{load.name}: {what}" for what in result.wrong]
                if result.share < SHARE:
                    wrong.append(f"{load.name}: the good client kept {result.share:.2f} of its rate")
    for what in wrong:
        print("wrong:", what)
    failed = len({what.partition(":")[0] for what in wrong})
    print(f"{len(wanted) - failed} loads held up under, {failed} not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
