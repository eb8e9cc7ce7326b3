# SPDX-License-Identifier: MIT
"""Repair: an extension that a majority granted gives the key back to each master that has lost it, so that a lease that is renewed outlives restarts."""

import threading

import pytest

from harness import SLOW, wait_until
from master_checks import master_of
from proxy import Proxy
from test_hold import hold  # noqa: F401
from waiting_fixtures import crowd  # noqa: F401

TTL_MS = min(round(5000 + 5000 * SLOW), 60000)  # a few calls of curl on a busy machine take less


@pytest.fixture
def lone(lab):
    """A redlockd whose masters no other test uses: they lose keys here."""
    return lab.service(3)


def take(service, status=201, **members):
    answer = service.curl("POST", "/locks", body={"ttl_ms": TTL_MS, **members})
    assert answer.status == status, answer
    return answer.json


def names_of(lease):
    return {"resources": lease["resources"]} if "resources" in lease else {"resource": lease["resource"]}


def extend(service, lease, status=200, ttl_ms=TTL_MS):
    answer = service.curl("PUT", "/locks", body={**names_of(lease), "token": lease["token"], "ttl_ms": ttl_ms})
    assert answer.status == status, answer
    return answer.json


def release(service, lease, status=204):
    answer = service.curl("DELETE", "/locks", body={**names_of(lease), "token": lease["token"]})
    assert answer.status == status, answer


def keys_of(lease):
    return sorted(lease.get("resources", [lease.get("resource")]))


def content(master, lease):
    """What a master has of the lease, but for the times in its own clock."""
    found = []
    for key in keys_of(lease):
        if master.cli("TYPE", key) == "string":
            found.append(master.cli("GET", key))
        else:
            holders = "redlockd:holders:" + key
            found += [master.cli("HGET", holders, lease["token"])]
            slot = lease.get("slot")
            found += [master.cli("HGET", holders, f"#{slot}") if slot is not None else None]
    return [None if not value else [part for at, part in enumerate(value.replace(";", ":", 1).split(":")) if at != 1] for value in found]


def has_it(master, lease):
    return None not in content(master, lease)[:1] and all(master.cli("EXISTS", key) == 1 for key in keys_of(lease))


def repairs(service):
    return service.metrics()["redlockd_repairs_total"]


def lose(master, lease):
    """As a master does that was restarted without its memory, and votes again."""
    for key in keys_of(lease):
        master.cli("DEL", key, "redlockd:holders:" + key)


KINDS = {"exclusive": {"resource": "a/lock"}, "shared": {"resource": "a/lock", "mode": "shared"}, "slot": {"resource": "a/lock", "slots": 3},
         "set": {"resources": ["a/lock", "b/lock", "c/lock"]}, "shared set": {"resources": ["a/lock", "b/lock"], "mode": "shared"}}
LABELS = {"bare": {}, "owner": {"owner": "worker-7"}, "all": {"owner": "w:7", "metadata": {"at": "host:1", "b": [1, "x"]}}, "metadata": {"metadata": {"a": 1}}}


@pytest.mark.parametrize("kind, label", [*((kind, "all") for kind in KINDS), *(("exclusive", label) for label in ("bare", "owner", "metadata"))])
def test_a_lost_key_comes_back_with_the_next_extension(lone, kind, label):
    lease = take(lone, **KINDS[kind], **LABELS[label])
    wait_until(lambda: all(has_it(master, lease) for master in lone.masters), what="all masters have it")
    before = content(lone.masters[0], lease)
    lose(lone.masters[0], lease)
    assert extend(lone, lease)["fence"] == lease["fence"]
    wait_until(lambda: has_it(lone.masters[0], lease), what="the repair")
    assert content(lone.masters[0], lease) == before
    ends = [max(master.cli("PEXPIRETIME", key) for key in keys_of(lease)) for master in lone.masters]
    assert 0 < ends[0] <= min(ends[1:])
    wait_until(lambda: repairs(lone) == 1, what="its answer")
    lose(lone.masters[1], lease)
    assert extend(lone, lease)["fence"] == lease["fence"], "the repaired key counts"
    wait_until(lambda: has_it(lone.masters[1], lease), what="the second repair")
    release(lone, lease)
    assert not any(has_it(master, lease) for master in lone.masters)
    assert take(lone, **KINDS[kind])["fence"] > lease["fence"]


