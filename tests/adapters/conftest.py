# SPDX-License-Identifier: MIT
"""The adapters of clients/adapters with their frameworks, against real redlockd and real masters."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import harness  # noqa: E402
from fixtures import lab, resource, service  # noqa: E402, F401

harness.MASTER_TIMEOUT_MS = 5000  # masters are killed here, which is seen at once, and never stopped


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
