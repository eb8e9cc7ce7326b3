# SPDX-License-Identifier: MIT
"""Waiting behind a holder that is not redlockd's: another Redlock library, or a key of another type. Its release
notifies no waiter, so the first one of each worker looks again about every 250 ms. Others do not, and behind a holder
of redlockd's none does (test_waiting.py: test_nobody_polls)."""

import select

import pytest

from harness import wait_until
from waiting_fixtures import check_nothing_is_left, crowd, is_acquire, next_answered, serve_all, signs_of, when_quiet  # noqa: F401
from test_waiting import with_proxies

# As the libraries set their locks, some with an expiry and some without; and what is held by something else altogether.
HOLDERS = {
    "redlock (npm), redsync": [("SET", "9f86d081884c7d65", "NX", "PX", "600000")],
    "without an expiry": [("SET", "somebody's own", "NX")],
    "Redisson": [("HSET", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1"), ("PEXPIRE", "600000")],
    "a list": [("RPUSH", "one", "two")],
}


def hold(masters, resource, how):
    for server in masters:
        for name, *rest in HOLDERS[how]:
            assert server.cli(name, resource, *rest) in ("OK", 1, 2)


def let_go(masters, resource):
    for server in masters:
        assert server.cli("DEL", resource) == 1


def check_nothing_is_left_of(service, resource):
    """Its masters serve other tests, too."""
    wait_until(lambda: not [key for server in service.masters for key in server.cli("KEYS", "*") if resource in key], what="nothing is left of it")


@pytest.mark.parametrize("how", HOLDERS)
def test_a_release_is_found(service, resource, crowd, how):
    """Long before the end of the key's time."""
    hold(service.masters, resource, how)
    waiters = crowd.queue_up(service, resource, 3, wait_ms=60000)
    assert not select.select(waiters, [], [], 0.6)[0]
    assert serve_all(lambda: let_go(service.masters, resource), waiters) == waiters
    check_nothing_is_left_of(service, resource)


def test_several_holders(service, resource, crowd):
    """Three applications, each of which locks one master alone: none has a majority, and no other client can get
    one."""
    for number, server in enumerate(service.masters):
        assert server.cli("SET", resource, f"application-{number}", "NX", "PX", "600000") == "OK"
    waiters = crowd.queue_up(service, resource, 2, wait_ms=60000)
    assert serve_all(lambda: let_go(service.masters[:2], resource), waiters) == waiters
    let_go(service.masters[2:], resource)
    check_nothing_is_left_of(service, resource)


def test_over_replicas_and_workers(lab, resource, crowd):
    """The first waiter is served first, whichever redlockd looks."""
    first = lab.service(3, "--workers", "2")
    second = lab.redlockd(first.masters)
    hold(first.masters, resource, "Redisson")
    waiters = crowd.queue_up([first, second], resource, 6, wait_ms=60000)
    assert serve_all(lambda: let_go(first.masters, resource), waiters) == waiters
    check_nothing_is_left(first.masters)


def heartbeats(proxy):
    """How many redlockd has sent through the proxy: one in a second."""
    return sum(command[0].upper() == "INFO" for command in proxy.commands())


def attempts(service, resource):
    return [sum(is_acquire(command) for command in signs) for signs in signs_of(service.masters, resource)]


def test_only_the_first_looks(lab, crowd):
    """Twenty in the queue cost what one costs; and once a holder of ours has the lock nothing at all."""
    service = with_proxies(lab)
    servers = [proxy.redis for proxy in service.masters]
    hold(servers, "x", "without an expiry")
    crowd.queue_up(service, "x", 20, wait_ms=60000)
    before, beats = attempts(service, "x"), [heartbeats(proxy) for proxy in service.masters]
    wait_until(lambda: min(attempts(service, "x")) >= min(before) + 8, 20, "looks")
    looks, beats = attempts(service, "x"), [heartbeats(proxy) - already for proxy, already in zip(service.masters, beats)]
    # Four in a second, between two heartbeats.
    assert all(after - already <= 4 * (passed + 2) + 2 for already, after, passed in zip(before, looks, beats)), (before, looks, beats)
    waiters = list(crowd.made)
    let_go(servers, "x")
    assert next_answered(waiters) is waiters[0]
    waiters[0].granted()

    def is_quiet():
        quiet = when_quiet(service.masters, "x")
        assert not select.select(waiters[1:], [], [], 1)[0]
        return [len(signs) for signs in signs_of(service.masters, "x")] == quiet
    assert any(is_quiet() for _ in range(5)), "a redlockd that had no processor for a second looks once more, not again and again"
