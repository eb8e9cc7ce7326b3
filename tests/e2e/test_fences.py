# SPDX-License-Identifier: MIT
"""Fences: the number in each lease that grows with every holder of a resource, whatever the clocks say."""

import collections
import contextlib
import itertools
import random
import threading
import time

import pytest

import redis_clock
from harness import SCALE, SLOW, quote, wait_until

LIMIT = 2**53  # fences stay below
ROUNDS = "redlockd_fence_second_rounds_total"
HOUR_MS = 3600 * 1000


def bucket_of(resource):
    """The bucket of a resource, worked out here once more: FNV-1a, folded."""
    value = 0xcbf29ce484222325
    for byte in resource.encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return (value ^ value >> 32) % 16384


def names_in_one_bucket(prefix, count):
    """The first `count` names that share a bucket."""
    found = collections.defaultdict(list)
    for number in itertools.count():
        name = f"{prefix}/{number}"
        names = found[bucket_of(name)]
        names.append(name)
        if len(names) == count:
            return names


def now_us(server):
    """The time of a master in µs, which is what a guess looks like."""
    seconds, microseconds = server.cli("TIME")
    return int(seconds) * 1000000 + int(microseconds)


def numbers_of(server):
    """How many buckets of a master have a number; the rest of its hash is the guard's."""
    return sum(field.isdigit() for field in server.cli("HKEYS", "redlockd:master"))


def set_number(servers, field, number):
    for server in servers:
        server.cli("HSET", "redlockd:master", field, number)


def hold(service, resource):
    """Takes the lock, gives it back, and returns the fence."""
    lease = service.acquire(resource)
    assert service.release(lease).status == 204
    return lease["fence"]


def is_growing(fences):
    return all(0 < a < b < LIMIT for a, b in zip(fences, fences[1:]))


def rounds_of(service):
    return service.metrics()[ROUNDS]


@pytest.fixture
def clock(lab, clock_library):
    """clock(offset_ms): the environment of a redlockd whose clock is wrong by so much."""
    def environment(offset_ms):
        moved = redis_clock.RedisClock(lab.folder, clock_library)
        moved.set_offset_ms(offset_ms)
        return redis_clock.environment_of_redlockd(moved)
    return environment


def test_each_holder_has_a_larger_number(lab, resource):
    """And alone a redlockd never needs a second round for it."""
    service = lab.service(3)
    client, fences = service.client(), []
    for number in range(200):
        lease = client.call("POST", "/locks", {"resource": resource}).json
        fences.append(lease["fence"])
        assert client.call("DELETE", f"/locks/{resource}", {"token": lease["token"]}).status == 204, number
    client.close()
    assert is_growing(fences)
    assert rounds_of(service) == 0
    wait_until(lambda: all(server.cli("HGET", "redlockd:master", bucket_of(resource)) == str(fences[-1]) for server in service.masters), what="the last number on all masters")


def test_the_next_holder_after_an_expiry(service, resource):
    fences = []
    for _ in range(3):
        fences.append(service.acquire(resource, 2000)["fence"])
        wait_until(lambda: not any(server.cli("EXISTS", resource) for server in service.masters), what="the lease to end")
    assert is_growing(fences)


def test_a_resource_of_another_prefix_has_numbers_of_its_own(lab, resource):
    first = lab.service(1, "--key-prefix", "a:")
    second = lab.redlockd(first.masters, "--key-prefix", "b:")
    assert hold(first, resource) > 0 and hold(second, resource) > 0
    server = first.masters[0]
    server.cli("HSET", "a:redlockd:master", bucket_of(resource), LIMIT - 10)
    assert hold(first, resource) == LIMIT - 9 and hold(second, resource) < LIMIT - 10


@pytest.mark.parametrize("raised", [False, True], ids=["guessed", "raised"])
def test_it_stays_over_extensions_and_is_shown(lab, resource, raised):
    first = lab.service(3)
    second = lab.redlockd(first.masters)
    if raised:
        set_number(first.masters, bucket_of(resource), now_us(first.masters[0]) + 10**9)
    lease = first.acquire(resource, owner="me")
    fence = lease["fence"]
    assert (rounds_of(first) > 0) == raised
    wait_until(lambda: all(0 < server.cli("PTTL", resource) <= 30000 for server in first.masters), what="the key, with its end, on all masters")
    for through in (first, second, second, first):
        extended = through.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]})
        assert extended.status == 200 and extended.json["fence"] == fence
        assert through.curl("GET", f"/locks/{quote(resource)}").json["fence"] == fence
        refused = through.curl("POST", "/locks", body={"resource": resource})
        assert refused.status == 409 and refused.json["holder"] == {"owner": "me", "fence": fence}
        listed = through.curl("GET", f"/locks?prefix={quote(resource)}").json["locks"]
        assert [lock["fence"] for lock in listed] == [fence]
    assert second.release(lease).status == 204
    assert hold(second, resource) > fence


