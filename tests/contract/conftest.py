"""What the contract tests share: the harness of the end-to-end tests, and the Node tools of package.json."""

import itertools
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import harness  # noqa: E402

NUMBERS = itertools.count(1)


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")
    if not (HERE / "node_modules").is_dir():
        raise pytest.UsageError(f"no {HERE}/node_modules: run `npm ci` there")


@pytest.fixture
def lab():
    """To start things for one test."""
    with harness.Lab() as started:
        yield started


@pytest.fixture(scope="session")
def service():
    """One redlockd over three masters, for tests that leave both as they were."""
    with harness.Lab() as started:
        yield started.service(3)


@pytest.fixture
def resource(request):
    """A name that no other test uses."""
    return f"{request.node.originalname}/{next(NUMBERS)}"
