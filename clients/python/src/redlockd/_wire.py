"""One request and its answer as bytes, and the address of a server, without input and output.

Each request has a connection of its own. So the end of a connection always says that the answer is complete or cut off, and no
request meets a connection that the server has just closed.
"""

import http.client
import io
import json
import re
import time
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Mapping, Optional

from .errors import BY_CODE, Error, NoAnswer



def clock() -> float:
    """Seconds of the clock by which all leases are counted: nobody can set it, and on Linux it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, repr=False)
class Ask:
    """A request to whichever server is in use; `timeout` is for all of it."""

    method: str
    path: str
    timeout: float
    body: Optional[Mapping[str, Any]] = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
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
    if len(data) > 4 << 20:
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
    except (http.client.HTTPException, OSError, ValueError) as error:
        return None if isinstance(error, http.client.IncompleteRead) and not ended else no_answer(error, True)
    body: Any = None
    with suppress(ValueError, RecursionError):
        body = json.loads(content) if content else {}
    if isinstance(body, dict) and (response.status in (200, 201, 204, 304) or isinstance(body.get("code"), str)):
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)
    return no_answer(f"a strange one with status {response.status}", True)


class Server:
    """One address of the list: `http://host:port`, `https://host:port/path` or `unix:/path`."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self.url, self.tls, self.host = url, parts.scheme == "https", parts.hostname or "localhost"
        self.socket_path = url[5:] if parts.scheme == "unix" else ""
        self.authority = parts.netloc or "localhost"
        self.port, self.prefix = parts.port or (443 if self.tls else 80), "" if self.socket_path else parts.path.rstrip("/")
        usable = self.socket_path or parts.scheme in ("http", "https") and parts.hostname
        if not usable or parts.username or parts.query or parts.fragment or re.search(r"[^!-~]", url):
            raise ValueError(f"not the address of a server: {url!r}")


def encode(server: Server, key: Optional[str], ask: Ask) -> bytes:
    content = b"" if ask.body is None else json.dumps(ask.body).encode()
    headers = {"Host": server.authority, "Connection": "close", "User-Agent": "redlockd-python",
               "Content-Length": len(content), "Content-Type": "application/json", **ask.headers}
    headers.update({"Authorization": f"Bearer {key}"} if key else {})
    lines = [f"{ask.method} {server.prefix}{ask.path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
