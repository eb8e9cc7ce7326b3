# SPDX-License-Identifier: MIT
"""How many instructions redlockd itself needs for an acquisition that is granted or refused, and for GET /healthz, by callgrind: the same on a busy machine and on an idle one.

A ratchet: a change that needs 3 % more fails here. Where that is worth it, write the new number into instructions.json, and why.

Counted: everything in the process of redlockd, over three masters, 16 connections at once, all defaults (fence, guard, metrics). Not counted: memset() in the C library,
since libmicrohttpd clears its whole memory after each request, which is one instruction of the processor a byte as valgrind counts, and next to nothing as processors work.
The numbers are those of Debian 12 on amd64 with its gcc, and of a release: other libraries have others.
"""

import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import harness  # noqa: E402
from key_fixtures import Key  # noqa: E402
from token_fixtures import Issuer, Signer, rule  # noqa: E402

WANTED = json.loads((HERE / "instructions.json").read_text())
CONNECTIONS, REQUESTS, ROUNDS, MORE = 16, 1600, 3, 1.03
# The same everywhere, and for redlockd and callgrind_control alike: valgrind names the pipe between them after LOGNAME or USER, in TMPDIR.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
OS = pathlib.Path("/etc/os-release").read_text()
pytestmark = pytest.mark.skipif('VERSION_ID="12"' not in OS or platform.machine() != "x86_64", reason="the numbers are those of Debian 12 on amd64")


class Callgrind:
    """redlockd under callgrind; nothing is counted outside count()."""

    def __init__(self, folder, *options):
        self.folder, self.dumps = folder, 0
        command = [*harness.DIES_WITH_US, "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out", harness.BINARY, "--dev",
                   "--listen=127.0.0.1:0", "--master-timeout-ms=10000", *options]
        self.address = None
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=ENVIRONMENT)

    def is_ready(self):
        said = (self.folder / "log").read_text()
        assert self.process.poll() is None, said
        found = re.search(r"event=listening address=127\.0\.0\.1:(\d+)", said)
        if found is None:
            return False
        self.address = ("127.0.0.1", int(found[1]))
        with socket.create_connection(self.address, timeout=60) as one:
            one.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return one.recv(4096).startswith(b"HTTP/1.1 200")

    def control(self, *arguments):
        done = subprocess.run(["callgrind_control", *arguments, str(self.process.pid)], capture_output=True, text=True, check=True, timeout=60, env=ENVIRONMENT)
        assert "Found no callgrind run" not in done.stdout, done.stdout  # its status is 0 all the same

    def count(self, requests, status):
        """Instructions for each of these requests, CONNECTIONS of them at once."""
        self.control("--zero")
        self.control("--instr=on")
        ask_all(self.address, requests, status)
        self.control("--dump")
        self.control("--instr=off")
        self.dumps += 1
        return instructions(self.folder / f"out.{self.dumps}") / len(requests)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.log.close()


def ask_all(address, requests, status):
    connections = [socket.create_connection(address, timeout=60) for _ in range(CONNECTIONS)]
    for at in range(0, len(requests), CONNECTIONS):
        for connection, request in zip(connections, requests[at:at + CONNECTIONS]):
            connection.sendall(request)
        for connection in connections:
            answer = connection.recv(8192)
            assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    for connection in connections:
        connection.close()


def instructions(dump):
    """All but memset()."""
    listing = subprocess.run(["callgrind_annotate", "--threshold=100", str(dump)], capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout
    rows = re.findall(r"^ *([\d,]+) \([^)]*\)  (.*)$", listing, re.M)
    numbers = [(int(number.replace(",", "")), name) for number, name in rows]
    total = next(number for number, name in numbers if name.startswith("PROGRAM TOTALS"))
    return total - sum(number for number, name in numbers if re.search(r":__memset_\w+", name))


def acquisitions(tag, headers=b""):
    for number in range(REQUESTS):
        body = b'{"resource":"instructions/%s/%d","ttl_ms":60000}' % (tag.encode(), number)
        yield b"POST /locks HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s" % (headers, len(body), body)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The median of three rounds each."""
    assert shutil.which("valgrind"), "valgrind is missing"
    daemon = Callgrind(tmp_path_factory.mktemp("callgrind"))
    try:
        harness.wait_until(daemon.is_ready, 60)
        ask_all(daemon.address, list(acquisitions("before"))[:CONNECTIONS * 4], 201)
        acquire = [daemon.count(list(acquisitions(str(number))), 201) for number in range(ROUNDS)]
        refuse = [daemon.count(list(acquisitions("before"))[:CONNECTIONS] * (REQUESTS // CONNECTIONS), 409) for _ in range(ROUNDS)]
        healthz = [daemon.count([b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"] * REQUESTS, 200) for _ in range(ROUNDS)]
    finally:
        daemon.stop()
    found = {"acquire": acquire, "refuse": refuse, "healthz": healthz}
    print(json.dumps(found))
    return {what: statistics.median(rounds) for what, rounds in found.items()}


def test_a_token_costs_as_much_as_a_key(tmp_path):
    """A token that was verified before: at most 2 % more than a key in headers of the same length. The library reads
    each byte of a header, whatever is in it."""
    with harness.Lab() as lab:
        issuer, key = Issuer(lab, "https://issuer.example", Signer("one")), Key("key", [""], ["acquire"])
        token = issuer.token(sub="job").encode()
        keys = tmp_path / "keys.json"
        keys.write_text(json.dumps({"keys": [key.entry], "issuers": [issuer.entry([rule({"sub": "*"}, "{sub}", [""], ["acquire"])])]}))
        daemon = Callgrind(tmp_path, f"--keys={keys}")
        padding = b"x" * (len(token) - len(key.secret) - len("X-Padding: \r\n"))
        headers = {"token": b"Authorization: Bearer %s\r\n" % token, "short": b"Authorization: Bearer %s\r\n" % key.secret.encode(),
                   "key": b"X-Padding: %s\r\nAuthorization: Bearer %s\r\n" % (padding, key.secret.encode())}
        try:
            harness.wait_until(daemon.is_ready, 60)
            for what, header in headers.items():
                ask_all(daemon.address, list(acquisitions(f"before {what}", header))[:CONNECTIONS * 4], 201)
            found = {what: statistics.median(daemon.count(list(acquisitions(f"{what} {number}", header)), 201) for number in range(ROUNDS))
                     for what, header in headers.items()}
        finally:
            daemon.stop()
    print(json.dumps(found))
    assert found["token"] <= 1.02 * found["key"]


@pytest.mark.parametrize("what", ["acquire", "refuse", "healthz"])
def test_no_more_instructions_than_before(counted, what):
    now, before = round(counted[what]), WANTED[what]
    folder = pathlib.Path(os.environ.get("REDLOCKD_RESULTS", harness.ROOT / "build" / "results"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"instructions_{what}.txt").write_text(f"{what}: {now} instructions, {before} in instructions.json\n")
    assert now <= before * MORE, (f"{what} takes {now} instructions of redlockd, {100 * (now / before - 1):.1f} % more than the {before} of tests/bench/instructions.json. "
                                  f"If that is worth it, write {now} there, and why.")
    if now < before / MORE:
        print(f"{what} takes {now} instructions instead of {before}: write that into tests/bench/instructions.json, so that it stays")
