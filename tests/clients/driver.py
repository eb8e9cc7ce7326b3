# SPDX-License-Identifier: MIT
"""The drivers of the client libraries as processes, and their protocol.

    driver = drivers()                          # in the language of this test
    driver.client(url)
    lease = driver.acquire("orders/42", ttl=3)
    lease.lost(5).told

A driver reads commands from standard input and writes answers to standard output: one JSON object a line. It carries
out commands at the same time, and answers each with its `id` when it is done. Times are seconds. Its standard error has
the warnings of the library. At the end of its input it ends as a program that still holds leases, which the library
releases, or the driver where the language cannot. Null or missing members are left to the library.

    "do": members                                                          answer
    client: its name; servers, key, token_file, owner, timeout, ca,        {}
        certificate (two files), headers
    acquire: client, lease (its name), resource (a text or a list), ttl,   fence, remaining, slot (or null);
        wait, margin, at_least, owner, metadata, mode, slots;              of a `try` without a lease: "held":false
        try: do not wait; interruptible: `interrupt` may end it (one at a time)
    interrupt                                                              none; the `acquire` answers "interrupted"
    block: as acquire; seconds: its length; until_lost: until the lease    fence, after the language's block for a lock
        is lost; raise: it ends by its own exception (error "raised")
    check: lease                                                           {}, or an error
    remaining: lease                                                       remaining
    lost: lease, timeout                                                   lost: true as soon as it is lost, false
                                                                               after `timeout`
    waiters: lease                                                         waiters; wanted: how often the lease's
                                                                               callback, which raises, was called
    release: lease, keep                                                   released
    count: client, resource, ttl, times, file: acquire, add one to the     fences
        number in the file, release
    watch: client, resource, count                                         state, `count` times, with "more":true in
                                                                               all but the last
    state: client, resource                                                state
    force: client, resource, fence                                         {}
    pairs: client, resource, times: acquire and release, without waiting   milliseconds of a pair, on average
    bare: server, ca, resource, times: the same on one kept connection,    milliseconds
        without the library
    time                                                                   time of day of the process, since 1970

An answer with `error` has `code`, `detail`, `status` and, with "lock-lost", `cause`. The codes are those of
docs/reference/errors.md, "lock-lost", "no-answer", "interrupted" and "raised"; "unsupported" skips the test.

tests/e2e/redis_clock.c is preloaded to set a driver's time of day. For a runtime that does not ask the C library, see
build_driver_go in tests/dev/clients.sh.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from harness import DIES_WITH_US, ROOT, clean_environment, end_process, freeze, patience, wait_until

HERE = ROOT / "tests" / "clients"
PYTHON = ["/usr/bin/python3", str(HERE / "drivers" / "python.py")]
BUILT = ROOT / "build" / "drivers"  # by build_drivers of tests/dev/builds.sh
ALL = {
    "python": PYTHON,
    "python-aio": [*PYTHON, "--aio"],
    "go": [str(BUILT / "go")],
    "node": ["node", str(HERE / "drivers" / "node.mjs")],
    "java": ["java", "-cp", str(BUILT / "java"), "Driver"],
    "php": ["php", str(HERE / "drivers" / "driver.php")],
}
# The tests that do not apply to a library, by the beginning of their names, and why.
NOT_FOR = {
    **dict.fromkeys(("python", "python-aio", "node", "java"), {
        "test_the_state": "the library has no call for it: the first value of a watch is the state",
    }),
    "go": {"test_files_for_https_that_are_replaced": "the program gives a tls.Config, and no files"},
    "php": {
        "test_one_warning": "the library has no log",
        "test_no_warning": "the library has no log",
        "test_library_many.py::": "one process has few leases, and each refresh() is a request of its own",
        "test_at_most_16_connections": "one process has one request at a time",
        "test_waits_and_watches_keep_no_other": "one process has one request at a time",
        "test_time_in_the_queue": "one process has one request at a time",
        "test_no_storm[php-at-once-304]": "the library does not watch",
        "test_no_storm[php-at-once-s": "the library does not watch",
        "test_a_watch_that": "the library does not watch",
        "test_a_release[php-delete-cut]": "curl takes a piece of a status line for no answer, and sends the request again",
    },
}
DRIVERS = {name: ALL[name] for name in os.environ.get("REDLOCKD_TEST_LANGUAGES", "python python-aio").split()}
NUMBERS = itertools.count(1)


class Refused(Exception):
    """An error that a driver answered."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['detail']}")
        self.code, self.status, self.detail, self.cause = error["code"], error["status"], error["detail"], error.get("cause")


