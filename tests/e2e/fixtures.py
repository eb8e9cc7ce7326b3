"""The fixtures that the end-to-end and the contract tests share."""

import itertools

import pytest

import harness

NUMBERS = itertools.count(1)


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
