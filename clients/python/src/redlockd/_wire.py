"""One request and its answer as bytes, and the list of servers, without input and output.

Each request has a connection of its own. So the end of a connection always says that the answer is complete or cut off, and no
request meets a connection that the server has just closed.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import threading
import time
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from .errors import BY_CODE, Error, NoAnswer

ANSWER_MAX = 4 << 20


# Nobody can set these clocks, and on Linux this one goes on while the machine sleeps.
_read_clock: Callable[[], float] = (partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME")
                                    else time.monotonic)


def clock() -> float:
    """Seconds of the clock by which all leases are counted."""
    return _read_clock()


@dataclass(frozen=True)
class Ask:
    """A request to whichever server is in use; `timeout` is for all of it."""

    method: str
    path: str
    timeout: float
    body: Optional[Mapping[str, Any]] = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """`status` is 0 where no whole answer of redlockd came; `sent`: the request may have been carried out nevertheless."""

    status: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    sent: bool = True

    @property
    def retry_after(self) -> float:
        """Seconds; one where the answer names none."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isdecimal() and len(value) < 6 else 1.0

    def error(self) -> Error:
        detail = str(self.body.get("detail", f"status {self.status}"))
        kind = BY_CODE.get(str(self.body.get("code")), Error) if self.status else NoAnswer
        return kind(detail, self.status, self.body)


def no_answer(why: object, sent: bool) -> Answer:
    return Answer(0, {}, {"detail": f"no answer of redlockd: {why}"}, sent)


def parse_answer(data: bytes, ended: bool, method: str) -> Optional[Answer]:
    """None: more has to come. `ended`: nothing more comes."""
    if len(data) > ANSWER_MAX:
        return no_answer("too long", True)
    if b"\r\n\r\n" not in data:
        return no_answer("the connection was closed", True) if ended else None
    try:
        stream: Any = SimpleNamespace(makefile=lambda mode: io.BytesIO(data))  # stands for a socket
        response = http.client.HTTPResponse(stream, method=method)
        response.begin()
        if response.length is None and not response.chunked and not ended:
            return None
        content = response.read()
    except http.client.IncompleteRead:
        return no_answer("it was cut off", True) if ended else None
    except (http.client.HTTPException, OSError, ValueError) as error:
        return no_answer(error, True)
    headers = {name.lower(): value for name, value in response.getheaders()}
    body: Any = None
    with suppress(ValueError, RecursionError):
        body = json.loads(content) if content else {}
    if isinstance(body, dict) and (response.status in (200, 201, 204, 304) or isinstance(body.get("code"), str)):
        return Answer(response.status, headers, body)
    return no_answer(f"a strange one with status {response.status}", True)


class Server:
    """One address of the list: `http://host:port`, `https://host:port/path` or `unix:/path`."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.url, self.tls, self.host = url, parts.scheme == "https", parts.hostname or "localhost"
        self.socket_path = url[5:] if parts.scheme == "unix" else ""
        self.authority = parts.netloc or "localhost"
        self.port, self.prefix = parts.port or (443 if self.tls else 80), "" if self.socket_path else parts.path.rstrip("/")
        self.known = self.host  # where the last connection went to
        usable = self.socket_path or parts.scheme in ("http", "https") and parts.hostname
        if not usable or parts.username or parts.query or parts.fragment or re.search(r"[^!-~]", url):
            raise ValueError(f"not the address of a server: {url!r}")


class Servers:
    """The servers in their order, and which one is in use. Safe for threads."""

    def __init__(self, urls: Union[str, Sequence[str]], key: Optional[str]) -> None:
        self.all = [Server(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self.all or key is not None and not re.fullmatch("[!-~]+", key):
            raise ValueError("no server is given" if not self.all else "the key has characters that no key has")
        self._key, self._lock, self._in_use = key, threading.Lock(), 0

    def current(self) -> Server:
        return self.all[self._in_use]

    def note(self, server: Server, answer: Answer) -> None:
        """After an answer: a server that gives none, or cannot help now, is left for the next one."""
        with self._lock:
            if answer.status in (0, 429, 503) and self.all[self._in_use] is server:
                self._in_use = (self._in_use + 1) % len(self.all)

    def request(self, server: Server, ask: Ask) -> bytes:
        content = b"" if ask.body is None else json.dumps(ask.body).encode()
        lines = [f"{ask.method} {server.prefix}{ask.path} HTTP/1.1", f"Host: {server.authority}", "Connection: close",
                 "User-Agent: redlockd-python", f"Content-Length: {len(content)}"]
        lines += ["Content-Type: application/json"] if content else []
        lines += [f"Authorization: Bearer {self._key}"] if self._key else []
        lines += [f"{name}: {value}" for name, value in ask.headers.items()]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
