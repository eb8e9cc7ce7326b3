"""The client for asyncio, with the names of `redlockd`. Nothing here blocks the event loop.

    async with redlockd.aio.Client("https://a:8443", key=KEY).lock("orders/42") as lease:
        lease.check()
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, AsyncIterator, Literal, Mapping, Optional, Sequence, Union

from . import _rules as rules
from ._wire import Answer, Ask, Server, Servers, clock, no_answer, parse_answer
from .errors import Locked

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Client", "Lease", "Lost"]


class Lost(asyncio.Event):
    """Set as soon as the lease cannot be relied on any more, by the clock: also if the loop was blocked meanwhile."""

    def __init__(self, term: rules.Term) -> None:
        super().__init__()
        self._term = term
        term.on_lost = self.set

    def is_set(self) -> bool:
        return self._term.lost() is not None

    async def wait(self) -> Literal[True]:
        while not self.is_set():
            with suppress(asyncio.TimeoutError):  # it may have been renewed
                await asyncio.wait_for(super().wait(), self._term.remaining())
        return True


class ClientBase:
    """`servers`: `https://host:port`, `http://host:port` or `unix:/path`, in the order of preference. `key`: an API key.
    `timeout`: seconds that a server may take to answer, beside what the request waits for. `ca`: a file of authorities for HTTPS.
    `certificate`: the files of a client certificate and of its key."""

    def __init__(self, servers: Union[str, Sequence[str]] = "http://127.0.0.1:8080", *, key: Optional[str] = None,
                 owner: Optional[str] = None, timeout: float = 5.0, ca: Optional[str] = None,
                 certificate: Optional[tuple[str, str]] = None) -> None:
        self._servers = Servers(servers, key)
        self._count, self._timeout, self._owner = len(self._servers.all), timeout, owner
        secure = any(server.tls for server in self._servers.all)
        self._tls = ssl.create_default_context(cafile=ca) if secure else None
        if self._tls is not None and certificate is not None:
            self._tls.load_cert_chain(*certificate)

    async def _acquire(self, resource: rules.Names, options: rules.Options) -> Lease:
        options.setdefault("owner", self._owner)
        wanted = rules.Wanted(resource, **options)
        acquisition = rules.Acquisition(wanted, self._count, self._timeout)
        try:
            return Lease(self, wanted, await self._run(acquisition.steps()))
        except BaseException:  # CancelledError, too
            if acquisition.unknown:
                await self._run(acquisition.take_back())
            raise

    async def _run(self, steps: rules.Steps[rules.T]) -> rules.T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Ask):
                    server = self._servers.current()
                    answer = await self._ask(server, step, self._count > 1)
                    self._servers.note(server, answer)
                    step = steps.send(answer)
                else:
                    await asyncio.sleep(step)
                    step = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _ask(self, server: Server, ask: Ask, probes: bool = False) -> Answer:
        """`probes`: a server that answers no health check while the request waits is given up."""
        until, exchange = clock() + ask.timeout, _Exchange()
        work = asyncio.ensure_future(exchange.carry_out(self, server, ask))
        try:
            while until > clock():
                await asyncio.wait({work}, timeout=min(until - clock(), self._timeout))
                if work.done():
                    return work.result()
                if not exchange.sent:
                    return no_answer(f"{server.url}: no connection in time", False)
                if probes and until > clock() and not (await self._ask(server, Ask("GET", "/healthz", self._timeout))).status:
                    return no_answer(f"{server.url}: it does not answer health checks", True)
            return no_answer(f"{server.url}: it does not answer in time", exchange.sent)
        finally:
            work.cancel()


class _Exchange:
    """One request on a connection of its own, which ends with it. Once it is `sent`, it may be carried out."""

    sent = False

    async def carry_out(self, client: ClientBase, server: Server, ask: Ask) -> Answer:
        writer, data = None, b""
        try:
            if server.socket_path:
                reader, writer = await asyncio.open_unix_connection(server.socket_path)
            else:
                tls: Mapping[str, Any] = {"ssl": client._tls, "server_hostname": server.host} if server.tls else {}
                reader, writer = await asyncio.open_connection(server.known if rules.exiting else server.host, server.port, **tls)
                server.known = writer.get_extra_info("peername")[0]
            self.sent = True
            writer.write(client._servers.request(server, ask))
            while True:
                more = await reader.read(65536)
                data += more
                answer = parse_answer(data, not more, ask.method)
                if answer is not None:
                    return answer
        except (OSError, UnicodeError) as error:
            return no_answer(f"{server.url}: {error}", self.sent)
        finally:
            if writer is not None:
                writer.transport.abort()


class Lease(rules.LeaseBase):
    """A lease that a task renews until release(). `lost` is set when it cannot be relied on any more."""

    def __init__(self, client: ClientBase, wanted: rules.Wanted, grant: rules.Grant) -> None:
        super().__init__(wanted, grant)
        self._client, self.lost = client, Lost(grant.term)
        self._task = asyncio.ensure_future(client._run(rules.renewals(wanted, grant, client._count, client._timeout)))

    async def release(self) -> bool:
        """Ends the renewal and gives the lock back. False: it was not held any more, or no server answers (it ends by itself)."""
        self._task.cancel()
        if not self._begin_release():
            return False
        steps = rules.release(self._wanted, self._grant.token, self._client._count, min(self._client._timeout, 2.0))
        return await asyncio.shield(self._client._run(steps))  # also if this task is cancelled

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, _kind: object, error: object, _trace: object) -> None:
        why = self._loss_to_raise(error)
        await self.release()
        if why is not None:
            raise why


class Client(ClientBase):
    """A client of one cluster of redlockd."""

    @asynccontextmanager
    async def lock(self, resource: rules.Names, **options: Unpack[rules.Options]) -> AsyncIterator[Lease]:
        """A lock on one resource, or on all of several at once, for a block. Raises as acquire(), and LockLost at the end of the block
        if the lease was lost meanwhile."""
        async with await self._acquire(resource, options) as lease:
            yield lease

    async def acquire(self, resource: rules.Names, **options: Unpack[rules.Options]) -> Lease:
        """Raises Locked if somebody else has the lock until the wait is over. The lease is renewed until its release()."""
        return await self._acquire(resource, options)

    async def try_acquire(self, resource: rules.Names, **options: Unpack[rules.Options]) -> Optional[Lease]:
        """Without waiting; None if somebody else has the lock."""
        options["wait"] = 0.0
        try:
            return await self._acquire(resource, options)
        except Locked:
            return None

    async def watch(self, resource: str) -> AsyncIterator[Mapping[str, Any]]:
        """The state now, and again whenever the holder changes."""
        tag = '"none"'  # which no state has: the first one comes at once
        while True:
            state, tag = await self._run(rules.next_state(resource, tag, self._count, self._timeout))
            yield state

    async def force(self, resource: str, fence: Optional[int] = None) -> None:
        """For operators: takes the lock from its holder; with `fence`, only from that one."""
        await self._run(rules.forced_release(resource, fence, self._count, self._timeout))
