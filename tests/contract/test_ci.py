# SPDX-License-Identifier: MIT
""".ci/run: a terminal for ./dev where there can be one; its output and its status in any case. A program that looks around stands in for ./dev."""

import os
import shutil
import subprocess

import pytest

from fixtures import needs_pts
from harness import DIES_WITH_US, ROOT, process_state, wait_until

LOOK = """
[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && (: </dev/tty) 2>/dev/null && echo "on a terminal"
read -r line || echo "nothing to read"
echo "$1 $2"
exit 3
"""
NO_PTS = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/pts && exec "$0"')


@pytest.fixture
def start(tmp_path):
    def start_with(dev, *before):
        (tmp_path / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
        (tmp_path / "dev").write_text("#!/bin/sh\n" + dev)
        (tmp_path / "dev").chmod(0o755)
        return subprocess.Popen([*DIES_WITH_US, *before, tmp_path / ".ci" / "run"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return start_with


@needs_pts
def test_on_a_terminal(start):
    run = start(LOOK)
    assert run.communicate(timeout=60) == ("on a terminal\nnothing to read\ntest quick\n", "") and run.returncode == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to hide /dev/pts")
def test_where_no_terminal_can_be_opened(start):
    run = start(LOOK, *NO_PTS)
    told = "No pseudo-terminal can be opened here (script, /dev/pts): the tests run without a terminal."
    assert run.communicate(timeout=60) == (f"{told}\nnothing to read\ntest quick\n", "") and run.returncode == 3


@needs_pts
def test_terminated(start, tmp_path):
    pid = tmp_path / "pid"
    run = start(f"echo $$ >{pid}; exec sleep 100")
    wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), what="./dev runs")
    run.terminate()
    run.communicate(timeout=60)
    assert run.returncode == 143
    wait_until(lambda: not process_state(int(pid.read_text())), what="./dev ends")
