// SPDX-License-Identifier: MIT
"use strict";
// The calls of a client. Nothing here blocks the event loop, but for the files that the constructor reads, and that of
// a token.

const { Acquisition } = require("./acquisition.js");
const { Locked } = require("./errors.js");
const { Lease } = require("./lease.js");
const { Servers } = require("./servers.js");
const { APART, clock, joinSignals, pause } = require("./term.js");
const { Wanted, checkOptions } = require("./wanted.js");

const OPTIONS = ["key", "tokenFile", "owner", "timeout", "ca", "certificate", "headers", "logger"];
const WATCH_MS = 20_000;
const HOUR_MS = 3_600_000;

/** A client of one cluster of redlockd. One for each program is enough. */
class Client {
	#owner;
	#servers;
	#closed = new AbortController();
	#acquiring = new Set();

	/** `servers`: one or several addresses, in the order of preference. index.d.ts has the options. */
	constructor(servers = "http://127.0.0.1:8080", options = {}) {
		checkOptions(options, OPTIONS);
		this.#owner = options.owner;
		this.#servers = new Servers(servers, options);
	}

	/**
	 * Holds the lock while the function runs, and returns what it returns. Rejects as acquire(), and with LockLost
	 * if the lease was lost meanwhile and the function ended well. A lease alone keeps no program alive; this does.
	 */
	async using(resource, options, work) {
		if (typeof options === "function") return this.using(resource, {}, options);
		const lease = await this.acquire(resource, options);
		const alive = setInterval(() => {}, HOUR_MS);
		try {
			const result = await work(lease, lease.signal);
			await Lease.leave(lease, false);
			return result;
		} catch (error) {
			throw Lease.errorOfBlock(lease, error);
		} finally {
			await lease.release();
			clearInterval(alive);
		}
	}

	/** Rejects with Locked if somebody else has the lock until the wait is over. Call release() of the lease. */
	async acquire(resource, options = {}) {
		const wanted = new Wanted(resource, { ...options, owner: options.owner ?? this.#owner });
		const { signal, end } = joinSignals(options.signal, this.#closed.signal);
		const grant = new Acquisition(wanted, this.#servers).run(signal).finally(end);
		const lease = grant.then((granted) => new Lease(wanted, this.#servers, granted));
		this.#acquiring.add(lease);
		return lease.finally(() => this.#acquiring.delete(lease));
	}

	/** Cancels what waits for a lock, and releases the leases. Calls that come later reject. */
	async close() {
		this.#closed.abort(new Error("the client is closed"));
		await Promise.allSettled(this.#acquiring);
		await Lease.releaseAll(this.#servers);
	}

	/** Without waiting; null if somebody else has the lock. */
	async tryAcquire(resource, options = {}) {
		return this.acquire(resource, { ...options, wait: 0 }).catch((error) => {
			if (error instanceof Locked) return null;
			throw error;
		});
	}

	/** The state now, and again whenever the holder changes. Goes on if no server answers; the signal ends it. */
	async *watch(resource, options = {}) {
		const { signal, end } = joinSignals(options.signal, this.#closed.signal);
		try {
			yield* this.#states(resource, signal);
		} finally {
			end();
		}
	}

	async *#states(resource, signal) {
		const path = `/locks?resource=${encodeURIComponent(resource)}&wait_ms=${WATCH_MS}`;
		const timeout = WATCH_MS + this.#servers.timeout;
		let tag = '"none"'; // which no state has: the first one comes at once
		for (let failures = 0; ;) {
			signal.throwIfAborted();
			const sent = clock();
			const ask = { method: "GET", path, timeout, headers: { "If-None-Match": tag }, waits: true };
			const answer = await this.#servers.ask(ask, signal);
			signal.throwIfAborted();
			failures = answer.unavailable ? failures + 1 : 0;
			if (answer.status === 200) {
				const known = tag;
				tag = answer.headers.etag ?? known;
				yield answer.body;
				// a proxy strips it, or the one that was sent
				if (tag === known) await pause(1000, { signal });
			} else if (answer.status === 304) {
				await pause(Math.max(0, sent + APART - clock()), { signal });
			} else if (failures === 0) {
				throw answer.error;
			} else if (failures % this.#servers.count === 0) {
				await pause(answer.retryAfter + 1000 * Math.random(), { signal });
			}
		}
	}

	/**
	 * For operators: takes the lock from its holder; with `fence`, only from that one. Without it the request is sent
	 * once: a second one could release the next holder.
	 */
	async force(resource, fence) {
		const path = `/locks?force=true${fence === undefined ? "" : `&fence=${fence}`}`;
		const ask = { method: "DELETE", path, timeout: this.#servers.timeout, body: { resource }, once: !fence };
		const answer = await this.#servers.askEach(ask);
		if (answer.status !== 204) throw answer.error;
	}
}

module.exports = { Client };
