# SPDX-License-Identifier: MIT
"""The connections to one server in one event loop. They are kept between requests, and h11 reads the answers.

At most 16 are for requests that do not wait, and further requests queue. A request that waits has one beside these
for as long as it lasts, and a health check one that is used once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import threading
from collections import deque
from contextlib import suppress
from typing import Any, AsyncGenerator, Optional, Union

import h11

from ._wire import BODY_MAX, HEAD_MAX, SUCCESS, Answer, Ask, Headers, Key, Server, Tls, clock, encode, no_answer

MOST = 16  # in use by requests that do not wait; idle ones
IDLE = 5.0  # seconds, where the server does not say how long it keeps a connection
# Only the method matters to h11: the bytes of a request come from encode().
_REQUESTS = {method: h11.Request(method=method, target="/", headers=[("Host", "h")]) for method in SUCCESS}
_END = h11.EndOfMessage()
_KEPT = {b"etag": "etag", b"retry-after": "retry-after", b"keep-alive": "keep-alive"}


class Request:
    """`counts`: among the most at once; `begun`: it is not in the queue any more; `sent`: it may have been carried
    out."""

    def __init__(self, ask: Ask, data: bytes, outcome: asyncio.Future[Answer]) -> None:
        self.ask, self.data, self.outcome = ask, data, outcome
        self.counts, self.begun, self.sent = not ask.waits and not ask.once, False, False
        self.connecting: Optional[asyncio.Task[None]] = None
        self.connection: Optional[Connection] = None
        self.timer: Optional[asyncio.TimerHandle] = None
        self.until = clock() + ask.timeout

    def finish(self, answer: Answer) -> None:
        if not self.outcome.done():
            self.outcome.set_result(answer)


class Connection(asyncio.Protocol):
    def __init__(self, pool: Pool) -> None:
        self._pool, self._http = pool, h11.Connection(h11.CLIENT, HEAD_MAX)
        self._transport: Any = None
        self._request: Optional[Request] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._used = self._begun = False
        self._ends = 0.0  # when an idle one is closed
        self._status, self._length = 0, 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def close(self) -> None:
        with suppress(OSError, TypeError, AttributeError):  # a forked child may have it, too; TypeError: uvloop
            self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._transport.abort()
        self._forget()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self in self._pool.idle:
            self._pool.idle.remove(self)

    def give_up(self, request: Request) -> None:
        """Its answer must not become that of another request."""
        if self._request is request:
            self._request = None
            self.close()

    @property
    def usable(self) -> bool:
        return clock() < self._ends and not self._transport.is_closing()

    def send(self, request: Request) -> None:
        self._ends = 0.0
        self._transport.write(request.data)  # first: the server works meanwhile
        self._request, request.connection, request.sent = request, self, True
        self._begun, self._status, self._length, self._parts = False, 0, 0, []
        self._http.send(_REQUESTS[request.ask.method])
        self._http.send(_END)

    def data_received(self, data: bytes) -> None:
        if self._request is None:  # nothing was asked
            self.close()
            return
        self._begun = True
        self._read(data)

    def eof_received(self) -> None:
        self._read(b"")
        self._fail("the connection was closed")

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._forget()
        self._fail(error or "the connection was closed")

    def _read(self, data: bytes) -> None:
        request = self._request
        try:
            self._http.receive_data(data)
            while self._request is request is not None:
                event = self._http.next_event()
                kind = type(event)
                if kind is h11.Data:
                    self._parts.append(event.data)  # type: ignore[union-attr]
                    self._length += len(event.data)  # type: ignore[union-attr]
                    if self._length > BODY_MAX:
                        self._fail("the body is too long")
                elif kind is h11.Response:
                    self._read_head(event)
                elif kind is h11.EndOfMessage:
                    self._end()
                elif kind is not h11.InformationalResponse:  # more has to come
                    return
        except h11.ProtocolError:  # its text shows the answer, which may have a token
            self._fail("its answer is malformed")

    def _read_head(self, event: Any) -> None:
        self._status, self._headers, size = event.status_code, {}, 0
        for name, value in event.headers:
            size += len(name) + len(value) + 4
            if name in _KEPT:
                self._headers[_KEPT[name]] = value.decode("latin-1")
        if size > HEAD_MAX:
            self._fail("the head is too long")

    def _end(self) -> None:
        request, self._request, http = self._request, None, self._http
        assert request is not None
        if http.their_state is h11.DONE and not any(http.trailing_data) and not request.ask.once:
            http.start_next_cycle()
            self._keep()
        else:
            self.close()
        request.finish(request.ask.read(self._pool.server.url, self._status, self._headers, b"".join(self._parts)))

    def _keep(self) -> None:
        """Until a second before the server closes it."""
        found = re.search(r"timeout=(\d{1,6})", self._headers.get("keep-alive", ""))
        seconds = float(found[1]) - 1 if found else IDLE
        self._used, self._ends = True, clock() + seconds
        if seconds > 0 and len(self._pool.idle) < MOST:
            self._pool.idle.append(self)
            if self._timer is None:  # one at a time, which looks again when it is due
                self._timer = self._pool.loop.call_later(seconds, self._look_at_the_clock)
        else:
            self.close()

    def _look_at_the_clock(self) -> None:
        self._timer, left = None, self._ends - clock()
        if self._ends and left > 0:
            self._timer = self._pool.loop.call_later(left, self._look_at_the_clock)
        elif self._ends:
            self.close()

    def _fail(self, why: object) -> None:
        request, self._request = self._request, None
        if request is not None:
            self.close()
            if self._used and not self._begun and not request.outcome.done():
                self._pool.carry_out(request, True)  # the server has closed an idle connection: no failure
            else:
                request.finish(no_answer(f"{self._pool.server.url}: {why}", True))


class Pool:
    def __init__(self, server: Server, tls: Optional[Tls], key: Key, connect: float,
                 headers: Headers = None) -> None:
        """`connect`: seconds that a connection may take to be there."""
        self._headers = headers
        self.server, self._tls, self._key, self._connect = server, server.tls and tls or None, key, connect
        self.loop = asyncio.get_running_loop()
        self.idle: list[Connection] = []
        self._queue: deque[Request] = deque()
        self._busy = 0
        self.end: Any = None  # closes connections at the end of the loop
        self._lookup: Optional[asyncio.Future[Union[list[str], Exception]]] = None

    def request(self, ask: Ask) -> Request:
        return Request(ask, encode(self.server, self._key, ask, self._headers), self.loop.create_future())

    async def answer(self, request: Request) -> Answer:
        """Carries out a request that was not sent yet."""
        try:
            self._start(request)
            return await request.outcome
        finally:
            self._end(request)

    async def answer_to_the_end(self, request: Request) -> tuple[Answer, bool]:
        """The same, also if this task is cancelled; and whether it was."""
        cancelled = False
        try:
            self._start(request)
            while not request.outcome.done():
                try:
                    await asyncio.shield(request.outcome)
                except asyncio.CancelledError:
                    cancelled = True
            return request.outcome.result(), cancelled
        finally:
            self._end(request)

    def _start(self, request: Request) -> None:
        if request.counts and self._busy >= MOST:
            self._queue.append(request)
        else:
            self._begin(request)
        self._set_timer(request, min(request.ask.timeout, self._connect))

    def _end(self, request: Request) -> None:
        request.outcome.cancel()  # if it has none, none comes any more
        if request.timer is not None:
            request.timer.cancel()
        if request.connecting is not None:
            request.connecting.cancel()
        if request.connection is not None:
            request.connection.give_up(request)
        if request.counts and request.begun:
            self._busy -= 1
            while self._queue and self._busy < MOST:
                following = self._queue.popleft()
                if not following.outcome.done():
                    self._begin(following)

    def _begin(self, request: Request) -> None:
        request.begun = True
        self._busy += request.counts
        self.carry_out(request, request.ask.once)

    def _set_timer(self, request: Request, seconds: float) -> None:
        request.timer = self.loop.call_later(seconds, self._look_at_the_clock, request)

    def _look_at_the_clock(self, request: Request) -> None:
        left = request.until - clock()
        if not request.sent:
            request.finish(no_answer(f"{self.server.url}: no connection in time", False))
        elif left <= 0:
            request.finish(no_answer(f"{self.server.url}: it does not answer in time", True))
        else:
            self._set_timer(request, left)

    def carry_out(self, request: Request, new: bool) -> None:
        """`new`: on a new connection."""
        while not new and self.idle:
            connection = self.idle.pop()
            if connection.usable:
                return connection.send(request)
            connection.close()
        request.connecting = self.loop.create_task(self._carry_out_on_a_new_one(request))
        return None

    async def _carry_out_on_a_new_one(self, request: Request) -> None:
        try:
            connection = await self._open()
        except asyncio.CancelledError:
            if not request.outcome.done():  # the end of asyncio.run() cancels this task, too
                self.carry_out(request, True)
            raise
        except ConnectionRefusedError:  # which asyncio says in other words
            request.finish(no_answer(f"{self.server.url}: Connection refused", request.sent))
        except Exception as error:
            request.finish(no_answer(f"{self.server.url}: {error or type(error).__name__}", request.sent))
        else:
            connection.close() if request.outcome.done() else connection.send(request)

    async def _open(self) -> Connection:
        if self.server.socket_path:
            return (await self.loop.create_unix_connection(lambda: Connection(self), self.server.socket_path))[1]
        how: dict[str, Any] = {"ssl": self._tls.context(), "server_hostname": self.server.host} if self._tls else {}
        failure, port = OSError("the name has no address"), self.server.port
        for address in await self._addresses():
            try:
                return (await self.loop.create_connection(lambda: Connection(self), address, port, **how))[1]
            except OSError as error:
                failure = error
        raise failure

    async def _addresses(self) -> list[str]:
        """Not by the executor of the loop, which takes nothing any more once the main thread has ended."""
        with suppress(ValueError):
            return [str(ipaddress.ip_address(self.server.host))]
        lookup = self._lookup
        if lookup is None:
            lookup = self._lookup = self.loop.create_future()
            try:
                threading.Thread(target=self._look_up, name="redlockd-names", daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._found(self._resolve())
        found = await asyncio.shield(lookup)
        if isinstance(found, Exception):
            raise found
        return found

    def _resolve(self) -> Union[list[str], Exception]:
        try:
            found = socket.getaddrinfo(self.server.host, self.server.port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(address[0]) for *_, address in found))
        except Exception as error:
            return error

    def _look_up(self) -> None:
        found = self._resolve()
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._found, found)

    def _found(self, found: Union[list[str], Exception]) -> None:
        lookup, self._lookup = self._lookup, None
        if lookup is not None and not lookup.done():
            lookup.set_result(found)


async def close_at_the_end(pools: list[Pool]) -> AsyncGenerator[None, None]:
    """Closes the idle connections when the loop ends its asynchronous generators. To be started in the loop."""
    try:
        yield
    finally:
        for pool in pools:
            for connection in list(pool.idle):
                connection.close()
