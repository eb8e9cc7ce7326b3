"""Requests and answers as bytes, and the address of a server, without input and output."""

import json
import re
import time
import urllib.parse
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional

import h11

from .errors import BY_CODE, Error, NoAnswer

HEAD_MAX, BODY_MAX = 16 << 10, 1 << 20  # bytes of an answer
IDLE_SECONDS = 5.0  # how long a connection is kept if the server does not say


def clock() -> float:
    """Seconds of the clock by which all leases are counted: nobody can set it, and on Linux it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, repr=False)
class Ask:
    """A request to whichever server is in use; `timeout` is for all of it. `check`: what the answer is worth; a wrong one becomes no
    answer. `may_wait`: it has a connection of its own meanwhile. `insists`: only an answer that is final counts, another one is asked of the next
    server."""

    method: str
    path: str
    timeout: float
    body: Optional[Mapping[str, Any]] = None
    headers: Mapping[str, str] = field(default_factory=dict)
    check: Callable[["Answer"], "Answer"] = lambda answer: answer
    may_wait: bool = False
    insists: bool = False


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

    @property
    def is_final(self) -> bool:
        """The lease of a PUT or DELETE is lost: nobody needs to be asked any more."""
        return (self.status, self.body.get("code")) in ((409, "not-owner"), (410, "lease-expired"))

    def error(self) -> Error:
        detail = str(self.body.get("detail", f"status {self.status}"))
        kind = BY_CODE.get(str(self.body.get("code")), Error) if self.status else NoAnswer
        return kind(detail, self.status, self.body)


def no_answer(why: object, sent: bool) -> Answer:
    return Answer(0, {}, {"detail": f"no answer of redlockd: {why}"}, sent)


class Wire:
    """One connection: the requests that go out on it, one after the other, and their answers."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        self._response: Optional[h11.Response] = None
        self._content, self.has_begun, self.keep_seconds = bytearray(), False, 0.0

    def request(self, server: "Server", key: Optional[str], ask: Ask) -> bytes:
        content = b"" if ask.body is None else json.dumps(ask.body).encode()
        headers = {"Host": server.authority, "User-Agent": "redlockd-python", "Content-Length": str(len(content)),
                   "Content-Type": "application/json", **ask.headers, **({"Authorization": f"Bearer {key}"} if key else {})}
        self._response, self._content, self.has_begun = None, bytearray(), False
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        request = h11.Request(method=ask.method, target=server.prefix + ask.path, headers=list(headers.items()))
        parts = self._http.send(request), self._http.send(h11.Data(data=content)), self._http.send(h11.EndOfMessage())
        return b"".join(part for part in parts if part)

    def receive(self, data: bytes) -> Optional[Answer]:
        """None: more has to come. No `data`: nothing more comes."""
        self.has_begun = self.has_begun or bool(data)
        try:
            self._http.receive_data(data)
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return None
                if isinstance(event, h11.Response):
                    self._response = event
                    if sum(len(name) + len(value) + 4 for name, value in event.headers) > HEAD_MAX:
                        return no_answer("too long", True)
                elif isinstance(event, h11.Data):
                    self._content += event.data
                    if len(self._content) > BODY_MAX:
                        return no_answer("too long", True)
                elif isinstance(event, h11.EndOfMessage):
                    return self._answer()
                elif isinstance(event, h11.ConnectionClosed):
                    return no_answer("the connection was closed", True)  # else an interim answer (1xx)
        except (h11.RemoteProtocolError, UnicodeError) as error:
            return no_answer(error, True)

    def _answer(self) -> Answer:
        assert self._response is not None
        status = self._response.status_code
        headers = {name.decode(): value.decode("latin-1") for name, value in self._response.headers}
        timeout = re.search(r"timeout=(\d{1,6})", headers.get("keep-alive", ""))
        is_kept = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        self.keep_seconds = 0.0 if not is_kept else int(timeout[1]) - 1.0 if timeout else IDLE_SECONDS
        body: Any = None
        with suppress(ValueError, RecursionError):
            body = json.loads(bytes(self._content)) if self._content else {}
        is_error = status >= 400 and isinstance(body, dict) and isinstance(body.get("code"), str)
        if isinstance(body, dict) and (status in (200, 201, 204, 304) or is_error):
            return Answer(status, headers, body)
        return no_answer(f"a strange one with status {status}", True)


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
