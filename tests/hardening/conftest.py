# SPDX-License-Identifier: MIT
"""Shared parts of the tests of the hardening: the harness of the end-to-end tests."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
from fixtures import lab  # noqa: E402, F401


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
