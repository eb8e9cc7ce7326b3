# SPDX-License-Identifier: MIT
"""The fixtures and settings of the end-to-end tests. See harness.py."""

import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import harness  # noqa: E402
from fixtures import authority, clock_library, lab, many_files, resource, server, service  # noqa: E402, F401


# Where the tests are run in the background (nohup, `&` of a script) these are ignored, and so they would be in every program that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: waits for quarantines, or makes thousands of trials")
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
