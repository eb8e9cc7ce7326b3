"""The rules of a lease, as docs/reference/client-rules.md has them, without input and output.

What takes several requests is a generator of steps: it yields an Ask and gets its Answer, or the seconds of a pause. `redlockd`
carries the steps out in a thread, `redlockd.aio` in the event loop. There is no lock of threads here: a forked child and a handler
of a signal may ask at any moment.
"""

from __future__ import annotations

import logging
import os
import random
import re
import secrets
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Generator, Mapping, Optional, Sequence, TypedDict, TypeVar, Union

from ._wire import Answer, Ask, clock, no_answer
from .errors import LockLost

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack

T = TypeVar("T")
LOG = logging.getLogger("redlockd")
WAIT_MAX = 60.0  # of one request: the default of --max-wait-ms
Steps = Generator[Union[Ask, float], Answer, T]


class Term:
    """Until when a lease may be relied on. Whoever finds that over makes it final. Safe for threads; extend() and lose() are for
    the one that renews."""

    def __init__(self, end: float, margin: float) -> None:
        self._margin, self._stop, self._process = margin, end - margin, os.getpid()
        self._why: Optional[LockLost] = None
        self.on_lost: Callable[[], None] = lambda: None  # an answer said so, or it was released

    def lost(self) -> Optional[LockLost]:
        """Looks at the clock itself: whoever renews may be late or stopped."""
        if self._why is None and self._process != os.getpid():
            self._why = LockLost("the lease belongs to the process that this one was forked from")
        if self._why is None and self._stop <= clock():
            self._why = LockLost("the lease could not be renewed in time")
        return self._why

    def remaining(self) -> float:
        left = self._stop - clock()  # before the look: the end only moves away
        return 0.0 if self.lost() else max(0.0, left)

    def extend(self, end: float) -> None:
        """Never to an earlier end, and not if it is over."""
        if not self.lost():
            self._stop = max(self._stop, end - self._margin)

    def lose(self, why: LockLost) -> None:
        self._why = self.lost() or why
        self.on_lost()


Names = Union[str, Sequence[str]]


# Of an acquisition; times are seconds. `ttl`: how long the lease lasts without a renewal (as the server says: 30). `wait`: how long to wait for the lock
# (60). `margin`: how long before its end the lease counts as lost (a tenth of `ttl`). `mode`: "shared", together with others that
# are. `slots`: one of so many that may have the lock at once.
Options = TypedDict("Options", {
    "ttl": float, "wait": float, "margin": float, "owner": Optional[str], "metadata": Optional[Mapping[str, Any]],
    "mode": Optional[str], "slots": Optional[int]}, total=False)


class Wanted:
    """What is asked for: one resource, or all of several at once."""

    def __init__(self, names: Names, ttl: Optional[float] = None, wait: float = 60.0, margin: Optional[float] = None, owner: Optional[str] = None,
                 metadata: Optional[Mapping[str, Any]] = None, mode: Optional[str] = None, slots: Optional[int] = None) -> None:
        self.wait, self._margin = wait, margin
        if not (wait >= 0 and (ttl is None or ttl > 0) and (margin is None or margin >= 0 and (ttl is None or margin <= ttl / 2))):
            raise ValueError("ttl must be positive, wait not negative, margin at most half of ttl")
        self.resources = (names,) if isinstance(names, str) else tuple(names)
        self.names: Mapping[str, Any] = {"resource": names} if isinstance(names, str) else {"resources": self.resources}
        given = {"ttl_ms": None if ttl is None else round(ttl * 1000), "owner": owner, "metadata": metadata, "mode": mode, "slots": slots}
        self.body = {**self.names, **{name: value for name, value in given.items() if value is not None}}

    def margin(self, ttl: float) -> float:
        return ttl / 10 if self._margin is None else min(self._margin, ttl / 2)

    def release(self, token: str, timeout: float) -> Ask:
        return Ask("DELETE", "/locks", timeout, self.names, {"Lock-Token": token}, _only(204), insists=True)


@dataclass(frozen=True, repr=False)
class Grant:
    token: str
    fence: int
    slot: Optional[int]
    ttl: float  # what the server says
    renew_at: float
    term: Term


def _is_integer(value: object, least: int, most: float) -> bool:
    return type(value) is int and least <= value <= most  # a bool is none


def _only(*statuses: int) -> Callable[[Answer], Answer]:
    """These and errors are answers to what was asked."""
    return lambda answer: answer if answer.status in statuses or answer.status >= 400 or not answer.status else no_answer(f"status {answer.status}", True)