def test_extended_where_the_last_number_is_missing_on_one_master(lab, resource):
    """Not every master needs to know the number that a second round gave; the largest that one of a majority has is the lease's."""
    service = lab.service(3)
    set_number(service.masters, bucket_of(resource), now_us(service.masters[0]) + 10**9)
    lease = service.acquire(resource)
    wait_until(lambda: all(server.cli("GET", resource) for server in service.masters), what="the key on all masters")
    for server in service.masters[:2]:
        values = server.cli("GET", resource).split(":")
        assert int(values[2]) == lease["fence"]
    older = service.masters[2].cli("GET", resource).split(":")
    older[2] = str(lease["fence"] - 5)
    service.masters[2].cli("SET", resource, ":".join(older), "KEEPTTL")
    service.masters[0].kill()
    service.wait_voting(2)
    assert service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]}).json["fence"] == lease["fence"]
    assert service.curl("GET", f"/locks/{quote(resource)}").json["fence"] == lease["fence"]


@pytest.mark.parametrize("offset_ms", [-5, -5000, -2 * HOUR_MS, 5000, 12 * HOUR_MS])
def test_clocks_that_differ(lab, resource, clock, offset_ms):
    """The numbers grow in the order of holding; whose clock is behind needs second rounds for it, and only it does."""
    right = lab.service(3)
    wrong = lab.redlockd(right.masters, env=clock(offset_ms))
    behind, ahead = (wrong, right) if offset_ms < 0 else (right, wrong)
    client_of = {service: service.client() for service in (behind, ahead)}
    fences = []
    for service in (ahead, behind, behind, ahead, behind) * 6:
        lease = client_of[service].call("POST", "/locks", {"resource": resource}).json
        fences.append(lease["fence"])
        assert client_of[service].call("DELETE", f"/locks/{resource}", {"token": lease["token"]}).status == 204
    for client in client_of.values():
        client.close()
    assert is_growing(fences)
    assert rounds_of(ahead) == 0
    if abs(offset_ms) > 1000 * SLOW:  # else the holders may have taken turns more slowly than that
        assert rounds_of(behind) >= 9  # of twelve turns after the other one; a machine may stand still during some of them


@pytest.mark.parametrize("which", [(0, 1, 2), (0, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("field", ["bucket", "floor"])
def test_a_higher_number_in_redis_is_exceeded(lab, resource, field, which):
    """Far ahead of any clock, on a majority of the masters."""
    service = lab.service(3)
    before = hold(service, resource)
    number = now_us(service.masters[0]) + 30 * 24 * HOUR_MS * 1000
    set_number([service.masters[i] for i in which], bucket_of(resource) if field == "bucket" else "floor", number)
    fences = [hold(service, resource) for _ in range(3)]
    assert is_growing([before, number, *fences])
    assert rounds_of(service) >= 3


@pytest.mark.parametrize("below", [5, 1000])
def test_sixteen_digits_are_exact(lab, resource, below):
    """From one end to the other: no double, no %g and no rounding on the way."""
    service = lab.service(3)
    number = LIMIT - 1 - below
    set_number(service.masters, bucket_of(resource), number)
    for fence in range(number + 1, number + 5):
        answer = service.curl("POST", "/locks", body={"resource": resource, "owner": "me"})
        assert f'"fence":{fence},'.encode() in answer.body
        lease = answer.json
        for shown in (service.curl("GET", f"/locks/{quote(resource)}"), service.curl("POST", "/locks", body={"resource": resource}),
                      service.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]})):
            assert f'"fence":{fence}'.encode() in shown.body, shown

        def is_everywhere(fence=fence, token=lease["token"]):
            values = [server.cli("GET", resource).split(":") for server in service.masters]
            return all(value[0] == token and value[2] == str(fence) for value in values)
        wait_until(is_everywhere, what="the number in the value")
        assert [server.cli("HGET", "redlockd:master", bucket_of(resource)) for server in service.masters] == [str(fence)] * 3
        assert service.release(lease).status == 204


def test_the_last_number(lab, resource):
    """2⁵³ − 1 is given; after it there is none, which is an error and leaves nothing behind."""
    service = lab.service(3, "--retry-count", "1")
    set_number(service.masters, bucket_of(resource), LIMIT - 2)
    assert hold(service, resource) == LIMIT - 1
    answer = service.curl("POST", "/locks", body={"resource": resource})
    assert answer.status == 503 and answer.code == "no-quorum"
    wait_until(lambda: not any(server.cli("EXISTS", resource) for server in service.masters), what="no key left")


