# SPDX-License-Identifier: MIT
"""Dashboard, alert rules and runbook: alone (test_files.py), and with a real Prometheus over running redlockds (test_live.py). One at a time: they share a
stage."""

import os
import pathlib
import signal
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import harness  # noqa: E402

# As in tests/e2e: where the tests run in the background these are ignored, and so they would be in every program that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
