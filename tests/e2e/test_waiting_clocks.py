# SPDX-License-Identifier: MIT
"""Several redlockd whose clocks differ: that costs fairness, as docs/explanation/safety.md says, and never more. Arrivals are told by clocks."""

import pytest

from test_fences import clock  # noqa: F401
from waiting_fixtures import crowd, lines, serve_all, wait_for_queue  # noqa: F401

AHEAD_MS = 30000


def pair(lab, clock, offset_ms):
    """Two redlockd over the same masters: one whose clock is right, one whose clock is not."""
    right = lab.service(3)
    return right, lab.redlockd(right.masters, env=clock(offset_ms))


@pytest.mark.parametrize("offset_ms", [AHEAD_MS, -AHEAD_MS], ids=["ahead", "behind"])
def test_a_clock_that_is_wrong_costs_fairness_alone(lab, resource, crowd, clock, offset_ms):
    """A redlockd whose clock is ahead queues behind others that come meanwhile, one whose clock is behind queues before
    them. All agree on one order: each waiter is served once, after the one before it, and those of one redlockd in the
    order of arrival."""
    right, wrong = pair(lab, clock, offset_ms)
    holder = right.acquire(resource, 60000)
    waiters = crowd.queue_up([right, wrong], resource, 6, ttl_ms=60000)
    of_right, of_wrong = waiters[0::2], waiters[1::2]
    assert len(set(map(tuple, lines(right.masters, resource)))) == 1, "all masters sort alike"
    served = serve_all(lambda: right.release(holder), waiters)
    assert served == (of_right + of_wrong if offset_ms > 0 else of_wrong + of_right)
    fences = [waiter.lease["fence"] for waiter in served]
    assert fences == sorted(set(fences)), "the order of holding, whatever the order of coming"
    wait_for_queue(right.masters, resource, 0)


def test_who_comes_after_one_whose_clock_is_ahead_is_not_kept_waiting(lab, resource, crowd, clock):
    """A queue entry far in the future blocks no other: present waiters get the lock."""
    right, wrong = pair(lab, clock, 1000 * AHEAD_MS)
    holder = right.acquire(resource, 60000)
    [late] = crowd.queue_up(wrong, resource, 1)
    assert right.release(holder).status == 204
    late.granted()
    [next_one] = crowd.queue_up(right, resource, 1)
    late.release()
    next_one.granted()
    next_one.release()


def test_a_clock_two_days_ahead_waits_in_no_queue(lab, resource, crowd, clock):
    """The masters refuse its guesses of fences, so it gets no lease; nor does it hold up those whose clocks are right."""
    right = lab.service(3)
    wrong = lab.redlockd(right.masters, env=clock(48 * 3600 * 1000))
    holder = right.acquire(resource, 60000)
    waiter = crowd.wait(wrong, resource, wait_ms=60000)
    [next_one] = crowd.queue_up(right, resource, 1)
    answer = waiter.answer()
    assert answer.code == "no-quorum", answer
    assert right.release(holder).status == 204
    next_one.granted()
    next_one.release()
