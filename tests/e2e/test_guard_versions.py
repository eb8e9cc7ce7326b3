# SPDX-License-Identifier: MIT
"""Another version of redlockd on the same masters, and how --bootstrap goes from one layout to the next.

The other version is a hash as it wrote it, and its heartbeats: layout 1 had a `certificate` where later ones have an
`epoch`, and like layout 2 no digest beside the marker of a new master.
"""

import re
import threading
import time

import pytest

from guard_fixtures import HASH, LOCK, TTL_MS, Switch, code_of, guarded, limits, metric, quarantine_seconds, run_id_of, state_of, take, wait_state
from harness import SLOW, run_redlockd, wait_until
from test_fences import bucket_of

pytestmark = pytest.mark.slow  # waits for the ends of quarantines

LAYOUT_1, LAYOUT_2, FIVE = "0001000300004000", "0002000300004000", "0002000500004000"
EPOCH, CLUSTER, MARKER = "7b9cc2e25a2fb338", "3a0b74ae8da875ac", "5b9cc2e25a2fb339"
MICROSECONDS = 1000000


def hash_of(server, kind):
    """What another version left there."""
    run_id = run_id_of(server).decode()
    there = {"run_id": run_id, "cluster": CLUSTER, "ttl_ms": str(2 * TTL_MS), "floor": "0", "evicted": "0", "beat": "41"}
    return {
        "layout 1": {"certificate": EPOCH, "digest": LAYOUT_1, **there},
        "layout 2": {"epoch": EPOCH, "digest": LAYOUT_2, "timeout_ms": "50", **there},
        "layout 2, quarantined": {"marker": MARKER, "marker_run_id": run_id, "kept": "0", "digest": LAYOUT_2, **there},
        "new in layout 2": {"marker": MARKER, "marker_run_id": run_id, "kept": "0", "ttl_ms": str(TTL_MS), "beat": "2"},
        "five masters": {"epoch": EPOCH, "digest": FIVE, **there},
    }[kind]


KINDS = {"layout 1": "layout 1 for 3 masters", "layout 2": "layout 2 for 3 masters", "layout 2, quarantined": "layout 2 for 3 masters",
         "new in layout 2": "a layout before 3", "five masters": "layout 2 for 5 masters"}


def fields_of(server):
    fields = server.cli("HGETALL", HASH)
    return dict(zip(fields[::2], fields[1::2]))


def write(servers, kind):
    """Returns the hashes."""
    for server in servers:
        server.cli("DEL", HASH)
        server.cli("HSET", HASH, *(word for field in hash_of(server, kind).items() for word in field))
    return [fields_of(server) for server in servers]


def ours(servers):
    return int(servers[0].cli("HGET", HASH, "digest")[:4], 16)


