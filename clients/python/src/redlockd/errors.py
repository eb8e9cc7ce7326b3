# SPDX-License-Identifier: MIT
"""The failures, as exceptions: one class for each `code` of docs/reference/errors.md, and two of the library's
own."""

import re
from typing import Any, ClassVar, Mapping, Optional


class Error(Exception):
    """Base of all errors. `code` and `status` are those of the answer, `problem` is all of it. The name of a class is
    its code."""

    code_of_class: ClassVar[str] = "error"

    def __init_subclass__(cls) -> None:
        cls.code_of_class = re.sub(r"\B(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, detail: str, status: int = 0, problem: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(detail)
        self.detail, self.status, self.problem = detail, status, problem or {}
        self.code = str(self.problem.get("code", self.code_of_class))


class NoAnswer(Error):
    """No server of redlockd answered. After an acquisition, a lease may have been granted that ends by itself."""


class LockLost(Error):
    """The lease cannot be relied on any more: stop the work. `cause` is a word that says why:

    `not-owner`, `lease-expired`: a server said so, also after a forced release;
    `max-hold`: the server extends no lease any further (--max-hold-ms);
    `no-quorum`, `no-answer` or another code: the last renewal failed so, and the time is over;
    `late`: no renewal was sent in time, for the machine slept, or the program was stopped or busy;
    `released`: by this program; `forked`: this is a child of the process that has the lease.

    `__cause__` is the error of the server or of the renewal, if there is one."""

    def __init__(self, detail: str, cause: str = "", error: Optional[Error] = None) -> None:
        super().__init__(detail)
        self.cause, self.__cause__ = cause, error


class InvalidRequest(Error):
    """The request is wrong: `problem["errors"]` has each field and the reason."""


class Unauthorized(Error):
    """No key or certificate, or one that is not known."""


class Forbidden(Error):
    """The caller may not do this, or not with this resource."""


class NotFound(Error):
    """No such path: is the address of the server right?"""


class MethodNotAllowed(Error):
    """The path does not take this method."""


class Locked(Error):
    """Somebody else has the lock, and the wait is over. The message names the lock and its holder; `problem` may have
    `holder`, `retry_after_ms` and `resource`."""


class NotOwner(Error):
    """Another holder has the lock."""


class LeaseExpired(Error):
    """Nobody holds the lock with this token any more."""


class TooLarge(Error):
    """Body, address or headers are too long."""


class TooManyRequests(Error):
    """A rate limit, or too many connections or waiting requests."""


class NoQuorum(Error):
    """Too few masters answered."""


class SplitVote(Error):
    """Several asked at once, and none got a majority."""


class Draining(Error):
    """The server shuts down."""


BY_CODE = {kind.code_of_class: kind for kind in Error.__subclasses__() if kind is not LockLost}
