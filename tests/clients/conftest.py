# SPDX-License-Identifier: MIT
"""Shared parts of the tests of the clients: the harness of the end-to-end tests."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import driver  # noqa: E402
import harness  # noqa: E402
from fixtures import lab, resource, service  # noqa: E402, F401

harness.MASTER_TIMEOUT_MS = 5000  # masters are killed here, which is seen at once, and never stopped


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; `-m slow` runs it")
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")


def why_not(item):
    """Why the test does not apply to the library of its language, or None."""
    asks = getattr(item, "callspec", None)
    language = asks and (asks.params.get("language") or asks.params.get("trial"))
    name = f"{item.path.name}::{item.name}"
    reasons = driver.NOT_FOR.get(language, {}).items()
    return next((f"{language}: {reason}" for start, reason in reasons if start in name), None)


def pytest_collection_modifyitems(config, items):
    for item in items:
        reason = why_not(item)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    if not config.option.markexpr:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: -m slow runs it"))