class Answers:
    """Of one command. `told`: when the last one came."""

    def __init__(self):
        self.lines, self.told, self.ended, self.changed = [], None, False, threading.Condition()

    def add(self, line):
        with self.changed:
            self.told = time.monotonic()
            self.ended = not line.get("more")
            self.lines.append(line)
            self.changed.notify_all()

    def get(self, count=None, seconds=30):
        """The last answer, or the one of this number (for what answers several times)."""
        with self.changed:
            came = self.changed.wait_for(lambda: self.ended or count is not None and len(self.lines) >= count, patience(seconds))
        assert came, f"the driver does not answer: {self.lines}"
        line = self.lines[-1 if count is None else count - 1]
        if "error" in line:
            if line["error"]["code"] == "unsupported":
                pytest.skip(line["error"]["detail"])
            raise Refused(line["error"])
        return line


class Lease:
    def __init__(self, driver, name, answer, sent):
        self.driver, self.name, self.fence, self.first_remaining, self.sent = driver, name, answer["fence"], answer["remaining"], sent
        self.slot = answer.get("slot")

    def check(self):
        self.driver.ask("check", lease=self.name)

    @property
    def remaining(self):
        return self.driver.ask("remaining", lease=self.name)["remaining"]

    def lost(self, timeout):
        """The answers to come."""
        return self.driver.start("lost", lease=self.name, timeout=timeout)

    def until_renewed(self):
        """Waits until a renewal has moved its end, by the clock of the process that holds it."""
        latest = self.remaining + time.monotonic() + 0.05

        def is_renewed():
            assert self.lost(0.1).get()["lost"] is False
            return time.monotonic() + self.remaining > latest
        wait_until(is_renewed, what="it is renewed")

    @property
    def waiters(self):
        """How many wait, as the lease says, and how often its callback was called."""
        answer = self.driver.ask("waiters", lease=self.name)
        return answer["waiters"], answer["wanted"]

    def release(self, **options):
        return self.driver.ask("release", lease=self.name, **options)["released"]


class Driver:
    def __init__(self, language, clock=None):
        """`clock`: a RedisClock, for move_time()."""
        environment = clean_environment({"PYTHONPATH": str(ROOT / "clients/python/src"), "PYTHONDONTWRITEBYTECODE": "1"})
        self.clock = clock
        environment.update(clock.environment() if clock else {})
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*DIES_WITH_US, *DRIVERS[language]], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)
        self.waiting = {}
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            self.waiting[answer["id"]].add(answer)

    @property
    def log(self):
        """What it has written to standard error: the log of the library."""
        return os.pread(self.said.fileno(), 1 << 20, 0).decode(errors="replace")

    def start(self, do, **members):
        """Sends a command; its Answers come."""
        number, answers = next(NUMBERS), Answers()
        self.waiting[number] = answers
        self.process.stdin.write(json.dumps({"id": number, "do": do, "client": "it", **members}).encode() + b"\n")
        self.process.stdin.flush()
        return answers

    def ask(self, do, **members):
        return self.start(do, **members).get()

    def client(self, *servers, **options):
        self.ask("client", servers=list(servers), **options)
        return self

    def acquire(self, resource, **options):
        name, sent = f"lease{next(NUMBERS)}", time.monotonic()
        answer = self.ask("acquire", lease=name, resource=resource, **options)
        return Lease(self, name, answer, sent) if answer.get("held", True) else None

    def move_time(self, seconds):
        """From now on the time of day of the process is so far ahead of the machine's, and no other clock of it."""
        self.clock.set_offset_ms(1000 * seconds)
        assert abs(self.ask("time")["time"] - time.time() - seconds) < 60, "the process sees it"

    def stop(self):
        freeze(self.process)

    def cont(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        """The end of its input; it exits as a program does that still holds leases."""
        self.process.stdin.close()
        assert self.process.wait(patience(20)) == 0

    def kill(self):
        end_process(self.process)
        self.thread.join()
        self.process.stdout.close()
        self.process.stdin.close()
        sys.stderr.write(self.log)
        self.said.close()


@pytest.fixture(params=sorted(DRIVERS))
def language(request):
    return request.param


@pytest.fixture
def drivers(language):
    """Starts drivers in the language of this test, or in another one; all are ended with the test."""
    started = []

    def start(in_language=language, **how):
        started.append(Driver(in_language, **how))
        return started[-1]
    yield start
    for driver in started:
        driver.kill()


@pytest.fixture
def driver(drivers):
    return drivers()
