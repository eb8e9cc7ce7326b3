"""Every kind of request, and what goes on by itself, with each of its allocations failing once. See README.md."""

import hashlib

import pytest

from kinds import ALONE, HEARTBEAT, IN_LINE, KEYED, KINDS, RECONNECT, by_name
from world import World, sweep, sweep_cold

KEY = "a-key-of-this-test-0123456789"
KEYS = [{"name": "sweep", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "prefixes": ["alloc/"], "rights": ["acquire", "inspect", "list", "admin"]}]


@pytest.fixture(scope="module")
def world():
    """A redlockd whose allocations fail on demand, and one beside it on the same masters, for what must not fail."""
    with World() as made:
        yield made


@pytest.fixture(scope="module")
def alone():
    with World(masters=0, alone=True) as made:
        yield made


@pytest.fixture(scope="module")
def keyed():
    with World(keys=KEYS, key=KEY) as made:
        yield made


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_request(world, kind):
    sweep(world, kind).check()


@pytest.mark.parametrize("kind", KEYED, ids=repr)
def test_request_with_a_key(keyed, kind):
    sweep(keyed, kind).check()


@pytest.mark.parametrize("kind", ALONE, ids=repr)
def test_request_without_masters(alone, kind):
    sweep(alone, kind).check()


@pytest.mark.parametrize("kind", by_name("acquire", "wait-granted", "hold", "release", "list"), ids=repr)
def test_first_request(kind):
    """Nothing is there yet that could be used again."""
    with World(masters=1) as world:
        sweep_cold(world, kind).check()


def test_heartbeat():
    with World(masters=1, alone=True, timeout_ms=1000) as world:
        sweep(world, HEARTBEAT, most=40).check()  # each has about 31


@pytest.mark.parametrize("tcp", [False, True], ids=["socket", "name"])
def test_reconnect(tcp):
    with World(masters=1, alone=True, tcp=tcp) as world:
        sweep(world, RECONNECT).check()


def test_what_goes_on_while_somebody_waits():
    with World(masters=1) as world:
        sweep(world, IN_LINE).check()
