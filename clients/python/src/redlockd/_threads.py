"""The client for threads: calls of redlockd.aio, carried out by one event loop in a thread of its own.

That thread renews the leases of all clients of this process. It does not live on in a forked child, which gets one of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Iterator, Mapping, Optional, Sequence

from . import _rules as rules, aio
from ._wire import clock
from .errors import Locked

if TYPE_CHECKING:
    from typing_extensions import Unpack

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_leases: set[Lease] = set()  # that are not released


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="redlockd", daemon=True).start()
        return loop


@atexit.register
def _release_all() -> None:
    rules.exiting = True
    held = [lease._inner for lease in list(_leases) if lease._process == os.getpid()]
    if held:
        _run(_end_all(held))


async def _end_all(leases: Sequence[aio.Lease]) -> None:
    await asyncio.gather(*(lease.release() for lease in leases), return_exceptions=True)


def _run(work: Coroutine[Any, Any, rules.T], undo: Optional[Callable[[rules.T], Coroutine[Any, Any, object]]] = None) -> rules.T:
    """Waits for the end of the work. If this thread is interrupted, the work is cancelled, or undone where it has just ended."""
    loop, ended, tasks = _loop(), threading.Event(), []

    def begin() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(lambda _: ended.set())
    loop.call_soon_threadsafe(begin)
    try:
        ended.wait()
        return tasks[0].result()
    except BaseException:
        loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        ended.wait()
        if undo is not None and not tasks[0].cancelled() and tasks[0].exception() is None:
            _run(undo(tasks[0].result()))
        raise


class Lost(threading.Event):
    """Set as soon as the lease cannot be relied on any more, by the clock: also if the process was stopped meanwhile."""

    def __init__(self, term: rules.Term) -> None:
        super().__init__()
        self._term = term
        term.on_lost = self.set

    def is_set(self) -> bool:
        return self._term.lost() is not None

    def wait(self, timeout: Optional[float] = None) -> bool:
        until = clock() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        while not self.is_set() and clock() < until:
            super().wait(min(self._term.remaining(), until - clock(), threading.TIMEOUT_MAX))
        return self.is_set()


class Lease(rules.LeaseBase):
    """A lease that is renewed until release(). `lost` is set when it cannot be relied on any more."""

    def __init__(self, inner: aio.Lease) -> None:
        super().__init__(inner._wanted, inner._grant)
        self._inner, self._process, self.lost = inner, os.getpid(), Lost(inner._term)
        _leases.add(self)

    def release(self) -> bool:
        """Ends the renewal and gives the lock back. False: it was not held any more, or no server answers (it ends by itself)."""
        _leases.discard(self)
        return self._process == os.getpid() and _run(self._inner.release())  # a forked child does not own it

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        why = self._inner._loss_to_raise(error)
        self.release()
        if why is not None:
            raise why


class Client(aio.ClientBase):
    """A client of one cluster of redlockd. Safe for threads."""

    @contextmanager
    def lock(self, resource: rules.Names, **options: Unpack[rules.Options]) -> Iterator[Lease]:
        """A lock on one resource, or on all of several at once, for a block. Raises as acquire(), and LockLost at the end of the block
        if the lease was lost meanwhile."""
        with self.acquire(resource, **options) as lease:
            yield lease

    def acquire(self, resource: rules.Names, **options: Unpack[rules.Options]) -> Lease:
        """Raises Locked if somebody else has the lock until the wait is over. The lease is renewed until its release()."""
        return Lease(_run(self._acquire(resource, options), aio.Lease.release))

    def try_acquire(self, resource: rules.Names, **options: Unpack[rules.Options]) -> Optional[Lease]:
        """Without waiting; None if somebody else has the lock."""
        options["wait"] = 0.0
        try:
            return self.acquire(resource, **options)
        except Locked:
            return None

    def watch(self, resource: str) -> Iterator[Mapping[str, Any]]:
        """The state now, and again whenever the holder changes."""
        tag = '"none"'  # which no state has: the first one comes at once
        while True:
            state, tag = _run(self._run(rules.next_state(resource, tag, self._count, self._timeout)))
            yield state

    def force(self, resource: str, fence: Optional[int] = None) -> None:
        """For operators: takes the lock from its holder; with `fence`, only from that one."""
        _run(self._run(rules.forced_release(resource, fence, self._count, self._timeout)))
