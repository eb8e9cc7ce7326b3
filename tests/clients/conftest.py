# SPDX-License-Identifier: MIT
"""Shared parts of the tests of the clients: the harness of the end-to-end tests."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import harness  # noqa: E402
from fixtures import lab, resource, service  # noqa: E402, F401


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; `-m slow` runs it")
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")


def pytest_collection_modifyitems(config, items):
    if not config.option.markexpr:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: -m slow runs it"))