def test_a_request_with_a_key_finds_its_lease_after_repairs(lone):
    """All that names the lease comes back, the Idempotency-Key, too."""
    for members in KINDS["exclusive"], KINDS["shared"]:
        request = {"ttl_ms": TTL_MS, **members}
        key = {"Idempotency-Key": "0123456789abcdef0123456789abcdef"}
        lease = lone.curl("POST", "/locks", body=request, headers=key).json
        for master in lone.masters:
            wait_until(lambda: has_it(master, lease), what="it has the key")
            lose(master, lease)
            extend(lone, lease)
            wait_until(lambda: has_it(master, lease), what="the repair")
        again = lone.curl("POST", "/locks", body=request, headers=key)
        assert (again.status, again.json["token"], again.json["fence"]) == (200, lease["token"], lease["fence"])
        release(lone, lease)


def test_an_extension_of_many_repairs_each(lone):
    leases = [take(lone, resource=f"many/{i}") for i in range(5)]
    for lease in leases:
        wait_until(lambda lease=lease: all(has_it(master, lease) for master in lone.masters), what="all masters have it")
        lose(lone.masters[0], lease)
    items = [{**names_of(lease), "token": lease["token"], "ttl_ms": TTL_MS} for lease in leases]
    assert [each["fence"] for each in lone.curl("PUT", "/locks", body={"leases": items}).json["leases"]] == [lease["fence"] for lease in leases]
    for lease in leases:
        wait_until(lambda lease=lease: has_it(lone.masters[0], lease), what="the repair")


def test_a_held_lease_is_repaired(lone, hold):  # noqa: F811
    # A third of it is less than what a repaired key has, which ends earlier by the --master-timeout-ms.
    held = hold(lone, "a/lock", ttl_ms=min(round(7500 * SLOW), 60000)).acquired()
    wait_until(lambda: all(master.cli("EXISTS", "a/lock") == 1 for master in lone.masters), what="all masters have it")
    for master in lone.masters:
        master.cli("DEL", "a/lock")
        wait_until(lambda: master.cli("EXISTS", "a/lock") == 1, what="the repair")
    assert lone.curl("GET", "/locks/a/lock").json["fence"] == held["fence"]


@pytest.mark.parametrize("kind", ["exclusive", "shared set"])
def test_what_a_majority_has_lost_stays_lost(lone, kind):
    lease = take(lone, **KINDS[kind])
    wait_until(lambda: all(has_it(master, lease) for master in lone.masters), what="all masters have it")
    for master in lone.masters[:2]:
        lose(master, lease)
    extend(lone, lease, status=410)
    assert take(lone, resource="other") and repairs(lone) == 0
    assert not any(has_it(master, lease) for master in lone.masters[:2])


def test_of_a_set_all_keys_come_back_or_none(lone):
    lease = take(lone, **KINDS["set"])
    master = lone.masters[0]
    wait_until(lambda: has_it(master, lease), what="it has the keys")
    lose(master, lease)
    master.cli("SET", "b/lock", "of-another-library")
    extend(lone, lease)
    assert [master.cli("EXISTS", key) for key in keys_of(lease)] == [0, 1, 0]


def test_shared_leases_come_back_where_there_is_room(lab):
    service = lab.service(3, "--max-shared", "2")
    first, second = (take(service, resource="a/lock", mode="shared") for _ in range(2))
    master = service.masters[0]
    for lease in first, second:
        wait_until(lambda: has_it(master, lease), what="it has both")
    lose(master, first)
    for lease in second, first:
        extend(service, lease)
        wait_until(lambda: has_it(master, lease), what="the repair")
    assert master.cli("ZCARD", "a/lock") == 2


