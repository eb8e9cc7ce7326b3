# SPDX-License-Identifier: MIT
"""redlockctl for the end-to-end tests: run to its end, in the background, on a terminal.

Environment:
    REDLOCKCTL  the binary (default: beside redlockd)
"""

import contextlib
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import time

import harness
from harness import DIES_WITH_US, SANITIZER, SLOW, children_of, clean_environment, patience, quote, wait_until

BINARY = os.environ.get("REDLOCKCTL", os.path.join(os.path.dirname(harness.BINARY), "redlockctl"))
TTL_MS = round(3000 * SLOW)
HELD, UNREACHABLE, LOST, USAGE = 75, 69, 79, 64


def url(daemon):
    return daemon.address if daemon.address.startswith(("unix:", "http://", "https://")) else f"http://{daemon.address}"


def ctl(*args, server=None, env=None, stdin="", seconds=20):
    """Runs redlockctl to its end."""
    environment = clean_environment({**({"REDLOCKCTL_SERVER": server if isinstance(server, str) else url(server)} if server else {}), **(env or {})})
    done = subprocess.run([*DIES_WITH_US, BINARY, *args], env=environment, input=stdin, capture_output=True, text=True, timeout=seconds * SLOW, check=False)
    assert not SANITIZER.search(done.stderr), done.stderr
    return done


class Run:
    """`redlockctl run` in the background, with --json. Its messages lie in a file; the command writes files into `folder`.
    `prefix` is a command that becomes redlockctl, as another user for example."""

    def __init__(self, lab, resource, *options, command, servers, ttl_ms=TTL_MS, prefix=(), binary=BINARY):
        self.folder = pathlib.Path(lab.folder, f"run{len(lab.started)}")
        self.folder.mkdir()
        self.errors = self.folder / "stderr"
        addresses = ",".join(server if isinstance(server, str) else url(server) for server in servers)
        args = ["run", resource, "--json", *(["--ttl", f"{ttl_ms}ms"] if ttl_ms else []), *options, "--", *(["sh", "-c", command] if isinstance(command, str) else command)]
        self.started = time.monotonic()
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen([*DIES_WITH_US, "env", "--default-signal", *prefix, binary, *args], env=clean_environment({"REDLOCKCTL_SERVER": addresses}), cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        lab.keep(self)

    def kill(self):
        harness.end_process(self.process)
        self.process.stdout.close()
        assert not SANITIZER.search(self.errors.read_text()), self.errors.read_text()

    def events(self, event=None):
        """The messages of redlockctl so far, without those of the command."""
        lines = [json.loads(line) for line in self.errors.read_text().split("\n")[:-1] if line.startswith("{")]
        return [line for line in lines if event is None or line["event"] == event]

    def event(self, event, count=1):
        return wait_until(lambda: (self.events(event) + [None] * count)[count - 1], what=f"event {event}")

    def file(self, name):
        """Waits for a whole line in a file of the command's."""
        path = self.folder / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"), what=name)
        return path.read_text().strip()

    @property
    def supervisor(self):
        return wait_until(lambda: children_of(self.process.pid), what="the supervisor")[0]

    def wait(self, seconds=30):
        return self.process.wait(patience(seconds))


def until_dead(pid):
    """Waits for the end of a process that is not ours; returns when it was noticed."""
    with contextlib.suppress(ProcessLookupError):
        file = os.pidfd_open(int(pid))
        try:
            assert select.select([file], [], [], patience(30))[0], f"{pid} lives on"
        finally:
            os.close(file)
    return time.monotonic()


def check_dead_in_time(pids, masters, resource):
    """The processes end before the lock runs out on a majority of the masters. Call it when no extension can follow."""
    starved = harness.starved_seconds()
    ends = sorted(time.monotonic() + master.cli("PTTL", resource) / 1000 for master in masters)
    late = max(until_dead(pid) for pid in pids) - ends[len(ends) // 2]
    assert late < harness.starved_seconds() - starved, f"a process lived on for {late:.3f} s without its lock"


def is_free(daemon, resource):
    return not daemon.curl("GET", "/locks/" + quote(resource)).json["held"]


FOREVER = "echo $$ >pid; while :; do sleep 0.02; done"
STUBBORN = "trap 'echo asked >term' TERM; " + FOREVER
DAEMON = "setsid sh -c 'setsid sh -c \"echo \\$\\$ >daemon; while :; do sleep 0.02; done\" & exit 0'; "


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, lab, server, *command):
        command = command or ("bash", "--norc", "--noprofile", "-i")
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(lab.folder)
            os.execvpe(command[0], command,
                       clean_environment({"REDLOCKCTL_SERVER": url(server), "PS1": "$ ", "TERM": "dumb", "HISTFILE": "/dev/null", "HOME": lab.folder, "LC_ALL": "C.UTF-8"}))
        self.seen = self.before = ""
        lab.keep(self)

    def kill(self):
        for pid in [*children_of(self.pid), self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def sees(self, text):
        """Waits until the text was printed, and forgets what came before and with it."""
        def arrived():
            if text not in self.seen and select.select([self.terminal], [], [], 0.05)[0]:
                self.seen += os.read(self.terminal, 65536).decode(errors="replace")
            return text in self.seen
        wait_until(arrived, 20, f"{text!r} in {self.seen!r}")
        self.before, _, self.seen = self.seen.partition(text)

    def foreground(self):
        return int(pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[5])
