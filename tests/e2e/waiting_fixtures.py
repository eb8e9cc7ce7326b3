# SPDX-License-Identifier: MIT
"""Shared parts of the tests of waiting: clients that wait, and their queue entries on a master.

A Waiter is one request with wait_ms on a connection of its own; its answer is read when the test asks for it. A Crowd
makes and closes them. Where the order of arrival matters, queue_up() sends the next request only when the one before is
in the queue of every master. serve_all() hands the lock from one to the next and returns the order. Leases are long: a
waiter that no notification woke is not answered within the time that a test waits for it.
"""

import json
import re
import select
import time

import pytest

from harness import SLOW, patience, process_state, quote, read_response, wait_until


def readable(waiters, seconds):
    """Those of them that have an answer, or the first that get one. Not select(), which knows no descriptor above 1023."""
    poll = select.poll()
    for waiter in waiters:
        poll.register(waiter, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
    return [waiter for waiter in waiters if waiter.fileno() in ready]


class Waiter:
    """One POST /locks that may wait. `through`: the redlockd that it goes to. `key`: its Idempotency-Key, None for none."""

    def __init__(self, through, resource, wait_ms=60000, ttl_ms=60000, key=None, **members):
        self.through, self.resource, self.lease = through, resource, None
        self.headers = f"Idempotency-Key: {key:-<16}\r\n" if key else ""
        self.plain = through.connect(90)
        self.since = time.monotonic()
        waits = {} if wait_ms is None else {"wait_ms": wait_ms}
        one = {} if "resources" in members else {"resource": resource}
        self.send("POST", "/locks", {**one, "ttl_ms": ttl_ms, **waits, **members})

    def fileno(self):
        return self.plain.fileno()

    def send(self, method, path, body):
        content = json.dumps(body).encode()
        self.plain.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{self.headers}Content-Length: {len(content)}\r\n\r\n".encode() + content)

    def is_answered(self):
        return bool(readable([self], 0))

    def answer(self, seconds=10.0):
        """The answer; its `seconds` count from the request on."""
        assert readable([self], patience(seconds)), f"{self.resource}: no answer within {patience(seconds):g} s"
        response = read_response(self.plain)
        assert response is not None, "closed without an answer"
        response.seconds = time.monotonic() - self.since
        return response

    def granted(self, seconds=10.0):
        """The lease; fails where it is refused."""
        answer = self.answer(seconds)
        assert answer.status == 201, answer
        self.lease = answer.json
        return self.lease

    def release(self):
        self.send("DELETE", f"/locks/{quote(self.resource)}", {"token": self.lease["token"]})
        answer = read_response(self.plain)
        assert answer is not None and answer.status == 204, answer

    def leave(self):
        self.plain.close()


class Crowd:
    """All that wait in one test."""

    def __init__(self):
        self.made = []

    def wait(self, through, resource, **how):
        self.made.append(Waiter(through, resource, **how))
        return self.made[-1]

    def queue_up(self, through, resource, count, keyed=lambda i: False, **how):
        """`count` waiters, each in the queue of every master before the next one comes. `through`: one redlockd, or
        several that take turns. `keyed`: whether waiter i has an Idempotency-Key of its own."""
        through = through if isinstance(through, list) else [through]
        waiters, before = [], len(line(running(through[0].masters)[0], resource))
        for i in range(count):
            key = f"waiter-{len(self.made)}" if keyed(i) else None
            waiters.append(self.wait(through[i % len(through)], resource, key=key, **how))
            wait_for_queue(through[0].masters, resource, before + i + 1)
        return waiters

    def close(self):
        for waiter in self.made:
            waiter.leave()


@pytest.fixture
def crowd():
    made = Crowd()
    yield made
    made.close()


def give_back(through, lease):
    """Releases a delivered lease after its connection was closed. A release over another connection may go through
    another worker, overtake the acquisition at a slow master, and leave the lock there: so it waits for the key first.
    A master that refused, since the release of the holder reached it later, never gets the key: hence the bound."""
    until = time.monotonic() + 0.3 * SLOW
    while time.monotonic() < until and not all((server.cli("GET", lease["resource"]) or "")[:40] == lease["token"] for server in through.masters):
        pass
    client = through.client()
    answer = client.call("DELETE", f"/locks/{lease['resource']}", {"token": lease["token"]})
    client.close()
    assert answer.status == 204, f"a lease that was delivered is not its client's any more: {answer}"


# ----------------------------------------------------------------------------------------------- the order of grants


def releases(through, lease):
    """A release() for serve_all()."""
    def release():
        assert through.release(lease).status == 204
    return release


def next_answered(waiters):
    """The one of them that is answered next; fails where two are."""
    ready = readable(waiters, 20 * SLOW)
    assert ready, f"none of {len(waiters)} is answered within {20 * SLOW:g} s"
    assert len(ready) == 1, f"{len(ready)} are answered at once"
    return ready[0]


def serve_all(release, waiters):
    """Calls release(); from then on each waiter that is granted gives the lock back. Returns them in the order of their grants."""
    left, served = list(waiters), []
    while left:
        release()
        waiter = next_answered(left)
        waiter.granted()
        left.remove(waiter)
        served.append(waiter)
        release = waiter.release
    release()
    return served


def check_notifications_are_heard(service, crowd, servers, channel="redlockd:wake", resource="called"):
    """A notification wakes a waiter, long before the lease ends that it waits for."""
    lease = service.acquire(resource, 60000)
    waiter = crowd.wait(service, resource)
    wait_until(lambda: service.curl("GET", f"/locks/{resource}").json["waiters"] == 1, what="it waits")
    wait_until(lambda: all(server.cli("PUBSUB", "NUMSUB", channel)[1] == 1 for server in servers), what="subscribed")
    assert service.release(lease).status == 204
    waiter.granted()
    waiter.release()


def check_served_in_order(release, waiters):
    """First come, first served."""
    served = serve_all(release, waiters)
    assert [waiters.index(waiter) for waiter in served] == list(range(len(waiters)))
    fences = [waiter.lease["fence"] for waiter in served]
    assert fences == sorted(set(fences)), fences


# ------------------------------------------------------------------------------------------------ what a master knows


def running(masters):
    """Those of them that answer; of a Proxy the server behind it."""
    servers = [getattr(master, "redis", master) for master in masters]
    return [server for server in servers if process_state(server.process.pid) not in (None, "T")]


def line(server, resource, prefix=""):
    """The queue entries of one master, in order: "replica:arrival"."""
    return server.cli("ZRANGE", f"{prefix}redlockd:queue:{prefix}{resource}", 0, -1)


def lines(masters, resource):
    return [line(server, resource) for server in running(masters)]


def wait_for_queue(masters, resource, count, seconds=10.0):
    """Waits until the queue of every running master has so many entries."""
    try:
        wait_until(lambda: all(len(places) == count for places in lines(masters, resource)), seconds, f"{count} in line")
    except AssertionError as error:
        raise AssertionError(f"{error}; now {lines(masters, resource)}") from None


def wait_for_key(masters, resource, exists):
    """Until the lock's key is on every master that runs, or on none: the answer comes as soon as a majority has decided."""
    wait_until(lambda: all(bool(server.cli("EXISTS", resource)) == exists for server in running(masters)), what=f"{resource}: exists is {exists}")


def alive_keys(server, prefix=""):
    return server.cli("KEYS", f"{prefix}redlockd:alive:*")


def check_nothing_is_left(masters, seconds=5.0):
    """No lock, no line and no sign of life: only the hash that each master has for good."""
    try:
        wait_until(lambda: all(server.cli("KEYS", "*") == ["redlockd:master"] for server in running(masters)), seconds, "nothing is left")
    except AssertionError as error:
        raise AssertionError(f"{error}; now {[server.cli('KEYS', '*') for server in running(masters)]}") from None


def signs_of(proxies, resource):
    """The commands that went to each master about a resource, so far."""
    return [[command for command in proxy.commands() if resource in command] for proxy in proxies]


def when_quiet(proxies, resource):
    """The number of commands to each master about a resource, once no more follow."""
    seen = [None, 0.0]

    def unchanged():
        now = [len(signs) for signs in signs_of(proxies, resource)]
        if now != seen[0]:
            seen[:] = now, time.monotonic()
        return time.monotonic() - seen[1] > 0.3
    wait_until(unchanged, what="no more commands")
    return seen[0]


def queue_up_listening(crowd, services, resource, count, **how):
    """As queue_up(), but the first of each comes before all others, and these come when each redlockd hears what the masters call: whoever stood in the queue
    before that looks for himself once."""
    services = services if isinstance(services, list) else [services]
    first = crowd.queue_up(services, resource, len(services), **how)
    for master in services[0].masters:
        wait_until(lambda server=master.redis: server.cli("PUBSUB", "NUMSUB", "redlockd:wake")[1] == len(services), what="all listen")
    for service in services:
        when_quiet(service.masters, resource)
    return first + crowd.queue_up(services, resource, count - len(first), **how)


def is_acquire(command):
    """A command has four arguments that all share, and six for each acquisition. No other has as many. See server/scripts/lib/master.lua."""
    if command[0].upper() not in ("EVAL", "EVALSHA"):
        return False
    resources = int(command[2]) - 1
    return resources > 0 and len(command) == 3 + resources + 1 + 4 + 6 * resources


def total(service, name, **labels):
    """The sum of a metric over all its series with these labels."""
    def counts(series):
        match = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})?", series)
        return match and match[1] == name and all(f'{label}="{value}"' in (match[2] or "") for label, value in labels.items())
    return sum(value for series, value in service.metrics().items() if counts(series))
