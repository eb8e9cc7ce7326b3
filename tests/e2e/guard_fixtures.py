# SPDX-License-Identifier: MIT
"""Shared parts of the tests of the restart guard.

A Scene is the situation in which a master that forgets does harm. Of three masters just enough have the lock: the
victim and one that keeps its memory. The third has no key (the test deletes it there). If the victim forgets and goes
on voting, it and the third are a majority for another client. A Rival is that client: it tries all the time through a
second redlockd.

A Course follows one master from the hazard to its return. It checks /masters, the metrics, the log, and that the
quarantine is long enough.

Quarantines last as long as the longest lease and two seconds, so leases are short here.
"""

import threading
import time

import pytest

import redis_clock
from harness import SLOW, patience, starved_seconds, wait_until
from proxy import Proxy

TTL_MS = round(3000 * max(1.0, SLOW / 2))
MARGIN_MS = 2000 + 2  # besides the lease itself, and 1 % of it
HASH = "redlockd:master"
LOCK = "the/lock"
SEEN_BY_OTHERS = ("bad-epoch", "no-epoch")  # how one redlockd sees that another one has quarantined a master


def quarantine_seconds(ttl_ms=TTL_MS):
    """How long a master is kept from voting, at least."""
    return (ttl_ms * 1.01 + MARGIN_MS) / 1000


def limits(ttl_ms=TTL_MS):
    """Options for leases that are no longer than this; a try that is lost is not repeated within a request."""
    return ["--max-ttl-ms", str(ttl_ms), "--default-ttl-ms", str(ttl_ms), "--min-ttl-ms", "100", "--retry-count", "1"]


def guarded(lab, masters, *options, ttl_ms=TTL_MS, bootstrap=True, **how):
    """A redlockd with short leases. A quarantine lasts for the longest of them, unless the options say something else."""
    if not any(option.startswith("--restart-guard") for option in options):
        options = ("--restart-guard", "whole", *(["--bootstrap"] if bootstrap else []), *options)
    return lab.redlockd(masters, *limits(ttl_ms), *options, *([] if bootstrap else ["--bootstrap=false"]), **how)


def take(service, resource=LOCK, ttl_ms=TTL_MS, **members):
    return service.acquire(resource, ttl_ms, **members)


def hold(service, resource=LOCK):
    """Takes the lock, gives it back, and returns the fence."""
    lease = take(service, resource)
    assert service.release(lease).status == 204
    return lease["fence"]


@pytest.fixture
def clocked(lab, clock_library):
    """clocked(): a server whose clock can be moved: .clock.set_offset_ms()."""
    def start(*options, **how):
        clock = redis_clock.RedisClock(lab.folder, clock_library)
        server = lab.redis(*options, env=clock.environment(), **how)
        server.clock = clock
        return server
    return start


# ------------------------------------------------------------------------------------------------ state of masters


def state_of(service, server):
    """The entry of one server (or proxy) in /masters."""
    masters = service.curl("GET", "/masters").json["masters"]
    return next(master for master in masters if master["address"] == server.url)


def wait_state(service, server, state, *codes, seconds=5.0):
    """Waits until a master is in this state, with one of these reasons; returns its entry in /masters."""
    def reached():
        master = state_of(service, server)
        return master if master["state"] == state and (not codes or code_of(master) in codes) else None
    try:
        return wait_until(reached, seconds, f"{state} {codes}")
    except AssertionError as error:
        raise AssertionError(f"{error}; now {state_of(service, server)}") from None


def code_of(master):
    return (master["reason"] or "").partition(":")[0]


def metric(service, name, server, **labels):
    """A metric of one master; 0 where there is none."""
    extra = "".join(f',{label}="{value}"' for label, value in labels.items())
    return service.metrics().get(f'redlockd_{name}{{master="{server.url}"{extra}}}', 0)


def master_lines(service, event, server):
    return [line for line in service.log(event) if line["master"] == server.url]


def number_of(server, field):
    return int(server.cli("HGET", HASH, field) or 0)


# ---------------------------------------------------------------------------------------------------- the quarantine


