"""What the end-to-end tests share. See harness.py."""

import itertools
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import harness  # noqa: E402

NUMBERS = itertools.count(1)


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")


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
