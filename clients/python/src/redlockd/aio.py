# SPDX-License-Identifier: MIT
"""The client for asyncio, with the names of `redlockd`. Nothing here blocks the event loop.

    async with redlockd.aio.Client("https://a:8443", key=KEY).lock("orders/42") as lease:
        lease.check()
"""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import suppress
from typing import Any, AsyncIterator, Callable, Literal, Mapping, NamedTuple, Optional, Sequence, Union

from . import _rules as rules
from ._log import log
from ._pool import Pool, Request, close_at_the_end
from ._renewals import Held, Renewer, renewals
from ._wire import KEY, Answer, Ask, Headers, Key, Server, Tls, TokenFile, no_answer
from .errors import Error, Locked, LockLost


class Lost(rules.LostBase, asyncio.Event):
    """Set as soon as the lease cannot be relied on any more, by the clock: also if the loop was blocked meanwhile."""

    async def wait(self) -> Literal[True]:
        while not self.is_set():
            with suppress(asyncio.TimeoutError):  # it may have been renewed
                await asyncio.wait_for(super().wait(), self._term.remaining())
        return True


def _module_of(thing: object) -> str:
    """`redlockd` or `redlockd.aio`."""
    return type(thing).__module__.replace("._threads", "")


class Here(NamedTuple):
    """A client in one event loop."""

    pools: list[Pool]
    renewer: Renewer


class ClientBase:
    """`servers`: `https://host:port`, `http://host:port` or `unix:/path`, in the order of preference. `key`: an API
    key. `token_file`: a file with a token instead, which is read for each request. `timeout`: seconds that a server
    may take to answer, beside what the request waits for. `ca`: a file of authorities for HTTPS. `certificate`: the
    files of a client certificate and of its key. All three are read again when they change. `headers`: more headers for
    each request, such as a traceparent: a mapping, or a function that returns one and runs in the caller's context.
    Those that the library sets itself are left out."""

    _loop_ends = True  # before the program does

    def __init__(self, servers: Union[str, Sequence[str]] = "http://127.0.0.1:8080", *, key: Optional[str] = None,
                 token_file: Optional[str] = None, owner: Optional[str] = None, timeout: float = 5.0,
                 ca: Optional[str] = None, certificate: Optional[tuple[str, str]] = None,
                 headers: Headers = None) -> None:
        self._servers = [Server(url) for url in ([servers] if isinstance(servers, str) else servers)]
        if not self._servers or key is not None and not KEY.fullmatch(key):
            raise ValueError("the key has characters that no key has" if self._servers else "no server is given")
        if key is not None and token_file is not None:
            raise ValueError("key and token_file: one of them only")
        self._key: Key = key if token_file is None else TokenFile(token_file)
        self._count, self._in_use, self._timeout, self._owner = len(self._servers), 0, timeout, owner
        self._tls = Tls(ca, certificate) if any(server.tls for server in self._servers) else None
        self._headers = headers
        self._here: dict[asyncio.AbstractEventLoop, Here] = {}

    def _of_the_loop(self) -> Here:
        """A forked child has another loop, and so connections of its own."""
        loop = asyncio.get_running_loop()
        here = self._here.get(loop)
        if here is None:
            pools = [Pool(server, self._tls, self._key, self._timeout, self._headers) for server in self._servers]
            if self._loop_ends:
                end: Any = close_at_the_end(pools)
                with suppress(StopIteration):  # its first step makes it known to the loop
                    end.__anext__().send(None)
                pools[0].end = end
            here = Here(pools, Renewer(loop, self._renew))
            self._here = {**{known: its for known, its in self._here.items() if not known.is_closed()}, loop: here}
        return here

    async def _renew(self, batch: Sequence[Held]) -> Sequence[Sequence[Held]]:
        return await self._run(renewals(batch, self._count, self._timeout))

    @staticmethod
    def _call(call: Callable[[], None]) -> None:
        """Calls code of the program, apart from everything else."""
        asyncio.get_running_loop().call_soon(call)

    def __repr__(self) -> str:
        return f"<{_module_of(self)}.Client of {', '.join(server.url for server in self._servers)}>"

    def _wanted(self, resource: rules.Names, options: rules.Options) -> rules.Wanted:
        return rules.Wanted.chosen(resource, options, self._owner)

    async def _acquire(self, kind: Callable[[Holding], rules.T], wanted: rules.Wanted) -> rules.T:
        """`kind`: of the lease."""
        acquisition = rules.Acquisition(wanted, self._count, self._timeout)
        try:
            return kind(Holding(self, wanted, await self._run(acquisition.steps())))
        except BaseException as error:  # CancelledError, too
            if acquisition.unknown and not isinstance(error, GeneratorExit):
                await self._run(acquisition.take_back(), True)
            raise

    async def _try(self, kind: Callable[[Holding], rules.T], wanted: rules.Wanted) -> Optional[rules.T]:
        """None: somebody else has the lock until the wait is over."""
        with suppress(Locked):
            return await self._acquire(kind, wanted)
        return None

    async def _run(self, steps: rules.Steps[rules.T], to_the_end: bool = False) -> rules.T:
        """`to_the_end`: if this task is cancelled, as all tasks are at the end of asyncio.run(), the steps go on, and
        the cancellation is raised at their end."""
        answer: Any = None
        index, failed, cancelled = 0, False, False
        try:
            while True:
                step = steps.send(answer)
                if not isinstance(step, Ask):
                    await asyncio.sleep(step)
                    continue
                index = (index + 1) % self._count if failed else self._in_use
                pool = self._of_the_loop().pools[index]
                request = pool.request(step)
                if to_the_end:
                    answer, was_cancelled = await pool.answer_to_the_end(request)
                    cancelled |= was_cancelled
                else:
                    answer = await self._ask(pool, request)
                failed = step.failed(answer)
                # the server has seen nothing of a request in the queue; another request may have moved on already
                if failed and request.begun and self._in_use == index:
                    self._in_use = (index + 1) % self._count
        except StopIteration as end:
            if cancelled:
                raise asyncio.CancelledError from None
            return end.value  # type: ignore[no-any-return]

    async def _ask(self, pool: Pool, request: Request) -> Answer:
        if not request.ask.waits or self._count == 1:
            return await pool.answer(request)
        probes = asyncio.ensure_future(self._probe(pool, request))
        try:
            return await pool.answer(request)
        finally:
            probes.cancel()

    async def _probe(self, pool: Pool, request: Request) -> None:
        """Gives the request up if its server answers no health check while it waits."""
        while True:
            await asyncio.sleep(self._timeout)
            health = pool.request(Ask("GET", "/healthz", self._timeout, once=True))
            if not (await pool.answer(health)).status:
                request.finish(no_answer(f"{pool.server.url}: it does not answer health checks", True))