def test_waiters_stay_in_their_order(lone):
    """A repair does not wait behind them, and removes no entry."""
    lease, got = take(lone, resource="a/lock"), []

    def wait(number):
        lease = take(lone, resource="a/lock", wait_ms=20000)
        got.append(number)
        release(lone, lease)
    waiters = []
    for number in range(3):
        waiters.append(threading.Thread(target=wait, args=(number,)))
        waiters[-1].start()
        wait_until(lambda: lone.curl("GET", "/locks/a/lock").json["waiters"] == number + 1, what="it waits")
    master = lone.masters[0]
    lose(master, lease)
    extend(lone, lease)
    wait_until(lambda: has_it(master, lease), what="the repair")
    assert lone.curl("GET", "/locks/a/lock").json["waiters"] == 3
    release(lone, lease)
    for waiter in waiters:
        waiter.join()
    assert got == [0, 1, 2]


def test_a_lease_near_its_bound_gets_no_older(lab):
    """The bound on the age (--max-hold-ms) is in the value that comes back."""
    service = lab.service(3, "--max-hold-ms", "60000")
    lease = take(service, resource="a/lock")
    masters = service.masters
    wait_until(lambda: has_it(masters[0], lease), what="it has the key")
    lose(masters[0], lease)
    extend(service, lease)
    wait_until(lambda: has_it(masters[0], lease), what="the repair")
    bounds = [int(master.cli("GET", "a/lock").split(":")[1]) for master in masters]
    assert abs(bounds[0] - bounds[1]) < 30000, "counted from the beginning of the lease, and not from the repair with --max-hold-ms left"


# -------------------------------------------------------------------------------------------------- how many lack a vote


def below_full(service):
    return service.curl("GET", "/masters").json["leases_below_full"]


def down(service, master):
    master.kill()
    service.wait_voting(2)


@pytest.mark.parametrize("kind", ["exclusive", "shared set"])
def test_a_lease_extended_with_fewer_votes_is_counted_until_it_has_all(lab, kind):
    masters = lab.redises(3)
    service = lab.redlockd(masters, "--restart-guard", "off")
    lease = take(service, **KINDS[kind])
    extend(service, lease)
    wait_until(lambda: below_full(service) == 0, what="all have answered")
    down(service, masters[2])
    for _ in range(2):
        extend(service, lease)
        wait_until(lambda: below_full(service) == 1, what="the lease is counted once")
    assert service.metrics()["redlockd_leases_below_full"] == 1
    masters[2].start()
    wait_until(lambda: extend(service, lease) and below_full(service) == 0, seconds=30, what="it has all votes again")
    assert all(has_it(master, lease) for master in masters)


@pytest.mark.parametrize("kind", ["slot", "set"])
def test_a_master_that_votes_again_gets_its_keys_at_once(lab, kind):
    """Before the holder extends next, which may be too late for an operator who restarts the next master."""
    masters = lab.redises(3)
    proxy = lab.keep(Proxy(lab.folder, masters[2]))
    service = lab.redlockd([masters[0].url, masters[1].url, proxy.url])
    service.wait_voting(3)
    proxy.cut()
    service.wait_voting(2)
    lease = take(service, ttl_ms=60000, **KINDS[kind])
    others = [take(service, resource=f"other {number}", ttl_ms=60000) for number in range(40)]
    for one in (lease, *others):
        extend(service, one, ttl_ms=60000)
    wait_until(lambda: below_full(service) == 41, what="all are counted")
    ends = [masters[0].cli("PEXPIRETIME", key) for key in keys_of(lease)]
    before = service.metrics()
    proxy.heal()
    wait_until(lambda: below_full(service) == 0, seconds=30, what="all have all votes")
    assert all(has_it(masters[2], one) for one in (lease, *others))
    assert service.metrics()["redlockd_repairs_total"] - before["redlockd_repairs_total"] == 41
    extensions = 'redlockd_lease_requests_total{op="extend",outcome="ok"}'
    assert service.metrics()[extensions] == before[extensions] == 41, "what nobody asked for was counted"
    # It lasts no longer than the holder asked for, but for the time that a command takes: far less than the lease.
    for key, end in zip(keys_of(lease), ends):
        now = [master.cli("PEXPIRETIME", key) for master in masters]
        assert max(now) - end < 30000, (end, now)


