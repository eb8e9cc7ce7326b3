# SPDX-License-Identifier: MIT
"""The fixture of tests that makes servers of fake_server.py, which has what they can do."""

import os

import pytest

from fake_server import TOKEN, FakeRedlockd, behaving  # noqa: F401


@pytest.fixture
def fake(lab, resource):
    """Makes servers. Each behaves as said for each kind of call, and usefully for the others."""
    def make(tls=None, port=False, **behaviour):
        address = 0 if tls or port else os.path.join(lab.folder, f"fake{len(lab.started)}")
        return lab.keep(FakeRedlockd(address, resource, behaving(**behaviour), tls))
    return make
