# SPDX-License-Identifier: MIT
"""A request as bytes, what counts as its answer, and the address of a server, without input and output."""

from __future__ import annotations

import json
import os
import re
import ssl
import time
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from ._words import detail_of, held_by
from .errors import BY_CODE, Error, Locked, NoAnswer

VERSION = "0.1.0"
HEAD_MAX, BODY_MAX = 16 << 10, 1 << 20  # bytes of an answer
SUCCESS = {"POST": (200, 201), "PUT": (200,), "DELETE": (204,), "GET": (200, 304)}
OWN = frozenset(("accept", "authorization", "connection", "content-length", "content-type", "expect", "host",
                 "idempotency-key", "if-none-match", "lock-token", "te", "trailer", "transfer-encoding", "upgrade",
                 "user-agent", "x-api-key"))  # headers that the program cannot set
Headers = Union[Mapping[str, str], Callable[[], Mapping[str, str]], None]
KEY = re.compile("[!-~]+")
FINAL = ((409, "not-owner"), (410, "lease-expired"))  # the lease is over, whatever another server says


def clock() -> float:
    """Seconds of the clock by which all leases are counted: nobody can set it, and on Linux it goes on while the
    machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(repr=False)
class Answer:
    """`status` is 0 where no whole answer of redlockd came; `sent`: the request may have been carried out
    nevertheless."""

    status: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    sent: bool = True
    parts: Sequence[Answer] = ()  # of a request for several leases: to each of them

    @property
    def retry_after(self) -> float:
        """Seconds; one where the answer names none."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isdecimal() and len(value) < 6 else 1.0

    @property
    def final(self) -> bool:
        return (self.status, self.body.get("code")) in FINAL

    def error(self, names: str = "the lock", ttl_name: str = "ttl") -> Error:
        """`ttl_name`: the option that has the ttl."""
        if not self.status:
            return NoAnswer(str(self.body["detail"]), 0, self.body)
        kind = BY_CODE.get(str(self.body.get("code")), Error)
        detail = held_by(self.body, names) if kind is Locked else \
            detail_of(self.body, f"status {self.status}", ttl_name)
        return kind(detail, self.status, self.body)


def no_answer(why: object, sent: bool) -> Answer:
    return Answer(0, {}, {"detail": f"no answer of redlockd: {why}"}, sent)


@dataclass(repr=False)
class Ask:
    """A request to whichever server is in use. `timeout` is for all of it; `waits`: the server may wait before it
    answers; `wrong`: the member of a successful answer that does not fit the request, or an empty text; `once`: it must
    not be sent twice, and has a connection of its own."""

    method: str
    path: str
    timeout: float
    body: Optional[Mapping[str, Any]] = None
    headers: Mapping[str, str] = field(default_factory=dict)
    waits: bool = False
    wrong: Optional[Callable[[Mapping[str, Any]], str]] = None
    once: bool = False

    def read(self, where: str, status: int, headers: Mapping[str, str], content: bytes) -> Answer:
        """An answer that does not fit the request is none. `where`: the address of the server."""
        body: Any = None
        with suppress(ValueError, RecursionError):
            body = json.loads(content.decode()) if content else {}
        if not isinstance(body, dict):
            return no_answer(f"{where}: status {status} without a JSON object", True)
        if status in SUCCESS[self.method]:
            member = self.wrong(body) if self.wrong else ""
            if member:
                return no_answer(f"{where}: {member} does not fit the request", True)
            return Answer(status, headers, body)
        if status >= 400 and isinstance(body.get("code"), str):
            return Answer(status, headers, body)
        return no_answer(f"{where}: status {status} does not fit the request", True)

    def failed(self, answer: Answer) -> bool:
        """Whether another server is to be asked."""
        if self.once and answer.sent:
            return False
        if "Lock-Token" in self.headers:
            return answer.status not in SUCCESS[self.method] and not answer.final
        return answer.status in (0, 429, 503)


class Server:
    """One address of the list: `http://host:port`, `https://host:port/path` or `unix:/path`."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.url, self.tls, self.host = url, parts.scheme == "https", parts.hostname or "localhost"
        self.socket_path = url[5:] if parts.scheme == "unix" else ""
        self.authority = parts.netloc or "localhost"
        self.port = parts.port or (443 if self.tls else 80)
        self.prefix = "" if self.socket_path else parts.path.rstrip("/")
        usable = self.socket_path or parts.scheme in ("http", "https") and parts.hostname
        if not usable or parts.username or parts.query or parts.fragment or re.search(r"[^!-~]", url):
            raise ValueError(f"not the address of a server: {url!r}: use http://host:port, https://host:port or "
                             "unix:/path")


class TokenFile:
    """The token in a file, as of now: others replace it there. If the file cannot be read, the last one counts."""

    def __init__(self, path: str) -> None:
        """Raises an error if there is none yet."""
        self._path = path
        self._last = self._read()

    def _read(self) -> str:
        with open(self._path, encoding="ascii") as file:
            token = file.read(HEAD_MAX).strip()
        if not KEY.fullmatch(token):
            raise ValueError(f"no token in {self._path}")
        return token

    def token(self) -> str:
        with suppress(OSError, ValueError):
            self._last = self._read()
        return self._last


class Tls:
    """The files for HTTPS, as of now: others replace them there. If they cannot be used, what was read last counts."""

    def __init__(self, ca: Optional[str], certificate: Optional[tuple[str, str]]) -> None:
        self._ca, self._certificate = ca, certificate or ()
        self._seen, self._context = self._look(), self._read()

    def _look(self) -> list[tuple[int, int, int]]:
        found = [os.stat(file) for file in (*self._certificate, self._ca) if file]
        return [(each.st_ino, each.st_mtime_ns, each.st_size) for each in found]

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._ca)
        if self._certificate:
            context.load_cert_chain(*self._certificate)
        return context

    def context(self) -> ssl.SSLContext:
        """For a new connection."""
        with suppress(OSError):  # or an ssl.SSLError: only one of two files is new
            seen = self._look()
            if seen != self._seen:
                self._context, self._seen = self._read(), seen
        return self._context


Key = Union[str, TokenFile, None]


def more_headers(headers: Headers) -> dict[str, str]:
    """Those of the program for one request that may be sent. An error of its function must not cost a lease."""
    with suppress(Exception):
        found = headers() if callable(headers) else headers or {}
        return {name: value for name, value in found.items() if name.lower() not in OWN
                and re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) and re.fullmatch(r"[\t -~]*", value)}
    return {}


def encode(server: Server, key: Key, ask: Ask, more: Headers = None) -> bytes:
    content = b"" if ask.body is None else json.dumps(ask.body).encode()
    headers = {**more_headers(more), "Host": server.authority, "User-Agent": f"redlockd-python/{VERSION}",
               "Content-Length": len(content), "Content-Type": "application/json", **ask.headers}
    token = key.token() if isinstance(key, TokenFile) else key
    headers.update({"Authorization": f"Bearer {token}"} if token else {})
    lines = [f"{ask.method} {server.prefix}{ask.path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content
