# SPDX-License-Identifier: MIT
"""Two hosts and their wire: does it do to packets what it is told?"""

import json
import os
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "e2e")]

import cluster as parts  # noqa: E402
import harness  # noqa: E402
import hosts as machines  # noqa: E402

PORT = 7000
# Sends back what it gets, and says on standard output how long that was.
ECHO = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    data, sender = server.recvfrom(65536)
    print(len(data), flush=True)
    server.sendto(data, sender)
"""
# Sends datagrams of the lengths that are given, and prints those of the answers: so many as are expected, and those that come within half a second then.
ASK = """
import json, socket, sys
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.connect((sys.argv[1], int(sys.argv[2])))
for length in json.loads(sys.argv[3]):
    asker.send(b"x" * length)
came = []
try:
    while True:
        asker.settimeout(float(sys.argv[5]) if len(came) < int(sys.argv[4]) else 0.5)
        came.append(len(asker.recv(65536)))
except OSError:
    print(json.dumps(came))
"""


class Pair:
    def __init__(self):
        self.hosts = machines.Hosts(["asker", "echo"], {"echo": 86400})
        self.echo = parts.start([*self.hosts.enter("echo"), sys.executable, "-c", ECHO, self.hosts.addresses["echo"], str(PORT)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.echo.stdout.readline() == "ready\n"

    def ask(self, *lengths, expected):
        """The lengths of the answers."""
        command = [*self.hosts.enter("asker"), sys.executable, "-c", ASK, self.hosts.addresses["echo"], str(PORT), json.dumps(lengths), str(expected),
                   str(harness.patience(10))]
        return json.loads(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout)

    def set(self, sender, receiver, **rule):
        self.hosts.command(links=[[sender, receiver]], set=rule)

    def kill(self):
        harness.end_process(self.echo)
        self.echo.stdout.close()
        self.hosts.kill()


@pytest.fixture(scope="module")
def pair():
    try:
        made = Pair()
    except machines.Unavailable as why:
        pytest.skip(str(why))
    yield made
    made.kill()


@pytest.fixture(autouse=True)
def _good_wires(pair):
    pair.hosts.command(reset=True)


def test_a_good_wire(pair):
    assert pair.ask(10, 20, 30, expected=3) == [10, 20, 30]


def test_a_wire_that_carries_one_way_only(pair):
    pair.set("echo", "asker", lose=1)
    assert pair.ask(41, expected=0) == []
    assert "41\n" in (pair.echo.stdout.readline() for _ in range(100)), "it has arrived"
    pair.hosts.command(reset=True)
    assert pair.ask(42, expected=1) == [42]


def test_packets_that_are_doubled(pair):
    pair.set("asker", "echo", double=1)
    assert pair.ask(10, 20, expected=4) == [10, 10, 20, 20]


def test_large_packets_that_vanish(pair):
    pair.set("asker", "echo", largest=500)
    assert pair.ask(472, 473, expected=1) == [472], "28 bytes are of the headers"


def test_packets_that_overtake_each_other(pair):
    pair.set("asker", "echo", delay_ms=[0, 100])
    lengths = list(range(1, 51))
    came = pair.ask(*lengths, expected=50)
    assert came != lengths and sorted(came) == lengths


def test_a_host_without_a_device(pair):
    pair.hosts.set_device("echo", "down")
    assert pair.ask(10, expected=0) == []
    pair.hosts.set_device("echo", "up")
    assert pair.ask(11, expected=1) == [11]


def test_the_clocks_of_a_host(pair):
    if not pair.hosts.clocked["echo"]:
        pytest.skip("this kernel has no time namespaces")
    command = [*pair.hosts.enter("echo"), sys.executable, "-c", "import time; print(time.monotonic())"]
    ahead = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) - time.monotonic()
    assert abs(ahead - 86400) < 600
