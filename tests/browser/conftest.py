# SPDX-License-Identifier: MIT
"""Shared parts of the browser tests: the harness of the end-to-end tests, and a real headless Chromium. See
browser.py."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import harness  # noqa: E402
from browser import Browser  # noqa: E402
from fixtures import lab, resource, service  # noqa: E402, F401
from page_fixtures import shared, three  # noqa: E402, F401

harness.MASTER_TIMEOUT_MS = 5000  # a test that stops a master chooses its own


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
    if not (HERE / "node_modules").is_dir():
        raise pytest.UsageError(f"no {HERE}/node_modules: run `npm ci` there")


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests of this process; each test has a tab of its own, see `page`."""
    with Browser() as started:
        yield started


@pytest.fixture
def page(chromium, lab):  # noqa: F811: what a test starts ends after its tab, which would be refused by it otherwise
    """A fresh tab. At its end: nothing was refused by the policy of the page, no error in its console, no request to anywhere else."""
    with chromium.tab() as tab:
        yield tab
        tab.check()
