# SPDX-License-Identifier: MIT
"""Many wait for a shared lock or a slot: nobody tries without a reason, and a notification wakes no more than may enter."""

import re
import time

import pytest

import harness
from harness import Resp, wait_until
from test_modes import change, share, take
from waiting_fixtures import check_nothing_is_left, crowd, line, wait_for_queue  # noqa: F401

LIMIT, READERS, WAVE = 3, 60, 16
MODES = {"shared": {"mode": "shared"}, "slot": {"slots": LIMIT}, "exclusive": {}}


@pytest.fixture(scope="module")
def pair():
    """Two redlockd over the same masters, with few shared leases at once."""
    with harness.Lab() as lab:
        servers = lab.redises(3)
        yield servers, [lab.redlockd(servers, "--max-shared", str(LIMIT)) for _ in range(2)]


@pytest.fixture(scope="module")
def roomy():
    """Two redlockd over the same masters, with room for all readers."""
    with harness.Lab() as lab:
        servers = lab.redises(3)
        yield servers, [lab.redlockd(servers) for _ in range(2)]


def fill(services, resource, mode):
    """As many leases as the mode allows."""
    return [take(services[0], resource, ttl_ms=60000, **MODES[mode]) for _ in range(1 if mode == "exclusive" else LIMIT)]


def looks(servers):
    """How often each master has looked at the key of a lock: each script does so once, but for an exclusive acquisition that is granted."""
    return [server.calls().get("getrange", 0) for server in servers]


def settled(servers):
    """The same when nothing more follows for two seconds: the first waiter of another redlockd tries a second after a hand-over."""
    seen = [looks(servers)]
    since, same = time.monotonic(), 0

    def is_still():
        nonlocal since, same
        now = looks(servers)
        same += 1
        if now != seen[0]:
            seen[0], since, same = now, time.monotonic(), 0
        return time.monotonic() - since > 2 and same > 20  # the whole machine may have stood still

    wait_until(is_still, 30, "nobody tries")
    return seen[0]


@pytest.mark.parametrize("mode", MODES)
def test_a_token_that_holds_nothing_wakes_nobody(pair, crowd, resource, mode):  # noqa: F811
    """A release looks at the key once, and so does an attempt: after so many releases nothing else has looked there.
    A redlockd that had no processor for a second looks once more, but not in each round."""
    servers, services = pair
    leases = fill(services, resource, mode)
    crowd.queue_up(services, resource, 4, **MODES[mode])

    def more_looks():
        before = settled(servers)
        for i in range(5):
            answer = services[i % 2].curl("DELETE", f"/locks/{resource}", body={"token": f"{i:040x}"})
            assert answer.status in (409, 410), answer
        return [now - then for now, then in zip(settled(servers), before)]
    assert any(more_looks() == [5] * 3 for _ in range(5))
    for lease in leases:
        change(services[0], "DELETE", lease, 204)


@pytest.mark.parametrize("mode", MODES)
def test_a_release_wakes_one_waiter(pair, crowd, resource, mode):  # noqa: F811
    """One lease ends: one waiter enters, in order. However many sleep on, few others try: the next one where a master was late with the release,
    and a second later the first waiter of the other redlockd. The same with keys, which half of them have. In a redlockd that had no processor for
    a second all with a key look once, but not after each release."""
    servers, services = pair
    leases, calm = fill(services, resource, mode), 0
    waiters = crowd.queue_up(services, resource, 24, keyed=lambda i: i % 4 < 2, **MODES[mode])
    for waiter in waiters[:6]:
        before = settled(servers)
        change(services[0], "DELETE", leases.pop(0), 204)
        leases.append(waiter.granted())
        assert not any(other.is_answered() for other in waiters if not other.lease)
        tries = [now - then for now, then in zip(settled(servers), before)]
        assert min(tries) >= 1, tries
        calm += max(tries) <= 10
        if calm == 2:
            break
    assert calm == 2, tries


@pytest.mark.parametrize("mode", ["shared", "slot"])
def test_a_waiter_that_leaves_a_full_lock_wakes_one_at_most(pair, crowd, resource, mode):  # noqa: F811
    servers, services = pair
    leases = fill(services, resource, mode)
    waiters = crowd.queue_up(services, resource, 5, **MODES[mode])
    before = settled(servers)
    waiters[0].leave()
    waiters[2].leave()
    wait_for_queue(servers, resource, 3)
    # The first one that is left learns that it is, and may look.
    tries = [now - then for now, then in zip(settled(servers), before)]
    assert all(2 <= count <= 10 for count in tries), tries
    change(services[0], "DELETE", leases[0], 204)
    waiters[1].granted()


def heard(connection, resource):
    """The next message about the resource: how many waiters it names, by the arrivals in the queue before it."""
    while True:
        _, _, text = connection.receive()
        word, name = text.split(" ", 1)
        if name == resource and word != "watch":
            return word


def woken_by(word, arrivals):
    """How many of the waiters a message notifies."""
    named = re.fullmatch(r"[0-9a-f]{16}\+(\d{16}):\d+(?:>(\d{16}))?", word)
    assert named, word
    last = named[2] or named[1]
    return sum(named[1] <= arrival <= last for arrival in arrivals)


