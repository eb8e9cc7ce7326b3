"""The client for asyncio, with the names of `redlockd`. Nothing here blocks the event loop.

    async with redlockd.aio.Client("https://a:8443", key=KEY).lock("orders/42") as lease:
        lease.check()
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from contextlib import asynccontextmanager, suppress
from typing import Any, AsyncIterator, Callable, Literal, Mapping, Optional, Sequence, Union
from weakref import WeakKeyDictionary

from . import _rules as rules
from ._connections import Connections
from ._wire import Answer, Ask, Server, clock, no_answer
from .errors import Locked, LockLost


class Lost(rules.LostBase, asyncio.Event):
    """Set as soon as the lease cannot be relied on any more, by the clock: also if the loop was blocked meanwhile."""

    async def wait(self) -> Literal[True]:
        while not self.is_set():
            with suppress(asyncio.TimeoutError):  # it may have been renewed
                await asyncio.wait_for(super().wait(), self._term.remaining())
        return True


class ClientBase:
    """`servers`: `https://host:port`, `http://host:port` or `unix:/path`, in the order of preference. `key`: an API key.
    `timeout`: seconds that a server may take to answer, beside what the request waits for. `ca`: a file of authorities for
    HTTPS. `certificate`: the files of a client certificate and of its key."""

    def __init__(self, servers: Union[str, Sequence[str]] = "http://127.0.0.1:8080", *, key: Optional[str] = None,
                 owner: Optional[str] = None, timeout: float = 5.0, ca: Optional[str] = None,
                 certificate: Optional[tuple[str, str]] = None) -> None:
        self._servers = [Server(url) for url in ([servers] if isinstance(servers, str) else servers)]
        if not self._servers or key is not None and not re.fullmatch("[!-~]+", key):
            raise ValueError("the key has characters that no key has" if self._servers else "no server is given")
        self._count, self._in_use, self._key, self._timeout, self._owner = len(self._servers), 0, key, timeout, owner
        self._tls = ssl.create_default_context(cafile=ca) if any(server.tls for server in self._servers) else None
        if self._tls is not None and certificate is not None:
            self._tls.load_cert_chain(*certificate)
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Server, Connections]] = WeakKeyDictionary()

    async def _acquire(self, kind: Callable[..., rules.T], resource: rules.Names, options: rules.Options) -> rules.T:
        """`kind`: of the lease."""
        options.setdefault("owner", self._owner)
        wanted = rules.Wanted(resource, **options)
        acquisition = rules.Acquisition(wanted, self._count, self._timeout)
        try:
            return kind(self, wanted, await self._run(acquisition.steps()))
        except BaseException:  # CancelledError, too
            if acquisition.unknown:
                await asyncio.shield(self._run(acquisition.take_back()))  # also if it is cancelled again
            raise

    async def _try(self, kind: Callable[..., rules.T], resource: rules.Names, options: rules.Options) -> Optional[rules.T]:
        options["wait"] = 0.0
        with suppress(Locked):
            return await self._acquire(kind, resource, options)
        return None

    async def _run(self, steps: rules.Steps[rules.T]) -> rules.T:
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                if isinstance(step, Ask):
                    server = self._servers[self._in_use]
                    answer = step.check(await self._ask(server, step, self._count > 1))
                    failed = answer.status in (0, 429, 503) or step.insists and answer.status >= 400 and not answer.is_final
                    if failed:  # the next one, unless another request has moved on already
                        self._in_use = (self._servers.index(server) + 1) % self._count
                else:
                    await asyncio.sleep(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _ask(self, server: Server, ask: Ask, probes: bool = False) -> Answer:
        """`probes`: a server that answers no health check while the request waits is given up."""
        sent = asyncio.Event()
        work = asyncio.ensure_future(self._connections_to(server).exchange(ask, sent))
        limit = asyncio.ensure_future(self._give_up(server, ask, sent, probes))
        try:
            await asyncio.wait({work, limit}, return_when=asyncio.FIRST_COMPLETED)
            return (work if work.done() else limit).result()
        finally:
            work.cancel()
            limit.cancel()

    async def _give_up(self, server: Server, ask: Ask, sent: asyncio.Event, probes: bool) -> Answer:
        """Returns when no answer is to be waited for any more."""
        until, health = clock() + ask.timeout, Ask("GET", "/healthz", self._timeout, may_wait=True)
        while until > clock():
            await asyncio.sleep(min(until - clock(), self._timeout))
            if not sent.is_set():
                return no_answer(f"{server.url}: no connection in time", False)
            if probes and until > clock() and not (await self._ask(server, health)).status:
                return no_answer(f"{server.url}: it does not answer health checks", True)
        return no_answer(f"{server.url}: it does not answer in time", True)

    def _connections_to(self, server: Server) -> Connections:
        """Of the running loop: a connection belongs to the loop that opened it, also in a forked child."""
        mine = self._connections.setdefault(asyncio.get_running_loop(), {})
        if server not in mine:
            mine[server] = Connections(server, self._key, self._tls)
        return mine[server]


class LeaseBase:
    """`fence` goes with each write to what the lock protects; `resources` are the names that the lease covers; `slot` is its
    own of several `slots`. Made in the loop, where a task renews it."""

    def __init__(self, client: ClientBase, wanted: rules.Wanted, grant: rules.Grant) -> None:
        self._client, self._wanted, self._grant, self._term, self._process = client, wanted, grant, grant.term, os.getpid()
        self.fence, self.resources, self.slot, self._released = grant.fence, wanted.resources, grant.slot, False
        self._task = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        """No error ends it: whatever it was, the lease may be renewed a moment later."""
        while not self._term.lost():
            try:
                await self._client._run(rules.renewals(self._wanted, self._grant, self._client._count, self._client._timeout))
            except Exception as error:
                rules.LOG.error("renewal of %s: %r", self._wanted.resources, error)
                await asyncio.sleep(self._grant.ttl / 10)

    @property
    def remaining(self) -> float:
        """Seconds until the lease counts as lost unless it is renewed."""
        return self._term.remaining()

    def check(self) -> None:
        """Raises LockLost if the lease cannot be relied on any more. Call it right before each write."""
        why = self._term.lost()
        if why is not None:
            raise LockLost(str(why), why.cause)

    async def _end(self) -> Optional[bool]:
        """True: it was released. None: it was not held any more. From the first step on the lease does not count, whatever the server answers."""
        first, self._released = not self._released and self._process == os.getpid(), True  # no forked child owns it
        self._term.lose(LockLost("the lease was released"))
        if not first:
            return False
        self._task.cancel()
        steps = rules.release(self._wanted, self._grant.token, self._client._count, min(self._client._timeout, 2.0))
        return await asyncio.shield(self._client._run(steps))  # also if this task is cancelled

    async def _leave(self, error: object) -> None:
        """At the end of a block: raises the loss if the block itself ended well."""
        why = None if error is not None or self._released else self._term.lost()
        refused = await self._end() is None and error is None
        if why is not None or refused:
            raise why or LockLost("the lease was not held any more when it was released")


class Lease(LeaseBase):
    """A lease that a task renews until release(). `lost` is set when it cannot be relied on any more."""

    def __init__(self, client: ClientBase, wanted: rules.Wanted, grant: rules.Grant) -> None:
        super().__init__(client, wanted, grant)
        self.lost = Lost(grant.term)

    async def release(self) -> bool:
        """Ends the renewal and gives the lock back. False: it was not held any more, or no server answers (it ends by
        itself)."""
        return bool(await self._end())

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, _kind: object, error: object, _trace: object) -> None:
        await self._leave(error)


class Client(ClientBase):
    """A client of one cluster of redlockd."""

    @asynccontextmanager
    async def lock(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> AsyncIterator[Lease]:
        """A lock on one resource, or on all of several at once, for a block. Raises as acquire(), and LockLost at the end of
        the block if the lease was lost meanwhile."""
        async with await self._acquire(Lease, resource, options) as lease:
            yield lease

    async def acquire(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Lease:
        """Raises Locked if somebody else has the lock until the wait is over. The lease is renewed until its release()."""
        return await self._acquire(Lease, resource, options)

    async def try_acquire(self, resource: rules.Names, **options: rules.Unpack[rules.Options]) -> Optional[Lease]:
        """Without waiting; None if somebody else has the lock."""
        return await self._try(Lease, resource, options)

    async def watch(self, resource: str) -> AsyncIterator[Mapping[str, Any]]:
        """The state now, and again whenever the holder changes."""
        tags = ["", '"none"']  # which no state has: the first one comes at once
        while True:
            yield await self._run(rules.next_state(resource, tags, self._count, self._timeout))

    async def force(self, resource: str, fence: Optional[int] = None) -> None:
        """For operators: takes the lock from its holder; with `fence`, only from that one."""
        await self._run(rules.forced_release(resource, fence, self._count, self._timeout))
