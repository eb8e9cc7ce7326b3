# SPDX-License-Identifier: MIT
"""GET /locks: many at once, of which a few of each worker are under way and the others wait for them; and what counts as held. The walk itself: test_leases.py."""

import json
import select

import pytest

from harness import SLOW, quote, read_response, wait_until
from proxy import Proxy

KEYS, CROWD = 250, 30
# The most commands of one worker that are under way at a time: see server/leases/lease_list.c.
SCANS, INSPECTIONS = 2, 32


class Stage:
    """Three masters behind proxies, with locks of strangers on all of them, and clients that ask for a listing and read its answer later."""

    def __init__(self, lab):
        self.servers = lab.redises(3)
        self.proxies = [lab.keep(Proxy(lab.folder, server)) for server in self.servers]
        self.service = lab.redlockd(self.proxies, "--master-timeout-ms", "10000", "--drain-ms", "1000")
        self.names = [f"many/{number:03}" for number in range(KEYS)]
        for server in self.servers:
            server.pipeline([("SET", name, "somebody-elses") for name in self.names])

    def ask(self, count):
        """On connections of their own; redlockd has read it all when it has answered some more."""
        clients = [self.service.connect(60) for _ in range(count)]
        for plain in clients:
            plain.sendall(b"GET /locks?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(3):
            assert self.service.curl("GET", "/healthz").status == 200
        return clients

    def scans(self):
        return [sum("COUNT 1 " not in " ".join(command) + " " for command in proxy.commands("SCAN")) for proxy in self.proxies]  # without the trial of the handshake

    def inspections(self):
        return [sum("many/" in " ".join(command) for command in proxy.commands("EVALSHA")) for proxy in self.proxies]

    def check(self, plain):
        answer = read_response(plain)
        assert answer is not None and answer.status == 200, answer
        page = json.loads(answer.body)
        assert sorted(lock["resource"] for lock in page["locks"]) == self.names and page["cursor"] is None


@pytest.fixture
def stage(lab):
    return Stage(lab)


def test_few_are_under_way_at_a_time(stage):
    """The masters see a few SCANs and inspections, however many clients ask; and each gets the whole list."""
    for server in stage.servers[1:]:
        server.stop()
    try:
        clients = stage.ask(CROWD)
        wait_until(lambda: stage.inspections()[1] > 0, what="inspections that two masters do not answer")
        for _ in range(3):
            assert stage.service.curl("GET", "/healthz").status == 200
        scans, inspections = stage.scans(), stage.inspections()
    finally:
        for server in stage.servers[1:]:
            server.cont()
    print(scans, inspections)
    for plain in clients:
        stage.check(plain)
        plain.close()
    assert scans[0] <= SCANS and scans[1:] == [0, 0] and max(inspections) <= INSPECTIONS, (scans, inspections)


def test_those_that_left_are_not_served(stage):
    """Each listing sends the masters the same commands; a client that left before its turn adds none."""
    [plain] = stage.ask(1)
    stage.check(plain)
    plain.close()
    alone = sum(stage.scans())
    for server in stage.servers[1:]:
        server.stop()
    try:
        clients = stage.ask(CROWD)
        for plain in clients[2:-5]:
            plain.close()
        connected = len(clients[:2] + clients[-5:])
        wait_until(lambda: stage.service.metrics()["redlockd_http_connections"] <= connected + 1, what="they are noticed")
    finally:
        for server in stage.servers[1:]:
            server.cont()
    for plain in clients[:2] + clients[-5:]:
        stage.check(plain)
        plain.close()
    # Of those that were under way some may have left, too, with one SCAN done.
    assert alone * 8 <= sum(stage.scans()) <= alone * 8 + SCANS, (alone, stage.scans())


def test_a_scan_that_is_not_answered_stops_nobody(lab):
    """The reply is lost, the connection stays: the next master is asked after a while, and those who wait get their turn."""
    servers = lab.redises(3)
    proxies = [lab.keep(Proxy(lab.folder, server)) for server in servers]
    service = lab.redlockd(proxies)
    service.acquire("there", 60000)
    proxies[0].swallow = True
    clients = [service.connect(60) for _ in range(8)]
    for plain in clients:
        plain.sendall(b"GET /locks HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for plain in clients:
        assert select.select([plain], [], [], 20 * SLOW)[0], "a listing waits for a reply that never comes"
        answer = read_response(plain)
        assert answer.status == 200 and [lock["resource"] for lock in answer.json["locks"]] == ["there"], answer
        plain.close()


def test_the_end_with_listings_under_way(stage):
    """Those that wait for their turn are ended with redlockd; nothing is left (the sanitizers look)."""
    stage.servers[0].stop()
    try:
        clients = stage.ask(CROWD)
        for plain in clients[::2]:
            plain.close()
        stage.service.stop()
    finally:
        stage.servers[0].cont()
    for plain in clients[1::2]:
        plain.close()


def test_a_walk_over_tables_that_are_resized(lab):
    """Locks that are held all the time are listed, also if the masters rehash their keys between two pages."""
    service, added = lab.service(3), [0]
    names, client = {f"held/{number}" for number in range(90)}, service.client()
    for name in names:
        assert client.call("POST", "/locks", {"resource": name, "ttl_ms": 60000}).status == 201
    client.close()

    def add():
        if added[0] < 3000:
            added[0] += 60
            for server in service.masters:
                server.pipeline([("SET", f"others/{added[0] + number}", "x") for number in range(60)])
    assert listed(service, "held/", add) == names


def test_locks_that_end_during_the_walk_hide_no_others(service, resource):
    """Though they were before the others in the same step of the scan."""
    names = {f"{resource}/{number}" for number in range(24)}
    for name in names:
        service.acquire(name, 60000)
    found, page = set(), {"cursor": ""}
    while page["cursor"] is not None:
        page = service.curl("GET", f"/locks?prefix={quote(resource)}&limit=3" + (f"&cursor={page['cursor']}" if page["cursor"] else "")).json
        for lock in page["locks"]:
            found.add(lock["resource"])
            assert service.curl("DELETE", f"/locks/{quote(lock['resource'])}?force=true").status in (204, 410)
    assert found == names


def test_a_lock_that_reaches_a_scanned_master_is_listed_once(lab):
    """Held on a majority all the time: a key that another master gets, or loses, after its scan neither hides the lock nor shows it twice."""
    servers = lab.redises(3)
    service = lab.redlockd(servers, "--master-timeout-ms", "10000")
    late, gone = service.acquire("late", 60000), service.acquire("gone", 60000)
    servers[0].cli("DEL", "late")
    before = servers[0].calls()["scan"]
    servers[1].stop()  # the inspections of the first scan wait for it, and the next scan
    plain = service.connect()
    try:
        plain.sendall(b"GET /locks HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: servers[0].calls()["scan"] > before, what="the scan of the first master")
        servers[0].cli("SET", "late", servers[2].cli("GET", "late"), "PX", 60000)
        servers[0].cli("DEL", "gone")
    finally:
        servers[1].cont()
    answer = read_response(plain)
    plain.close()
    assert sorted((lock["resource"], lock["fence"]) for lock in answer.json["locks"]) == [("gone", gone["fence"]), ("late", late["fence"])], answer


def test_masters_that_may_not_vote_are_not_down(lab):
    """Without a quorum a listing says why, as the other calls do."""
    servers = lab.redises(3)
    service = lab.redlockd(servers, "--bootstrap=false", wait=False)

    def states():
        return [master["state"] for master in service.curl("GET", "/masters").json["masters"]]

    def problem(path):
        answer = service.curl("GET", path)
        assert answer.code == "no-quorum"
        return answer.json["votes"] | {"granted": 0, "refused": 0}, answer.json["detail"]
    wait_until(lambda: states() == ["quarantined"] * 3, what="new masters in quarantine")
    assert problem("/locks") == problem("/locks/a") and problem("/locks")[0]["quarantined"] == 3
    servers[0].kill()
    wait_until(lambda: states() == ["down", "quarantined", "quarantined"], what="a master that is down")
    votes = problem("/locks")[0]
    assert (votes["failed"], votes["quarantined"]) == (1, 2)


# ---- of one owner ----


def walk(service, query):
    """The pages of a listing."""
    pages, cursor = [], ""
    while cursor is not None:
        answer = service.curl("GET", f"/locks?{query}" + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status == 200, answer
        pages.append(answer.json["locks"])
        cursor = answer.json["cursor"]
    return pages


def names_of(pages):
    return {lock["resource"] for page in pages for lock in page}


def test_the_locks_of_an_owner(service, resource):
    """Exact bytes: no beginning, no other case; with a prefix; and those without an owner."""
    owners = [f"{resource}-7", f"{resource}-77", f"{resource}-7".upper(), f"{resource}-", f"{resource} müller", f"{resource}:b c&d", resource.ljust(128, "o")]
    for number, owner in enumerate(owners):
        for name in ("a", "b"):
            service.acquire(f"{resource}/{name}/{number}", 60000, owner=owner)
    service.acquire(f"{resource}/a/none", 60000)
    for server in service.masters:
        server.cli("SET", f"{resource}/a/strange", "somebody-else's", "PX", 60000)
    for number, owner in enumerate(owners):
        pages = walk(service, f"owner={quote(owner)}")
        assert names_of(pages) == {f"{resource}/a/{number}", f"{resource}/b/{number}"}, owner
        assert {lock["owner"] for page in pages for lock in page} == {owner}
        assert names_of(walk(service, f"prefix={quote(resource)}/a/&owner={quote(owner)}")) == {f"{resource}/a/{number}"}
    assert names_of(walk(service, f"prefix={quote(resource)}/&owner=")) == {f"{resource}/a/none"}
    assert names_of(walk(service, "owner=nobody")) == set()
    for server in service.masters:
        server.cli("DEL", f"{resource}/a/strange")


def test_an_owner_that_is_none(service):
    for bad in ("o" * 129, "%00", "%0A", "%FF", "a&owner=a"):
        answer = service.curl("GET", f"/locks?owner={bad}")
        assert answer.status == 400 and [error["field"] for error in answer.json["errors"]] == ["owner"], (bad, answer)


def test_a_rare_owner_among_many(lab):
    """Some pages are empty and go on; no page inspects more than the largest page holds and a step."""
    service = lab.service(3)
    for number in range(3):
        service.acquire(f"rare/{number}", 60000, owner="rare")
    for server in service.masters:
        server.pipeline([("SET", f"many/{number}", f"{number:040x}:0:{number + 1}::other") for number in range(1500)])
    before = service.masters[0].calls().get("evalsha", 0)
    pages = walk(service, "owner=rare&limit=1000")
    assert names_of(pages) == {f"rare/{number}" for number in range(3)}
    assert len(pages) >= 2, "each page is bounded"
    assert service.masters[0].calls()["evalsha"] - before < 2 * 2 * 1600  # both scanned masters, and an inspection asks each master once
    for limit in (1, 2):
        pages = walk(service, f"owner=rare&prefix=rare/&limit={limit}")
        assert names_of(pages) == {f"rare/{number}" for number in range(3)} and max(map(len, pages)) <= limit


# ---- what counts as held ----

STRANGE = {
    "a value": ("SET", "somebody-elses"),
    "a hash": ("HSET", "8743c9c0:1", "1"),
    "a list": ("RPUSH", "one"),
    "a set": ("SADD", "one"),
    "a sorted set": ("ZADD", "1", "one"),
    "a stream": ("XADD", "*", "one", "1"),
}


def listed(service, prefix, between=lambda: None):
    found, cursor = [], ""
    while cursor is not None:
        between()
        page = service.curl("GET", f"/locks?prefix={prefix}&limit=3" + (f"&cursor={cursor}" if cursor else "")).json
        found += page["locks"]
        cursor = page["cursor"]
    return {lock["resource"] for lock in found}  # as with SCAN, a key may come twice if the table of a master is resized meanwhile


@pytest.mark.parametrize("masters", [1, 3, 4])
def test_a_listing_and_an_inspection_agree(lab, masters):
    """Keys of every kind, on every number of masters, of one holder or each of its own: what one call says is held the other does; and it
    is what cannot be acquired."""
    service = lab.service(masters, "--retry-count", "2")
    names = []
    for how, (command, *rest) in STRANGE.items():
        for count in range(1, masters + 1):
            names.append(f"held/{how.replace(' ', '-')}/{count}")
            for server in service.masters[-count:]:
                server.cli(command, names[-1], *rest)
    for count in range(1, masters + 1):  # several applications, each with a lock on one master
        names.append(f"held/several/{count}")
        for number, server in enumerate(service.masters[:count]):
            server.cli("SET", names[-1], f"application-{number}", "PX", "600000")
    states = listed(service, "held/")
    held = {}
    for name in names:
        state = service.curl("GET", f"/locks/{name}").json
        held[name] = state["held"]
        assert state["held"] == (name in states), (name, state)
    acquired = {name: service.curl("POST", "/locks", body={"resource": name, "ttl_ms": 60000}).status == 201 for name in names}
    assert acquired == {name: not is_held for name, is_held in held.items()}
    assert {int(name.rpartition("/")[2]) for name in names if not held[name]} == set(range(1, masters - masters // 2))
