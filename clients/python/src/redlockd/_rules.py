"""The rules of a lease, as docs/reference/client-rules.md has them, without input and output.

What takes several requests is a generator of steps: it yields an Ask and gets its Answer, or the seconds of a pause. `redlockd`
carries the steps out in a thread, `redlockd.aio` in the event loop.
"""

from __future__ import annotations

import logging
import random
import re
import secrets
import threading
import urllib.parse
from dataclasses import dataclass
from typing import Any, Callable, Generator, Mapping, Optional, Sequence, TypedDict, TypeVar, Union

from ._wire import Answer, Ask, clock
from .errors import LockLost

T = TypeVar("T")
LOG = logging.getLogger("redlockd")
WAIT_MAX = 60.0  # of one request: the default of --max-wait-ms
WATCH_SECONDS = 20.0
CLOCKS = 0.99  # the server's clock and ours may differ by a hundredth
MARGIN = 0.1  # of the ttl
TOKEN = re.compile("[0-9a-f]{40}")
exiting = False  # the interpreter ends: names cannot be resolved any more
Steps = Generator[Union[Ask, float], Answer, T]


class Term:
    """Until when a lease may be relied on. Once that is over, it stays over. Safe for threads."""

    def __init__(self, end: float, margin: float) -> None:
        self._lock, self._margin, self._stop = threading.Lock(), margin, end - margin
        self._why: Optional[LockLost] = None
        self.on_lost: Callable[[], None] = lambda: None

    def remaining(self) -> float:
        with self._lock:
            return 0.0 if self._why else max(0.0, self._stop - clock())

    def lost(self) -> Optional[LockLost]:
        """Looks at the clock itself: whoever renews may be late or stopped."""
        if self.remaining() > 0:
            return None
        self.lose(LockLost("the lease could not be renewed in time"))
        return self._why

    def extend(self, end: float) -> None:
        """Never to an earlier end, and not if it is over."""
        if not self.lost():
            with self._lock:
                self._stop = max(self._stop, end - self._margin)

    def lose(self, why: LockLost) -> None:
        with self._lock:
            self._why = self._why or why
        self.on_lost()


Names = Union[str, Sequence[str]]


class Options(TypedDict, total=False):
    """Of an acquisition; times are seconds. `ttl`: how long the lease lasts without a renewal (30). `wait`: how long to wait for the lock
    (60). `margin`: how long before its end the lease counts as lost (a tenth of `ttl`)."""

    ttl: float
    wait: float
    margin: float
    owner: Optional[str]
    metadata: Optional[Mapping[str, Any]]
    mode: Optional[str]
    slots: Optional[int]


class Wanted:
    """What is asked for: one resource, or all of several at once."""

    def __init__(self, names: Names, ttl: float = 30.0, wait: float = 60.0, margin: Optional[float] = None, **members: Any) -> None:
        single = isinstance(names, str)
        self.resources = (names,) if isinstance(names, str) else tuple(names)
        self.ttl, self.wait, self.margin = ttl, wait, ttl * MARGIN if margin is None else margin
        if not (ttl > 0 and wait >= 0 and 0 <= self.margin <= ttl / 2):
            raise ValueError("ttl must be positive, wait not negative, margin at most half of ttl")
        self.path = path_of(self.resources[0]) if single else "/locks"
        self.names: Mapping[str, Any] = {} if single else {"resources": self.resources}  # for a PUT or DELETE
        given = {name: value for name, value in members.items() if value is not None}
        self.body = {**(self.names or {"resource": names}), "ttl_ms": round(ttl * 1000), **given}

    def release(self, token: str, timeout: float) -> Ask:
        return Ask("DELETE", self.path, timeout, self.names or None, {"Lock-Token": token})


def path_of(resource: str) -> str:
    return "/locks/" + urllib.parse.quote(resource, safe="")


@dataclass(frozen=True)
class Grant:
    token: str
    fence: int
    slot: Optional[int]
    renew_at: float
    term: Term


def _granted(answer: Answer, sent: float, wanted: Wanted) -> Optional[Grant]:
    """None: it is not the answer of redlockd."""
    token, fence, validity, waited = (answer.body.get(name, 0) for name in ("token", "fence", "validity_ms", "waited_ms"))
    if not all(isinstance(number, int) for number in (fence, validity, waited)) or not TOKEN.fullmatch(str(token)):
        return None
    begin = sent + CLOCKS * waited / 1000
    return Grant(token, fence, answer.body.get("slot"), begin + wanted.ttl / 3, Term(begin + validity / 1000, wanted.margin))