class Holding(Held):
    """A lease in the loop that renews it."""

    def __init__(self, client: ClientBase, wanted: rules.Wanted, grant: rules.Grant) -> None:
        super().__init__(wanted, grant)
        self._client = client
        self.kept = True  # also if nobody can release it any more
        self.loop = asyncio.get_running_loop()
        self._renewer = client._of_the_loop().renewer
        self._renewer.add(self)
        self._release: Optional[asyncio.Task[Any]] = None
        self.on_end: Callable[[Holding], None] = lambda _: None

    def on_wanted(self) -> None:
        if self.wanted.on_wanted is not None:
            with suppress(RuntimeError):  # no thread can be started
                self._client._call(functools.partial(self._survive, self.wanted.on_wanted))

    def _survive(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            log(logging.ERROR, "on_wanted of %s: %r", self.wanted.text, error)

    async def end(self, keep: float = 0.0) -> Union[bool, Error]:
        """True: it was released. An error: it was not held any more. From the first step on the lease does not count,
        whatever the server answers. `keep`: seconds for which nobody gets it then."""
        if not keep >= 0:
            raise ValueError(f"keep must be a number of seconds from 0: {keep}")
        first, self.released = not self.released and self.grant.term.mine, True  # no forked child owns it
        lost = self.grant.term.lost() is not None
        self.grant.term.lose()
        if not first:
            return False
        self._renewer.remove(self)
        client, self._release = self._client, asyncio.current_task()
        steps = rules.release(self.wanted, self.grant, keep, lost, client._count, min(client._timeout, 2.0))
        try:
            return await client._run(steps, True)
        finally:
            self.on_end(self)

    async def finish(self) -> None:
        """Returns when the release is over, whoever began it."""
        if self._release is None:
            await self.end()
        else:
            await asyncio.wait({self._release})

    async def leave(self, error: object) -> None:
        """At the end of a block: raises the loss if the block itself ended well."""
        why = None if error is not None or self.released else self.grant.term.lost()
        end = await self.end()
        if isinstance(end, Error) and error is None:
            why = why or self.grant.term.refuse(end)
        if why is not None:
            raise why


class LeaseBase:
    """`fence` goes with each write to what the lock protects; `resources` are the names that the lease covers; `slot`
    is its own of several `slots`."""

    def __init__(self, holding: Holding) -> None:
        self._holding, self._grant = holding, holding.grant
        self.fence, self.resources, self.slot = self._grant.fence, holding.wanted.resources, self._grant.slot

    def __repr__(self) -> str:
        why = self._grant.term.lost()
        state = f"{self.remaining:.1f} s left" if why is None else f"lost: {why.cause}"
        return f"<{_module_of(self)}.Lease on {self._holding.wanted.text}, fence {self.fence}, {state}>"

    @property
    def remaining(self) -> float:
        """Seconds until the lease counts as lost unless it is renewed."""
        return self._grant.term.remaining()

    @property
    def waiters(self) -> int:
        """How many waited for the lock at its last renewal."""
        return self._holding.waiters

    def check(self) -> None:
        """Raises LockLost if the lease cannot be relied on any more. Call it right before each write."""
        why = self._grant.term.lost()
        if why is not None:
            raise LockLost(str(why), why.cause) from why.__cause__


class Lease(LeaseBase):
    """A lease that is renewed until release(). `lost` is set when it cannot be relied on any more."""

    def __init__(self, holding: Holding) -> None:
        super().__init__(holding)
        self.lost = Lost(self._grant.term)

    async def release(self, keep: float = 0.0) -> bool:
        """Ends the renewal and gives the lock back. False: it was not held any more, or no server answers (it ends by
        itself). `keep`: seconds for which nobody gets the lock then."""
        return await self._holding.end(keep) is True

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, _kind: object, error: object, _trace: object) -> None:
        await self._holding.leave(error)