@pytest.fixture(name="returning")
def fixture_returning(lab):
    """A redlockd and the proxy of a master that is away."""
    masters = lab.redises(3)
    proxy = lab.keep(Proxy(lab.folder, masters[2]))
    service = lab.redlockd([masters[0].url, masters[1].url, proxy.url])
    service.wait_voting(3)
    proxy.cut()
    service.wait_voting(2)
    return masters, proxy, service


EXTENSIONS = 'redlockd_lease_requests_total{op="extend",outcome="ok"}'


def test_a_master_that_votes_again_gets_the_keys_of_held_leases(returning, hold):  # noqa: F811
    masters, proxy, service = returning
    held = hold(service, "a/lock", ttl_ms=min(round(18000 * SLOW), 60000))
    lease = held.acquired()
    assert held.event()["event"] == "renewed"
    wait_until(lambda: below_full(service) == 1, what="it is counted")
    proxy.heal()
    wait_until(lambda: below_full(service) == 0, what="it has all votes")
    assert service.metrics()[EXTENSIONS] == 1, "by its next renewal"
    assert content(masters[2], lease) == content(masters[0], lease) != [None]


def test_a_master_that_votes_again_gets_the_keys_of_leases_with_an_idempotency_key(returning):
    masters, proxy, service = returning
    request = {"resource": "a/lock", "ttl_ms": 60000, "owner": "worker-7"}
    key = {"Idempotency-Key": "0123456789abcdef0123456789abcdef"}
    lease = service.curl("POST", "/locks", body=request, headers=key).json
    wait_until(lambda: below_full(service) == 1, what="its first extension, which notes the key")
    proxy.heal()
    wait_until(lambda: below_full(service) == 0, what="it has all votes")
    assert content(masters[2], lease) == content(masters[0], lease) != [None]
    masters[0].cli("DEL", "a/lock")  # the repaired key counts
    again = service.curl("POST", "/locks", body=request, headers=key)
    assert (again.status, again.json["token"], again.json["fence"]) == (200, lease["token"], lease["fence"])


def test_a_master_that_votes_again_gets_the_key_beside_a_thousand_waiters(returning, crowd):  # noqa: F811
    masters, proxy, service = returning
    lease = take(service, resource="a/lock", ttl_ms=60000)
    extend(service, lease, ttl_ms=60000)
    first = crowd.wait(service, "a/lock")
    wait_until(lambda: service.curl("GET", "/locks/a/lock").json["waiters"] == 1, what="the first one waits")
    others = [crowd.wait(service, "a/lock") for _ in range(999)]
    wait_until(lambda: service.curl("GET", "/locks/a/lock").json["waiters"] == 1000, 30, "all wait")
    proxy.heal()
    # at its return, or with the next extension: the first waiter's attempt may hold the key at that moment
    wait_until(lambda: extend(service, lease, ttl_ms=60000) and below_full(service) == 0, what="it has all votes")
    assert content(masters[2], lease) == content(masters[0], lease) != [None]
    assert [master.cli("ZCARD", "redlockd:queue:a/lock") for master in masters[:2]] == [1000, 1000]
    release(service, lease)
    assert first.granted()["fence"] > lease["fence"]
    assert not any(waiter.is_answered() for waiter in others)


