# SPDX-License-Identifier: MIT
"""SIGHUP and the terminal: when it reads files anew, and when it ends redlockd. Real terminals, real shells, the kernel's own signals."""

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import termios

import pytest

import harness
from fixtures import needs_pts
from harness import DIES_WITH_US, SLOW, children_of, clean_environment, curl, end_process, parse_logfmt, process_state, wait_until

pytestmark = needs_pts
RELOADED = "nothing-to-reload"  # in the log, of a reload without files


class Session:
    """A command as the leader of a session with a terminal of its own; somewhere in it a redlockd, that writes its log into a file."""

    def __init__(self, lab, *command):
        self.folder, self.terminal, theirs = lab.folder, *pty.openpty()
        self.log_path = os.path.join(lab.folder, "terminal.log")
        masters = lab.redises(1)
        self.redlockd = f"{harness.BINARY} --listen unix:{lab.folder}/s --masters {masters[0].url} --bootstrap"
        environment = clean_environment({"TMPDIR": lab.folder, "HISTFILE": "/dev/null", "PS1": "$ ", "TERM": "dumb"})
        self.process = subprocess.Popen([*DIES_WITH_US, "env", "--default-signal=HUP", *command], stdin=theirs, stdout=theirs,
                                        stderr=theirs, env=environment, preexec_fn=lambda: self._take(theirs))  # noqa: PLW1509
        os.close(theirs)
        self.pid = None
        lab.keep(self)

    @staticmethod
    def _take(terminal):
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    def type(self, line):
        os.write(self.terminal, line.format(redlockd=f"{self.redlockd} >{self.log_path} 2>&1").encode() + b"\n")

    def log(self, event):
        if not os.path.exists(self.log_path):
            return []
        with open(self.log_path, encoding="utf-8") as lines:
            found = [parse_logfmt(line.rstrip("\n")) for line in lines if line.startswith("ts=") and line.endswith("\n")]
        return [line for line in found if line["event"] == event]

    def wait_serving(self):
        wait_until(lambda: self.log("listening"), 20, "it listens")
        self.pid = int(self.log("listening")[0]["pid"])

    def close(self):
        """The terminal is gone, as when its window is closed or its network is."""
        os.close(self.terminal)
        self.terminal = None

    def hangs_up(self):
        """As an operator does, who is somewhere else."""
        before = len(self.log(RELOADED))
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: len(self.log(RELOADED)) > before or self.log("draining"), what="it has taken the signal")

    def goes_on(self):
        assert not self.log("draining") and process_state(self.pid)
        assert curl(f"unix:{self.folder}/s", "GET", "/healthz").status == 200

    def has_no_terminal(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[4] == "0"

    def kill(self):
        if self.terminal is not None:
            os.close(self.terminal)
        for pid in {*children_of(self.process.pid), self.pid} - {None}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end_process(self.process)


# Leaders of a session: a shell with redlockd in the foreground or as a job; redlockd itself; and one whose shell does not pass the signal on.
SHELL = ("bash", "--norc", "--noprofile", "-i")
LEADER = ("sh", "-c", 'read line; exec sh -c "exec $line"')
DEAF = ("sh", "-c", 'read line; trap : HUP; set -m; eval "$line &"; while :; do wait; sleep 0.1; done')


def start(lab, how):
    """A redlockd that serves in a terminal."""
    if how == "leader":
        session = Session(lab, *LEADER)
        session.type("{redlockd}")
    elif how == "deaf":
        session = Session(lab, *DEAF)
        session.type("{redlockd}")
    else:
        session = Session(lab, *SHELL)
        session.type({"foreground": "{redlockd}", "job": "{redlockd} &", "nohup": "nohup {redlockd} &", "nohup foreground": "nohup {redlockd}"}[how])
    session.wait_serving()
    assert not session.has_no_terminal()
    return session


@pytest.mark.parametrize("how", ["leader", "foreground", "job"])
def test_a_closed_terminal_ends_it(lab, how):
    session = start(lab, how)
    session.hangs_up()
    session.goes_on()
    session.close()
    wait_until(lambda: not process_state(session.pid), what="it ends")
    assert [line["signal"] for line in session.log("draining")] == ["SIGHUP"]


@pytest.mark.parametrize("how", ["nohup", "nohup foreground"])
def test_with_nohup_it_is_never_a_hangup(lab, how):
    """Neither while the terminal is there, nor when it is closed, nor after that."""
    session = start(lab, how)
    session.hangs_up()
    session.close()
    wait_until(session.has_no_terminal, what="the terminal is gone")
    session.process.wait(20 * SLOW)  # the shell has ended, and told its jobs before
    session.hangs_up()
    session.goes_on()
    session.hangs_up()
    session.goes_on()


def test_once_the_terminal_is_gone_a_hangup_reloads(lab):
    """A job that the shell did not tell of the end of the terminal."""
    session = start(lab, "deaf")
    session.close()
    wait_until(session.has_no_terminal, what="the terminal is gone")
    session.goes_on()
    for _ in range(2):
        session.hangs_up()
        session.goes_on()


def test_dev_with_nohup(lab):
    daemon = lab.redlockd([], "--dev", wait=False, prefix=["nohup"])
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.log(RELOADED), what="a reload")
    assert daemon.curl("GET", "/healthz").status == 200


def test_dev_ends_on_a_hangup(lab):
    daemon = lab.redlockd([], "--dev", wait=False)
    daemon.stop(signal.SIGHUP)
