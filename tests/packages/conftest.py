# SPDX-License-Identifier: MIT
"""Shared parts of the tests of the packages: the harness of the end-to-end tests, and the package of `./dev package`
(REDLOCKD_PACKAGE: its folder)."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import harness  # noqa: E402
from fixtures import lab  # noqa: E402, F401

PACKAGE_BUILD = pathlib.Path(os.environ.get("REDLOCKD_PACKAGE", pathlib.Path(harness.ROOT, "build", "package")))


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
    if len(list(PACKAGE_BUILD.glob("redlockd_*.deb"))) != 1:
        raise pytest.UsageError(f"no package in {PACKAGE_BUILD}: ./dev package makes it")


@pytest.fixture(scope="session")
def package_build():
    """The folder in which the package was built, for the prefix /usr."""
    return PACKAGE_BUILD


@pytest.fixture(scope="session")
def package():
    """The .deb."""
    return next(PACKAGE_BUILD.glob("redlockd_*.deb"))
