// SPDX-License-Identifier: MIT
// The types of the package. Times are milliseconds.

declare global {
	interface SymbolConstructor {
		readonly asyncDispose: unique symbol;
	}
}

/**
 * For instance `console`. Each call gets one text, without keys and tokens, a moment after the event. An error of the
 * logger changes nothing.
 */
export interface Logger {
	debug(message: string): void;
	info(message: string): void;
	warn(message: string): void;
}

export interface ClientOptions {
	/** An API key. */
	key?: string | null | undefined;
	/** Instead of `key`: a file with a token, which is read again for each request, so that it can be replaced. */
	tokenFile?: string | null | undefined;
	/** For all locks that name none. */
	owner?: string | null | undefined;
	/** How long a server may take to answer, beside what the request waits for (5000, at most 3600000). */
	timeout?: number | undefined;
	/** A file with the authorities to trust for HTTPS, instead of those of Node. */
	ca?: string | undefined;
	/** The files of a client certificate and of its key. */
	certificate?: readonly [certificate: string, key: string] | undefined;
	/**
	 * More headers for each request, such as a traceparent; a function runs in the context of the caller, for
	 * renewals in that of the constructor. Those that the library sets itself are left out.
	 */
	headers?: { readonly [name: string]: string } | (() => { readonly [name: string]: string }) | undefined;
	/**
	 * By default a loss is a warning of the process (`process.emitWarning`), and so is an acquisition that no server
	 * answers. `util.debuglog("redlockd")` has the other lines: set `NODE_DEBUG=redlockd` to see them. `null` turns
	 * both off.
	 */
	logger?: Logger | null | undefined;
}

export interface TryOptions {
	/** How long the lease lasts without a renewal (as the server says: 30000, or its largest if that is less). */
	ttl?: number | undefined;
	/** How long before its end the lease counts as lost (a tenth of `ttl`, at most half of it). */
	margin?: number | undefined;
	/**
	 * Nobody else gets the lock for so long after it was granted, also if it is released earlier (0, at most `ttl`).
	 * From 10000 on it is the `ttl`, too, unless you choose one.
	 */
	atLeast?: number | undefined;
	/**
	 * Called when others begin to wait for the lock, as the renewals learn it: once for each time that nobody waited
	 * before. An error is logged.
	 */
	onWanted?: ((lease: Lease) => unknown) | undefined;
	/** Cancels the acquisition, which then rejects with the reason, and leaves neither a waiter nor a lease. */
	signal?: AbortSignal | undefined;
	owner?: string | null | undefined;
	/** Shown to all who may inspect the lock. */
	metadata?: { readonly [name: string]: unknown } | null | undefined;
	mode?: "exclusive" | "shared" | null | undefined;
	/** At most so many holders at once, each with a `slot` of its own. */
	slots?: number | null | undefined;
}

export interface AcquireOptions extends TryOptions {
	/** How long to wait for the lock (60000). */
	wait?: number | undefined;
}

/** One name, or 2 to 16: then all of them or none. */
export type Resource = string | readonly string[];

