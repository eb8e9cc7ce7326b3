# SPDX-License-Identifier: MIT
"""Hosts: a network namespace each, with wires between them (wires.py), and the masters and redlockd that run on them.

The test itself is on none of them: it reaches masters and redlockd over Unix sockets, so it sees them also when no wire carries anything. Needs root.
"""

import json
import os
import shutil
import subprocess
import sys

import cluster as parts
import harness

MASTER_PORT, SERVER_PORT = 6379, 8080


class Unavailable(Exception):
    """There can be no hosts here; the text says why."""


class Hosts:
    """`ahead_s`: for a host, how far its monotonic clocks are ahead of the machine's, where the kernel has time namespaces."""

    def __init__(self, names, ahead_s):
        if os.geteuid() != 0:
            raise Unavailable("hosts of our own need root")
        self.addresses = {name: f"192.0.2.{10 + index}" for index, name in enumerate(names)}
        self.holders, self.inside, self.clocked, self.wires = {}, {}, {}, None
        try:
            for name in names:
                self._create(name, ahead_s.get(name, 0))
            listed = [{"name": name, "address": self.addresses[name], "pid": self.inside[name]} for name in names]
            self.wires = parts.start_python("wires.py", json.dumps(listed), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.wires.stdout.readline() != "ready\n":
                raise Unavailable("no TUN device can be made (/dev/net/tun)")
        except BaseException:
            self.kill()
            raise

    def _create(self, name, ahead_s):
        """The process that holds the namespaces of a host; without a clock of its own where the kernel has none."""
        clocks = ["--time", "--monotonic", str(ahead_s), "--boottime", str(ahead_s), "--kill-child"] if ahead_s else []
        command = ["unshare", "--net", *clocks, "--", "sh", "-c", "echo $$; exec sleep infinity"]
        holder = parts.start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.holders[name] = holder
        said = holder.stdout.readline()
        if not said.strip().isdecimal():
            if not ahead_s:
                raise Unavailable(f"no network namespace: {said.strip()}")
            harness.end_process(holder)
            self._create(name, 0)
            return
        self.clocked[name] = ahead_s
        self.inside[name] = int(said)  # unshare forks for a time namespace

    def enter(self, name):
        """The words before a command that is to run on this host."""
        clocks = ["--time"] if self.clocked[name] else []
        return [*harness.DIES_WITH_US, "nsenter", f"--target={self.inside[name]}", "--net", *clocks, "--"]

    def links(self, senders, receivers):
        return [[one, other] for one in senders for other in receivers if one != other]

    def command(self, **words):
        self.wires.stdin.write(json.dumps(words) + "\n")
        self.wires.stdin.flush()
        assert self.wires.stdout.readline() == "done\n", "the wires ended"

    def set_device(self, name, state):
        """"down": what this host sends fails at once, as without a route."""
        subprocess.run([*self.enter(name), "ip", "link", "set", "wire", state], check=True, stdin=subprocess.DEVNULL)

    def end(self):
        """Returns what the wires counted."""
        counts, _ = self.wires.communicate(timeout=60 * harness.SLOW)
        return json.loads(counts)

    def kill(self):
        for process in (self.wires, *self.holders.values()):
            if process:
                harness.end_process(process)


class Server:
    """A process on a host. Each life has a log of its own."""

    def __init__(self, hosts, name, folder):
        self.hosts, self.name, self.folder = hosts, name, folder
        self.address, self.logs, self.process = hosts.addresses[name], [], None

    def run(self, command):
        self.logs.append(os.path.join(self.folder, f"{self.name}.{len(self.logs)}.log"))
        with open(self.logs[-1], "wb") as log:
            self.process = subprocess.Popen([*self.hosts.enter(self.name), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=harness.clean_environment())

    def kill(self):
        if self.process:
            harness.end_process(self.process)


class Master(Server):
    def __init__(self, hosts, name, folder):
        super().__init__(hosts, name, folder)
        self.files = os.path.join(folder, name)
        os.mkdir(self.files)
        self.path = os.path.join(self.files, "s")

    def start(self, empty=False):
        if empty:
            shutil.rmtree(os.path.join(self.files, "appendonlydir"), ignore_errors=True)
        self.run(["redis-server", "--port", str(MASTER_PORT), "--bind", self.address, "--unixsocket", self.path, "--dir", self.files, "--save", "",
                  "--protected-mode", "no", *parts.AOF_OPTIONS])
        harness.wait_until(self.answers, what=self.name)

    def answers(self):
        try:
            connection = harness.Resp(self.path, 5)
        except OSError:
            return False
        try:
            connection.send("PING")
            return connection.receive() == "PONG"
        except (OSError, harness.RedisError):
            return False
        finally:
            connection.close()


class Daemon(Server, parts.Asked):
    """A redlockd. The test itself uses its Unix socket."""

    def __init__(self, hosts, name, folder, masters, options):
        super().__init__(hosts, name, folder)
        self.unix = os.path.join(folder, f"{name}.s")
        addresses = ",".join(f"redis://{master.address}:{MASTER_PORT}" for master in masters)
        self.command = [harness.BINARY, "--insecure", "--listen", f"{self.address}:{SERVER_PORT}", "--listen", f"unix:{self.unix}",
                        "--masters", addresses, *options]
        self.public, self.address = f"{self.address}:{SERVER_PORT}", f"unix:{self.unix}"

    def start(self, *options):
        self.run([*self.command, *options])

    def end(self):
        """Ends it as an operator would; returns what was wrong about that, or None."""
        if self.process.poll() is not None:
            return f"{self.name} had ended with {self.process.returncode} by itself"
        self.process.terminate()
        try:
            status = self.process.wait(harness.patience(20))
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} does not end on SIGTERM"
        return f"{self.name} ended with {status}" if status else None


def start_client(hosts, name, settings):
    """A client process (client.py) on a host."""
    command = [*hosts.enter(name), sys.executable, str(parts.HERE / "client.py"), json.dumps(settings)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)
