# SPDX-License-Identifier: MIT
"""The client for threads: calls of redlockd.aio, carried out by one event loop in a thread of its own.

That thread renews the leases of all clients of this process. It does not live on in a forked child, which gets one of
its own.

Ctrl-C may interrupt the main thread between any two steps of it. So what this module shares between threads has no
lock of threading.Condition, which an interrupt could leave locked: only locks that one side releases and the other
acquires.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import operator
import os
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Iterator, Mapping, NamedTuple, Optional, Union

from . import _log, _rules as rules, aio
from ._wire import clock


class Loop(NamedTuple):
    loop: asyncio.AbstractEventLoop
    thread: int


_loops: dict[int, Loop] = {}  # by process: never closed in a child, which has the parent's descriptors
_held: dict[aio.Holding, Any] = {}  # that are not released, and weak references to what their `with` statements have
_undone: set[asyncio.Task[None]] = set()  # what interrupted calls leave to be done


def _turn(loop: asyncio.AbstractEventLoop, ready: Any) -> None:
    if _loops.setdefault(os.getpid(), Loop(loop, threading.get_ident())).loop is not loop:
        loop.close()  # of several threads that come at once, one is the first
        ready.release()
        return
    ready.release()
    loop.set_exception_handler(lambda _, context: _log.log(logging.ERROR, "event loop: %r", context))
    while True:
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: B036: the leases of all clients depend on this thread
            _log.log(logging.ERROR, "the event loop goes on after %r", error)


def _loop() -> Loop:
    """The loop of this process. Raises RuntimeError where no thread can be started."""
    if os.getpid() not in _loops:
        _log.start()  # now: later there may be no thread for it
        ready = threading.Lock()
        ready.acquire()
        new = asyncio.new_event_loop()
        try:
            threading.Thread(target=_turn, args=(new, ready), name="redlockd", daemon=True).start()
        except RuntimeError:
            new.close()
            raise
        ready.acquire()
    return _loops[os.getpid()]


@atexit.register
def _release_all() -> None:
    mine = _loops.get(os.getpid())
    if mine is not None:
        held = [holding.finish() for holding in list(_held) if holding.loop is mine.loop]
        undone = [task for task in list(_undone) if task.get_loop() is mine.loop]

        async def end() -> None:
            await asyncio.gather(*held, *undone, return_exceptions=True)

        _run(end())
        _log.flush(1.0)


def _run(work: Coroutine[Any, Any, rules.T], undo: Optional[Callable[[rules.T], Any]] = None) -> rules.T:
    """Waits for the end of the work. If this thread is interrupted, the work is cancelled, or undone if it has just
    ended."""
    loop, thread = _loop()
    if thread == threading.get_ident():
        work.close()
        raise RuntimeError("the thread that renews leases cannot wait for itself")
    tasks: list[asyncio.Task[rules.T]] = []
    has_ended, ended = False, threading.Lock()
    ended.acquire()

    def begin() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(lambda _: ended.release())

    try:
        loop.call_soon_threadsafe(begin)
        ended.acquire()
        has_ended = True
        return tasks.pop().result()  # from here on, nobody else has a lease: it is released where an interrupt drops it
    except BaseException:
        if not has_ended:
            _withdraw(loop, work, tasks, undo)
        tasks.clear()
        raise


def _withdraw(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, rules.T], tasks: list[asyncio.Task[rules.T]],
              undo: Optional[Callable[[rules.T], Any]]) -> None:
    """The loop goes on with it, also if this thread is interrupted again."""
    ended = threading.Lock()
    ended.acquire()

    async def withdraw() -> None:
        for task in tasks:
            task.cancel()
            await asyncio.wait({task})
            if undo is not None and not task.cancelled() and task.exception() is None:
                await undo(task.result())
        if not tasks:
            work.close()

    def begin() -> None:
        task = loop.create_task(withdraw())
        _undone.add(task)
        task.add_done_callback(_undone.discard)
        task.add_done_callback(lambda _: ended.release())

    loop.call_soon_threadsafe(begin)
    ended.acquire()


def _forget(holding: aio.Holding) -> None:
    _held.pop(holding, None)


def _abandon(holding: aio.Holding) -> None:
    """Nobody can release it any more. Does not wait, in whichever thread this is."""
    if not holding.released and holding.grant.term.mine:
        holding.loop.call_soon_threadsafe(lambda: holding.loop.create_task(holding.end()))


class Lost(rules.LostBase, threading.Event):
    """Set as soon as the lease cannot be relied on any more, by the clock: also if the process was stopped
    meanwhile."""

    def __init__(self, term: rules.Term) -> None:
        self._gates: list[Any] = []  # one for each thread that waits
        super().__init__(term)

    def set(self) -> None:
        """Wakes those who wait; the lease itself says whether it is lost."""
        with suppress(IndexError, RuntimeError):
            while True:
                self._gates.pop().release()

    def wait(self, timeout: Optional[float] = None) -> bool:
        until = clock() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        while True:
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)  # before the look: a set() after it opens this gate
            left = min(self._term.remaining(), until - clock(), threading.TIMEOUT_MAX)
            if left > 0:
                gate.acquire(timeout=left)
            with suppress(ValueError):
                self._gates.remove(gate)
            if self.is_set() or clock() >= until:
                return self.is_set()


def _drop(holding: aio.Holding, _leave: object) -> None:
    if not holding.kept:
        _abandon(holding)


def _leave(holding: aio.Holding, _kind: object, error: object, _trace: object) -> None:
    _run(holding.leave(error))


class _Exit(property):
    """`__exit__` of a lease: a `with` statement gets an object that nobody else has, and drops it when it is left.
    Then the lease is released, also if Ctrl-C came before the first step of _leave()."""

    def __call__(self, lease: Lease, *error: Any) -> None:
        """For contextlib.ExitStack, which asks the class."""
        _leave(lease._holding, *error)


class Lease(aio.LeaseBase):
    """A lease that is renewed until release(). `lost` is set when it cannot be relied on any more."""

    def __init__(self, holding: aio.Holding) -> None:
        super().__init__(holding)
        self.lost = Lost(self._grant.term)
        leave = functools.partial(_leave, holding)
        _held[holding] = weakref.ref(leave, functools.partial(_drop, holding))
        holding.kept, holding.on_end = False, _forget
        # The first call takes `leave` away. It has no step of Python, which Ctrl-C could interrupt.
        self._take_leave = functools.partial({0: leave}.pop, 0, functools.partial(_leave, holding))

    def release(self, keep: float = 0.0) -> bool:
        """Ends the renewal and gives the lock back. False: it was not held any more, or no server answers (it ends by
        itself), or this is the thread that renews leases, which cannot wait (in a `__del__`). `keep`: seconds for
        which nobody gets the lock then."""
        holding = self._holding
        if holding.released or not self._grant.term.mine:
            return False
        if holding.loop is asyncio._get_running_loop():
            _abandon(holding)
            return False
        try:
            return _run(holding.end(keep)) is True
        except ValueError:  # of keep: nothing was done
            raise
        except BaseException:  # Ctrl-C, maybe before it has begun
            _abandon(holding)
            raise

    def __enter__(self) -> Lease:
        self._holding.kept = False
        return self

    if TYPE_CHECKING:
        def __exit__(self, _kind: object, error: object, _trace: object) -> None: ...
    else:
        __exit__ = _Exit(operator.methodcaller("_take_leave"))


def _keep(lease: Lease) -> Lease:
    """It is held until its release(), also if nobody has the object any more."""
    lease._holding.kept = True
    return lease


async def _give_back(lease: Optional[Lease]) -> None:
    if lease is not None:
        await lease._holding.end()


def _leave_block(holdings: list[aio.Holding], stacked: list[aio.Holding], *error: Any) -> None:
    _leave((holdings or stacked).pop(), *error)


def _begin_block(lock: Lock) -> Any:
    """What a `with` statement calls at its end. It gets this before the lock is taken, and nobody else has it. It keeps
    what the lease lets go of, so that the lease is released when it is dropped, at whichever step Ctrl-C comes."""
    holdings: list[aio.Holding] = []
    leave = functools.partial(_leave_block, holdings, lock._stacked)
    lock._here.block = weakref.ref(leave)
    return leave


class _LockExit(property):
    def __call__(self, lock: Lock, *error: Any) -> None:
        """For contextlib.ExitStack, which asks the class."""
        _leave(lock._stacked.pop(), *error)


class Lock:
    """A lock that is taken by `with` or acquire(), again and again. Each thread has a lease of its own."""

    def __init__(self, client: Client, wanted: rules.Wanted) -> None:
        self._client, self._wanted, self._here = client, wanted, threading.local()
        self._stacked: list[aio.Holding] = []  # of blocks that are no `with` statement, as of an ExitStack

    def __repr__(self) -> str:
        return f"<redlockd.Lock on {self._wanted.text}>"

    @property
    def lease(self) -> Optional[Lease]:
        """That of acquire() in this thread, until its release()."""
        return getattr(self._here, "lease", None)

    def acquire(self, blocking: bool = True) -> bool:
        """False: somebody else has the lock until the wait is over, or now if it is not `blocking`. The lease is also
        released when nobody has this object any more."""
        if self.lease is not None:
            raise RuntimeError(f"{self._wanted.text}: this thread has the lock already, and it is not reentrant")
        wanted = self._wanted if blocking else self._wanted.at_once()
        self._here.lease = _run(self._client._try(Lease, wanted), _give_back)
        return self.lease is not None

    def release(self) -> None:
        """Raises LockLost if the lease was lost before."""
        lease = self.lease  # until the end: nothing else may drop it
        if lease is None:
            raise RuntimeError(f"{self._wanted.text}: this thread has not acquired the lock")
        try:
            self._here.lease = None
            _run(lease._holding.leave(None))
        except BaseException:  # Ctrl-C, maybe before it has begun
            _abandon(lease._holding)
            raise

    def __enter__(self) -> Lease:
        block = self._here.__dict__.pop("block", lambda: None)
        if block() is None:
            lease = _run(self._client._acquire(Lease, self._wanted), _give_back)
            self._stacked.append(lease._holding)
            lease._holding.kept = True
            return lease
        # no name here keeps the lease: an exception would keep the names
        block().lease = _run(self._client._acquire(Lease, self._wanted), _give_back)
        block().args[0].append(block().lease._holding)
        block().leave = block().lease._take_leave()
        return block().lease  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        def __exit__(self, _kind: object, error: object, _trace: object) -> None: ...
    else:
        __exit__ = _LockExit(_begin_block)


class Client(aio.ClientBase):
    """A client of one cluster of redlockd. Safe for threads."""

    _loop_ends = False

    @staticmethod
    def _call(call: Callable[[], None]) -> None:
        """A callback that blocks stops no renewal."""
        threading.Thread(target=call, name="redlockd-wanted", daemon=True).start()

    def acquire(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Lease:
        """A lock on one resource, or on all of several at once. Raises Locked if somebody else has the lock until the
        wait is over. The lease is renewed until its release(), or the end of its `with` block, which raises LockLost
        if the lease was lost meanwhile."""
        return _keep(_run(self._acquire(Lease, self._wanted(resource, options)), _give_back))

    def lock(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Lock:
        """A lock on one resource, or on all of several at once. `with` takes it for a block: it raises as acquire(),
        and LockLost at the end of the block if the lease was lost meanwhile."""
        return Lock(self, self._wanted(resource, options))

    def try_acquire(self, resource: rules.Names,
                    **options: rules.Unpack[rules.Options]) -> Union[Lease, rules.NoLease]:
        """Without waiting. What it returns is false if somebody else has the lock."""
        lease = _run(self._try(Lease, self._wanted(resource, options).at_once()), _give_back)
        return rules.NoLease() if lease is None else _keep(lease)

    def watch(self, resource: str) -> Iterator[Mapping[str, Any]]:
        """The state now, and again whenever the holder changes."""
        tags = ["", '"none"']  # which no state has: the first one comes at once
        while True:
            yield _run(self._run(rules.next_state(resource, tags, self._count, self._timeout)))

    def force(self, resource: str, fence: Optional[int] = None) -> None:
        """For operators: takes the lock from its holder; with `fence`, only from that one."""
        _run(self._run(rules.forced_release(resource, fence, self._count, self._timeout)))
