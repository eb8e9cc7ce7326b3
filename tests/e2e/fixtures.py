# SPDX-License-Identifier: MIT
"""The fixtures that the end-to-end and the contract tests share."""

import itertools
import os
import resource as limits
import socket

import pytest

import harness
import redis_clock
from certificates import Authority

NUMBERS = itertools.count(1)
MANY_FILES = 4000


def has_localhost():
    try:
        return bool(socket.getaddrinfo("localhost", 80))
    except OSError:
        return False


def has_pts():
    try:
        for file in os.openpty():
            os.close(file)
    except OSError:
        return False
    return True


needs_localhost = pytest.mark.skipif(not has_localhost(), reason="localhost does not resolve here: /etc/hosts does not name it")
needs_pts = pytest.mark.skipif(not has_pts(), reason="no pseudo-terminal can be opened here: /dev/pts is not mounted")


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


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """It signs the certificates of a whole run."""
    return Authority(str(tmp_path_factory.mktemp("authority")))


@pytest.fixture(scope="session")
def server(authority):
    """The certificate of a redlockd on 127.0.0.1 or localhost."""
    return authority.issue("server", "IP:127.0.0.1", "DNS:localhost", usage="serverAuth")


def open_files(count):
    """Lets the test, and what it starts, open that many files: a login shell often allows 1024."""
    soft, hard = limits.getrlimit(limits.RLIMIT_NOFILE)
    if 0 <= hard < count:
        pytest.skip(f"no more than {hard} open files are allowed here")
    limits.setrlimit(limits.RLIMIT_NOFILE, (max(soft, count), hard))
    yield
    limits.setrlimit(limits.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def many_files():
    """Use it before `lab`."""
    yield from open_files(MANY_FILES)


@pytest.fixture(scope="session")
def clock_library(tmp_path_factory):
    return redis_clock.build(tmp_path_factory.mktemp("clock"))


def certified(lab, count):
    """Masters that a redlockd has made its own: they may vote at once, also where others of their cluster are away."""
    servers = lab.redises(count)
    lab.redlockd(servers).stop()
    return servers


@pytest.fixture
def resource(request):
    """A name that no other test uses."""
    return f"{request.node.originalname}/{next(NUMBERS)}"