/** The work that is done while the lock is held. */
export type Work<T> = (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>;

/** A client of one cluster of redlockd. One for each program is enough: it keeps its connections. */
export class Client {
	/**
	 * `servers`: one or several of `https://host:port`, `http://host:port`, `unix:/path`, the preferred one first;
	 * by default `http://127.0.0.1:8080`. Throws TypeError or RangeError for arguments that make no client.
	 */
	constructor(servers?: string | readonly string[], options?: ClientOptions);

	/**
	 * Holds the lock while `work` runs, and returns what it returns. The lock is released after an error, too.
	 * Rejects as acquire(), and with LockLost if the lease was lost meanwhile and `work` ended well or by an
	 * AbortError, which is the `cause` then. `signal` is that of the lease. Until `work` ends, the program does not
	 * end by itself.
	 */
	using<T>(resource: Resource, options: AcquireOptions, work: Work<T>): Promise<T>;
	using<T>(resource: Resource, work: Work<T>): Promise<T>;

	/** Rejects with Locked if somebody else has the lock until the wait is over. Call release() of the lease. */
	acquire(resource: Resource, options?: AcquireOptions): Promise<Lease>;

	/** Without waiting; null if somebody else has the lock. */
	tryAcquire(resource: Resource, options?: TryOptions): Promise<Lease | null>;

	/** The state now, and again whenever the holder changes. Goes on if no server answers; the signal ends it. */
	watch(resource: string, options?: { signal?: AbortSignal | undefined }): AsyncGenerator<LockState, never, void>;

	/**
	 * Cancels the calls that wait for a lock, releases the leases, and ends the watches. Later calls reject. For the
	 * end of a program: it never rejects.
	 */
	close(): Promise<void>;

	/** For operators: takes the lock from its holder; with `fence`, only from that one. */
	force(resource: string, fence?: number): Promise<void>;
}

/** A lease that is renewed until release(). It does not keep the program alive: at its end, the lease is released. */
export class Lease {
	private constructor();

	/** Larger than that of every holder before. Send it with each write to what the lock protects. */
	readonly fence: number;
	/** The number of the slot, of a lock with slots. */
	readonly slot: number | null;
	readonly resources: readonly string[];

	/** Whole milliseconds until the lease counts as lost, if it is not renewed. */
	readonly remaining: number;

	/** How many wait for the lock, as the last renewal said; 0 before the first one. */
	readonly waiters: number;

	/**
	 * Aborted as soon as the lease cannot be relied on any more, or is released; its reason is a LockLost.
	 * `aborted` and `throwIfAborted()` look at the clock: they are right also after the event loop was blocked.
	 */
	readonly signal: AbortSignal;

	/** Throws LockLost if the lease cannot be relied on any more. Call it right before each write. */
	check(): void;

	/**
	 * Ends the renewal and gives the lock back. False: it was not held any more, or no server answers. `keep`: nobody
	 * gets it for so long then, at most the longest `ttl` of the server.
	 */
	release(options?: { keep?: number | undefined }): Promise<boolean>;

	/** For `await using`. Rejects with LockLost if the lease was lost meanwhile and check() has not said so. */
	[Symbol.asyncDispose](): Promise<void>;
}

export interface Votes {
	needed: number;
	granted: number;
	refused: number;
	failed: number;
	quarantined: number;
	masters: number;
}

export interface Holder {
	owner?: string | null;
	fence?: number;
	slot?: number;
	remaining_ms: number;
	held_ms?: number;
	caller?: string;
	metadata?: { [name: string]: unknown };
	resources?: string[];
}

/** As GET /locks?resource= answers; later versions may add members. */
export interface LockState {
	resource: string;
	held: boolean;
	owner?: string;
	fence?: number;
	remaining_ms?: number;
	held_ms?: number;
	caller?: string;
	metadata?: { [name: string]: unknown };
	mode?: "exclusive" | "shared";
	resources?: string[];
	holders?: Holder[];
	holder_count?: number;
	waiters: number;
	votes: Votes;
	[member: string]: unknown;
}

/** The whole answer of an error; empty if there was none. */
export interface Problem {
	type?: string;
	title?: string;
	status?: number;
	detail?: string;
	code?: string;
	retry_after_ms?: number;
	waited_ms?: number;
	resource?: string;
	holder?: { owner?: string; fence?: number; metadata?: { [name: string]: unknown }; [member: string]: unknown };
	votes?: Votes;
	errors?: { field: string; reason: string }[];
	[member: string]: unknown;
}

/** Base of all errors; itself only for a `code` that this version does not know. */
export class RedlockdError extends Error {
	/** That of the class. */
	static readonly code: string;
	constructor(detail: string, answer?: { status?: number; problem?: Problem; cause?: unknown });
	/** One of docs/reference/errors.md, `no-answer`, or `lock-lost`. */
	readonly code: string;
	/** The status of the answer; 0 if there was none. */
	readonly status: number;
	readonly problem: Problem;
	/** The message. */
	readonly detail: string;
}

/**
 * No answer came that fits the request; the message says what was wrong. After an acquisition, a lease may have been
 * granted that ends by itself.
 */
export class NoAnswer extends RedlockdError { readonly code: "no-answer"; }

/** The lease cannot be relied on any more: stop the work. */
export class LockLost extends RedlockdError {
	readonly code: "lock-lost";
	constructor(detail: string, why?: { reason?: string; cause?: unknown });
	/**
	 * `not-owner`, `lease-expired`: a server said so, for instance after a forced release. `max-hold`: the server
	 * extends it no further. `late`: no renewal began in time. `released`: by this program. Otherwise the code of the
	 * last renewal, which failed: `no-quorum`, `no-answer` and so on.
	 */
	readonly reason: string;
	/** The error of the renewal, or from using() the AbortError of the work. */
	readonly cause: (Error & { readonly code?: unknown }) | undefined;
}

/** The request is wrong: `problem.errors` has each field and the reason. */
export class InvalidRequest extends RedlockdError { readonly code: "invalid-request"; }

/** No key or certificate, or one that is not known. */
export class Unauthorized extends RedlockdError { readonly code: "unauthorized"; }

/** The caller may not do this, or not with this resource. */
export class Forbidden extends RedlockdError { readonly code: "forbidden"; }

/** No such path: is the address of the server right? */
export class NotFound extends RedlockdError { readonly code: "not-found"; }

/** The path does not take this method. */
export class MethodNotAllowed extends RedlockdError { readonly code: "method-not-allowed"; }

/**
 * Somebody else has the lock, and the wait is over. The message names the lock and its holder; `problem` may have
 * `holder`, `retry_after_ms` and `resource`.
 */
export class Locked extends RedlockdError { readonly code: "locked"; }

/** Another holder has the lock. */
export class NotOwner extends RedlockdError { readonly code: "not-owner"; }

/** Nobody holds the lock with this token any more. */
export class LeaseExpired extends RedlockdError { readonly code: "lease-expired"; }

/** Body, address or headers are too long. */
export class TooLarge extends RedlockdError { readonly code: "too-large"; }

/** A rate limit, or too many connections or waiting requests. */
export class TooManyRequests extends RedlockdError { readonly code: "too-many-requests"; }

/** Too few masters answered. */
export class NoQuorum extends RedlockdError { readonly code: "no-quorum"; }

/** Several asked at once, and none got a majority. */
export class SplitVote extends RedlockdError { readonly code: "split-vote"; }

/** The server shuts down. */
export class Draining extends RedlockdError { readonly code: "draining"; }