def _find_wrong(lease: Mapping[str, Any], wanted: Wanted, ttl_ms: float, token: Optional[str], began: float) -> Optional[str]:
    """The member of a lease that is not as it was asked for."""
    names, its_ttl_ms = lease.get("resources"), lease.get("ttl_ms")
    is_set = isinstance(names, list) and all(isinstance(name, str) for name in names) and sorted(names) == sorted(wanted.resources)
    checks = {
        "resource": "resource" not in wanted.names or lease.get("resource") == wanted.resources[0],
        "resources": "resource" in wanted.names or is_set,
        "token": bool(re.fullmatch("[0-9a-f]{40}", str(lease.get("token")))) and token in (None, lease.get("token")),
        "fence": _is_integer(lease.get("fence"), 1, 2**53 - 1),
        "ttl_ms": _is_integer(its_ttl_ms, 1, ttl_ms),
        "validity_ms": type(its_ttl_ms) is int and _is_integer(lease.get("validity_ms"), 1, its_ttl_ms),
        "waited_ms": _is_integer(lease.get("waited_ms", 0), 0, ((clock() - began) * 1000 + 1) / 0.99),
        "slot": "slots" not in wanted.body or _is_integer(lease.get("slot"), 0, wanted.body["slots"] - 1),
    }
    return next((name for name, is_right in checks.items() if not is_right), None)


def _check_lease(statuses: tuple[int, ...], wanted: Wanted, ttl_ms: Optional[int], token: Optional[str], began: float) -> Callable[[Answer], Answer]:
    """An answer counts only if it is a lease as it was asked for, or an error."""
    def check(answer: Answer) -> Answer:
        answer = _only(*statuses)(answer)
        wrong = _find_wrong(answer.body, wanted, 1e9 if ttl_ms is None else ttl_ms, token, began) if answer.status in statuses else None
        return answer if wrong is None else no_answer(f"the lease has another {wrong} than was asked for", True)
    return check


def _granted(answer: Answer, sent: float, wanted: Wanted) -> Grant:
    lease = answer.body
    begin = sent + 0.99 * lease.get("waited_ms", 0) / 1000  # the server's clock and ours may differ by a hundredth
    ttl = lease["ttl_ms"] / 1000
    return Grant(lease["token"], lease["fence"], lease.get("slot"), ttl, begin + ttl / 3, Term(begin + lease["validity_ms"] / 1000, wanted.margin(ttl)))


class Acquisition:
    """One acquisition: all of its requests have one Idempotency-Key, so that each finds the lease whose answer was lost."""

    def __init__(self, wanted: Wanted, servers: int, timeout: float) -> None:
        self._wanted, self._servers, self._timeout, self._failures = wanted, servers, timeout, 0
        self._key, self._began = secrets.token_hex(16), clock()
        self._until = self._began + wanted.wait
        self.unknown = False  # there may be a lease of which nobody knows

    def _ask(self, wait: float, timeout: float) -> Ask:
        body = {**self._wanted.body, "wait_ms": int(wait * 1000)}
        check = _check_lease((200, 201), self._wanted, body.get("ttl_ms"), None, self._began)
        return Ask("POST", "/locks", timeout, body, {"Idempotency-Key": self._key}, check, may_wait=body["wait_ms"] > 0)

    def steps(self) -> Steps[Grant]:
        while True:
            sent = clock()  # before the request: the lease lasts for so long from here, or longer
            wait = min(max(self._until - sent, 0.0), WAIT_MAX)
            known, self.unknown = not self.unknown, True
            answer = yield self._ask(wait, wait + self._timeout)
            grant = _granted(answer, sent, self._wanted) if answer.status in (200, 201) else None
            if grant is not None and not grant.term.lost():
                LOG.info("acquired %s, fence %d", self._wanted.resources, grant.fence)
                return grant
            if grant is not None:
                yield self._wanted.release(grant.token, self._timeout)
                self._key, self.unknown = secrets.token_hex(16), False
                self._began = clock()
                answer = no_answer("the lease came too late to be used", False)
            elif answer.status == 409 or known and (answer.status not in (0, 200, 201, 503) or not answer.sent):
                self.unknown = False
            pause = self._pause(answer, clock() - sent < wait - 0.5)
            if pause is None:
                raise answer.error()
            if answer.status == 409:
                pause = max(pause, sent + 0.5 - clock())
            LOG.debug("acquire %s: %s; again in %.1f s", self._wanted.resources, answer.error(), pause)
            yield pause

    def _pause(self, answer: Answer, early: bool) -> Optional[float]:
        """Before the next request; None: give up."""
        left = self._until - clock()
        self._failures = 0 if answer.status == 409 else self._failures + 1
        if answer.status not in (0, 200, 201, 409, 429, 503) or answer.status == 409 and left <= 0:
            return None
        if left <= 0:  # each server once, and once more where the answer was lost
            return 0.0 if self._failures < self._servers + (answer.status == 0 and answer.sent) else None
        kept = type(answer.body.get("place_kept_ms")) is int
        if not early or kept if answer.status == 409 else self._failures % self._servers:  # another server, or the wait goes on
            return 0.0
        if kept:  # not for as long as the server rests: the place would be gone
            return min(left, random.random())
        return min(left, min(answer.retry_after, 1.0 if answer.status == 409 else left) + random.random())

    def take_back(self) -> Steps[None]:
        """Nobody wants the lock any more: finds and releases the lease that may have been granted."""
        limit, self.unknown = min(self._timeout, 1.0), False
        answer = yield from _each_server(self._ask(0, limit), self._servers)
        grant = _granted(answer, clock(), self._wanted) if answer.status in (200, 201) else None
        if grant is not None:
            yield self._wanted.release(grant.token, limit)


