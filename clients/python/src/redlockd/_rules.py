# SPDX-License-Identifier: MIT
"""The rules of a lease, as docs/reference/client-rules.md has them, without input and output.

An operation of several requests is a generator of steps: it yields an Ask and gets its Answer, or the seconds of a
pause. `redlockd` carries the steps out in a thread, `redlockd.aio` in the event loop. There is no lock of threads
here: a forked child and a handler of a signal may ask at any moment.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import random
import re
import secrets
import urllib.parse
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Any, Callable, Generator, Literal, Mapping, Optional, Sequence, TypedDict, TypeVar,
                    Union)

from ._log import log
from ._wire import Answer, Ask, clock, no_answer
from ._words import names_of
from .errors import Error, LockLost

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack  # noqa: F401

T = TypeVar("T")
WAIT_MAX = 60.0  # of one request: the default of --max-wait-ms
APART = 0.5  # seconds from one request to the next that asks the same
LARGEST = 2**53 - 1  # that each JSON parser keeps
AT_LEAST_OF_LEASE = 10.0  # seconds; a shorter lease is not worth its renewals
Steps = Generator[Union[Ask, float], Answer, T]


class Term:
    """Until when a lease may be relied on, in the process that took it. Whoever finds that over makes it final. Safe
    for threads; extend() and lose() are for the one that renews, as are the margin and the next three members."""

    def __init__(self, end: float, margin: float, names: str) -> None:
        self.margin, self._stop, self._process, self._names = margin, end - margin, os.getpid(), names
        self.bounded = False  # the last renewal gave less than was asked for
        self.asking = False  # a renewal is under way
        self.failure: Optional[Error] = None  # of the last renewal
        self._why: Optional[LockLost] = None
        self.on_lost: Callable[[], None] = lambda: None  # an answer said so, or it was released

    @property
    def mine(self) -> bool:
        return self._process == os.getpid()

    def lost(self) -> Optional[LockLost]:
        """Looks at the clock itself: whoever renews may be late or stopped."""
        if not self.mine:
            return self._loss("it is held by the process that took it, and not by a forked child", "forked")
        if self._why is None and self._stop <= clock():
            self._why = self._too_late()
        return self._why

    def _loss(self, why: str, cause: str, error: Optional[Error] = None) -> LockLost:
        return LockLost(f"lease on {self._names} lost: {why}", cause, error)

    def _too_late(self) -> LockLost:
        if self.bounded:
            return self._loss("the server does not extend it any further (--max-hold-ms)", "max-hold")
        if self.failure is not None:
            return self._loss(f"it could not be renewed in time: {self.failure}", self.failure.code, self.failure)
        if self.asking:
            return self._loss("it could not be renewed in time: no server answered yet", "no-answer")
        return self._loss("it was not renewed in time: the machine slept, or the program was stopped or busy", "late")

    def remaining(self) -> float:
        left = self._stop - clock()  # before the look: the end only moves away
        return 0.0 if self.lost() else max(0.0, left)

    def extend(self, end: float) -> None:
        """Never to an earlier end, and not if it is over."""
        if not self.lost():
            self._stop = max(self._stop, end - self.margin)

    def refuse(self, error: Error) -> LockLost:
        """An answer says that it is not held."""
        return self._loss(str(error), error.code, error)

    def lose(self, why: Optional[Error] = None) -> None:
        """By such an answer; without one, by its release."""
        self._why = self.lost() or (self._loss("it was released", "released") if why is None else self.refuse(why))
        self.on_lost()


Names = Union[str, Sequence[str]]


# The options of an acquisition; times are seconds. `ttl`: how long the lease lasts without a renewal (as the server
# says: 30). `wait`: how long to wait for the lock (60). `margin`: how long before its end the lease counts as lost (a
# tenth of `ttl`). `at_least`: nobody else gets the lock earlier after it was granted, also if it is released; from 10 on
# it is the `ttl`, too, if none is given. `mode`: "shared", together with others that are. `slots`: one of so many that
# may have the lock at once. `on_wanted`: is called each time that a renewal finds waiters where there were none, in a
# thread of its own, or in the event loop.
Options = TypedDict("Options", {
    "ttl": float, "wait": float, "margin": float, "at_least": float, "owner": Optional[str],
    "metadata": Optional[Mapping[str, Any]], "mode": Optional[str], "slots": Optional[int],
    "on_wanted": Optional[Callable[[], object]]}, total=False)


class Wanted:
    """The lease that is asked for: one resource, or all of several at once."""

    def __init__(self, names: Names, ttl: Optional[float] = None, wait: float = 60.0, margin: Optional[float] = None,
                 owner: Optional[str] = None, metadata: Optional[Mapping[str, Any]] = None, mode: Optional[str] = None,
                 slots: Optional[int] = None, at_least: float = 0.0,
                 on_wanted: Optional[Callable[[], object]] = None) -> None:
        self._ttl_name = "ttl"  # of the option that has it
        if ttl is None and at_least >= AT_LEAST_OF_LEASE:
            self._ttl_name = "at_least"
            ttl = at_least  # a server that grants such a lease also keeps a lock for so long
        self.wait, self.slots, self.at_least, self.on_wanted, self._margin = wait, slots, at_least, on_wanted, margin
        if not (ttl is None or 0 < ttl <= LARGEST / 1000):
            raise ValueError(f"ttl must be a positive number of seconds: {ttl}")
        if not wait >= 0:
            raise ValueError(f"wait must be a number of seconds that is not negative: {wait}")
        if not (margin is None or margin >= 0 and (ttl is None or margin <= ttl / 2)):
            raise ValueError(f"margin must be a number of seconds from 0 to half of ttl: {margin}")
        if not (at_least >= 0 and (ttl is None or at_least <= ttl)):
            raise ValueError(f"at_least must be a number of seconds from 0 to ttl: {at_least}")
        self.resources = (names,) if isinstance(names, str) else tuple(names)
        self.text = names_of(self.resources)
        self.names: Mapping[str, Any] = {"resource": names} if isinstance(names, str) else {"resources": self.resources}
        "".join(self.resources).encode()  # a text that cannot be UTF-8 could become another name in JSON
        given = {"ttl_ms": None if ttl is None else round(ttl * 1000),
                 "owner": owner, "metadata": metadata, "mode": mode, "slots": slots}
        self.body = {**self.names, **{name: value for name, value in given.items() if value is not None}}

    @classmethod
    def chosen(cls, names: Names, options: Options, owner: Optional[str]) -> Wanted:
        """`owner`: that of the client."""
        known = list(Options.__annotations__)
        for option in options:
            if option not in known:
                raise TypeError(f"there is no option {option!r}: the options are {', '.join(known)}")
        options.setdefault("owner", owner)
        return cls(names, **options)

    def at_once(self) -> Wanted:
        """The same without waiting."""
        same = copy.copy(self)
        same.wait = 0.0
        return same

    def margin(self, ttl: float) -> float:
        return ttl / 10 if self._margin is None else min(self._margin, ttl / 2)

    def error_of(self, answer: Answer) -> Error:
        """The error of an acquisition."""
        return answer.error(self.text, self._ttl_name)

    def release(self, token: str, timeout: float, keep: float = 0.0) -> Ask:
        """`keep`: seconds for which nobody gets the lock."""
        body = {**self.names, "keep_ms": math.ceil(keep * 1000)} if keep > 0 else self.names
        return Ask("DELETE", "/locks", timeout, body, {"Lock-Token": token})

    def wrong(self, lease: Mapping[str, Any], asked_ms: Optional[int], token: Optional[str] = None,
              since: Optional[float] = None) -> str:
        """The member of a lease that does not fit what was asked. `token`: that of a renewal; `since`: when an
        acquisition began."""
        found = lease.get("resources")
        if "resource" in self.names:
            if lease.get("resource") != self.names["resource"]:
                return "resource"
        elif not (isinstance(found, list) and all(isinstance(name, str) for name in found) and
                  sorted(found) == sorted(self.resources)):
            return "resources"
        if not re.fullmatch("[0-9a-f]{40}", str(lease.get("token"))) or token not in (None, lease["token"]):
            return "token"
        most = {"fence": LARGEST, "ttl_ms": asked_ms or LARGEST, "validity_ms": lease.get("ttl_ms")}
        for member, largest in most.items():
            if not _is_within(lease.get(member), 1, largest):
                return member
        if since is None:
            return "" if _is_within(lease.get("waiters", 0), 0, LARGEST) else "waiters"
        waited = lease.get("waited_ms", 0)
        if not (_is_within(waited, 0, LARGEST) and 0.99 * waited <= 1000 * (clock() - since) + 1):
            return "waited_ms"
        return "slot" if self.slots and not _is_within(lease.get("slot"), 0, self.slots - 1) else ""


def _is_within(number: object, least: int, largest: Any) -> bool:
    """Whether it is an integer of JSON in these bounds, and not a boolean or a fraction."""
    return type(number) is int and least <= number <= largest


@dataclass(frozen=True, repr=False)
class Grant:
    token: str
    fence: int
    slot: Optional[int]
    ttl: float  # what the server says
    renew_at: float
    keep_until: float  # nobody else gets the lock earlier
    term: Term


def _granted(answer: Answer, sent: float, wanted: Wanted) -> Grant:
    token, fence, ttl_ms, validity = (answer.body[name] for name in ("token", "fence", "ttl_ms", "validity_ms"))
    waited = 0.99 * answer.body.get("waited_ms", 0) / 1000  # the two clocks may differ by a hundredth
    now = clock()
    begin = sent + min(waited, now - sent)
    ttl, slot = ttl_ms / 1000, answer.body.get("slot")
    term = Term(begin + validity / 1000, wanted.margin(ttl), wanted.text)
    return Grant(token, fence, slot, ttl, begin + ttl / 3, now + wanted.at_least, term)


class Acquisition:
    """One acquisition: all of its requests have one Idempotency-Key, so that each finds the lease whose answer was
    lost."""

    def __init__(self, wanted: Wanted, servers: int, timeout: float) -> None:
        self._wanted, self._servers, self._timeout, self._failures = wanted, servers, timeout, 0
        self._silent, self._told = 0, False  # answers in a row that did not come; the warning of that
        self._key, self._begun = secrets.token_hex(16), clock()
        self._until = self._begun + wanted.wait
        self.unknown = False  # there may be a lease of which nobody knows

    def _wrong(self, lease: Mapping[str, Any]) -> str:
        return self._wanted.wrong(lease, self._wanted.body.get("ttl_ms"), since=self._begun)

    def _ask(self, wait: float, timeout: float) -> Ask:
        body = {**self._wanted.body, "wait_ms": int(wait * 1000)}
        return Ask("POST", "/locks", timeout, body, {"Idempotency-Key": self._key}, wait > 0, self._wrong)

    def steps(self) -> Steps[Grant]:
        while True:
            sent = clock()  # before the request: the lease lasts for so long from here, or longer
            wait = min(max(self._until - sent, 0.0), WAIT_MAX)
            known, self.unknown = not self.unknown, True
            answer = yield self._ask(wait, wait + self._timeout)
            if answer.status in (200, 201):
                grant = _granted(answer, sent, self._wanted)
                if not grant.term.lost():
                    log(logging.INFO, "acquired %s, fence %d", self._wanted.text, grant.fence)
                    return grant
                yield self._wanted.release(grant.token, self._timeout)
                self._key, self.unknown = secrets.token_hex(16), False
                answer, self._silent = no_answer("the lease came too late to be used", False), -1  # not silent
            elif answer.status == 409 or known and (answer.status not in (0, 503) or not answer.sent):
                self.unknown = False
            pause = self._pause(answer, sent, wait)
            error = self._wanted.error_of(answer)
            if pause is None:
                raise error
            log(logging.DEBUG, "acquire %s: %s; again in %.1f s", self._wanted.text, error, pause)
            self._warn(answer, error)
            yield pause

    def _warn(self, answer: Answer, error: Error) -> None:
        """Once, after the first round in which no server answered."""
        self._silent = 0 if answer.status else self._silent + 1
        if self._silent >= self._servers and not self._told and clock() < self._until:
            self._told = True
            log(logging.WARNING, "%s; waiting up to %.12g s for the lock on %s", error, self._wanted.wait,
                self._wanted.text)

    def _pause(self, answer: Answer, sent: float, wait: float) -> Optional[float]:
        """Before the next request; None: give up."""
        now, locked = clock(), (answer.status, answer.body.get("code")) == (409, "locked")
        left = self._until - now
        self._failures = 0 if locked else self._failures + 1
        if not locked and answer.status not in (0, 429, 503) or locked and left <= 0:
            return None
        if left <= 0:  # each server once, and once more where the answer was lost
            return 0.0 if self._failures < self._servers + (answer.status == 0 and answer.sent) else None
        kept = type(answer.body.get("place_kept_ms")) is int
        if locked:
            goes_on = kept or now - sent >= wait - 0.5
            pause = 0.0 if goes_on else min(answer.retry_after, 1.0) + random.random()
            return min(left, max(pause, sent + APART - now))
        if self._failures % self._servers:  # another server
            return 0.0
        if kept:  # not for as long as the server rests: the place would be gone
            return min(left, random.random())
        return min(left, min(answer.retry_after, left) + random.random())

    def take_back(self) -> Steps[None]:
        """Nobody wants the lock any more: finds and releases the lease that may have been granted."""
        limit, self.unknown = min(self._timeout, 1.0), False
        answer = yield from _each_server(self._ask(0, limit), self._servers)
        if answer.status in (200, 201):
            yield self._wanted.release(answer.body["token"], limit)


def _each_server(ask: Ask, servers: int) -> Steps[Answer]:
    """Asks each once, until one decides."""
    for _ in range(servers):
        answer = yield ask
        if not ask.failed(answer):
            break
    return answer


def release(wanted: Wanted, grant: Grant, keep: float, lost: bool, servers: int,
            timeout: float) -> Steps[Union[bool, Error]]:
    """True: it was released. An error: it was not held any more. False: nobody knows. `lost`: before, so that there is
    a warning already."""
    keep = max(keep, grant.keep_until - clock())
    answer = yield from _each_server(wanted.release(grant.token, timeout, keep), servers)
    done = answer.status == 204
    level = logging.INFO if done or lost and answer.final else logging.WARNING
    log(level, "release of %s: %s", wanted.text, "done" if done else answer.error())
    return answer.error() if answer.final else done


def forced_release(resource: str, fence: Optional[int], servers: int, timeout: float) -> Steps[None]:
    """Without a fence it is sent once: a second one could release the next holder."""
    path = "/locks?force=true" + ("" if fence is None else f"&fence={fence}")
    answer = yield from _each_server(Ask("DELETE", path, timeout, {"resource": resource}, once=fence is None), servers)
    if answer.status != 204:
        raise answer.error()


def next_state(resource: str, tags: list[str], servers: int, timeout: float) -> Steps[Mapping[str, Any]]:
    """The state as soon as its tag is not the second one of `tags`, which then becomes the first one. Goes on while
    no server answers."""
    path, failures = "/locks?" + urllib.parse.urlencode({"resource": resource, "wait_ms": 20000}), 0
    yield 1.0 if tags[0] == tags[1] else 0.0  # a proxy strips it, or the one that was sent
    while True:
        sent = clock()
        answer = yield Ask("GET", path, 20 + timeout, None, {"If-None-Match": tags[1]}, True)
        if answer.status == 200:
            tags[:] = tags[1], answer.headers.get("etag", tags[1])
            return answer.body
        if answer.status not in (0, 304, 429, 503):
            raise answer.error()
        failures = 0 if answer.status == 304 else failures + 1
        if answer.status == 304:
            yield max(0.0, sent + APART - clock())
        elif failures % servers == 0:
            yield answer.retry_after + random.random()


class LostBase:
    """The part of an event that is set as soon as the lease cannot be relied on any more, by the clock."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        self._term = term
        term.on_lost = getattr(self, "set")

    def is_set(self) -> bool:
        return self._term.lost() is not None


class NoLease:
    """Of a try while somebody else has the lock: false, and a `with` block with None as its lease."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "<redlockd.NoLease>"

    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_error: object) -> None: ...
