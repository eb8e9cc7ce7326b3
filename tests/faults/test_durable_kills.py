# SPDX-License-Identifier: MIT
"""A few rounds of durable.py: durable masters lose nothing, and its checks find what masters lose that are none."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
BINARY = os.environ.get("REDLOCKD", str(HERE.parents[1] / "build" / "release" / "redlockd"))


@pytest.mark.parametrize("options", [["--one", "5", "--all", "5", "--power-loss"], ["--one", "0", "--all", "10", "--power-loss", "--weak"]],
                         ids=["durable", "weak"])
def test_kills(options):
    done = subprocess.run([sys.executable, str(HERE / "durable.py"), "--redlockd", BINARY, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