class Acquisition:
    """One acquisition: all of its requests have one Idempotency-Key, so that each finds the lease whose answer was lost."""

    def __init__(self, wanted: Wanted, servers: int, timeout: float) -> None:
        self._wanted, self._servers, self._timeout = wanted, servers, timeout
        self._key = secrets.token_hex(16)
        self.unknown = False  # there may be a lease of which nobody knows
        self._until = clock() + wanted.wait

    def _ask(self, wait: float, timeout: float) -> Ask:
        return Ask("POST", "/locks", timeout, {**self._wanted.body, "wait_ms": int(wait * 1000)}, {"Idempotency-Key": self._key})

    def steps(self) -> Steps[Grant]:
        failures = 0
        while True:
            sent = clock()  # before the request: the lease lasts for so long from here, or longer
            wait = min(max(self._until - sent, 0.0), WAIT_MAX)
            known, self.unknown = not self.unknown, True
            answer = yield self._ask(wait, wait + self._timeout)
            if answer.status in (200, 201):
                grant = _granted(answer, sent, self._wanted)
                if grant is not None and not grant.term.lost():
                    LOG.info("acquired %s, fence %d", self._wanted.resources, grant.fence)
                    return grant
                if grant is not None:  # it came too late to be used
                    yield self._wanted.release(grant.token, self._timeout)
                    self._key = secrets.token_hex(16)
            elif answer.status == 409 or known and (answer.status not in (0, 503) or not answer.sent):
                self.unknown = False
            failures = 0 if answer.status == 409 else failures + 1
            pause = self._pause(answer, failures, clock() - sent < wait - 0.5)
            if pause is None:
                raise answer.error()
            LOG.debug("acquire %s: %s; again in %.1f s", self._wanted.resources, answer.error(), pause)
            yield pause

    def _pause(self, answer: Answer, failures: int, early: bool) -> Optional[float]:
        """Before the next request; None: give up."""
        left = self._until - clock()
        if answer.status not in (0, 200, 201, 409, 429, 503):
            return None
        if left <= 0:  # each server once, and once more where the answer was lost
            tries = self._servers + (answer.status == 0 and answer.sent)
            return 0.0 if answer.status != 409 and failures < tries else None
        if answer.status == 409:
            pause = min(answer.retry_after, 1.0) + random.random() if early else 0.0
        else:  # another server at once; after the last one a pause
            pause = 0.0 if failures % self._servers else answer.retry_after + random.random()
        return min(left, pause)

    def take_back(self) -> Steps[None]:
        """Nobody wants the lock any more: finds and releases the lease that may have been granted."""
        answer = yield self._ask(0, min(self._timeout, 1.0))
        grant = _granted(answer, clock(), self._wanted) if answer.status in (200, 201) else None
        if grant is not None:
            yield self._wanted.release(grant.token, min(self._timeout, 1.0))
        self.unknown = False


def renewals(wanted: Wanted, grant: Grant, servers: int, timeout: float) -> Steps[None]:
    """Ends when the lease is lost. Whoever carries out the steps stops at the release."""
    due, failures = grant.renew_at, 0
    while True:
        yield max(0.0, due - clock())
        left, sent = grant.term.remaining(), clock()
        if grant.term.lost():
            LOG.warning("lease on %s lost: it could not be renewed in time", wanted.resources)
            return
        answer = yield Ask("PUT", wanted.path, min(wanted.ttl / 5, timeout, left),
                           {**wanted.names, "ttl_ms": wanted.body["ttl_ms"]}, {"Lock-Token": grant.token})
        validity = answer.body.get("validity_ms")
        if answer.status == 200 and isinstance(validity, int):
            grant.term.extend(sent + validity / 1000)
            due, failures = sent + wanted.ttl / 3, 0
        elif answer.status in (409, 410):
            grant.term.lose(LockLost(f"lease lost: {answer.error()}", answer.error()))
            LOG.warning("lease on %s lost: %s", wanted.resources, answer.error().code)
            return
        else:  # the old end holds: again soon, at another server at once
            failures += 1
            due = clock() + (0.0 if failures % servers else wanted.ttl / 10)
            LOG.warning("renewal of %s: %s", wanted.resources, answer.error())


def _each_server(ask: Ask, servers: int) -> Steps[Answer]:
    """Asks each once, until one decides."""
    for _ in range(servers):
        answer = yield ask
        if answer.status not in (0, 429, 503):
            break
    return answer


def release(wanted: Wanted, token: str, servers: int, timeout: float) -> Steps[bool]:
    """True: it was released."""
    answer = yield from _each_server(wanted.release(token, timeout), servers)
    done = answer.status == 204
    LOG.log(logging.INFO if done else logging.WARNING, "release of %s: %s", wanted.resources, "done" if done else answer.error())
    return done


def forced_release(resource: str, fence: Optional[int], servers: int, timeout: float) -> Steps[None]:
    query = "?force=true" + ("" if fence is None else f"&fence={fence}")
    answer = yield from _each_server(Ask("DELETE", path_of(resource) + query, timeout), servers)
    if answer.status != 204:
        raise answer.error()


def next_state(resource: str, tag: str, servers: int, timeout: float) -> Steps[tuple[Mapping[str, Any], str]]:
    """The state as soon as it has another tag, and its tag; goes on while no server answers."""
    path, failures = f"{path_of(resource)}?wait_ms={int(WATCH_SECONDS * 1000)}", 0
    while True:
        answer = yield Ask("GET", path, WATCH_SECONDS + timeout, None, {"If-None-Match": tag})
        if answer.status == 200:
            return answer.body, answer.headers.get("etag", "")
        if answer.status not in (0, 304, 429, 503):
            raise answer.error()
        failures = 0 if answer.status == 304 else failures + 1
        if failures and failures % servers == 0:
            yield answer.retry_after + random.random()


class LeaseBase:
    """`fence` goes with each write to what the lock protects; `resources` are the names that the lease covers."""

    def __init__(self, wanted: Wanted, grant: Grant) -> None:
        self._wanted, self._grant, self._term, self._released = wanted, grant, grant.term, False
        self.fence, self.resources, self.slot = grant.fence, wanted.resources, grant.slot

    @property
    def remaining(self) -> float:
        """Seconds until the lease counts as lost unless it is renewed."""
        return self._term.remaining()

    def check(self) -> None:
        """Raises LockLost if the lease cannot be relied on any more. Call it right before each write."""
        why = self._term.lost()
        if why is not None:
            raise LockLost(str(why), why.cause)

    def _begin_release(self) -> bool:
        """False: it was released before. From here on the lease does not count, whatever the server answers."""
        first, self._released = not self._released, True
        self._term.lose(LockLost("the lease was released"))
        return first

    def _loss_to_raise(self, error: object) -> Optional[LockLost]:
        """What the end of a block raises: the loss, if the block itself ended well."""
        return None if error is not None or self._released else self._term.lost()
