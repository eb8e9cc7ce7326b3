# SPDX-License-Identifier: MIT
"""redlockctl before the next master is restarted: list --below, health --restart-safe."""

import json

import pytest

from ctl import UNREACHABLE, USAGE, ctl, url
from fake_redlockd import fake  # noqa: F401
from harness import SLOW, wait_until

TTL_MS = min(round(30000 * SLOW), 60000)


@pytest.fixture
def lone(lab):
    """A redlockd whose masters no other test uses: they lose keys here."""
    return lab.service(3)


def listed(service, *options):
    done = ctl("list", "--json", *options, server=service)
    assert done.returncode == 0, done
    return [lock["resource"] for lock in json.loads(done.stdout)["locks"]]


def take(service, *names):
    for name in names:
        service.acquire(name, TTL_MS)
        wait_until(lambda: all(master.cli("EXISTS", name) == 1 for master in service.masters), what="all masters have it")  # noqa: B023


def test_locks_with_few_votes(lone):
    take(lone, "all", "two")
    assert listed(lone, "--below-full") == listed(lone, "--below", "3") == []
    lone.masters[1].cli("DEL", "two")
    assert listed(lone, "--below-full") == listed(lone, "--below", "3") == ["two"]
    assert listed(lone, "--below", "2") == [] and listed(lone) == ["all", "two"]
    assert listed(lone, "--below-full", "--prefix", "a") == []
    shown = ctl("list", "--below-full", server=lone).stdout
    assert "VOTES" in shown and "2 of 3" in shown and "1 lock\n" in shown


@pytest.mark.parametrize("options", [["--below", "2", "--below-full"], ["--below", "1"], ["--below", "x"]])
def test_mistakes_of_list(lone, options):
    assert ctl("list", *options, server=lone).returncode == USAGE


def restart_safe(*servers):
    return ctl("health", "--restart-safe", server=",".join(url(server) for server in servers))


def test_safe_when_nothing_lacks_a_vote(lone):
    done = restart_safe(lone)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    take(lone, "a", "b")
    done = restart_safe(lone)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_not_safe_while_a_lock_lacks_a_vote(lone):
    take(lone, "a", "b", "c/\u00e4")
    lone.masters[0].cli("DEL", "c/\u00e4")
    done = restart_safe(lone)
    assert done.returncode == UNREACHABLE and "1 lock lacks a vote: c/\u00e4\n" in done.stderr, done
    for name in ("a", "b"):
        lone.masters[2].cli("DEL", name)
    assert "3 locks lack a vote: " in restart_safe(lone).stderr


def test_not_safe_while_a_master_is_away(lone):
    lone.masters[1].kill()
    lone.wait_voting(2)
    done = restart_safe(lone)
    assert done.returncode == UNREACHABLE and lone.masters[1].url in done.stderr and " is " in done.stderr, done


def test_every_server_is_asked(lab, lone):
    """Each knows of those leases alone that it extended."""
    other = lab.redlockd(lone.masters)
    other.wait_voting(3)
    assert restart_safe(lone, other).returncode == 0
    other.stop()
    assert restart_safe(lone, other).returncode == UNREACHABLE and restart_safe(lone).returncode == 0


def test_an_extended_lease_that_lacks_a_vote(fake):  # noqa: F811
    """As of a shared lock whose key is there for other holders."""
    def masters(call):
        call.answer(200, {"masters": [{"address": "x", "state": "voting"}], "quorum": {"masters": 1}, "leases_below_full": 2})
    done = restart_safe(fake(state=masters))
    assert done.returncode == UNREACHABLE and "2 leases lack a vote" in done.stderr, done


ONE = {"masters": [{"address": "x", "state": "voting"}], "quorum": {"masters": 1}, "leases_below_full": 0}
UNCLEAR = {"older": {name: value for name, value in ONE.items() if name != "leases_below_full"}, "text": {**ONE, "leases_below_full": "0"},
           "negative": {**ONE, "leases_below_full": -1}, "no master": {**ONE, "masters": []}, "some masters": {**ONE, "quorum": {"masters": 3}},
           "nothing": {"leases_below_full": 0}}


@pytest.mark.parametrize("said", UNCLEAR)
def test_what_is_not_understood_is_not_safe(fake, said):  # noqa: F811
    done = restart_safe(fake(state=lambda call: call.answer(200, UNCLEAR[said])))
    assert done.returncode == 76 and "leases_below_full" in done.stderr, done


def test_a_lock_without_votes_is_not_safe(fake):  # noqa: F811
    lock = {"resource": "x", "held": True, "fence": 7}
    done = restart_safe(fake(state=lambda call: call.answer(200, ONE if call.path == "/masters" else {"locks": [lock], "cursor": None})))
    assert done.returncode == UNREACHABLE and "1 lock lacks a vote: x" in done.stderr, done


def test_a_filter_and_a_limit(fake):  # noqa: F811
    """The pages are large, whatever the limit: it counts what the filter leaves."""
    def answer(call):
        votes = [{"granted": 3 if number % 100 else 2, "masters": 3} for number in range(500)]
        call.answer(200, {"locks": [{"resource": f"{number:03}", "held": True, "votes": each} for number, each in enumerate(votes)], "cursor": None})
    server = fake(state=answer)
    for limit, names in ((2, ["000", "100"]), (5, ["000", "100", "200", "300", "400"])):
        done = ctl("list", "--below-full", "--limit", str(limit), "--json", server=server)
        found = json.loads(done.stdout)
        assert [lock["resource"] for lock in found["locks"]] == names and found["more"] == (limit == 2), found
    assert len(server.calls) == 2 and all("limit=1000" in call.path for call in server.calls)
