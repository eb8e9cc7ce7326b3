# SPDX-License-Identifier: MIT
"""See hostile.py, which knows where the rest of it lies. The tests must not run side by side: each measures a rate."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import hostile  # noqa: E402


def pytest_configure(config):
    if not os.access(hostile.harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {hostile.harness.BINARY}: build it, or set REDLOCKD")
