"""The world of the sweep: a redlockd with the allocator that fails on demand, another one beside it, and three masters.

A `Kind` is one sort of request: what must be there before it, the request itself, and what has to be tidied up after it. sweep() makes it again and
again, with the first allocation failing, with the second, … until one run does not reach the k-th. Everything that is there before and all tidying up
goes through the second redlockd, so that an allocation can only fail in what is looked at.

After each run: the answer is the usual one, or a 503, or the connection was closed; the process lives, all masters vote, the next request is
served, nothing is left on the masters, and no descriptor is left open.
"""

import contextlib
import ctypes
import http.client
import json
import mmap
import os
import pathlib
import re
import subprocess
import time

import harness
from harness import SLOW, wait_until

SHIM = os.path.join(os.path.dirname(os.path.abspath(harness.BINARY)), "libfailing_alloc.so")
NEVER = 1 << 60
SLACK = 8  # blocks that may be kept for reuse after a sweep
PATIENCE_S = 5

MUTATION_NONE, MUTATION_CRASH, MUTATION_LEAK, MUTATION_DESCRIPTOR, MUTATION_HANG = range(5)


# What redlockd keeps for itself, or leaves for some seconds (a handshake that broke off).
OWN_KEYS = ("redlockd:master", "redlockd:alive:", "redlockd:check:")


class Fields(ctypes.Structure):
    """struct control of failing_alloc.c"""
    _fields_ = [(name, ctypes.c_int64) for name in ("fail_at", "counted", "failed", "living", "mutation", "frame_count", "excused")]
    _fields_ += [("frames", ctypes.c_uint64 * 24)]


class Control:
    """The file through which the allocator is told what to do."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as file:
            file.write(bytes(4096))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 4096)
        self.fields = Fields.from_buffer(self.map)

    def arm(self, fail_at):
        self.fields.fail_at = 0
        self.fields.counted = self.fields.failed = 0
        self.fields.fail_at = fail_at

    def disarm(self):
        """True if the allocation that was to fail was reached."""
        self.fields.fail_at = 0
        return self.fields.failed != 0

    @property
    def failed(self):
        return self.fields.failed != 0

    @property
    def counted(self):
        return self.fields.counted

    @property
    def living(self):
        return self.fields.living


def where(control, maps):
    """From where the allocation that failed was asked for: function names, the innermost first."""
    lines, frames = [], [control.fields.frames[i] for i in range(control.fields.frame_count)]
    for frame in frames:
        for start, end, offset, path in maps:
            if start <= frame < end:
                if SHIM in path:
                    break
                at = frame - 1 - start + offset
                if path == os.path.abspath(harness.BINARY):
                    found = subprocess.run(["addr2line", "-f", "-s", "-e", path, hex(at)], capture_output=True, text=True, check=False).stdout.split()
                    lines.append(" ".join(found))
                else:
                    lines.append(f"{os.path.basename(path)}+{at:#x}")
                break
    return " < ".join(lines[:12])


def read_maps(pid):
    maps = []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith("/"):
            start, end = (int(number, 16) for number in parts[0].split("-"))
            maps.append((start, end, int(parts[2], 16), parts[5]))
    return maps


# ------------------------------------------------------------------------------------------------------------------ answers


class Closed:
    """The other side closed the connection without an answer."""

    def __repr__(self):
        return "closed"


CLOSED = Closed()


HUNG = "hung"


class Broken(Closed):
    """The other side closed the connection in the middle of an answer whose length it had given."""

    def __repr__(self):
        return "broken off"


class Answer:
    """An answer, with its headers as a list: one that stands there twice is seen."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def header(self, name):
        return next((value for key, value in self.headers if key == name), None)

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:1000]!r}>"


def read_answer(plain, method="GET"):
    """The next answer of a connection, or how it was closed."""
    answer = http.client.HTTPResponse(plain, method=method)
    try:
        answer.begin()
        body = answer.read()
    except (http.client.RemoteDisconnected, ConnectionError):
        return CLOSED
    except (http.client.IncompleteRead, http.client.BadStatusLine):
        return Broken()
    finally:
        answer.close()
    return Answer(answer.status, [(name.lower(), value) for name, value in answer.getheaders()], body)


def send(plain, data):
    """Where the other side has closed already, that shows when its answer is read."""
    with contextlib.suppress(ConnectionError):
        plain.sendall(data)


def request_bytes(method, path, body=None, headers=()):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if body is not None:
        lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join([*lines, "", ""]).encode() + content


