# SPDX-License-Identifier: MIT
"""Shared parts of the contract tests: the harness of the end-to-end tests, and the Node tools of package.json."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import harness  # noqa: E402
from fixtures import lab, resource, service  # noqa: E402, F401


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
    config.addinivalue_line("markers", "node: needs Node and the packages of package.json (run `npm ci` here)")
