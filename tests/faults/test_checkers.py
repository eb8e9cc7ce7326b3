# SPDX-License-Identifier: MIT
"""The checkers of the real faults, with histories made by hand: what they must find, and what they must let pass."""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "e2e")]

import checkers  # noqa: E402
import excuses  # noqa: E402

MS = 1000


def acquire(token, sent, received, fence, ttl_ms=1000, resource="r", daemon=0, **more):
    """Times in ms. The drift is 12 ms of a second, as with the defaults; what the request took is not in validity_ms."""
    drift_ms = ttl_ms // 100 + 2
    return {"kind": "acquire", "client": "c", "daemon": daemon, "resource": resource, "token": token, "sent": sent * MS,
            "received": received * MS, "status": 201, "fence": fence, "ttl_ms": ttl_ms, "drift_ms": drift_ms,
            "validity_ms": ttl_ms - drift_ms - (received - sent), **more}


def extend(token, sent, received, fence, ttl_ms=1000, **more):
    return {**acquire(token, sent, received, fence, ttl_ms), "kind": "extend", "status": 200, **more}


def release(token, sent, received=None, status=204):
    return {"kind": "release", "client": "c", "daemon": 0, "resource": "r", "token": token, "sent": sent * MS,
            "received": (received or sent) * MS, "status": status}


def fault(at, kind, target, what="begins"):
    return {"at": at * MS, "kind": kind, "target": target, "what": what}


def leases(*events):
    return list(checkers.leases_of(events).values())