# What differs from answer to answer: only its type counts, and of some not even that.
NULLABLE = {"rtt_us", "quarantine_remaining_ms", "reason"}
VARYING = {"token", "fence", "validity_ms", "waited_ms", "retry_after_ms", "remaining_ms", "resource", "granted", "refused", "failed", "quarantined", "cursor",
           "voting", "state", "detail", "waiters", "version", "run_id", "uptime_ms", "in_flight", "connections"}


def shape(value, name=None):
    if name == "series":  # they grow, all together
        return sorted(value), len({len(numbers) for numbers in value.values()})
    if name in ("hottest", "waiting"):  # some or none, each of them whole
        return all(len(one) == 3 for one in value)
    if name in ("rtt_us", "voting") and isinstance(value, list):
        return "numbers"
    if isinstance(value, dict):
        return {key: shape(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    if name in NULLABLE:
        return "nullable"
    return type(value).__name__ if name in VARYING else value


def body_shape(answer):
    kind = answer.header("content-type") or ""
    if "json" in kind:
        return [shape(json.loads(line)) for line in answer.body.splitlines()]
    if kind.startswith("text/plain"):  # metrics: the names
        return sorted({re.split(rb"[ {]", line)[0] if line[:1] != b"#" else line for line in answer.body.splitlines()})
    if kind.startswith("text/html"):
        return re.sub(rb'nonce="[0-9a-f]+"', b"nonce", answer.body)
    return answer.body


def differences(answer, usual, also=()):
    """What is wrong with an answer, beside the one that a request gets when nothing fails. Empty: nothing."""
    if answer is HUNG:
        return "no answer: timed out"
    if isinstance(answer, Broken):
        return "broken off in the middle"
    if isinstance(answer, Closed) or answer.status in also:
        return ""
    try:
        got = body_shape(answer)
    except ValueError:
        return f"its body is not JSON: {answer}"
    if isinstance(usual, Answer) and answer.status == usual.status:
        names = sorted(name for name, _ in answer.headers)
        expected = sorted(name for name, _ in usual.headers)
        if names != expected:
            return f"headers {names} and not {expected}"
        return "" if got == body_shape(usual) else f"{got} and not {body_shape(usual)}"
    if answer.status != 503:
        return f"{answer} and not {usual}"
    return differences_503(answer)


def differences_503(answer):
    needed = {"type", "title", "status", "detail", "code"} | ({"votes"} if answer.json.get("code") in ("no-quorum", "split-vote") else set())
    missing = {name for name in ("x-request-id", "cache-control", "retry-after", "content-type") if answer.header(name) is None}
    return f"a 503 without {needed - set(answer.json) or missing}: {answer}" if not needed <= set(answer.json) or missing else ""


# -------------------------------------------------------------------------------------------------------------------- world


class World:
    """`masters`: how many; none: redlockd is given three that are not there. `alone`: without a second redlockd. `tcp`: the masters by name and port.
    `keys`: as in a file of --keys; `key`: what the requests carry. `timeout_ms`: how long a master may take; a busy machine is not a failed allocation."""

    def __init__(self, masters=3, alone=False, tcp=False, keys=None, key=None, timeout_ms=3000):
        self.lab = harness.Lab()
        self.master_count, self.alone, self.tcp, self.keys = masters, alone, tcp, keys
        self.headers = (f"Authorization: Bearer {key}",) if key else ()
        self.patience = ("--master-timeout-ms", str(timeout_ms))
        self.options, self.number = [], 0

    def __enter__(self):
        self.lab.__enter__()
        try:
            self._begin()
        except BaseException:
            self.lab.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        self.control.disarm()
        self.lab.__exit__(kind, error, trace)

    def _begin(self):
        self.control = Control(os.path.join(self.lab.folder, "control"))
        self.socket = os.path.join(self.lab.folder, "s")
        if self.keys:
            path = os.path.join(self.lab.folder, "keys")
            pathlib.Path(path).write_text(json.dumps({"keys": self.keys}))
            os.chmod(path, 0o600)
            self.options = ["--keys", path]
        self.masters = self.lab.redises(self.master_count, tcp=self.tcp)
        self.addresses = [f"redis://localhost:{one.port}" if self.tcp else one.url for one in self.masters]
        self.other = None if self.alone else self.lab.redlockd(self.masters, *self.patience, listen=(f"unix:{self.lab.folder}/o",))
        self.start()

    def start(self):
        sanitizer = "verify_asan_link_order=0:" + os.environ.get("ASAN_OPTIONS", "")
        env = {"LD_PRELOAD": SHIM, "ALLOC_CONTROL": self.control.path, "ASAN_OPTIONS": sanitizer}
        masters = self.addresses or [f"unix:{self.lab.folder}/none{i}" for i in range(3)]
        options = [*self.options, *self.patience, "--bootstrap"] if self.masters else self.options
        self.swept = self.lab.redlockd(masters, *options, listen=(f"unix:{self.socket}",), env=env, wait=False)
        self.pid = self.swept.process.pid
        self.maps = read_maps(self.pid)
        if self.masters:
            wait_until(self.all_vote, 20, "all masters vote")

    def end(self):
        """Ends redlockd as an operator would; fails where it does not end well."""
        self.lab.started.remove(self.swept)
        self.swept.stop()

    def restart(self):
        """After the process has died."""
        self.swept.kill()
        self.lab.started.remove(self.swept)
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.start()

    def resource(self):
        """A name that was not there before; all are equally long."""
        self.number += 1
        return f"alloc/{self.number:06d}"

    # ---- asking ----

    def connect(self):
        return harness.connect_to(f"unix:{self.socket}", PATIENCE_S)

    def call(self, method, path, body=None, headers=()):
        """One request on a connection of its own."""
        return self.raw(request_bytes(method, path, body, [*self.headers, *headers]), method)

    def raw(self, data, method="GET"):
        with self.connect() as plain:
            send(plain, data)
            return read_answer(plain, method)

    def others_call(self, method, path, body=None):
        with harness.connect_to(self.other.address, PATIENCE_S) as plain:
            plain.sendall(request_bytes(method, path, body))
            return read_answer(plain, method)

    def hold(self, resource=None, ttl_ms=30000):
        """A lock that the second redlockd takes; returns the lease."""
        answer = self.others_call("POST", "/locks", {"resource": resource or self.resource(), "ttl_ms": ttl_ms, "owner": "other"})
        assert answer.status == 201, answer
        return answer.json

    def release(self, lease):
        def released():  # a busy machine may make it a 503
            return self.others_call("DELETE", "/locks/" + lease["resource"], {"token": lease["token"]}).status in (204, 410)
        wait_until(released, 5, "the release")

    # ---- looking ----

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def settled_descriptors(self):
        """How many there are when connections that have ended are closed on the other side too."""
        least, since = self.descriptors(), time.monotonic()
        while time.monotonic() < since + 0.05:
            if self.descriptors() < least:
                least, since = self.descriptors(), time.monotonic()
            time.sleep(0.002)
        return least

    def left_keys(self):
        """What lies on the masters besides their epochs and who is alive."""
        return {key for master in self.masters for key in master.cli("KEYS", "*") if not key.startswith(OWN_KEYS)}

    def wipe(self):
        """What one run has left behind is not held against the next."""
        for master in self.masters:
            for key in master.cli("KEYS", "*"):
                if not key.startswith(OWN_KEYS):
                    master.cli("DEL", key)

    def all_vote(self):
        answer = self.call("GET", "/masters")
        return isinstance(answer, Answer) and answer.json["quorum"]["voting"] == self.master_count

    def alive(self):
        return harness.process_state(self.pid) is not None

    def died(self):
        self.swept.process.wait(PATIENCE_S)
        lines = self.swept.stderr().splitlines()
        told = [line for line in lines if "ssertion" in line or "ERROR" in line or "runtime error" in line or "    #" in line]
        return f"the process ended with {self.swept.process.returncode}: {told[:14] or lines[-2:]}"

    def serves(self):
        """The next request, as usual."""
        if not self.masters:
            answer = self.call("GET", "/healthz")
            return "" if isinstance(answer, Answer) and answer.status == 200 else f"the next request got {answer}"
        resource = self.resource()
        answer = self.call("POST", "/locks", {"resource": resource})
        if not isinstance(answer, Answer) or answer.status != 201:
            return f"the next request got {answer}"
        answer = self.call("DELETE", "/locks/" + resource, {"token": answer.json["token"]})
        return "" if isinstance(answer, Answer) and answer.status == 204 else f"the next release got {answer}"

    def look(self, descriptors):
        """What is wrong with the process after a run; empty: nothing."""
        try:
            if not self.alive():
                return self.died()
            if self.masters:
                wait_until(self.all_vote, PATIENCE_S, "all masters vote")
            wrong = self.serves()
            if wrong:
                return wrong
            wait_until(lambda: not self.left_keys(), 3, "locks are gone")
            wait_until(lambda: self.descriptors() <= descriptors, PATIENCE_S, "descriptors are closed")
        except (AssertionError, OSError) as failure:
            if not self.alive():
                return self.died()
            return f"{failure}; keys {self.left_keys()}, descriptors {self.descriptors()} of {descriptors}"
        return ""


class Kind:
    """One sort of request. request() returns what the client gets: a list of answers. `least`: how many allocations there are; `also`: the status of
    other right answers; `keeps`: how many blocks each request may keep for a while."""

    def __init__(self, name, request, prepare=None, tidy=None, least=10, also=(), keeps=0):
        self.name, self.request, self.least, self.also, self.keeps = name, request, least, also, keeps
        self.prepare = prepare or (lambda world: None)
        self.tidy = tidy or (lambda world, what, got: None)

    def __repr__(self):
        return self.name


def run_once(world, kind, fail_at, descriptors):
    """One run. Returns (the answers, whether the allocation was reached)."""
    what = kind.prepare(world)
    world.control.arm(fail_at)
    try:
        try:
            got = kind.request(world, what)
        except TimeoutError:
            got = [HUNG]
            world.swept.kill()
        except BaseException:
            world.wipe()  # the next test is to find its world as it should be
            raise
        # What follows from it belongs to it: until the connections are closed on the other side too.
        deadline = time.monotonic() + 1
        while world.alive() and world.descriptors() > descriptors and time.monotonic() < deadline:
            time.sleep(0.0005)
    finally:
        reached = world.control.disarm()
    if world.alive():
        kind.tidy(world, what, got)
    return got, reached


def warm_up(world, kind):
    """What is kept for reuse is there afterwards. Returns (the usual answers, descriptors, living blocks)."""
    for _ in range(3):
        usual, _ = run_once(world, kind, NEVER, 1 << 30)
        wait_until(lambda: not world.left_keys(), 3, "locks are gone")
    if world.masters:
        wait_until(world.all_vote, PATIENCE_S, "all masters vote")
    assert not any(isinstance(one, Closed) for one in usual), f"{kind}: {usual}, and nothing has failed"
    return usual, world.settled_descriptors(), world.control.living


def judge(world, kind, k, got, usual, descriptors):
    """What is wrong after a run, as a text; empty: nothing."""
    wrong = [differences(one, beside, kind.also) for one, beside in zip(got, usual)] if len(got) == len(usual) else [f"{got} and not {usual}"]
    wrong = [text for text in [*wrong, world.look(descriptors)] if text]
    if not wrong:
        return ""
    world.wipe()
    told = "\n    ".join(world.swept.stderr().splitlines()[-8:])
    return f"{kind}: allocation {k}: {'; '.join(wrong)}\n    {where(world.control, world.maps)}\n    {told}"


class Result:
    def __init__(self, kind):
        self.kind, self.count, self.closed, self.grown, self.problems = kind, 0, 0, 0, []

    def check(self):
        print(f"{self.kind}: {self.count} allocations failed, {self.closed} connections closed, {self.grown} blocks more")
        assert not self.problems, f"{len(self.problems)} of {self.count}:\n" + "\n".join(self.problems[:12])
        assert self.count >= self.kind.least, f"only {self.count} allocations were reached"
        assert self.grown <= SLACK + self.kind.keeps * self.count, f"{self.grown} blocks more after {self.count} failures"


def sweep(world, kind, most=1000):
    """Makes every allocation of this kind of request fail, one after the other. What is kept for reuse grows once, a leak does it again."""
    result = sweep_once(world, kind, most)
    return sweep_once(world, kind, most) if result.grown > SLACK + kind.keeps * result.count and not result.problems else result


def sweep_once(world, kind, most):
    result = Result(kind)
    usual, descriptors, living = warm_up(world, kind)
    for k in range(1, most + 1):
        got, reached = run_once(world, kind, k, descriptors)
        result.count += reached
        result.closed += any(isinstance(one, Closed) for one in got)
        problem = judge(world, kind, k, got, usual, descriptors)
        if problem:
            result.problems.append(problem)
        if not world.alive():
            world.restart()
            usual, descriptors, living = warm_up(world, kind)
        if not reached:
            break
    result.grown = world.control.living - living
    return result


def sweep_cold(world, kind, most=1000):
    """The same, each time with a redlockd that has just started, and that is ended afterwards."""
    result = Result(kind)
    usual, _, _ = warm_up(world, kind)
    for k in range(1, most + 1):
        world.end()
        world.start()
        descriptors = world.settled_descriptors() + len(world.masters)  # the second connection to each may come with a waiter
        got, reached = run_once(world, kind, k, descriptors)
        result.count += reached
        result.closed += any(isinstance(one, Closed) for one in got)
        problem = judge(world, kind, k, got, usual, descriptors)
        if problem:
            result.problems.append(problem)
        if not world.alive():
            world.restart()
        if not reached:
            break
    return result