def test_readers_enter_in_waves(roomy, crowd, resource):  # noqa: F811
    """Behind a writer wait sixty readers and then a second writer. A release names sixteen at most, and grants the next."""
    servers, services = roomy
    writer = take(services[0], resource, ttl_ms=60000)
    readers = [crowd.wait(services[i % 2], resource, mode="shared") for i in range(READERS)]
    wait_for_queue(servers, resource, READERS)
    last = crowd.wait(services[0], resource)
    wait_for_queue(servers, resource, READERS + 1)
    arrivals = sorted(entry[17:33] for entry in line(servers[0], resource))
    listeners = [Resp(server.path, 20) for server in servers]
    for listener in listeners:
        for channel in ("redlockd:wake", "tests:end"):
            listener.send("SUBSCRIBE", channel)
            assert listener.receive()[0] == "subscribe"
    change(services[0], "DELETE", writer, 204)
    leases = [reader.granted() for reader in readers]
    assert len({lease["fence"] for lease in leases}) == READERS
    first = [heard(listener, resource) for listener in listeners]
    # Nobody enters before two masters have carried out the release. Of those that a later message spans, some have entered before.
    assert [woken_by(word, arrivals) for word in first].count(WAVE) >= 2, first
    wait_for_queue(servers, resource, 1)
    called = [[word] for word in first]  # by each master
    for server, listener, words in zip(servers, listeners, called):
        server.cli("PUBLISH", "tests:end", f"end {resource}")
        while (word := heard(listener, resource)) != "end":
            words.append(word)
    # Each eighth grant calls again. A master that was late may call less, and a waiter that was passed over for a second more.
    assert any(1 < len(words) <= READERS // 4 for words in called), list(map(len, called))
    assert not last.is_answered()
    for reader in readers:
        reader.release()
    assert last.granted()["fence"] > max(lease["fence"] for lease in leases)
    last.release()
    for listener in listeners:
        listener.close()
    check_nothing_is_left(servers)


def test_readers_enter_in_waves_behind_a_dead_writer(roomy, crowd, resource):  # noqa: F811
    """Nobody releases: the first reader of a redlockd wakes by itself, and its grant wakes the others."""
    servers, services = roomy
    take(services[0], resource, ttl_ms=6000)
    readers = [crowd.wait(services[i % 2], resource, mode="shared") for i in range(READERS)]
    wait_for_queue(servers, resource, READERS)
    assert len({reader.granted()["fence"] for reader in readers}) == READERS
    for reader in readers:
        reader.release()


def test_a_reader_beside_a_set_that_waits_elsewhere(roomy, crowd, resource):  # noqa: F811
    """A shared set at the head waits for another resource: it takes the place of no reader behind it."""
    servers, services = roomy
    here, there = take(services[0], resource, ttl_ms=60000), take(services[0], f"{resource}/other", ttl_ms=60000)
    members = {"resources": [resource, f"{resource}/other"], "mode": "shared"}
    waiting = crowd.wait(services[0], None, **members)
    wait_for_queue(servers, resource, 1)
    readers = crowd.queue_up(services, resource, 3, mode="shared")
    change(services[0], "DELETE", here, 204)
    for reader in readers:
        reader.granted()
    change(services[0], "DELETE", there, 204)
    assert waiting.granted()["resources"] == sorted(members["resources"])


def test_a_set_that_waits_elsewhere_takes_no_place(pair, crowd, resource):  # noqa: F811
    """One place becomes free: the shared set at the head cannot enter, so the reader behind it does."""
    servers, services = pair
    leases, there = fill(services, resource, "shared"), take(services[0], f"{resource}/other", ttl_ms=60000)
    waiting = crowd.wait(services[0], None, resources=[resource, f"{resource}/other"], mode="shared")
    wait_for_queue(servers, resource, 1)
    reader = crowd.queue_up(services[0], resource, 1, mode="shared")[0]
    change(services[0], "DELETE", leases[0], 204)
    reader.granted()
    change(services[0], "DELETE", leases[1], 204)
    change(services[0], "DELETE", there, 204)
    waiting.granted()


@pytest.mark.parametrize("mode", ["shared", "slot"])
def test_the_waiter_before_leaves_a_full_lock(pair, crowd, resource, mode):  # noqa: F811
    """Behind a writer a waiter was told when all leases end. The writer leaves: it may enter when the first one ends."""
    servers, services = pair
    for ttl_ms in (60000, 60000, 4000):
        take(services[0], resource, ttl_ms=ttl_ms, **MODES[mode])
    writer = crowd.queue_up(services[0], resource, 1)[0]
    waiter = crowd.queue_up(services[1], resource, 1, **MODES[mode])[0]
    writer.leave()
    assert waiter.granted(8)["resource"] == resource


@pytest.mark.parametrize("set_of", [1, 2], ids=["one", "set"])
def test_the_lease_that_ends_last_is_released(roomy, crowd, resource, set_of):  # noqa: F811
    """A writer that was told the end of the last reader looks again when that one is released: another may end before."""
    servers, services = roomy
    names = [f"{resource}/{i}" for i in range(set_of)]
    of = {"resource": names[0]} if set_of == 1 else {"resources": names}
    short, long = (services[0].curl("POST", "/locks", body={**of, "mode": "shared", "ttl_ms": ttl_ms}) for ttl_ms in (3000, 60000))
    assert (short.status, long.status) == (201, 201)
    writer = crowd.wait(services[1], names[0], ttl_ms=60000)
    wait_for_queue(servers, names[0], 1)
    body = {"token": long.json["token"]} | ({} if set_of == 1 else of)
    answer = services[0].curl("DELETE", f"/locks/{names[0]}" if set_of == 1 else "/locks", body=body)
    assert answer.status == 204, answer
    assert writer.granted(6)["fence"] > long.json["fence"]
    share(services[0], names[0], status=409)