def overlaps(*events):
    return [(pair.first.token, pair.second.token, (pair.end - pair.start) // MS) for pair in checkers.find_overlaps(leases(*events))]


def inversions(*events):
    return [(pair.first.token, pair.second.token) for pair in checkers.find_inversions(leases(*events))[0]]


# ---- intervals ----


def test_the_interval_ends_with_what_can_be_proved_to_be_promised():
    (lease,) = leases(acquire("a", 0, 10, 1))
    # ttl − drift after the request was sent, less 1 ms for rounding; not validity_ms after the answer was received
    assert lease.relied_upon() == [(10 * MS, 987 * MS)]


def test_validity_that_says_more_than_that_counts():
    (lease,) = leases(acquire("a", 0, 10, 1, validity_ms=990))
    assert lease.relied_upon() == [(10 * MS, 990 * MS)]


def test_a_release_ends_it_when_it_is_sent_answered_or_not():
    (lease,) = leases(acquire("a", 0, 10, 1), release("a", 500, 900, status=None))
    assert lease.relied_upon() == [(10 * MS, 500 * MS)]


def test_an_answer_that_came_too_late_promises_nothing():
    (lease,) = leases(acquire("a", 0, 5000, 1, validity_ms=900))
    assert lease.relied_upon() == []


def test_an_extension_is_one_more_interval_and_a_refused_one_is_none():
    refused = {**extend("a", 300, 310, 1), "status": 503}
    (lease,) = leases(acquire("a", 0, 10, 1), refused, extend("a", 500, 510, 1))
    assert lease.relied_upon() == [(10 * MS, 987 * MS), (510 * MS, 1487 * MS)]
    assert lease.end() == 1487 * MS


def test_a_wait_does_not_eat_the_lease_where_the_answer_says_how_long_it_was():
    event = acquire("a", 0, 5010, 1, validity_ms=980)
    assert leases(event)[0].relied_upon() == []
    assert leases({**event, "waited_ms": 5000})[0].relied_upon() == [(5010 * MS, 5980 * MS)]


# ---- overlaps ----


def test_one_after_the_other_is_no_overlap():
    assert overlaps(acquire("a", 0, 10, 1), acquire("b", 960, 987, 2)) == []
    assert overlaps(acquire("a", 0, 10, 1), release("a", 50), acquire("b", 40, 51, 2)) == []


def test_a_lease_within_another_is_found_and_measured():
    assert overlaps(acquire("a", 0, 10, 1), acquire("b", 900, 980, 2)) == [("a", "b", 7)]


def test_other_resources_do_not_count():
    assert overlaps(acquire("a", 0, 10, 1), acquire("b", 20, 30, 2, resource="s")) == []


def test_shared_leases_and_those_on_different_slots_may_overlap_and_no_others():
    a, b = {"mode": "shared"}, {"slot": 1}
    for first, second, found in (a, a, 0), (a, {}, 1), ({}, a, 1), (a, b, 1), (b, a, 1), (b, {"slot": 2}, 0), (b, b, 1), (b, {}, 1), ({}, {}, 1):
        events = leases(acquire("a", 0, 10, 1, **first), acquire("b", 20, 30, 2, **second))
        assert len(checkers.find_overlaps(events)) == found, (first, second)
        assert len(checkers.find_overlaps(events, allowed=True)) == 1 - found, (first, second)


def test_a_lease_in_another_mode_than_was_asked_for_is_found():
    right = [acquire("a", 0, 10, 1, wanted=None, slots=0), acquire("b", 0, 10, 2, wanted="shared", slots=0, mode="shared"),
             acquire("c", 0, 10, 3, wanted=None, slots=2, slot=1)]
    assert not checkers.find_wrong_modes(right)
    wrong = [acquire("a", 0, 10, 1, wanted=None, slots=0, mode="shared"), acquire("b", 0, 10, 2, wanted="shared", slots=0),
             acquire("c", 0, 10, 3, wanted=None, slots=2, slot=2), acquire("d", 0, 10, 4, wanted=None, slots=2), acquire("e", 0, 10, 4, wanted=None, slots=0, slot=0)]
    assert checkers.find_wrong_modes(wrong) == wrong


def test_an_extended_lease_is_overlapped_where_it_was_extended():
    events = acquire("a", 0, 10, 1), extend("a", 900, 910, 1), acquire("b", 1000, 1010, 2)
    assert overlaps(*events) == [("a", "b", 877)]


def test_between_its_end_and_a_late_extension_nothing_is_relied_upon():
    assert overlaps(acquire("a", 0, 10, 1, 100), acquire("b", 100, 110, 2, 100), release("b", 150), extend("a", 90, 160, 1)) == []


def test_all_pairs_of_three_are_found_each_once():
    events = acquire("a", 0, 10, 1), extend("a", 20, 30, 1), acquire("b", 40, 50, 2), acquire("c", 60, 70, 3)
    assert sorted(pair[:2] for pair in overlaps(*events)) == [("a", "b"), ("a", "c"), ("b", "c")]


def test_a_short_one_between_does_not_hide_a_long_one():
    events = acquire("a", 0, 10, 1), acquire("b", 20, 30, 2, 100), acquire("c", 500, 510, 3)
    assert sorted(pair[:2] for pair in overlaps(*events)) == [("a", "b"), ("a", "c")]


def test_one_token_twice_is_refused():
    with pytest.raises(ValueError, match="one token"):
        leases(acquire("a", 0, 10, 1), acquire("a", 2000, 2010, 2))


# ---- fences ----


def test_growing_fences_pass():
    assert inversions(acquire("a", 0, 10, 1), acquire("b", 20, 30, 2), acquire("c", 40, 50, 7)) == []


def test_a_smaller_fence_is_found_also_long_after():
    events = acquire("a", 0, 10, 5), acquire("b", 20, 30, 6), acquire("c", 9000, 9010, 4)
    assert inversions(*events) == [("b", "c")]


def test_the_order_of_attempts_that_overlap_is_free():
    assert inversions(acquire("a", 0, 30, 5), acquire("b", 20, 40, 4)) == []


def test_an_equal_fence_is_an_inversion_and_given_twice():
    events = acquire("a", 0, 10, 5), acquire("b", 20, 30, 5)
    assert inversions(*events) == [("a", "b")]
    assert len(checkers.find_same_fences(leases(*events))) == 1
    assert len(checkers.find_same_fences(leases(acquire("a", 0, 30, 5), acquire("b", 20, 40, 5)))) == 1


def test_fences_are_those_of_one_resource():
    events = acquire("a", 0, 10, 5), acquire("b", 20, 30, 5, resource="s")
    assert inversions(*events) == [] and checkers.find_same_fences(leases(*events)) == []


def test_an_extension_must_tell_the_same_fence():
    assert checkers.find_changed_fences(leases(acquire("a", 0, 10, 5), extend("a", 20, 30, 5))) == []
    assert len(checkers.find_changed_fences(leases(acquire("a", 0, 10, 5), extend("a", 20, 30, 6)))) == 1


# ---- waits ----


def asked(sent, received, wait_ms, code=None, client="c3.1"):
    return {"kind": "acquire", "client": client, "daemon": 1, "resource": "r", "token": None, "sent": sent * MS, "received": received * MS,
            "status": 409 if code else None, "code": code or "TimeoutError", "wait_ms": wait_ms}


def hanging(event, *log):
    return checkers.find_hanging([event], log, 2000 * MS) == [event]


def test_who_waits_beyond_the_wait_is_hanging():
    assert not hanging(asked(0, 3000, 1000))
    assert hanging(asked(0, 3001, 1000))
    assert hanging(asked(0, 3001, 1000, "locked"))
    assert not hanging(asked(0, 9000, 0))


def test_who_waits_on_a_machine_where_all_are_late_is_not_hanging():
    late, others = asked(0, 5000, 1000), [asked(500, 2600, 0), asked(5001, 9000, 0)]
    assert checkers.find_hanging([late, *others], [], 2000 * MS) == []
    assert checkers.find_hanging([late, asked(500, 2400, 0), others[1]], [], 2000 * MS) == [late]


def test_stopped_processes_do_not_count_and_not_twice():
    stops = [fault(500, "redlockd stopped", "redlockd 1"), fault(1500, "redlockd stopped", "redlockd 1", "over")]
    assert not hanging(asked(0, 4000, 1000), *stops)
    assert hanging(asked(0, 4001, 1000), *stops)
    both = sorted([*stops, fault(900, "client stopped in its work", "clients c3"), fault(1600, "client stopped in its work", "clients c3", "over")],
                  key=lambda one: one["at"])
    assert not hanging(asked(0, 4100, 1000), *both)
    assert hanging(asked(0, 4101, 1000), *both)
    assert not hanging(asked(0, 9000, 1000), stops[0])


@pytest.mark.parametrize("log", [
    [fault(500, "redlockd stopped", "redlockd 2"), fault(2500, "redlockd stopped", "redlockd 2", "over")],
    [fault(500, "client process stopped", "clients c31"), fault(2500, "client process stopped", "clients c31", "over")],
    [fault(500, "master stopped", "master 1"), fault(2500, "master stopped", "master 1", "over")],
    [fault(4000, "redlockd stopped", "redlockd 1"), fault(6000, "redlockd stopped", "redlockd 1", "over")],
    [fault(500, "network: cut", "pair 1-2"), fault(2500, "network: cut", "pair 1-2", "over")],
])
def test_nothing_else_may_keep_a_waiter(log):
    assert hanging(asked(0, 3500, 1000), *log)


def test_who_waits_is_not_sent_away_before():
    assert checkers.find_impatient([asked(0, 1000, 1000, "locked"), asked(0, 5, 0, "locked"), asked(0, 5, 1000, "no-quorum")]) == []
    assert len(checkers.find_impatient([asked(0, 999, 1000, "locked")])) == 1


# ---- the guarded resource ----


def entry(op, token, at, taken=True, value=0):
    return {"op": op, "token": token, "resource": "r", "fence": 0, "at": at * MS, "taken": taken, "value": value}


def guarded(journal):
    return checkers.Guarded(journal, checkers.leases_of([acquire("a", 0, 10, 1), acquire("b", 1000, 1010, 2)]))


def test_writes_in_order_are_taken():
    found = guarded([entry("enter", "a", 20), entry("write", "a", 30, value=1),
                     entry("enter", "b", 1020, value=1), entry("write", "b", 1030, value=2)])
    assert (found.taken, found.refused, found.stale_taken, found.lost) == (2, 0, [], [])


def test_a_stale_write_that_is_refused_is_counted():
    found = guarded([entry("enter", "a", 20), entry("enter", "b", 1020),
                     entry("write", "a", 1030, taken=False), entry("write", "b", 1040, value=1)])
    assert (found.taken, found.refused, found.stale_refused, found.stale_taken, found.lost) == (1, 1, 1, [], [])


def test_a_stale_write_that_is_taken_is_found_whatever_its_fence():
    found = guarded([entry("enter", "a", 20), entry("enter", "b", 1020),
                     entry("write", "a", 1030, value=1), entry("write", "b", 1040, value=1)])
    assert [(stale[1].token, stale[2].token) for stale in found.stale_taken] == [("a", "b")]
    assert [lost[1].token for lost in found.lost] == ["b"]


def test_a_late_write_before_anybody_else_came_is_harmless():
    found = guarded([entry("enter", "a", 20), entry("write", "a", 995, value=1), entry("enter", "b", 1020, value=1)])
    assert (found.late_taken, found.stale_taken, found.lost) == (1, [], [])


# ---- excuses ----


def overlap(start=900, first_sent=0, daemon=1):
    events = acquire("a", first_sent, first_sent + 10, 1), acquire("b", start - 10, start, 2, daemon=daemon)
    (found,) = checkers.find_overlaps(leases(*events))
    return found


def clock(at, from_ms, to_ms, target="master 2"):
    return {"at": at * MS, "kind": "clock", "target": target, "what": "", "from_ms": from_ms, "to_ms": to_ms}


@pytest.mark.parametrize("log", [
    [],
    [fault(500, "client process stopped", "clients c1"), fault(600, "redlockd stopped", "redlockd 1")],
    [fault(500, "master stopped", "master 2"), fault(600, "network: held both ways", "pair 1-2")],
    [fault(500, "master killed, then empty", "master 2"), fault(500, "master flushed", "master 1")],
    [clock(500, 0, 60_000)],                              # large enough to be seen
    [clock(500, 0, 15)],                                  # the overlap is longer
    [clock(500, 0, -60_000), clock(500, 0, 60_000, "redlockd 1")],
    [clock(950, 0, 60_000), clock(960, 60_000, 0)],       # after the second lease
    [clock(500, 0, 60_000), fault(600, "redlockd killed", "redlockd 2", "over")],
    [fault(950, "master with maxmemory 1mb, allkeys-random", "master 1")],
])
def test_nothing_else_is_an_excuse(log):
    assert excuses.excuse_overlap(overlap(), log) is None


@pytest.mark.parametrize("log", [
    [clock(500, 0, 60_000), clock(600, 60_000, 0)],
    [clock(500, 0, 60_000), fault(600, "redlockd killed", "redlockd 1", "over")],
    [fault(500, "master with maxmemory 1mb, allkeys-random", "master 1")],
])
def test_what_nobody_could_see_is_an_excuse(log):
    assert excuses.excuse_overlap(overlap(), log)


def test_a_small_jump_excuses_a_small_overlap():
    assert excuses.excuse_overlap(overlap(start=980), [clock(500, 0, 15)])
    assert excuses.excuse_overlap(overlap(start=900), [clock(500, 0, 15)]) is None


def floor(after, before):
    return {"master": 0, "after": after * MS, "before": before * MS}


def test_a_fence_is_excused_only_by_a_floor_from_clocks_that_were_wrong():
    pair = checkers.Inversion(*leases(acquire("a", 0, 10, 5_000_000), acquire("b", 1000, 1010, 1_000_000)))
    between, before = [floor(500, 900)], [floor(-900, -500)]
    assert excuses.excuse_inversion(pair, [clock(5, 0, 4000)], between) is not None
    assert excuses.excuse_inversion(pair, [clock(5, 0, 3000), clock(600, 0, -1000, "redlockd 1")], between) is not None
    assert excuses.excuse_inversion(pair, [clock(5, 0, 3999)], between) is None
    assert excuses.excuse_inversion(pair, [clock(600, 0, 4000)], between) is None
    assert excuses.excuse_inversion(pair, [], between) is None
    assert excuses.excuse_inversion(pair, [clock(5, 0, 4000)], before) is None


def test_an_excuse_does_not_hide_what_comes_after_it():
    """a is before the floor, b and c after it: both are too small for a, which is excused; c is too small for b, which is not."""
    events = acquire("a", 0, 10, 9), acquire("b", 1000, 1010, 5), acquire("c", 2000, 2010, 4)
    found, excused = checkers.find_inversions(leases(*events), lambda pair: ("why", 900 * MS) if pair.first.token == "a" else None)
    assert [(pair.first.token, pair.second.token) for pair in found] == [("b", "c")]
    assert [(pair.second.token, reason) for pair, reason in excused] == [("b", "why"), ("c", "why")]
