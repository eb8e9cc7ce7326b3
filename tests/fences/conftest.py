# SPDX-License-Identifier: MIT
"""The kits of clients/fences with the real storages, and fences of a real redlockd."""

import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import harness  # noqa: E402
from fixtures import NUMBERS, lab, service  # noqa: E402, F401
from kits import KITS  # noqa: E402
from storages import Storages  # noqa: E402


def pytest_configure(config):
    if not os.access(harness.BINARY, os.X_OK):
        raise pytest.UsageError(f"no program at {harness.BINARY}: build it, or set REDLOCKD")


@pytest.fixture(scope="session")
def storages():
    with Storages() as running:
        yield running


@pytest.fixture(params=KITS, ids=[kit.__name__ for kit in KITS])
def open_kit(request, storages):
    """Connects to the storage of a kit, for an item of the test's own: open_kit() is a connection, and so is each further call."""
    kit = request.param
    place, item, opened = storages.place(kit.storage), f"item{next(NUMBERS)}-{os.getpid()}", []

    def connect():
        opened.append(kit(place, item))
        return opened[-1]
    connect.kit, connect.place, connect.item = kit, place, item
    yield connect
    for one in opened:
        one.close()
