# SPDX-License-Identifier: MIT
"""redlockctl run on a terminal: Ctrl-C, Ctrl-Z, scripts, pipelines."""

import os
import pathlib
import re
import signal
import time

import pytest

from ctl import BINARY, DAEMON, FOREVER, TTL_MS, Shell, is_free, until_dead
from fixtures import needs_pts
from harness import process_state, quote, wait_until

pytestmark = needs_pts


def test_ctrl_z_keeps_the_lock(lab, service, resource):
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} --ttl {TTL_MS}ms -- sh -c 'echo $$ >pid; echo be''gun; read line; echo got-$line'; echo status-$?\n")
    shell.sees("begun")
    command = int(pathlib.Path(lab.folder, "pid").read_text())
    wait_until(lambda: shell.foreground() == command, what="the command has the terminal")
    shell.type("\x1a")
    shell.sees("Stopped")
    wait_until(lambda: shell.foreground() == shell.pid, what="the shell has the terminal")
    fence = service.curl("GET", "/locks/" + quote(resource)).json["fence"]
    time.sleep(1.5 * TTL_MS / 1000)  # longer than a lease lasts by itself
    assert process_state(command) == "T"
    assert service.curl("GET", "/locks/" + quote(resource)).json["fence"] == fence
    shell.type("fg\n")
    wait_until(lambda: shell.foreground() == command, what="the command has the terminal again")
    shell.type("hello\n")
    shell.sees("got-hello")
    wait_until(lambda: shell.foreground() == shell.pid, what="the shell has the terminal")
    assert is_free(service, resource)


@pytest.mark.parametrize("into", ["", " | (trap '' INT; cat)"], ids=["alone", "in a pipeline"])
def test_ctrl_c(lab, service, resource, into):
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} -- sh -c 'trap \"echo in''terrupted >&2; exit 4\" INT; echo be''gun; while :; do sleep 0.02; done'{into}; echo status-${{PIPESTATUS[0]}}\n")
    shell.sees("begun")
    shell.type("\x03")
    shell.sees("interrupted")
    shell.sees("status-4")


def script(lab, resource, command):
    path = pathlib.Path(lab.folder, "script")
    path.write_text(f"{BINARY} run {resource} -- sh -c '{command}'\necho after\n")
    return path


@pytest.mark.parametrize("shell_name", ["sh", "bash"])
def test_ctrl_c_in_a_script(lab, service, resource, shell_name):
    """The script is interrupted as well, and not only its command."""
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{shell_name} {script(lab, resource, 'echo begun; while :; do sleep 0.02; done')}; echo status-$?\n")
    shell.sees("begun")
    shell.type("\x03")
    shell.sees("$ ")
    assert "after" not in shell.before
    assert is_free(service, resource)


def test_ctrl_z_in_a_script(lab, service, resource):
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"sh {script(lab, resource, 'echo begun; read line; echo got-$line')}\n")
    shell.sees("begun")
    shell.type("\x1a")
    shell.sees("Stopped")
    shell.type("fg\n")
    shell.sees("script")
    shell.type("hello\n")
    shell.sees("got-hello")
    shell.sees("after")


def test_pipeline_keeps_the_terminal(lab, service, resource):
    """The other programs of the job need the terminal; the command gets it when it asks."""
    shell = Shell(lab, service)
    shell.sees("$ ")
    shell.type(f"{BINARY} run {resource} -- sh -c 'echo $$ >pid; echo be''gun; read line; echo got-$line' | cat; echo status-${{PIPESTATUS[0]}}\n")
    shell.sees("begun")
    command = int(pathlib.Path(lab.folder, "pid").read_text())
    wait_until(lambda: shell.foreground() == command, what="the command asked for the terminal")
    shell.type("hello\n")
    shell.sees("got-hello")
    shell.sees("status-0")


def read_line(lab, name):
    """Waits for a whole line in a file of the command's."""
    path = pathlib.Path(lab.folder, name)
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), what=name)
    return path.read_text().strip()


def wakes(pid):
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_supervisor_killed_after_a_stop(lab, service, resource):
    """The foreground process finds its order to stop after its end: it kills what the command left, and does not stop."""
    shell = Shell(lab, service)
    shell.sees("$ ")
    path = pathlib.Path(lab.folder, "script")
    path.write_text(DAEMON + FOREVER)
    shell.type(f"{BINARY} run {resource} --ttl 60s -- sh {path}\n")
    command = int(read_line(lab, "pid"))
    left_behind = int(read_line(lab, "daemon"))
    supervisor = parent(command)
    foreground = parent(supervisor)
    os.kill(foreground, signal.SIGSTOP)
    shell.sees("Stopped")
    wait_until(lambda: shell.foreground() == shell.pid, what="the shell has the terminal")
    before = wakes(supervisor)
    os.kill(command, signal.SIGTSTP)
    wait_until(lambda: process_state(command) == "T" and wakes(supervisor) > before and process_state(supervisor) == "S", what="the order to stop")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not process_state(supervisor), what="the end of the supervisor")
    os.kill(foreground, signal.SIGCONT)
    shell.sees("the supervisor of the lock was killed")
    until_dead(left_behind)