def test_a_master_that_votes_again_gets_no_key_of_what_is_over(lab):
    """Released by a request that this redlockd has not seen, or lost, or taken by somebody else."""
    masters = lab.redises(3)
    proxy = lab.keep(Proxy(lab.folder, masters[2]))
    urls = [masters[0].url, masters[1].url, proxy.url]
    service, other = lab.redlockd(urls), lab.redlockd(urls)
    for one in (service, other):
        one.wait_voting(3)
    proxy.cut()
    for one in (service, other):
        one.wait_voting(2)
    leases = {name: take(service, resource=name, ttl_ms=60000) for name in ("released", "lost", "taken", "kept")}
    for lease in leases.values():
        extend(service, lease, ttl_ms=60000)
    wait_until(lambda: below_full(service) == 4, what="all are counted")
    for name in ("released", "taken"):
        release(other, leases[name])
    new = take(other, resource="taken", ttl_ms=60000)
    lose(masters[0], leases["lost"])
    proxy.heal()
    wait_until(lambda: below_full(service) == 0, seconds=30, what="each is repaired, or known to be over")
    assert has_it(masters[2], leases["kept"])
    assert masters[2].cli("EXISTS", "released", "lost", "taken") == 0
    assert [content(master, new) for master in masters[:2]] == [content(masters[0], new)] * 2
    assert service.curl("GET", "/locks?resource=lost").json["votes"]["granted"] < 2


class Stuck(Proxy):
    """While `stuck`, a script of an extension and everything behind it do not arrive."""

    stuck = False
    caught = 0

    def arrives(self, data):
        catches = self.stuck and self.token in data
        self.caught += catches
        return not catches


def test_an_extension_of_redlockd_that_ends_after_the_release_counts_no_lease(lab):
    """It reaches a master that hangs from then on, and ends with that connection. By then the lease is released without this master."""
    masters = lab.redises(3)
    proxy = lab.keep(Stuck(lab.folder, masters[2]))
    service = lab.redlockd([masters[0].url, masters[1].url, proxy.url])
    service.wait_voting(3)
    proxy.cut()
    service.wait_voting(2)
    lease = take(service, resource="a/lock", ttl_ms=60000)
    extend(service, lease, ttl_ms=60000)
    wait_until(lambda: below_full(service) == 1, what="the lease is counted")
    proxy.token, proxy.stuck = lease["token"].encode(), True
    proxy.heal()
    wait_until(lambda: proxy.caught == 1, seconds=30, what="redlockd extends the lease")
    service.wait_voting(2)
    hung = master_of(service, proxy.url)["reason"]
    release(service, lease)
    wait_until(lambda: below_full(service) == 0, what="the release")
    proxy.cut()
    wait_until(lambda: master_of(service, proxy.url)["reason"] != hung, what="the end of the connection")
    assert below_full(service) == 0


class Late(Proxy):
    """A repair, and what is sent after it, is held up until `in_time` is set; `answered` says that the master has replied since."""

    caught = answered = False

    def __init__(self, folder, redis):
        super().__init__(folder, redis)
        self.token, self.in_time = b"none yet", threading.Event()

    def arrives(self, data):
        if self.token in data and b"\r\n!" in data:
            self.caught = True
            self.in_time.wait()
        return True

    def changed(self, data):
        self.answered = self.caught and self.in_time.is_set()
        return data


def ends_in_ms(master, lease):
    """The earliest end that the master has for the lease."""
    now_s, us = master.cli("TIME")
    now_ms = int(now_s) * 1000 + int(us) // 1000
    return min(master.cli("PTTL", key) if master.cli("TYPE", key) == "string" else int(master.cli("ZSCORE", key, lease["token"])) - now_ms
               for key in keys_of(lease))


