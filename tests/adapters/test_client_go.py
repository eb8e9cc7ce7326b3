# SPDX-License-Identifier: MIT
"""clients/adapters/client-go: candidates of client-go's leader election in processes of their own. Their work locks a file, so the kernel tells whether two
lead at once."""

import signal

import pytest

from go_adapters import Machine, build, check_sources, own_tests, url_of
from harness import SLOW, wait_until

TTL_MS = round(6000 * SLOW)


@pytest.fixture(scope="module")
def program():
    return build("client-go")


class Election:
    """Candidates for one lock."""

    def __init__(self, lab, program, *daemons):
        self.lab, self.program, self.servers = lab, program, ",".join(map(url_of, daemons))

    def candidate(self, identity):
        return Machine(self.lab, self.program, {"REDLOCKD_CANDIDATE": identity, "REDLOCKD_SERVERS": self.servers, "REDLOCKD_TTL": f"{TTL_MS}ms",
                                                "REDLOCKD_WORK": f"{self.lab.folder}/work"})


def leader_of(candidates):
    """Waits until one of them leads. Returns it and its fence."""
    said = wait_until(lambda: [candidate for candidate in candidates if not candidate.lines.empty()], 60, "a leader")
    assert len(said) == 1
    return said[0], int(said[0].expect("leads"))


def end_of(leader):
    """Waits until the leader has stopped and its work has ended. Returns the reason of the latter."""
    said = sorted([leader.line(), leader.line()])
    assert said[0] == "stopped" and said[1].startswith("works no more: "), said
    return said[1].removeprefix("works no more: ")


def extended(service):
    """How many leases were extended."""
    return service.metrics().get('redlockd_lease_requests_total{op="extend",outcome="ok"}', 0)


def test_sources():
    check_sources("client-go")


def test_its_own_tests(program, service):
    assert len(own_tests(program, url_of(service))) >= 7


def test_one_of_three_leads(lab, program):
    """A master is killed, then the leader, and the next one ends."""
    service = lab.service(3)
    election = Election(lab, program, service)
    candidates = [election.candidate(f"candidate-{number}") for number in range(3)]
    leader, fence = leader_of(candidates)
    service.masters[0].kill()
    before = extended(service)
    wait_until(lambda: extended(service) >= before + 4, 60, "renewals without a master")
    assert all(candidate.lines.empty() for candidate in candidates)
    state = service.curl("GET", "/locks/controller").json
    assert (state["fence"], state["owner"]) == (fence, f"candidate-{candidates.index(leader)}")
    leader.process.kill()
    candidates.remove(leader)
    leader, later = leader_of(candidates)
    assert later > fence
    leader.tell("end")
    assert end_of(leader) == "told to end"
    assert not service.curl("GET", "/locks/controller").json.get("kept")  # it is free at once
    assert (leader.wait(), leader.line()) == (0, None)
    candidates.remove(leader)
    assert leader_of(candidates)[1] > later


def test_redlockd_cannot_be_reached(lab, program):
    """The leader stops by its RenewDeadline, before it has lost its lease, and leads again later."""
    masters = lab.redises(3)
    service = lab.redlockd(masters)
    socket = service.address
    election = Election(lab, program, service)
    leader, fence = leader_of([election.candidate("alone")])
    service.stop()
    assert end_of(leader) in ("context canceled", "lost released")
    lab.redlockd(masters, listen=(socket,))
    assert int(leader.expect("leads")) > fence


def test_a_leader_that_stands_still(lab, program):
    """Another one leads meanwhile. The former one loses its lease by the clock as soon as it goes on."""
    service = lab.service(3)
    election = Election(lab, program, service)
    former, fence = leader_of([election.candidate("former")])
    former.stand_still()
    later = election.candidate("later")
    wait_until(lambda: service.curl("GET", "/locks/controller").json.get("owner") == "later", 60, "another leader")
    assert service.curl("GET", "/locks/controller").json["fence"] > fence
    former.process.send_signal(signal.SIGCONT)
    why = end_of(former)
    assert why.startswith("lost ") and why != "lost released"
    later.expect("crowded")  # the file, as the former one had it open
    assert former.lines.empty()
