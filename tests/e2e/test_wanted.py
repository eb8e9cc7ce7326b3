# SPDX-License-Identifier: MIT
"""The holder learns that somebody waits: `waiters` in the answers to PUT, and `wanted` in the stream of a held lock."""

import re

from harness import wait_until
from test_hold import hold  # noqa: F401
from waiting_fixtures import crowd, wait_for_queue  # noqa: F401


def marks(service, resource):
    """How many masters know that the holder wants to be told."""
    return sum(master.cli("EXISTS", f"redlockd:wanted:{resource}") for master in service.masters)


def listening(service, *resources):
    wait_until(lambda: all(marks(service, resource) == 3 for resource in resources), what="all masters are asked")


def published(service):
    """How many messages were published on all masters so far."""
    return sum(int(re.search(r"cmdstat_publish:calls=(\d+)", master.cli("INFO", "commandstats"))[1]) for master in service.masters)


def extend(service, lease, status=200):
    named = {name: lease[name] for name in ("resource", "resources") if name in lease}
    answer = service.curl("PUT", "/locks", body={**named, "token": lease["token"], "ttl_ms": 60000})
    assert answer.status == status, answer
    return answer.json


def next_of(stream, event):
    """The next event but renewals."""
    while (found := stream.event())["event"] == "renewed":
        assert isinstance(found["waiters"], int)
    assert found["event"] == event, found
    return found


def test_extensions_count_waiters(lab, crowd):  # noqa: F811
    service = lab.service()
    for members in ({"resource": "r"}, {"resource": "shared", "mode": "shared"}, {"resource": "slot", "slots": 1}):
        lease = service.acquire(ttl_ms=60000, **members)
        for count in range(3):
            assert extend(service, lease)["waiters"] == count
            crowd.wait(service, members["resource"], **({"slots": 1} if "slots" in members else {}))
            wait_for_queue(service.masters, members["resource"], count + 1)


def test_a_master_without_its_queue_hides_no_waiter(lab, crowd):  # noqa: F811
    """It was restarted without a disk, and is one of the two that answer."""
    service = lab.service()
    lease = service.acquire("r", 60000)
    for count in range(3):
        crowd.wait(service, "r")
        wait_for_queue(service.masters, "r", count + 1)
    service.masters[0].cli("DEL", "redlockd:queue:r")
    service.masters[2].stop()
    assert extend(service, lease)["waiters"] == service.curl("GET", "/locks/r").json["waiters"] == 3
    service.masters[2].cont()


def test_a_set_counts_its_longest_queue(lab, crowd):  # noqa: F811
    service = lab.service()
    answer = service.curl("POST", "/locks", body={"resources": ["a", "b"], "ttl_ms": 60000})
    assert answer.status == 201, answer
    for count, resource in enumerate(("b", "b", "a"), start=1):
        crowd.wait(service, resource)
        wait_for_queue(service.masters, resource, count if resource == "b" else 1)
    assert extend(service, answer.json)["waiters"] == 2


def test_the_first_waiter_is_reported_once(lab, crowd, hold):  # noqa: F811
    one = lab.service()
    other = lab.redlockd(one.masters)
    stream = hold(one, "r", ttl_ms=60000)
    stream.acquired()
    listening(one, "r")
    for through in (one, other, one):
        waiters = [crowd.wait(through, "r")]
        wanted = next_of(stream, "wanted")
        assert wanted["waiters"] == 1, wanted
        for count in (2, 3):
            waiters.append(crowd.wait(other, "r"))
            wait_for_queue(one.masters, "r", count)
        for waiter in waiters:
            waiter.leave()
        wait_for_queue(one.masters, "r", 0)
    assert stream.lines.empty(), "reported more than once"


def test_sets_and_leases_that_leave_room_for_others(lab, crowd, hold):  # noqa: F811
    service = lab.service()
    streams = {"b": [hold(service, ["a", "b"], ttl_ms=60000)],
               "shared": [hold(service, "shared", mode="shared", ttl_ms=60000) for _ in range(2)],
               "slot": [hold(service, "slot", slots=1, ttl_ms=60000)]}
    for resource, several in streams.items():
        for stream in several:
            stream.acquired()
        listening(service, resource)
    for resource, several in streams.items():
        crowd.wait(service, resource, **({"slots": 1} if resource == "slot" else {}))
        for stream in several:
            assert next_of(stream, "wanted")["waiters"] == 1


def test_a_lease_granted_while_others_wait(lab, crowd, hold):  # noqa: F811
    service = lab.service()
    lease = service.acquire("r", 60000)
    stream = hold(service, "r", ttl_ms=60000, wait_ms=60000)
    wait_for_queue(service.masters, "r", 1)
    crowd.queue_up(service, "r", 2)
    wait_for_queue(service.masters, "r", 3)
    assert service.release(lease).status == 204
    stream.acquired()
    assert next_of(stream, "wanted")["waiters"] == 2


def test_renewals_have_the_number(lab, crowd, hold):  # noqa: F811
    service = lab.service()
    stream = hold(service, "r", ttl_ms=6000)
    stream.acquired()
    assert stream.event()["waiters"] == 0
    crowd.queue_up(service, "r", 2)
    wait_for_queue(service.masters, "r", 2)
    next_of(stream, "wanted")
    wait_until(lambda: stream.event().get("waiters") == 2, what="a renewal counts both")


def test_messages_do_not_grow_with_waiters(lab, crowd, hold):  # noqa: F811
    service = lab.service()
    lease, before = service.acquire("plain", 60000), published(service)
    assert extend(service, lease)["waiters"] == 0
    crowd.queue_up(service, "plain", 3)
    wait_for_queue(service.masters, "plain", 3)
    assert published(service) == before, "nobody asked"
    stream = hold(service, "r", ttl_ms=60000)
    stream.acquired()
    listening(service, "r")
    crowd.queue_up(service, "r", 40)
    wait_for_queue(service.masters, "r", 40)
    assert published(service) == before + 3, "one message of each master"
    next_of(stream, "wanted")
    assert stream.lines.empty()


def test_nothing_is_published_after_the_lease_that_asked(lab, crowd, hold):  # noqa: F811
    service = lab.service()
    stream = hold(service, "r", ttl_ms=60000)
    stream.acquired()
    listening(service, "r")
    stream.kill()
    wait_until(lambda: not any(master.cli("EXISTS", "r") for master in service.masters), what="released")
    service.acquire("r", 60000)
    before = published(service)
    crowd.wait(service, "r")
    wait_for_queue(service.masters, "r", 1)
    assert published(service) == before