@pytest.mark.parametrize("rubbish", ["abc", "-5", str(LIMIT), "1e400"])
def test_a_number_that_is_none_is_no_vote(lab, resource, rubbish):
    """On one of three masters: the others decide. On two: nothing is granted, nothing is left behind."""
    service = lab.service(3)
    set_number(service.masters[:1], bucket_of(resource), rubbish)
    assert is_growing([hold(service, resource) for _ in range(5)])
    if rubbish == "-5":
        return  # below every guess, so it was replaced
    set_number(service.masters[:2], bucket_of(resource), rubbish)
    answer = service.curl("POST", "/locks", body={"resource": resource})
    assert answer.status == 503, answer
    wait_until(lambda: not any(server.cli("EXISTS", resource) for server in service.masters), what="no key left")
    assert service.acquire(resource + " in another bucket")["fence"] > 0


def test_scripts_that_a_master_forgot(lab, resource):
    """The second round, too, is sent again with its source."""
    service = lab.service(3)
    number = now_us(service.masters[0]) + 30 * 24 * HOUR_MS * 1000
    set_number(service.masters, bucket_of(resource), number)
    for server in service.masters:
        server.cli("SCRIPT", "FLUSH")
    assert hold(service, resource) == number + 1


def test_a_clock_two_days_ahead_is_refused(lab, resource, clock):
    """No other clock would reach its numbers. The redlockd whose clock is right goes on."""
    right = lab.service(3)
    wrong = lab.redlockd(right.masters, env=clock(48 * HOUR_MS))
    answer = wrong.curl("POST", "/locks", body={"resource": resource})
    assert answer.status == 503 and answer.code == "no-quorum", answer
    assert answer.json["votes"]["failed"] >= 2 and answer.json["votes"]["granted"] == 0

    def told():
        wrong.curl("POST", "/locks", body={"resource": resource})
        masters = wrong.curl("GET", "/masters").json["masters"]
        return all(master["state"] == "down" and (master["reason"] or "").startswith("clock: ") for master in masters)
    wait_until(told, what="the reason in /masters")
    for server in right.masters:
        assert server.cli("EXISTS", resource) == 0 and numbers_of(server) == 0
    assert wrong.metrics()[f'redlockd_master_errors_total{{master="{right.masters[0].url}",reason="clock"}}'] > 0
    assert is_growing([hold(right, resource) for _ in range(3)])
    # It is only the taking of leases that hangs on the clock.
    lease = right.acquire(resource)
    assert wrong.curl("PUT", f"/locks/{quote(resource)}", body={"token": lease["token"]}).json["fence"] == lease["fence"]
    assert wrong.release(lease).status == 204


class Holder(threading.Thread):
    """Takes one of some locks again and again, and notes the fence while it holds it."""

    def __init__(self, service, noted, goal):
        super().__init__()
        self.client, self.noted, self.goal = service.client(), noted, goal
        self.got, self.error = 0, None

    def run(self):
        try:
            while self.got < self.goal:
                self.got += self.hold(random.choice(list(self.noted)))
        except BaseException as error:  # shown by the test
            self.error = error
        finally:
            self.client.close()

    def hold(self, name):
        answer = self.client.call("POST", "/locks", {"resource": name})
        if answer.status != 201:
            assert answer.status in (409, 503), answer
            time.sleep(random.uniform(0, 0.004))  # as any caller would
            return False
        self.noted[name].append(answer.json["fence"])  # in the order of the leases, since one client holds it at a time
        assert self.client.call("DELETE", f"/locks/{quote(name)}", {"token": answer.json["token"]}).status == 204
        return True


@pytest.mark.parametrize("offset_ms", [0, -500])
def test_many_holders_of_resources_in_one_bucket(lab, clock, offset_ms):
    """Through two services at once, one of which has a clock that is behind in the second case."""
    pause = ("--retry-min-ms", "1", "--retry-max-ms", "10")
    first = lab.service(3, *pause)
    second = lab.redlockd(list(reversed(first.masters)), *pause, env=clock(offset_ms))
    noted = {name: [] for name in names_in_one_bucket("shared", 4)}
    goal = max(10, round(60 * SCALE))
    holders = [Holder(service, noted, goal) for service in (first, second) for _ in range(4)]
    with contextlib.ExitStack() as stack:
        for holder in holders:
            holder.start()
            stack.callback(holder.join)
    assert [holder.error for holder in holders] == [None] * 8
    assert sum(map(len, noted.values())) == 8 * goal
    for name, fences in noted.items():
        assert is_growing(fences), name
    everything = list(itertools.chain(*noted.values()))
    assert len(set(everything)) == len(everything), "two holders of one bucket with one number"
    assert rounds_of(first) + rounds_of(second) > 0 or offset_ms == 0
    assert {numbers_of(server) for server in first.masters} == {1}
