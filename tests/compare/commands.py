#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""flock, consul lock, etcdctl lock and redlockctl run in the same situations: is the command that holds the lock ended
when the lock is lost, or do two commands run at once?

    tests/compare/commands.py [--redlockd build/release/redlockd] [TOOL...]

Runs those of the four that are installed (Debian: util-linux, etcd-client and etcd-server, consul), each with a private
server, and writes one line for each situation. A second command waits for the same lock, and reports when it runs and
whether the first one lives then. Takes about five minutes, most of it with consul, whose sessions last 15 to 30 s, and
whose locks 15 s more.
"""

import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import harness  # noqa: E402
from harness import children_of, clean_environment, process_state, wait_until  # noqa: E402

LONGEST = 70
# Ends on SIGTERM, as programs do.
HOLDER = "echo $$ >{pid}; while :; do sleep 0.05; done"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Tool:
    """One way to run a command under a lock."""

    has_server = True
    environment = {}

    def __init__(self, lab, paths):
        self.lab, self.paths, self.folder = lab, paths, pathlib.Path(lab.folder)

    @classmethod
    def is_there(cls, paths):
        return all(shutil.which(paths.get(program, program)) for program in cls.programs)

    def start(self, *command, **how):
        return self.lab.keep(Process(subprocess.Popen([*harness.DIES_WITH_US, *command], env=clean_environment(self.environment), start_new_session=True,
                                                      cwd=self.folder, stderr=subprocess.DEVNULL, **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, **how})))

    def program(self, name):
        return self.paths.get(name, name)

    def run(self, lock, *command, **how):
        return self.start(*self.command(lock), *command, **how)

    def clean_up(self):
        """Commands that outlived their tool: known by the file in which each wrote its pid."""
        for file in self.folder.glob("lock-*"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(file.read_text())
                if str(file).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


class Process:
    def __init__(self, process):
        self.process = process

    def kill(self):
        if self.process.poll() is None:
            for pid in [*children_of(self.process.pid), self.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


class Flock(Tool):
    name, programs, has_server = "flock", ("flock",), False

    def command(self, lock):
        return ["flock", f"{self.folder}/{lock}"]

    def lose(self, lock):
        os.unlink(self.folder / lock)

    def version(self):
        return subprocess.run(["flock", "--version"], capture_output=True, text=True, check=True).stdout.strip()


class Etcd(Tool):
    """Leases of 3 s."""

    name, programs = "etcdctl lock", ("etcd", "etcdctl")
    environment = {"ETCDCTL_API": "3"}

    def __init__(self, lab, paths):
        super().__init__(lab, paths)
        client, peer = free_port(), free_port()
        self.address = f"127.0.0.1:{client}"
        self.server = self.start(self.program("etcd"), "--data-dir", f"{self.folder}/etcd", "--listen-client-urls", f"http://{self.address}", "--advertise-client-urls",
                                 f"http://{self.address}", "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
                                 "--initial-cluster", f"default=http://127.0.0.1:{peer}")
        wait_until(lambda: self.ask("endpoint", "health").returncode == 0, 30, "etcd")

    def ask(self, *args):
        return subprocess.run([self.program("etcdctl"), "--endpoints", self.address, *args], env=clean_environment(self.environment), capture_output=True, text=True, check=False)

    def command(self, lock):
        return [self.program("etcdctl"), "--endpoints", self.address, "lock", "--ttl", "3", "--", lock]

    def lose(self, lock):
        key = self.ask("get", "--prefix", "--keys-only", "--sort-by=CREATE", lock).stdout.split()[0]
        self.ask("del", key)

    def version(self):
        return self.ask("version").stdout.split("\n")[0]


class Consul(Tool):
    """Puts the shell of the environment around the command; cron's is /bin/sh."""

    name, programs = "consul lock", ("consul",)

    def __init__(self, lab, paths):
        super().__init__(lab, paths)
        self.http = free_port()
        ports = [f"-{name}-port={free_port()}" for name in ("server", "serf-lan", "serf-wan")]
        self.server = self.start(self.program("consul"), "agent", "-dev", "-bind=127.0.0.1", f"-http-port={self.http}", "-dns-port=-1", "-grpc-port=-1", *ports)
        wait_until(lambda: '"' in self.curl("GET", "/v1/status/leader"), 30, "consul")
        wait_until(lambda: self.curl("PUT", "/v1/kv/ready", "1").strip() == "true", 30, "consul")

    def curl(self, method, path, body=""):
        return subprocess.run(["curl", "-s", "-X", method, "-d", body, f"http://127.0.0.1:{self.http}{path}"], capture_output=True, text=True, check=False).stdout

    def command(self, lock):
        return [self.program("consul"), "lock", f"-http-addr=127.0.0.1:{self.http}", lock]

    def run(self, lock, *command, **how):
        options = ["-pass-stdin"] if how.get("stdin") else []
        return self.start(*self.command(lock)[:-1], *options, lock, shlex.join(command), **how)

    def lose(self, lock):
        self.curl("DELETE", f"/v1/kv/{lock}/.lock")

    def version(self):
        return subprocess.run([self.program("consul"), "version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]


class ConsulWithoutShell(Consul):
    name = "consul lock -shell=false"

    def run(self, lock, *command, **how):
        options = ["-pass-stdin"] if how.get("stdin") else []
        return self.start(*self.command(lock)[:-1], "-shell=false", *options, lock, *command, **how)


class Redlockctl(Tool):
    """Leases of 3 s, three masters, one redlockd."""

    name, programs = "redlockctl run", ("redlockd", "redlockctl", "redis-server")

    def __init__(self, lab, paths):
        super().__init__(lab, paths)
        harness.BINARY = self.program("redlockd")
        self.server = lab.service(3)
        self.environment = {"REDLOCKCTL_SERVER": f"http://{self.server.address}"}

    def command(self, lock):
        return [self.program("redlockctl"), "run", lock, "--ttl", "3s", "--"]

    def lose(self, lock):
        for master in self.server.masters:
            master.cli("DEL", lock)

    def version(self):
        return subprocess.run([self.program("redlockctl"), "--version"], capture_output=True, text=True, check=True).stdout.strip()


class Situation:
    """A command that holds the lock, and another one that waits for it."""

    def __init__(self, tool, name, contends=True):
        self.tool, self.lock = tool, f"lock-{name}"
        self.holder = self.hold("first")
        self.pid = self.pid_in("first")
        if contends:
            self.hold("second")
            expiry = time.monotonic() + 1
            wait_until(lambda: time.monotonic() > expiry, what="the second one waits")

    def hold(self, file):
        return self.tool.run(self.lock, "sh", "-c", HOLDER.format(pid=self.path(file)))

    def path(self, file):
        return self.tool.folder / f"{self.lock}-{file}"

    def pid_in(self, file):
        return int(wait_until(lambda: self.path(file).exists() and self.path(file).read_text().strip(), 20, file))

    def lives(self):
        return process_state(self.pid) is not None

    def outcome(self, seconds=LONGEST):
        """Returns what comes first from now on: the end of the first command or the beginning of the second."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            if self.path("second").exists():
                return (f"TWO AT ONCE after {time.monotonic() - started:.1f} s" if self.lives() else f"ended, then the next after {time.monotonic() - started:.1f} s")
            time.sleep(0.005)
        return f"command lives, nobody else has the lock ({seconds} s)" if self.lives() else f"ended, nobody else has the lock ({seconds} s)"

    def end(self, seconds):
        started = time.monotonic()
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.lives(), seconds)
        return f"ended after {time.monotonic() - started:.1f} s" if not self.lives() else f"command lives on ({seconds} s)"


def entry_deleted(tool):
    situation = Situation(tool, "lost")
    tool.lose(situation.lock)
    return situation.outcome() if tool.has_server else situation_of_flock(situation)


def situation_of_flock(situation):
    """A waiter has the old file open; the next one makes a new file."""
    situation.path("second").unlink(missing_ok=True)
    situation.hold("second")
    return situation.outcome()


def server_killed(tool):
    if not tool.has_server:
        return "has none"
    situation = Situation(tool, "server", contends=False)
    tool.server.kill()
    return situation.end(20 if not isinstance(tool, Consul) else 40)


def tool_killed(tool):
    situation = Situation(tool, "killed")
    situation.holder.process.kill()
    return situation.outcome(5 if not tool.has_server else LONGEST)


def tool_stopped(tool):
    """All processes of the tool stop, the command's do not: a debugger, a lack of memory, a cgroup."""
    situation = Situation(tool, "stopped")
    for pid in [situation.holder.process.pid, *children_of(situation.holder.process.pid)]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() in ("flock", "etcdctl", "consul"):
                os.kill(pid, signal.SIGSTOP)
    if tool.name == "redlockctl run":  # the one that keeps the lock; the other is there for just this
        os.kill(children_of(situation.holder.process.pid)[0], signal.SIGSTOP)
    return situation.outcome(5 if not tool.has_server else LONGEST)


def terminated(tool):
    situation = Situation(tool, "term", contends=False)
    situation.holder.process.send_signal(signal.SIGTERM)
    return situation.end(8)


def daemon_left(tool):
    lock, pid = "lock-daemon", tool.folder / "daemon"
    left = "setsid sh -c 'setsid sh -c \"echo \\$\\$ >" + str(pid) + "; exec sleep 1000\" >/dev/null 2>&1 & exit 0'; until [ -s " + str(pid) + " ]; do sleep 0.02; done"
    tool.run(lock, "sh", "-c", left)
    daemon = int(wait_until(lambda: pid.exists() and pid.read_text().strip(), 20, "the daemon"))
    second = tool.folder / "daemon-second"
    tool.run(lock, "touch", str(second))
    try:
        with contextlib.suppress(AssertionError):
            wait_until(second.exists, 6)
        if not second.exists():
            return "it has the lock"
        return "TWO AT ONCE" if process_state(daemon) else "ended, then the next"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)


def status(tool):
    return str(tool.run("lock-status", "sh", "-c", "exit 7").process.wait(30))


def stdin(tool):
    done = tool.run("lock-stdin", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    output, _ = done.process.communicate(b"hello", timeout=30)
    return "yes" if b"hello" in output else "no"


SITUATIONS = [
    ("exit status of a command that ends with 7", status), ("the command gets stdin", stdin), ("SIGTERM to the tool", terminated),
    ("the lock's entry is deleted", entry_deleted), ("kill -9 of the tool", tool_killed), ("the tool is stopped, the command not", tool_stopped),
    ("the command leaves a daemon behind", daemon_left), ("the server is killed", server_killed),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tools", nargs="*", help="flock, etcd, consul, redlockctl")
    parser.add_argument("--redlockd", default=harness.BINARY)
    parser.add_argument("--redlockctl")
    parser.add_argument("--consul", default="consul")
    given = parser.parse_args()
    paths = {"redlockd": given.redlockd, "consul": given.consul,
             "redlockctl": given.redlockctl or os.path.join(os.path.dirname(given.redlockd), "redlockctl")}
    for kind in (Flock, Consul, ConsulWithoutShell, Etcd, Redlockctl):
        if given.tools and not any(name in kind.name for name in given.tools):
            continue
        if not kind.is_there(paths):
            print(f"{kind.name}: not installed")
            continue
        with harness.Lab() as lab:
            tool = kind(lab, paths)
            print(f"{kind.name} ({tool.version()})", flush=True)
            for what, situation in SITUATIONS:
                try:
                    print(f"    {what:44}{situation(tool)}", flush=True)
                finally:
                    tool.clean_up()


main()
