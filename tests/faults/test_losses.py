# SPDX-License-Identifier: MIT
"""The checkers of leases lost early and of idle runs, with histories made by hand: what they must find, and what they must let pass."""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "e2e")]

import checkers  # noqa: E402
import deployment  # noqa: E402
import excuses  # noqa: E402
import idleness  # noqa: E402
import losses  # noqa: E402
from test_checkers import MS, acquire, clock, extend, fault, inversions, overlaps, release  # noqa: E402

MASTERS = 5


def looks(at, *tokens, resource="r"):
    """Two looks at each master, 10 ms apart; a token, or None where nobody holds the resource, or "?" where the master does not answer."""
    return [{"master": number, "asked": (then + number) * MS, "answered": (then + number) * MS + 100, "tokens": {resource: token} if token else {}}
            for then in (at, at + 10) for number, token in enumerate(tokens) if token != "?"]


def find(events, seen=(), log=()):
    finder = losses.Finder(MASTERS, sorted(log, key=lambda one: one["at"]), list(seen))
    return [(loss.lease.token, loss.at // MS) for loss in finder.find(checkers.leases_of(events).values(), events)]


GRANT = acquire("a", 0, 10, 1)  # relied upon from 10 to 987


# ---- what the masters say ----


def test_a_lease_that_lies_on_a_majority_is_not_lost():
    assert find([GRANT], looks(500, "a", "a", "a", None, "b")) == []


def test_a_lease_that_several_hold_together_is_there_with_the_others():
    assert not find([GRANT], looks(500, "b a", "a", "c b a", None, "b c"))
    assert find([GRANT], looks(500, "b a", "a", "c b", None, "b c"))


@pytest.mark.parametrize("tokens", [(None,) * 5, ("a", "a", None, None, None), ("b", "b", "b", "a", "a"), ("?", "?", None, None, "b")])
def test_a_lease_that_a_majority_has_not_is_lost_whether_or_not_somebody_else_has_it(tokens):
    assert [token for token, _ in find([GRANT], looks(500, *tokens))] == ["a"]


def test_masters_that_lose_it_one_after_the_other_add_up():
    seen = looks(300, None, "a", "a", "a", "a") + looks(500, None, None, "a", "a", "a") + looks(700, None, None, None, "a", "a")
    assert find([GRANT], seen) == [("a", 702)]


def test_a_master_that_got_it_back_does_not_add_up():
    seen = looks(300, None, None, "a", "a", "a") + looks(500, *"aaaaa") + looks(700, "a", "a", None, "a", "a")
    assert find([GRANT], seen) == []
    one_look = [{**look, "tokens": {}} for look in looks(700, *"aaaaa")[:5]]
    assert find([GRANT], looks(500, *"aaaaa") + one_look + looks(720, *"aaaaa")) == []


@pytest.mark.parametrize("at", [0, 6, 985, 1200])
def test_before_its_answer_and_after_its_end_a_lease_may_be_missing(at):
    assert find([GRANT], looks(at, *[None] * 5)) == []


def test_after_its_release_was_sent_a_lease_may_be_missing_answered_or_not():
    assert find([GRANT, release("a", 400, 900, status=None)], looks(398, *[None] * 5)) == []
    assert find([GRANT, release("a", 400, 900, status=None)], looks(380, *[None] * 5)) == [("a", 382)]


def test_an_extension_keeps_it_for_longer():
    assert find([GRANT], looks(1200, *[None] * 5)) == []
    assert find([GRANT, extend("a", 900, 910, 1)], looks(1200, *[None] * 5)) == [("a", 1202)]


def test_masters_that_do_not_answer_say_nothing():
    assert find([GRANT], looks(500, None, None, "?", "?", "?")) == []


FORGETS = [
    [fault(300, "master killed, then empty", "master 0"), fault(310, "master killed, then empty", "master 0", "over")],
    [fault(300, "master flushed", "master 0", "before"), fault(301, "master flushed", "master 0", "after")],
    [fault(-5000, "master with maxmemory 1mb, allkeys-random", "master 0")],
    [clock(300, 0, 40, "master 0")],
    [clock(300, -2000, 0, "master 0")],
    [fault(300, "ended by itself", "master 0", "status 1")],
]


@pytest.mark.parametrize("log", FORGETS)
def test_a_master_that_may_have_forgotten_does_not_count(log):
    assert find([GRANT], looks(500, None, None, None, "a", "a"), log) == []
    assert find([GRANT], looks(500, None, None, None, None, "a"), log) == [("a", 503)]


@pytest.mark.parametrize("log", [
    [],
    [fault(700, "master killed, then empty", "master 0")],                               # the clock of the log is not so wrong
    [fault(-5000, "master killed, then empty", "master 0"), fault(-4000, "master killed, then empty", "master 0", "over")],
    [fault(300, "master killed, then with its file", "master 0"), fault(300, "master stopped", "master 1")],
    [clock(300, 0, -4000, "master 0"), clock(300, 0, 60_000, "redlockd 0")],
    [fault(300, "redlockd killed", "redlockd 0"), fault(300, "redlockd restarted", "redlockd 1"), fault(300, "network: cut", "pair 0-1")],
    [fault(300, "client process stopped", "clients c1"), fault(300, "storm", "masters"), fault(300, "waiters: forgotten", "master 2")],
])
def test_nothing_else_lets_a_master_forget(log):
    late = log and log[0]["at"] == 700 * MS
    assert find([GRANT], looks(150 if late else 500, None, None, None, "a", "a"), log) == [("a", 152 if late else 502)]


# ---- what redlockd says ----


def refused(kind, sent, received, code, votes_refused=3, way="unix"):
    return {"kind": kind, "client": "c", "daemon": 1, "resource": "r", "token": "a", "sent": sent * MS, "received": received * MS, "way": way,
            "status": {"not-owner": 409, "lease-expired": 410}.get(code, 503), "code": code, "votes": {"refused": votes_refused, "needed": 3}}


@pytest.mark.parametrize("kind", ["extend", "release"])
@pytest.mark.parametrize("code", ["not-owner", "lease-expired"])
def test_a_refusal_within_the_lease_is_a_loss(kind, code):
    assert find([GRANT, refused(kind, 500, 510, code)]) == [("a", 510)]
    assert find([GRANT, refused(kind, 980, 990, code)]) == []


def test_a_refusal_for_want_of_masters_is_none():
    assert find([GRANT, refused("extend", 500, 510, "no-quorum")]) == []


def test_a_second_release_and_one_through_a_proxy_prove_nothing():
    assert find([GRANT, release("a", 400), refused("release", 500, 510, "lease-expired")]) == []
    assert find([GRANT, refused("release", 500, 510, "lease-expired", way="nginx")]) == []
    assert find([GRANT, refused("extend", 500, 510, "lease-expired", way="nginx")]) == [("a", 510)]


@pytest.mark.parametrize("log", FORGETS)
def test_refusals_of_masters_that_may_have_forgotten_do_not_count(log):
    assert find([GRANT, refused("extend", 500, 510, "lease-expired")], log=log) == []
    assert find([GRANT, refused("extend", 500, 510, "lease-expired", votes_refused=4)], log=log) == [("a", 510)]


def test_a_loss_is_told_once_with_the_earliest_evidence():
    assert find([GRANT, refused("extend", 400, 410, "lease-expired")], looks(500, *[None] * 5)) == [("a", 410)]
    assert find([GRANT, refused("extend", 600, 610, "lease-expired")], looks(500, *[None] * 5)) == [("a", 502)]


# ---- a whole history, spoilt in one place ----


def sound():
    """Three holders, one after the other, with what the masters said meanwhile."""
    events = [acquire("a", 0, 10, 1), extend("a", 500, 510, 1), release("a", 600), acquire("b", 700, 710, 2), release("b", 800),
              acquire("c", 900, 910, 3)]
    seen = looks(100, *"aaaaa") + looks(550, *"aaa", None, None) + looks(650, *[None] * 5) + looks(750, *"bbbbb") + looks(1000, *"cccc", None)
    return events, seen


@pytest.mark.parametrize("at, who", [(None, None), (300, "a"), (580, "a"), (720, "b"), (1500, "c")])
def test_a_lease_that_is_gone_for_a_moment_is_lost_early(at, who):
    """And nothing else is found."""
    events, seen = sound()
    seen += looks(at, *[None] * 5) if at else []
    assert (overlaps(*events), inversions(*events)) == ([], [])
    assert [token for token, _ in find(events, seen)] == ([who] if who else [])


# ---- jobs ----


def job(asked, begin, *lives, token="j", fence=5):
    return checkers.Job([{"job": 7, "resource": "r", "token": token, "fence": fence, "asked": asked * MS, "begin": begin * MS},
                         *({"job": 7, "lives": at * MS} for at in lives)])


def test_a_job_holds_from_its_first_line_to_its_last():
    assert job(0, 10, 20, 5000).relied_upon() == [(10 * MS, 5000 * MS)]
    assert job(0, 10).relied_upon() == []


def test_a_job_overlaps_and_is_lost_like_any_lease():
    other = checkers.leases_of([acquire("b", 3000, 3010, 6)])["b"]
    assert [(one.first.token, one.second.token) for one in checkers.find_overlaps([job(0, 10, 2999), other])] == []
    assert [(one.first.token, one.second.token) for one in checkers.find_overlaps([job(0, 10, 3011), other])] == [("j", "b")]
    finder = losses.Finder(MASTERS, [], looks(3000, None, None, None, "j", "j"))
    assert [loss.lease.token for loss in finder.find([job(0, 10, 3021)], [])] == ["j"]
    assert finder.find([job(0, 10, 2999)], []) == []


def test_a_stall_of_the_machine_excuses_a_job_that_ended_late_and_nothing_else():
    second = acquire("b", 3000, 3010, 6)
    stall = {"at": 2000 * MS, "kind": "stall", "target": "machine", "what": "400 ms"}
    (late,) = checkers.find_overlaps([job(0, 10, 3011), *checkers.leases_of([second]).values()])
    (early,) = checkers.find_overlaps(checkers.leases_of([acquire("a", 2000, 2100, 5, ttl_ms=2000), second]).values())
    assert excuses.excuse_overlap(late, [stall]) and not excuses.excuse_overlap(late, [])
    assert not excuses.excuse_overlap(late, [{**stall, "at": 900 * MS}])
    assert not excuses.excuse_overlap(early, [stall])


# ---- runs that prove nothing ----


def busy_run():
    events = [{"kind": "acquire", "status": 201, "way": way, "after": after, "last": True, "sent": 0} for way in deployment.Ways.NAMES
              for after in ("keep", "idle", "reset", "close")]
    events += [{"kind": "idle", "status": None, "way": "tcp", "ended": True},
               {"kind": "acquire", "status": None, "code": "Unread", "way": "tcp", "after": "unread"}]
    faults = {"redlockd restarted by SIGTERM": 3, "rolling restart of redlockd": 1, "redlockd killed": 1, "long leases before": 4,
              "client process stopped": 1, "client stopped in its work": 0}
    return events, [job(0, 10, 20)], faults


def missing(events, jobs, faults, seen=1, leases=5000):
    return idleness.find_missing(idleness.count(events, jobs, faults), seen, leases)


def test_a_busy_run_lacks_nothing():
    assert missing(*busy_run()) == []


def test_a_run_without_looks_at_masters_proves_nothing():
    assert missing(*busy_run(), seen=0) and missing(*busy_run(), seen=0, leases=5)


def without(kind, which):
    """A busy run that lacks one thing."""
    events, jobs, faults = busy_run()
    if kind == "fault":
        return events, jobs, {**faults, which: 0}
    if kind == "way":
        return [{**event, "code": "proxy"} if event["way"] == which and event["kind"] == "acquire" and event["status"] else event for event in events], jobs, faults
    if kind == "jobs":
        return events, [], faults
    if kind == "never true":
        return [{**event, which: False} for event in events], jobs, faults
    return [event for event in events if event.get(kind) != which], jobs, faults


@pytest.mark.parametrize("kind, which, lacks", [
    *(("fault", name, 1) for name in ("redlockd restarted by SIGTERM", "rolling restart of redlockd", "redlockd killed", "long leases before", "client process stopped")),
    *(("way", way, 1) for way in deployment.Ways.NAMES), ("after", "reset", 1), ("after", "close", 1), ("jobs", None, 1), ("never true", "ended", 1),
    ("never true", "last", 1), ("kind", "idle", 2), ("code", "Unread", 1),
])
def test_a_run_that_lacks_something_proves_nothing(kind, which, lacks):
    found = missing(*without(kind, which))
    assert len(found) == lacks and (kind != "way" or found == [f"answers over {which}: never"]), found


def test_odd_ends_and_invalid_requests_are_found():
    assert idleness.find_odd_ends([{"status": 0}, {"status": 79}, {"status": 75}]) == []
    assert len(idleness.find_odd_ends([{"status": 64}, {"status": 76, "way": "tcp"}, {"status": -11}])) == 3
    assert idleness.find_odd_ends([{"status": 76, "way": "nginx"}]) == []
    assert idleness.find_invalid([{"status": 409}, {"status": None}, {"status": 503}]) == []
    assert len(idleness.find_invalid([{"status": 400}, {"status": 421}])) == 2


# ---- deployments ----


def test_a_seed_draws_the_same_deployment_again():
    assert deployment.Shape(7, 1500).options == deployment.Shape(7, 1500).options
    assert len({str(deployment.Shape(seed, 1500).options) for seed in range(20)}) > 10


@pytest.mark.parametrize("seed", range(20))
def test_each_deployment_has_different_replicas(seed):
    options = deployment.Shape(seed, 1500).options
    assert sorted(one["max-ttl-ms"] for one in options) == [deployment.NARROW_MAX_TTL_MS, 1500, 1500]
    assert sum(one["idle-timeout-ms"] <= 1000 for one in options) >= 2
    assert min(one["max-requests-per-connection"] for one in options) <= 10
    assert len({one["workers"] for one in options}) >= 2
