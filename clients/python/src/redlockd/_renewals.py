# SPDX-License-Identifier: MIT
"""The renewals of the leases of a client: those that are due about the same time go in one request."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import math
import random
import re
from dataclasses import dataclass
from typing import Any, Callable, Coroutine, Iterable, Iterator, Mapping, Optional, Sequence

from ._log import log
from ._rules import Grant, Steps, Wanted
from ._wire import Answer, Ask, clock, no_answer

LEASES_MAX, BYTES_MAX = 256, 64 << 10  # of a request
EARLIER = 8  # a renewal may come by this part of the ttl earlier, to go with others


class Held:
    """A lease as its renewals see it. `failed`: the last one did; `due`: when the next one is to be sent."""

    def __init__(self, wanted: Wanted, grant: Grant) -> None:
        self.wanted, self.grant, self.released, self.waiters = wanted, grant, False, 0
        self.failed, self.due = False, grant.renew_at
        self.ttl = grant.ttl
        self.ttl_ms: Optional[int] = round(grant.ttl * 1000)  # None: the server chooses the next one
        self.size = len(json.dumps(self.item())) + 2
        self.slot: Optional[tuple[bool, float, float]] = None

    def item(self) -> Mapping[str, Any]:
        asked = {} if self.ttl_ms is None else {"ttl_ms": self.ttl_ms}
        return {**self.wanted.names, "token": self.grant.token, **asked}

    def on_wanted(self) -> None:
        """Somebody waits, and nobody did before."""

    def read(self, where: str, part: Any) -> Answer:
        """The answer to this lease, of a request for several."""
        status, wrong = 200, ""
        if not isinstance(part, dict):
            wrong = "leases"
        elif isinstance(part.get("code"), str):
            status = part.get("status", 0)
            wrong = "" if type(status) is int and status >= 400 else "status"
        else:
            wrong = self.wanted.wrong(part, self.ttl_ms, self.grant.token)
        return no_answer(f"{where}: {wrong} does not fit the request", True) if wrong else Answer(status, {}, part)

    def decide(self, answer: Answer, sent: float) -> bool:
        """False: another server is to be asked."""
        term = self.grant.term
        term.asking = False
        if answer.status == 200:
            if self.ttl_ms is None:
                self.ttl_ms = answer.body["ttl_ms"]
                self.ttl = self.ttl_ms / 1000
                term.margin = self.wanted.margin(self.ttl)
            term.bounded, term.failure = answer.body["ttl_ms"] < self.ttl_ms, None
            term.extend(sent + answer.body["validity_ms"] / 1000)
            self.failed, self.due = False, sent + self.ttl / 3
            before, self.waiters = self.waiters, answer.body.get("waiters", 0)
            if self.waiters and not before and not self.released:
                self.on_wanted()
        elif answer.final:
            term.lose(answer.error())
        elif not self.released:
            term.failure = answer.error()
            log(logging.WARNING, "renewal of %s: %s", self.wanted.text, term.failure)
        return answer.status == 200 or answer.final


@dataclass(repr=False)
class Renewal(Ask):
    """A request for several leases. Each is decided alone."""

    held: Sequence[Held] = ()

    def read(self, where: str, status: int, headers: Mapping[str, str], content: bytes) -> Answer:
        answer = super().read(where, status, headers, content)
        if answer.status == 200:
            answer.parts = [held.read(where, part) for held, part in zip(self.held, answer.body["leases"])]
        return answer

    def failed(self, answer: Answer) -> bool:
        return not answer.parts or any(part.status != 200 and not part.final for part in answer.parts)


def _renewal(asked: Sequence[Held], timeout: float) -> Renewal:
    def wrong(body: Mapping[str, Any]) -> str:
        parts = body.get("leases")
        fits = isinstance(parts, list) and len(parts) == len(asked)
        return "" if fits else "leases"
    return Renewal("PUT", "/locks", timeout, {"leases": [held.item() for held in asked]}, wrong=wrong, held=asked)


def _leave_ttls(batch: Sequence[Held], answer: Answer) -> bool:
    """Whether the server names leases whose ttl its bounds do not allow any more. It chooses the next one of these."""
    errors = answer.body.get("errors")
    named = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    found = [re.fullmatch(r"leases\[([0-9]{1,3})\]\.ttl_ms", str(error.get("field"))) for error in named]
    wrong = {batch[int(each[1])].ttl_ms for each in found if each and int(each[1]) < len(batch)} - {None}
    for held in batch:
        held.ttl_ms = None if held.ttl_ms in wrong else held.ttl_ms
    return bool(wrong)


def renewals(batch: Sequence[Held], servers: int, timeout: float) -> Steps[Sequence[Sequence[Held]]]:
    """One round: asks each server once, until all are decided. Returns parts of the batch that are to be asked at once
    by themselves: a server refuses a request as a whole for one lease that it does not take."""
    for turn in range(servers):
        left = {held: held.grant.term.remaining() for held in batch}
        batch = [held for held in batch if left[held] > 0]
        if not batch:
            break
        sent = clock()
        limit = min(min(held.ttl / 5, left[held] / (servers - turn)) for held in batch)  # some for each server
        for held in batch:
            held.grant.term.asking = True
        answer = yield _renewal(batch, min(limit, timeout, 5.0))
        if answer.status == 400 and _leave_ttls(batch, answer):
            return (batch,)
        if answer.status in (400, 413) and len(batch) > 1:
            half = len(batch) // 2
            return batch[:half], batch[half:]
        answers = answer.parts or [answer] * len(batch)
        batch = [held for held, its in zip(batch, answers) if not held.decide(its, sent)]
    if batch:
        _fail(batch, answer.status == 429)
    return ()


def _fail(batch: Sequence[Held], halve: bool = False) -> None:
    """The old ends hold: again soon, and all of them together. `halve`: each lease counts for the rate of the server,
    so half of them come later."""
    now = clock()
    for number, held in enumerate(batch):
        later = halve and 2 * number >= len(batch)
        held.failed, held.due = True, now + held.ttl * (3 if later else 2) / 20


def _batches(due: Iterable[Held]) -> Iterator[Sequence[Held]]:
    batch: list[Held] = []
    size = len('{"leases": []}')
    for held in due:
        if batch and (len(batch) == LEASES_MAX or size + held.size > BYTES_MAX):
            yield batch
            batch, size = [], len('{"leases": []}')
        batch.append(held)
        size += held.size
    yield batch


Renew = Callable[[Sequence[Held]], Coroutine[Any, Any, Sequence[Sequence[Held]]]]


class Renewer:
    """Has a timer for each slot of time in which leases are due, and a task for each request under way: one that a
    server does not answer holds up no other. Leases whose last renewal failed and leases with a much shorter ttl have
    less time, and so slots of their own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, renew: Renew) -> None:
        self._loop, self._renew_batch, self._phase = loop, renew, random.random()
        self._slots: dict[tuple[bool, float, float], tuple[asyncio.TimerHandle, dict[Held, None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, held: Held) -> None:
        width = 2.0 ** math.floor(math.log2(held.ttl)) / EARLIER
        due = held.due if held.failed else (math.floor(held.due / width + self._phase) - self._phase) * width
        held.slot = slot = held.failed, width, due
        if slot not in self._slots:
            timer = self._loop.call_later(max(0.0, due - clock()), self._begin, slot, context=contextvars.Context())
            self._slots[slot] = timer, {}
        self._slots[slot][1][held] = None

    def remove(self, held: Held) -> None:
        if held.slot in self._slots:
            timer, due = self._slots[held.slot]
            due.pop(held, None)
            if not due:
                timer.cancel()
                del self._slots[held.slot]

    def _begin(self, slot: tuple[bool, float, float]) -> None:
        for batch in _batches(self._slots.pop(slot)[1]):
            self._start(batch)

    def _start(self, batch: Sequence[Held]) -> None:
        task = self._loop.create_task(self._renew(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew(self, batch: Sequence[Held]) -> None:
        """After every exception the renewals go on, as the leases do."""
        parts: Sequence[Sequence[Held]] = ()
        try:
            parts = await self._renew_batch(batch)
        except GeneratorExit:  # the loop is closed
            raise
        except BaseException as error:
            _fail(batch)
            self._go_on(batch, parts)
            if not isinstance(error, Exception):  # cancelled
                raise
            log(logging.ERROR, "renewal of %s: %r", ", ".join(held.wanted.text for held in batch[:9]), error)
        else:
            self._go_on(batch, parts)

    def _go_on(self, batch: Sequence[Held], parts: Sequence[Sequence[Held]]) -> None:
        for part in parts:
            self._start(part)
        for held in set(batch).difference(*parts):
            why = held.grant.term.lost()
            if why is None:
                self.add(held)
            elif not held.released:
                log(logging.WARNING, "%s", why)
