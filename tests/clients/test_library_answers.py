# SPDX-License-Identifier: MIT
"""Answers that nobody may believe: the cases of hostile_cases.py for the client libraries of all languages.

A library has one driver for all cases, and each case a client of its own. The cases of renewals run at the same time.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import hostile_cases
from driver import DRIVERS, HERE, Driver, Refused
from fake_server import ANSWERS, FakeRedlockd
from harness import DIES_WITH_US, SLOW, starved_seconds, wait_until

TTL = 20
RENEWED = 12 * SLOW  # the ttl of a lease whose renewal is tried: all begin at once, and that takes time
OF = {
    kind: [case for case in hostile_cases.CASES.values() if case.call == kind]
    for kind in ("acquire", "extend", "release")
}


class Trial:
    """A driver, the hostile server, and the next one of the list, which answers usefully."""

    def __init__(self, language, folder):
        self.language, self.renewals, self.starved, self.driver = language, None, 0, None
        self.first = FakeRedlockd(os.path.join(folder, "first"), "", hostile_cases.behave)
        self.second = FakeRedlockd(os.path.join(folder, "second"), "", lambda call: ANSWERS[call.kind](call))
        self.restart()

    def restart(self):
        self.driver = Driver(self.language)

    def client(self, name, servers):
        if self.driver.process.poll() is not None:  # another case has ended it
            self.restart()
        self.driver.ask("client", client=name, servers=[server.address for server in servers], timeout=20 * SLOW)

    def start(self, case, name, ttl=TTL, servers=None):
        """Begins an acquisition as the case needs it."""
        self.client(name, servers or (self.first,))
        resource = [name, name + "+"] if case.several else name
        return self.driver.start(
            "acquire", client=name, lease=name, resource=resource, ttl=ttl, **{"try": True}, **case.asks
        )

    def release(self, name):
        return self.driver.ask("release", lease=name)["released"]

    def end(self):
        self.driver.kill()
        self.first.kill()
        self.second.kill()


@pytest.fixture(scope="module", params=sorted(DRIVERS))
def trial(request, tmp_path_factory):
    made = Trial(request.param, str(tmp_path_factory.mktemp("trial")))
    yield made
    made.end()


def ids(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def outcome(answers):
    """What the caller is told: a fence, None where somebody else has the lock, or the error."""
    try:
        return answers.get().get("fence")
    except Refused as refused:
        return refused


@ids([case for case in OF["acquire"] if case.must == "again"])
def test_no_lease_comes_of_a_wrong_answer(trial, case):
    """The request is repeated with the same key, and the right answer is taken. Without one, the error says what was
    wrong."""
    once, always = trial.start(case, case.name), trial.start(case, case.name + "/always")
    assert outcome(once) == hostile_cases.RIGHT and case.kept(trial.first, trial.second, case.name)
    assert trial.release(case.name)
    told = outcome(always)
    assert isinstance(told, Refused) and told.code == "no-answer" and (case.says or "") in str(told), told
    assert len(trial.first.of("acquire", name=case.name + "/always")) in (2, 3)


@ids([case for case in OF["acquire"] if case.must == "told"])
def test_no_lease_comes_with_an_error(trial, case):
    told = outcome(trial.start(case, case.name))
    assert told is None if case.code == "locked" else isinstance(told, Refused) and told.code == case.code
    assert case.kept(trial.first, trial.second, case.name)


@ids([case for case in OF["acquire"] if case.must == "taken"])
def test_an_odd_answer_that_is_right_is_taken(trial, case):
    assert outcome(trial.start(case, case.name)) in (hostile_cases.RIGHT, 2**53 - 1)
    assert case.kept(trial.first, trial.second, case.name)
    assert trial.release(case.name)


def all_renewals(trial):
    """The leases of all cases of renewals, which take their time together."""
    if trial.renewals is None:
        trial.starved = starved_seconds()
        trial.renewals = {
            case.name: trial.start(case, case.name, RENEWED, (trial.first, trial.second)) for case in OF["extend"]
        }
    return trial.renewals


def wait_until_or(condition, end):
    """At most until `end`: by then the lease is over."""
    wait_until(lambda: condition() or time.monotonic() > end)


@ids([case for case in OF["extend"] if case.must == "next"])
def test_a_wrong_answer_to_a_renewal_asks_the_next_server(trial, case):
    """At once, so that the lease is kept; after a fifth of the ttl if there is no answer."""
    assert outcome(all_renewals(trial)[case.name]) == hostile_cases.RIGHT
    first = trial.first.call("extend", name=case.name)
    wait_until_or(lambda: trial.second.of("extend", name=case.name), first.came + RENEWED)
    assert case.kept(trial.first, trial.second, case.name)
    share = 2 if case.name == "put-hung" else 4
    took = trial.second.of("extend", name=case.name)[0].came - first.came
    assert took < RENEWED / share + starved_seconds() - trial.starved
    trial.driver.ask("check", lease=case.name)
    assert trial.driver.ask("remaining", lease=case.name)["remaining"] <= RENEWED
    assert trial.release(case.name)


@ids([case for case in OF["extend"] if case.must == "taken"])
def test_interim_answers_to_a_renewal_are_skipped(trial, case):
    assert outcome(all_renewals(trial)[case.name]) == hostile_cases.RIGHT
    first = trial.first.call("extend", name=case.name)
    wait_until_or(lambda: len(trial.first.of("extend", name=case.name)) > 1, first.came + RENEWED)
    assert len(trial.first.of("extend", name=case.name)) > 1
    assert not trial.second.of("extend", name=case.name)
    trial.driver.ask("check", lease=case.name)
    assert trial.release(case.name)


@ids(OF["release"])
def test_a_release(trial, case):
    """That is not answered as it was asked goes to the next server; one behind interim answers does not."""
    assert outcome(trial.start(case, case.name, servers=(trial.first, trial.second))) == hostile_cases.RIGHT
    assert trial.release(case.name)
    assert len(trial.second.of("release", name=case.name)) == (case.must == "next")
    assert len(trial.first.of("release", name=case.name)) == 1


def test_the_program_says_which_rules_were_kept():
    """A client that asks once has kept the rule for an answer that is right, and not the one for a wrong answer."""
    command = [*DIES_WITH_US, sys.executable, str(HERE / "hostile_server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        address = program.stdout.readline().split()[-1].removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=20 * SLOW)
        for name in ("taken-blanks", "post-token-short"):
            connection.request("POST", "/locks", json.dumps({"resource": name}), {"Idempotency-Key": 32 * "k"})
            assert connection.getresponse().read()
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=20 * SLOW)
        assert program.returncode == 1 and "\nkept: taken-blanks:" in said and "\nBROKEN: post-token-short:" in said
