"""What the tests with failing allocations share. See README.md."""

import os
import sys

import pytest

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "..", "e2e")]

import harness  # noqa: E402
from world import SHIM  # noqa: E402


def pytest_configure(config):
    for path in (harness.BINARY, SHIM):
        if not os.access(path, os.X_OK):
            raise pytest.UsageError(f"no file {path}: build it, or set REDLOCKD")
