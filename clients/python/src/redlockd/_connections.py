"""The connections to one server, in one event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Optional

from ._wire import Answer, Ask, Server, Wire, no_answer

LIMIT = 16  # for requests that do not wait; as many idle ones are kept


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.wire = reader, writer, Wire()
        self.expiry: Optional[asyncio.TimerHandle] = None  # of an idle one

    def close(self) -> None:
        """At once, without a word of TLS, so that the server sees that nobody waits. A forked child may have the descriptor, too."""
        if self.expiry is not None:
            self.expiry.cancel()
        with suppress(OSError, TypeError):
            self.writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self.writer.transport.abort()


class Connections:
    def __init__(self, server: Server, key: Optional[str], tls: Optional[ssl.SSLContext]) -> None:
        self._server, self._key, self._tls = server, key, tls if server.tls else None
        self._idle: list[Connection] = []
        self._turns = asyncio.Semaphore(LIMIT)

    async def exchange(self, ask: Ask, sent: asyncio.Event) -> Answer:
        """`sent` is set when there is a connection for it."""
        if ask.may_wait:
            return await self._exchange(ask, sent)
        async with self._turns:
            return await self._exchange(ask, sent)

    async def _exchange(self, ask: Ask, sent: asyncio.Event) -> Answer:
        while (kept := self._take()) is not None:  # one that the server has closed meanwhile does not count
            sent.set()
            answer = await self._send(kept, ask)
            if answer.status or kept.wire.has_begun:
                return answer
        try:
            connection = await self._connect()
        except (OSError, UnicodeError) as error:
            return no_answer(f"{self._server.url}: {error}", False)
        sent.set()
        return await self._send(connection, ask)

    async def _send(self, connection: Connection, ask: Ask) -> Answer:
        """Closes the connection unless it can be kept: the answer to a request that was given up is nobody else's."""
        is_kept = False
        try:
            connection.writer.write(connection.wire.request(self._server, self._key, ask))
            answer = None
            while answer is None:
                answer = connection.wire.receive(await connection.reader.read(65536))
            is_kept = bool(answer.status) and self._keep(connection)
            return answer
        except OSError as error:
            return no_answer(f"{self._server.url}: {error}", True)
        finally:
            if not is_kept:
                connection.close()

    async def _connect(self) -> Connection:
        server = self._server
        if server.socket_path:
            return Connection(*await asyncio.open_unix_connection(server.socket_path))
        try:
            return Connection(*await asyncio.open_connection(server.host, server.port, ssl=self._tls))
        except RuntimeError:  # no thread can resolve the name: none can be started, or the main thread has ended
            found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)  # blocks the loop for the moment
            name = server.host if self._tls is not None else None
            return Connection(*await asyncio.open_connection(*found[0][4][:2], ssl=self._tls, server_hostname=name))

    def _take(self) -> Optional[Connection]:
        while self._idle:
            connection = self._idle.pop()
            if connection.expiry is not None:
                connection.expiry.cancel()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> bool:
        seconds = connection.wire.keep_seconds
        if seconds <= 0 or len(self._idle) >= LIMIT:
            return False
        connection.expiry = asyncio.get_running_loop().call_later(seconds, self._expire, connection)
        self._idle.append(connection)
        return True

    def _expire(self, connection: Connection) -> None:
        with suppress(ValueError):
            self._idle.remove(connection)
        connection.close()
