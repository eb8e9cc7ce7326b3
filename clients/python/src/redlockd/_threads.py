"""The client for threads: calls of redlockd.aio, carried out by one event loop in a thread of its own.

That thread renews the leases of all clients of this process. It does not live on in a forked child, which gets one of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from concurrent.futures import wait
from typing import Any, Callable, Coroutine, Iterator, Mapping, Optional

from . import _rules as rules, aio
from ._wire import clock

_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process: never closed in a child, which has the parent's descriptors
_held: set[Lease] = set()  # that are not released


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process."""
    loop = _loops.get(os.getpid())
    if loop is None:
        new = asyncio.new_event_loop()
        loop = _loops.setdefault(os.getpid(), new)  # of several threads that come here at once, one is the first
        threading.Thread(target=new.run_forever if new is loop else new.close, name="redlockd", daemon=True).start()
    return loop


@atexit.register
def _release_all() -> None:
    held = [lease for lease in list(_held) if lease._process == os.getpid()]
    if held:
        wait([asyncio.run_coroutine_threadsafe(lease._end(), _loop()) for lease in held])


def _run(work: Coroutine[Any, Any, rules.T], undo: Optional[Callable[[rules.T], Any]] = None) -> rules.T:
    """Waits for the end of the work. If this thread is interrupted, the work is cancelled, or undone if it has just ended."""
    loop, ended = _loop(), threading.Event()
    tasks: list[asyncio.Task[rules.T]] = []

    def begin() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(lambda _: ended.set())

    async def withdraw() -> None:
        for task in tasks:
            task.cancel()
            await asyncio.wait({task})
            if undo is not None and not task.cancelled() and task.exception() is None:
                await undo(task.result())
    try:
        loop.call_soon_threadsafe(begin)
        ended.wait()
    except BaseException:  # the loop goes on with it, also if this thread is interrupted again
        asyncio.run_coroutine_threadsafe(withdraw(), loop).result()
        raise
    return tasks[0].result()


class Lost(rules.LostBase, threading.Event):
    """Set as soon as the lease cannot be relied on any more, by the clock: also if the process was stopped meanwhile."""

    def wait(self, timeout: Optional[float] = None) -> bool:
        until = clock() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        while not self.is_set() and clock() < until:
            super().wait(min(self._term.remaining(), until - clock(), threading.TIMEOUT_MAX))
        return self.is_set()


class Lease(aio.LeaseBase):
    """A lease that is renewed until release(). `lost` is set when it cannot be relied on any more."""

    def __init__(self, client: aio.ClientBase, wanted: rules.Wanted, grant: rules.Grant) -> None:
        super().__init__(client, wanted, grant)
        self.lost = Lost(grant.term)
        _held.add(self)

    async def _end(self) -> Optional[bool]:
        _held.discard(self)
        return await super()._end()

    def release(self) -> bool:
        """Ends the renewal and gives the lock back. False: it was not held any more, or no server answers (it ends by
        itself)."""
        if _loops.get(os.getpid()) is asyncio._get_running_loop():  # the destructor of something, in the thread of the loop
            asyncio.ensure_future(self._end())
            return False
        return bool(_run(self._end()))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        _run(self._leave(error))


async def _give_back(lease: Optional[Lease]) -> bool:
    return lease is not None and bool(await lease._end())


class Client(aio.ClientBase):
    """A client of one cluster of redlockd. Safe for threads."""

    def acquire(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Lease:
        """A lock on one resource, or on all of several at once. Raises Locked if somebody else has the lock until the wait is
        over. The lease is renewed until its release(), or the end of its `with` block, which raises LockLost if the lease was
        lost meanwhile."""
        return _run(self._acquire(Lease, resource, options), _give_back)

    lock = acquire  # reads better in `with`

    def try_acquire(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Optional[Lease]:
        """Without waiting; None if somebody else has the lock."""
        return _run(self._try(Lease, resource, options), _give_back)

    def watch(self, resource: str) -> Iterator[Mapping[str, Any]]:
        """The state now, and again whenever the holder changes."""
        tags = ["", '"none"']  # which no state has: the first one comes at once
        while True:
            yield _run(self._run(rules.next_state(resource, tags, self._count, self._timeout)))

    def force(self, resource: str, fence: Optional[int] = None) -> None:
        """For operators: takes the lock from its holder; with `fence`, only from that one."""
        _run(self._run(rules.forced_release(resource, fence, self._count, self._timeout)))
