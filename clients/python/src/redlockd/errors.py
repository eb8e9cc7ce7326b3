"""What goes wrong, as exceptions: one class for each `code` of docs/reference/errors.md, and two of the library's own."""

from __future__ import annotations

from typing import Any, Mapping, Optional


class Error(Exception):
    """Base of all errors. `code` and `status` are those of the answer, `problem` is all of it."""

    code = "error"

    def __init__(self, detail: str, status: int = 0, problem: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(detail)
        self.detail, self.status, self.problem = detail, status, problem or {}
        self.code = str(self.problem.get("code", self.code))


class NoAnswer(Error):
    """No server of redlockd answered. After an acquisition, a lease may have been granted that ends by itself."""

    code = "no-answer"


class LockLost(Error):
    """The lease cannot be relied on any more: stop the work. `cause` is the answer that said so, None if its time is over."""

    code = "lock-lost"

    def __init__(self, detail: str, cause: Optional[Error] = None) -> None:
        super().__init__(detail)
        self.cause = cause


class InvalidRequest(Error):
    code = "invalid-request"


class Unauthorized(Error):
    code = "unauthorized"


class Forbidden(Error):
    code = "forbidden"


class NotFound(Error):
    code = "not-found"


class MethodNotAllowed(Error):
    code = "method-not-allowed"


class Locked(Error):
    """Somebody else has the lock, and the wait is over. `problem` may have `holder`, `retry_after_ms` and `resource`."""

    code = "locked"


class NotOwner(Error):
    code = "not-owner"


class LeaseExpired(Error):
    code = "lease-expired"


class TooLarge(Error):
    code = "too-large"


class TooManyRequests(Error):
    code = "too-many-requests"


class NoQuorum(Error):
    code = "no-quorum"


class SplitVote(Error):
    code = "split-vote"


class Draining(Error):
    code = "draining"


BY_CODE = {kind.code: kind for kind in Error.__subclasses__() if kind is not LockLost}