class OtherVersion(threading.Thread):
    """A redlockd of another version, as far as the hashes show it."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.servers, self.end = servers, threading.Event()
        self.start()

    def run(self):
        while not self.end.wait(0.2):
            for server in self.servers:
                server.cli("HINCRBY", HASH, "beat", "1")

    def kill(self):
        self.end.set()
        self.join(20 * SLOW)


def refused(servers, *options):
    """Starts a redlockd that must refuse to start; returns the reason in its log."""
    result = run_redlockd("--listen", "127.0.0.1:0", "--masters", ",".join(server.url for server in servers), *limits(), *options)
    assert result.returncode == 2, result
    line = next(line for line in result.stderr.splitlines() if "event=other-digest" in line)
    assert "upgrade.md" in line, line
    return re.search(r'reason="([^"]+)"', line)[1]


# ------------------------------------------------------------------------------------------------------- left alone


@pytest.mark.parametrize("kind", KINDS)
def test_another_version_is_refused_at_the_start(lab, kind):
    """Whatever state it left its masters in. Both are named, and nothing is written."""
    servers = lab.redises(3)
    before = write(servers, kind)
    reason = refused(servers)
    assert re.match(rf"digest: it was written with {KINDS[kind]}, and this redlockd has layout [1-9]\d* for 3 masters$", reason), reason
    assert [fields_of(server) for server in servers] == before


@pytest.mark.parametrize("kind", KINDS)
def test_another_version_is_found_later(lab, kind):
    """The address leads to a master of another version: its hash is left alone, and the other masters go on."""
    servers, theirs = lab.redises(3), lab.redis()
    before = write([theirs], kind)
    switch = lab.keep(Switch(lab.folder, servers[0]))
    service = guarded(lab, [switch, *servers[1:]])
    switch.lead_to(theirs)
    told = wait_state(service, switch, "quarantined", "digest")
    assert KINDS[kind] in told["reason"] and f"this redlockd has layout {ours(servers)} for 3 masters" in told["reason"], told
    assert told["quarantine_remaining_ms"] is None
    assert metric(service, "master_quarantined", switch, reason="digest") == 1
    time.sleep(quarantine_seconds() + 2)  # it stays so, with --bootstrap, too
    take(service)
    assert code_of(state_of(service, switch)) == "digest"
    assert [fields_of(theirs)] == before and theirs.cli("EXISTS", LOCK) == 0
    switch.lead_to(servers[0])
    wait_state(service, switch, "voting")


def test_an_older_version_takes_the_masters(lab):
    """Layouts 1 and 2 compare less, so they may take masters of ours. We do not take them back, and say who has them."""
    servers = lab.redises(3)
    service = guarded(lab, servers)
    number = ours(servers)
    lab.keep(OtherVersion(servers))
    for server in servers:
        server.cli("HSET", HASH, "certificate", EPOCH, "digest", LAYOUT_1)
    for server in servers:
        wait_state(service, server, "quarantined", "digest")
    wait_until(lambda: all("a redlockd of that kind runs there" in state_of(service, server)["reason"] for server in servers), 5, "seen by its heartbeats")
    answer = service.curl("GET", "/readyz")
    assert answer.status == 503 and "layout 1" in answer.json["detail"] and f"layout {number}" in answer.json["detail"], answer
    assert [fields_of(server)["digest"] for server in servers] == [LAYOUT_1] * 3
    assert [fields_of(server)["certificate"] for server in servers] == [EPOCH] * 3


# ------------------------------------------------------------------------------------------------------- --bootstrap


@pytest.mark.parametrize("kind", ["layout 1", "layout 2, quarantined"])
def test_bootstrap_leaves_alone_what_is_in_use(lab, kind):
    servers = lab.redises(3)
    write(servers, kind)
    lab.keep(OtherVersion(servers))
    reason = refused(servers, "--bootstrap")
    assert "a redlockd of that kind runs there" in reason, reason
    for server in servers:
        there = fields_of(server)
        assert int(there.pop("beat")) > 41
        assert there == {field: value for field, value in hash_of(server, kind).items() if field != "beat"}


@pytest.mark.parametrize("kind", ["layout 1", "layout 2", "five masters"])
def test_bootstrap_takes_over(lab, kind):
    """When no redlockd of the other version runs any more, and after its longest lease: its last holder keeps its lock
    until then, and the next fence is larger."""
    servers = lab.redises(3)
    write(servers, kind)
    largest = int(time.time() * MICROSECONDS) + 3600 * MICROSECONDS  # the clocks alone would not do
    for server in servers[:2]:
        server.cli("HSET", HASH, bucket_of(LOCK), str(largest))
    start = time.monotonic()
    service = guarded(lab, servers, wait=False)
    assert service.curl("POST", "/locks", body={"resource": LOCK}).status == 503
    for server in servers:
        told = wait_state(service, server, "quarantined", "digest")
        assert "--bootstrap has taken it over" in told["reason"] and told["quarantine_remaining_ms"] > 0, told
        there = fields_of(server)
        before = hash_of(server, kind)
        assert "certificate" not in there and "epoch" not in there and there["cluster"] == before.get("cluster", there["marker"]), there
        assert int(there["beat"]) >= int(before["beat"]) and there["ttl_ms"] == before["ttl_ms"], there
    service.wait_voting(3)
    assert time.monotonic() - start >= quarantine_seconds(int(hash_of(servers[0], kind)["ttl_ms"]))
    assert take(service)["fence"] > largest
    assert len({fields_of(server)["cluster"] for server in servers}) == 1