def renewals(wanted: Wanted, grant: Grant, servers: int, timeout: float) -> Steps[None]:
    """Ends when the lease is lost. Whoever carries out the steps stops at the release."""
    due, failures, limit = grant.renew_at, 0, min(grant.ttl / 5, timeout, 5.0)
    body, headers = {**wanted.names, "ttl_ms": round(grant.ttl * 1000)}, {"Lock-Token": grant.token}
    check = _check_lease((200,), wanted, body["ttl_ms"], grant.token, 0.0)
    while True:
        yield max(0.0, due - clock())
        left, sent = grant.term.remaining(), clock()
        if not left:
            return LOG.warning("lease on %s lost: %s", wanted.resources, grant.term.lost())
        share = min(limit, left / (servers - failures % servers))  # so that each server is asked in time
        answer = yield Ask("PUT", "/locks", share, body, headers, check, insists=True)
        if answer.status == 200:
            grant.term.extend(sent + answer.body["validity_ms"] / 1000)
            due, failures = sent + grant.ttl / 3, 0
        elif answer.is_final:
            grant.term.lose(LockLost(str(answer.error()), answer.error()))
        else:  # the old end holds: again soon, at another server at once
            failures += 1
            due = clock() + (0.0 if failures % servers else grant.ttl / 10)
            LOG.warning("renewal of %s: %s", wanted.resources, answer.error())


def _each_server(ask: Ask, servers: int) -> Steps[Answer]:
    """Asks each once, until one decides."""
    for _ in range(servers):
        answer = yield ask
        if answer.status == 204 or answer.is_final:
            break
    return answer


def release(wanted: Wanted, token: str, servers: int, timeout: float) -> Steps[Optional[bool]]:
    """True: it was released. None: it was not held any more. False: nobody knows."""
    answer = yield from _each_server(wanted.release(token, timeout), servers)
    done = answer.status == 204
    LOG.log(logging.INFO if done else logging.WARNING, "release of %s: %s", wanted.resources, done or answer.error())
    return None if answer.is_final else done


def forced_release(resource: str, fence: Optional[int], servers: int, timeout: float) -> Steps[None]:
    path = "/locks?force=true" + ("" if fence is None else f"&fence={fence}")
    answer = yield from _each_server(Ask("DELETE", path, timeout, {"resource": resource}, check=_only(204), insists=True), servers)
    if answer.status != 204:
        raise answer.error()


def next_state(resource: str, tags: list[str], servers: int, timeout: float) -> Steps[Mapping[str, Any]]:
    """The state as soon as its tag is not the second one of `tags`, which then becomes the first one. Goes on while no server
    answers."""
    path, failures = "/locks?" + urllib.parse.urlencode({"resource": resource, "wait_ms": 20000}), 0
    yield 1.0 if tags[0] == tags[1] else 0.0  # a proxy strips it, or the one that was sent
    while True:
        asked = clock()
        answer = yield Ask("GET", path, 20 + timeout, None, {"If-None-Match": tags[1]}, _only(200, 304), may_wait=True)
        if answer.status == 200:
            tags[:] = tags[1], answer.headers.get("etag", tags[1])
            return answer.body
        if answer.status not in (0, 304, 429, 503):
            raise answer.error()
        failures = 0 if answer.status == 304 else failures + 1
        if answer.status == 304:
            yield max(0.0, asked + 0.5 - clock())
        if failures and failures % servers == 0:
            yield answer.retry_after + random.random()


class LostBase:
    """Of an event that is set as soon as the lease cannot be relied on any more, by the clock."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        self._term = term
        term.on_lost = getattr(self, "set")

    def is_set(self) -> bool:
        return self._term.lost() is not None