class Lock:
    """A lock that is taken by `async with` or acquire(), again and again. Each task has a lease of its own."""

    def __init__(self, client: Client, wanted: rules.Wanted) -> None:
        self._client, self._wanted = client, wanted
        self._leases: dict[Optional[asyncio.Task[Any]], Lease] = {}

    def __repr__(self) -> str:
        return f"<redlockd.aio.Lock on {self._wanted.text}>"

    @property
    def lease(self) -> Optional[Lease]:
        """That of this task, until its release()."""
        return self._leases.get(asyncio.current_task())

    async def acquire(self, blocking: bool = True) -> bool:
        """False: somebody else has the lock until the wait is over, or now if it is not `blocking`."""
        self._check()
        lease = await self._client._try(Lease, self._wanted if blocking else self._wanted.at_once())
        if lease is not None:
            self._leases[asyncio.current_task()] = lease
        return lease is not None

    async def release(self) -> None:
        """Raises LockLost if the lease was lost before."""
        await self._take().__aexit__(None, None, None)

    async def __aenter__(self) -> Lease:
        self._check()
        lease = await self._client._acquire(Lease, self._wanted)
        self._leases[asyncio.current_task()] = lease
        return lease

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self._take().__aexit__(kind, error, trace)

    def _check(self) -> None:
        if self.lease is not None:
            raise RuntimeError(f"{self._wanted.text}: this task has the lock already, and it is not reentrant")

    def _take(self) -> Lease:
        """That of this task, or else of the one that took it first: a block may end in another task than it began."""
        task = asyncio.current_task()
        if not self._leases:
            raise RuntimeError(f"{self._wanted.text}: the lock is not acquired")
        return self._leases.pop(task if task in self._leases else next(iter(self._leases)))


class Client(ClientBase):
    """A client of one cluster of redlockd."""

    def lock(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Lock:
        """A lock on one resource, or on all of several at once. `async with` takes it for a block: it raises as
        acquire(), and LockLost at the end of the block if the lease was lost meanwhile."""
        return Lock(self, self._wanted(resource, options))

    async def acquire(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Lease:
        """Raises Locked if somebody else has the lock until the wait is over. The lease is renewed until its
        release()."""
        return await self._acquire(Lease, self._wanted(resource, options))

    async def try_acquire(self, resource: rules.Names,
                          **options: rules.Unpack[rules.Options]) -> Union[Lease, rules.NoLease]:
        """Without waiting. What it returns is false if somebody else has the lock."""
        return await self._try(Lease, self._wanted(resource, options).at_once()) or rules.NoLease()

    async def watch(self, resource: str) -> AsyncIterator[Mapping[str, Any]]:
        """The state now, and again whenever the holder changes."""
        tags = ["", '"none"']  # which no state has: the first one comes at once
        while True:
            yield await self._run(rules.next_state(resource, tags, self._count, self._timeout))

    async def force(self, resource: str, fence: Optional[int] = None) -> None:
        """For operators: takes the lock from its holder; with `fence`, only from that one."""
        await self._run(rules.forced_release(resource, fence, self._count, self._timeout))