@pytest.mark.parametrize("late_ms", [60000, 30000], ids=["late is longer", "late is shorter"])
@pytest.mark.parametrize("kind", ["exclusive", "shared set"])
def test_two_redlockd_repair_one_lease(lab, kind, late_ms):
    """Two extensions for 30 s and for 60 s find a key gone. Whichever repair comes last, the lease lasts for 60 s there."""
    masters = lab.redises(3)
    proxy = lab.keep(Late(lab.folder, masters[2]))
    late = lab.redlockd([masters[0].url, masters[1].url, proxy.url], "--bootstrap", "--master-timeout-ms", "20000")
    other = lab.redlockd(masters)
    other.wait_voting(3)
    lease = take(other, **KINDS[kind])
    wait_until(lambda: has_it(masters[2], lease), what="it has the key")
    lose(masters[2], lease)
    proxy.token = lease["token"].encode()
    extend(late, lease, ttl_ms=late_ms)
    wait_until(lambda: proxy.caught, what="its repair is held up")
    extend(other, lease, ttl_ms=90000 - late_ms)
    wait_until(lambda: has_it(masters[2], lease), what="the other one's repair")
    proxy.in_time.set()
    wait_until(lambda: proxy.answered, what="the late repair")
    wait_until(lambda: ends_in_ms(masters[2], lease) > 35000, what="the longer extension")


def test_a_master_returns_while_an_extension_is_under_way(lab):
    """The extension was not sent to it, and ends when it votes. No other request and no other return follow."""
    masters = lab.redises(3)
    slow, away = (lab.keep(Proxy(lab.folder, master)) for master in masters[1:])
    service = lab.redlockd([masters[0].url, slow.url, away.url], "--bootstrap", "--master-timeout-ms", "20000")
    service.wait_voting(3)
    lease = take(service, resource="a/lock", ttl_ms=60000)
    wait_until(lambda: has_it(masters[2], lease), what="it has the key")
    away.cut()
    service.wait_voting(2)
    lose(masters[2], lease)
    slow.gate.clear()
    extension = threading.Thread(target=extend, args=(service, lease), kwargs={"ttl_ms": 60000})
    extension.start()
    wait_until(lambda: any(lease["token"] in word for command in slow.commands("EVALSHA") for word in command), what="the extension is under way")
    away.heal()
    service.wait_voting(3)
    slow.gate.set()
    extension.join()
    wait_until(lambda: has_it(masters[2], lease), what="the repair")


@pytest.mark.slow
def test_leases_that_end_lack_no_vote(lone):
    """By a release, by a forced release, by an extension that finds it gone or another holder, and by their time, which a later extension for less does not cut short."""
    names = ["released", "forced", "gone", "taken"]
    longer = ["longer 1", "longer 2", "longer 3"]
    down(lone, lone.masters[2])
    leases = {name: take(lone, resource=name) for name in [*names, *longer, "over"]}
    for name, lease in leases.items():
        extend(lone, lease, ttl_ms=TTL_MS if name == "over" else 60000)
    wait_until(lambda: below_full(lone) == 8, what="all are counted")
    release(lone, leases["released"])
    wait_until(lambda: below_full(lone) == 7, what="the release")
    assert lone.curl("DELETE", "/locks/forced?force=true").status == 204
    wait_until(lambda: below_full(lone) == 6, what="the forced release")
    for name in ("gone", "taken"):
        for master in lone.masters[:2]:
            lose(master, leases[name])
    extend(lone, leases["gone"], status=410)
    wait_until(lambda: below_full(lone) == 5, what="the lease that is gone")
    take(lone, resource="taken")
    extend(lone, leases["taken"], status=409)
    wait_until(lambda: below_full(lone) == 4, what="the lease that is another's")
    for name in longer:
        extend(lone, leases[name], ttl_ms=2000)
    wait_until(lambda: below_full(lone) == 3, seconds=60, what="the end of the one that is over")
    for left, name in enumerate(reversed(longer)):
        assert below_full(lone) == 3 - left
        release(lone, leases[name])
        wait_until(lambda left=left: below_full(lone) == 2 - left, what="the release")