class Course:
    """The course of a quarantine as /masters tells it. Call it right after the hazard: it returns when the master votes again.

    `codes`: the reasons that may be given. `mend`: what takes the cause away; then there is no quarantine.
    """

    def __init__(self, service, server, *codes, since=None, ttl_ms=TTL_MS, mend=None):
        self.service, self.server, self.codes = service, server, codes
        self.since = time.monotonic() if since is None else since
        self.client = service.client()
        try:
            # One that was a replica for a moment may be seen as such first.
            self.quarantined = self._await(lambda master: master["state"] == "quarantined" and (code_of(master) != "replica" or "replica" in codes), "quarantined")
            self.stopped, self.first_look = time.monotonic(), self.looked
            self._check_said()
            if mend:
                mend()
                self._await(lambda master: master["state"] == "voting", "voting again")
            else:
                self._follow(ttl_ms)
        finally:
            self.client.close()
        self._check_afterwards()

    def _look(self):
        self.looked = time.monotonic()
        masters = self.client.call("GET", "/masters").json["masters"]
        return next(master for master in masters if master["address"] == self.server.url)

    def _await(self, reached, what):
        return wait_until(lambda: (master := self._look()) and reached(master) and master, what=what)

    def _check_said(self):
        master, code = self.quarantined, code_of(self.quarantined)
        assert code in self.codes, master
        words = master["reason"].partition(": ")[2]
        assert len(words.split()) >= 3, f"no words for people: {master}"
        self.code = code
        wait_until(lambda: metric(self.service, "master_quarantined", self.server, reason=code) == 1, 2, f"the metric for {code}")
        assert metric(self.service, "master_quarantines_total", self.server, reason=code) >= 1
        wait_until(lambda: self._logged("master-quarantined", code), 2, "the log line of the quarantine")
        assert "quarantined" not in [line["state"] for line in master_lines(self.service, "master", self.server)], "told twice"
        votes = self.service.curl("GET", "/locks/free").json["votes"]
        assert votes["quarantined"] >= 1, votes

    def _logged(self, event, code):
        return any(line["reason"].startswith(code) for line in master_lines(self.service, event, self.server))

    def _follow(self, ttl_ms):
        """To the end of the quarantine."""
        said = [(self.first_look, remaining)] if (remaining := self.quarantined["quarantine_remaining_ms"]) is not None else []

        def is_over():
            now, master = time.monotonic(), self._look()
            if master["state"] == "down" and "epoch is being read" in master["reason"]:
                return False  # the other redlockd was quicker to quarantine it
            assert master["state"] == "voting" or (master["state"] == "quarantined" and code_of(master) in (*self.codes, "fence-recovery")), master
            if master["state"] == "quarantined" and master["quarantine_remaining_ms"] is not None:
                said.append((now, master["quarantine_remaining_ms"]))
            return master["state"] == "voting"
        wait_until(is_over, quarantine_seconds(ttl_ms) + 30, "the end of the quarantine")
        end = time.monotonic()
        self.seconds = end - self.since
        assert self.seconds >= quarantine_seconds(ttl_ms), f"votes again after {self.seconds:.3f} s"
        assert said, "it does not say how long still"
        assert 0 < said[0][1] <= quarantine_seconds(ttl_ms) * 1000 + 2, said[0]  # it is rounded up
        assert all(later <= earlier + 1 for (_, earlier), (_, later) in zip(said, said[1:])), f"it does not fall: {said}"
        check_forecasts(said, end)

    def _check_afterwards(self):
        master = state_of(self.service, self.server)
        assert master["state"] == "voting" and master["reason"] is None and master["quarantine_remaining_ms"] is None, master
        assert metric(self.service, "master_quarantined", self.server, reason=self.code) == 0
        wait_until(lambda: master_lines(self.service, "master", self.server)[-1]["state"] == "voting", 2, "the log line of the return")


def check_forecasts(said, end):
    """[(when, how long still)]: never too long."""
    for at, remaining in said:
        assert end - (at + remaining / 1000) > -0.1 * SLOW, f"{remaining} ms were said {end - at:.3f} s before the end"


def follow_readiness(service, seconds, *codes):
    """Waits until /readyz is ready, and checks the reasons and times before. Returns when that was."""
    client, said = service.client(), []

    def is_ready():
        now, answer = time.monotonic(), client.call("GET", "/readyz")
        if answer.status == 200:
            return True
        assert answer.status == 503 and answer.code == "no-quorum", answer
        if any(code in answer.json["detail"] for code in codes):
            said.append((now, answer.json.get("retry_after_ms")))
            assert int(answer.headers["retry-after"]) >= 1
        return False
    wait_until(is_ready, seconds + 30, "ready")
    end = time.monotonic()
    client.close()
    assert said, f"/readyz does not say {codes}"
    assert any(remaining for _, remaining in said), f"no retry_after_ms: {said}"
    check_forecasts([(at, remaining) for at, remaining in said if remaining], end)
    return end


# ------------------------------------------------------------------------------------------------ scene and rival


