// SPDX-License-Identifier: MIT
"use strict";
// The errors: one class for each `code` of docs/reference/errors.md, and two of the library's own.

/** Base of all errors. `code` and `status` are those of the answer, `problem` is all of it. */
class RedlockdError extends Error {
	static code = "error";
	constructor(detail, { status = 0, problem = {}, cause } = {}) {
		super(detail, cause && { cause });
		this.code = typeof problem.code === "string" ? problem.code : this.constructor.code;
		Object.assign(this, { status, problem });
	}

	get name() { return this.constructor.name; }
	get detail() { return this.message; }
}

/** No answer came that fits the request. After an acquisition, a lease may have been granted that ends by itself. */
class NoAnswer extends RedlockdError { static code = "no-answer"; }

/** The lease cannot be relied on any more: stop the work. `reason` says why; `cause` is the error behind it, if any. */
class LockLost extends RedlockdError {
	static code = "lock-lost";
	constructor(detail, { reason = "late", cause } = {}) {
		super(detail, { cause });
		this.reason = reason;
	}
}

/** The request is wrong: `problem.errors` has each field and the reason. */
class InvalidRequest extends RedlockdError { static code = "invalid-request"; }

/** No key or certificate, or one that is not known. */
class Unauthorized extends RedlockdError { static code = "unauthorized"; }

/** The caller may not do this, or not with this resource. */
class Forbidden extends RedlockdError { static code = "forbidden"; }

/** No such path: is the address of the server right? */
class NotFound extends RedlockdError { static code = "not-found"; }

/** The path does not take this method. */
class MethodNotAllowed extends RedlockdError { static code = "method-not-allowed"; }

/** Somebody else has the lock, and the wait is over. `problem` may have `holder`, `retry_after_ms` and `resource`. */
class Locked extends RedlockdError { static code = "locked"; }

/** Another holder has the lock. */
class NotOwner extends RedlockdError { static code = "not-owner"; }

/** Nobody holds the lock with this token any more. */
class LeaseExpired extends RedlockdError { static code = "lease-expired"; }

/** Body, address or headers are too long. */
class TooLarge extends RedlockdError { static code = "too-large"; }

/** A rate limit, or too many connections or waiting requests. */
class TooManyRequests extends RedlockdError { static code = "too-many-requests"; }

/** Too few masters answered. */
class NoQuorum extends RedlockdError { static code = "no-quorum"; }

/** Several asked at once, and none got a majority. */
class SplitVote extends RedlockdError { static code = "split-vote"; }

/** The server shuts down. */
class Draining extends RedlockdError { static code = "draining"; }

module.exports = {
	RedlockdError, NoAnswer, LockLost, InvalidRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, Locked,
	NotOwner, LeaseExpired, TooLarge, TooManyRequests, NoQuorum, SplitVote, Draining,
};
