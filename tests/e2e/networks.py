# SPDX-License-Identifier: MIT
"""Two network namespaces with a cable between them: a server and clients whose packets can be lost without a word, as when a host loses its power.

Everything else is shared: masters and redlockd's further listener are Unix sockets, so the test itself is in neither of them."""

import os
import subprocess

import pytest

from harness import DIES_WITH_US, end_process

SERVER, CLIENTS = "192.0.2.1", "192.0.2.2"
PREPARE = f'''set -e
ip link set lo up
ip link add cable type veth peer name cable netns "$1"
ip address add {SERVER}/24 dev cable
ip link set cable up
nsenter --target="$1" --net sh -c 'ip address add {CLIENTS}/24 dev cable && ip link set cable up && ip link set lo up'
'''


class Networks:
    def __init__(self):
        self.mapped = os.geteuid() != 0
        self.holders = []
        self.server = self._unshare()
        self.clients = self._unshare(self.server if self.mapped else ())
        self._run([*self.server, "sh", "-c", PREPARE, "sh", str(self.holders[1].pid)])

    def _unshare(self, within=()):
        """A namespace, which lasts until kill(); returns the command that enters it."""
        user = ["--user", "--map-root-user"] if self.mapped and not within else []
        command = ["unshare", *user, "--net", "sh", "-c", "echo ready; exec sleep infinity"]
        holder = subprocess.Popen([*DIES_WITH_US, *within, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.holders.append(holder)
        self._check(said := holder.stdout.readline(), said == "ready\n")
        user = ["--user", "--preserve-credentials"] if self.mapped else []
        return [*DIES_WITH_US, "nsenter", f"--target={holder.pid}", *user, "--net", "--"]

    def _check(self, said, well):
        if not well:
            self.kill()
            pytest.skip(f"no networks of our own here: {said.strip()}")

    def _run(self, command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self._check(done.stdout + done.stderr, done.returncode == 0)
        return done.stdout

    def cut(self, how="route"):
        """From now on nothing of the clients arrives. `how`: "route" (the server's packets do), or "link"."""
        if how == "route":
            self._run([*self.clients, "ip", "route", "add", "blackhole", SERVER])
        else:
            self._run([*self.clients, "ip", "link", "set", "cable", "down"])

    def heal(self):
        """After cut("route")."""
        self._run([*self.clients, "ip", "route", "del", "blackhole", SERVER])

    def probes(self):
        """How many keepalive probes of the server's connections are without an answer."""
        lines = self._run([*self.server, "cat", "/proc/net/tcp"]).splitlines()[1:]
        return sum(int(line.split()[8]) for line in lines)

    def kill(self):
        for holder in reversed(self.holders):
            end_process(holder)
            holder.stdout.close()