class Rival(threading.Thread):
    """Asks for one lock without a pause until it gets it, and notes when that was."""

    def __init__(self, service, resource=LOCK, ttl_ms=TTL_MS):
        super().__init__(daemon=True)
        self.client, self.body = service.client(), {"resource": resource, "ttl_ms": ttl_ms, "owner": "rival"}
        self.lease = self.got = self.error = None
        self.tries, self.end = 0, threading.Event()
        self.start()

    def run(self):
        try:
            while not self.end.is_set():
                answer = self.client.call("POST", "/locks", self.body)
                self.tries += 1
                if answer.status == 201:
                    self.got, self.lease = time.monotonic(), answer.json
                    return
                assert answer.status in (409, 503), answer
                time.sleep(0.003)
        except BaseException as error:  # shown by the test
            self.error = error
        finally:
            self.client.close()

    def kill(self):
        self.end.set()
        self.join(patience(20))


class Scene:
    """See the top of this file. `victim`: the server that forgets; .place: the address that redlockd uses for it (a
    proxy, or itself)."""

    def __init__(self, lab, *options, servers=None, place=None, ttl_ms=TTL_MS):
        self.lab, self.ttl_ms, self.starved = lab, ttl_ms, starved_seconds()
        self.servers = servers or lab.redises(3)
        self.supervisor, self.victim, self.third = self.servers
        self.place = place or self.victim
        masters = [self.supervisor, self.place, self.third]
        self.first = guarded(lab, masters, *options, ttl_ms=ttl_ms)
        self.second = guarded(lab, masters, *options, ttl_ms=ttl_ms)
        self.first.wait_voting(3)
        self.second.wait_voting(3)

    def hold(self, resource=LOCK):
        """Takes the lock, has it on two masters, and sends the rival off; again where a busy machine took half of the lease for that."""
        for _ in range(10):
            start = time.monotonic()
            self.lease = self.first.acquire(resource, self.ttl_ms)
            self.until = start + self.lease["validity_ms"] / 1000
            wait_until(lambda: all(server.cli("EXISTS", resource) for server in self.servers) or time.monotonic() > self.until, what="the key on all masters")
            is_there = self.third.cli("DEL", resource) == 1
            self.rival = self.lab.keep(Rival(self.second, resource, self.ttl_ms))
            wait_until(lambda: self.rival.tries >= 3 or self.rival.lease, what="the rival tries")
            if is_there and time.monotonic() < start + self.ttl_ms / 2000:
                return
            self.rival.kill()
            for service, lease in ((self.first, self.lease), (self.second, self.rival.lease)):
                assert not lease or service.release(lease).status in (204, 410)
            wait_until(lambda: not any(server.cli("EXISTS", resource) for server in self.servers), what="the lock is free again")
        raise AssertionError("the machine is too busy")

    def caused(self):
        """Call it when the hazard has happened."""
        assert self.rival.error is None, self.rival.error

    def follow(self, *codes, since, **how):
        """The quarantine as the rival's redlockd sees it. One redlockd finds the hazard and quarantines the master; the
        other one may only see that."""
        course = Course(self.second, self.place, *codes, *SEEN_BY_OTHERS, since=since, **how)
        lines = [line for service in (self.first, self.second) for line in master_lines(service, "master-quarantined", self.place)]
        assert any(line["reason"].startswith(codes) for line in lines), lines
        return course

    def check_not_given_twice(self):
        """The rival got the lock, but not before the lease was over, and with a larger fence."""
        self.rival.join(patience(10))
        assert self.rival.error is None, self.rival.error
        assert self.rival.got, "the rival never got the lock, though the lease is over"
        assert self.rival.got >= self.until, f"GIVEN TWICE: {self.until - self.rival.got:.3f} s before the first lease was over"
        assert self.rival.lease["fence"] > self.lease["fence"]


class Switch(Proxy):
    """One address that leads to one server and later to another one, which can pass itself off as the first: with its run_id."""

    def __init__(self, folder, redis):
        super().__init__(folder, redis)
        self.disguise = None  # (what the server says, what is handed on), of one length

    def lead_to(self, redis, as_if=None):
        self.cut()
        self.disguise = (run_id_of(redis), run_id_of(as_if)) if as_if else None
        self.redis = redis
        self.heal()

    def changed(self, data):
        return data.replace(*self.disguise) if self.disguise else data


def run_id_of(server):
    info = dict(line.split(":", 1) for line in server.cli("INFO", "server").split("\r\n") if ":" in line)
    return info["run_id"].encode()


def reconnect(server):
    """Ends all connections to a server."""
    server.cli("CLIENT", "KILL", "TYPE", "normal")


def has_lock_on(server, resource=LOCK):
    return server.cli("EXISTS", resource) == 1
