"use strict";
// What is asked for, and the requests until it is granted: docs/reference/client-rules.md has the rules.

const { randomBytes } = require("node:crypto");

const { UNAVAILABLE } = require("./servers.js");
const { Term, clock, pause } = require("./term.js");
const { noAnswer } = require("./wire.js");

const WAIT_MAX = 60_000; // of one request: the default of --max-wait-ms
const OPTIONS = ["ttl", "wait", "margin", "signal", "owner", "metadata", "mode", "slots"];
const MARGIN = 0.1; // of the ttl
const CLOCKS = 0.99; // the server's clock and ours may differ by a hundredth

/** Refuses misspelt options, which would otherwise change nothing, silently. */
function checkOptions(options, known) {
	const wrong = Object.keys(options).find((name) => !known.includes(name));
	if (wrong !== undefined) throw new TypeError(`no such option: ${wrong}`);
}

/** One resource, or all of several at once. */
class Wanted {
	constructor(names, options) {
		checkOptions(options, OPTIONS);
		const { ttl, wait = 60_000, margin, signal, ...members } = options;
		const most = ttl === undefined ? Infinity : ttl / 2; // otherwise the server says the ttl
		if (!((ttl === undefined || (ttl > 0 && ttl < Infinity)) && wait >= 0 && (margin ?? 0) >= 0 && (margin ?? 0) <= most)) {
			throw new RangeError("ttl must be positive, wait not negative, margin at most half of ttl");
		}
		const single = typeof names === "string";
		this.resources = Object.freeze(single ? [names] : [...names]);
		Object.assign(this, { wait, margin, signal });
		this.names = single ? { resource: names } : { resources: this.resources };
		const given = Object.entries(members).filter(([, value]) => value !== null && value !== undefined);
		const body = { ...this.names, ttl_ms: ttl && Math.round(ttl), ...Object.fromEntries(given) };
		this.body = JSON.parse(JSON.stringify(body)); // every request of an acquisition says the same
	}

	acquisition(key, wait, timeout) {
		const body = { ...this.body, wait_ms: Math.floor(wait) };
		return { method: "POST", path: "/locks", timeout, body, headers: { "Idempotency-Key": key } };
	}

	release(token, timeout) {
		const headers = { "Lock-Token": token };
		return { method: "DELETE", path: "/locks", timeout, body: this.names, headers };
	}

	extension(token, ttl, timeout) {
		return { ...this.release(token, timeout), method: "PUT", body: { ...this.names, ttl_ms: ttl } };
	}

	/** Null: it is not a lease. */
	grantIn({ status, body }, sent) {
		const { token, fence, slot = null, ttl_ms: ttl, validity_ms: validity, waited_ms: waited = 0 } = body;
		const counts = [200, 201].includes(status) && [fence, ttl, validity, waited].every(Number.isSafeInteger);
		if (!counts || ttl <= 0 || !/^[0-9a-f]{40}$/.test(token)) return null;
		const begin = sent + CLOCKS * waited;
		const term = new Term(begin + validity, Math.min(this.margin ?? ttl * MARGIN, ttl / 2));
		return { token, fence, slot, ttl, renewAt: begin + ttl / 3, term };
	}
}

/** All its requests have one Idempotency-Key, so that each finds the lease whose answer was lost. */
class Acquisition {
	#wanted;
	#servers;
	#until;
	#key = randomBytes(16).toString("hex");
	#unknown = false; // there may be a lease of which nobody knows

	constructor(wanted, servers) {
		this.#wanted = wanted;
		this.#servers = servers;
		this.#until = clock() + wanted.wait;
	}

	/** The grant. If the signal is aborted: throws its reason, and leaves neither a waiting request nor a lease. */
	async run() {
		try {
			return await this.#askUntilGranted(this.#wanted.signal);
		} catch (error) {
			if (this.#unknown) await this.#takeBack();
			throw error;
		}
	}

	async #askUntilGranted(signal) {
		for (let failures = 0; ;) {
			signal?.throwIfAborted();
			const sent = clock(); // before the request: the lease lasts for so long from here, or longer
			const wait = Math.min(Math.max(this.#until - sent, 0), WAIT_MAX);
			const { grant, answer } = await this.#ask(wait, sent, signal);
			if (grant) return grant;
			failures = answer.status === 409 ? 0 : failures + 1;
			const delay = this.#delay(answer, failures, clock() - sent < wait - 500);
			if (delay === null) throw answer.error;
			const said = `${answer.error.message}; again in ${Math.round(delay)} ms`;
			this.#servers.log.debug(`acquire ${this.#wanted.resources}: ${said}`);
			await pause(delay, { signal });
		}
	}

	/** One request: the grant, or the answer if there is none. */
	async #ask(wait, sent, signal) {
		const known = !this.#unknown;
		this.#unknown = true;
		const ask = this.#wanted.acquisition(this.#key, wait, wait + this.#servers.timeout);
		const answer = await this.#servers.ask(ask, signal);
		const granted = [200, 201].includes(answer.status);
		const granting = granted || (answer.sent && [0, 503].includes(answer.status));
		this.#unknown = granting || (!known && answer.status !== 409);
		signal?.throwIfAborted();
		const grant = this.#wanted.grantIn(answer, sent);
		if (grant) this.#unknown = false;
		if (!grant?.term.loss) return { grant, answer: granted ? noAnswer("a strange lease", true) : answer };
		// it was over before it could be used: the next one needs another key
		await this.#servers.ask(this.#wanted.release(grant.token, this.#servers.timeout));
		this.#key = randomBytes(16).toString("hex");
		return { answer: noAnswer("the lease came too late", true) };
	}

	/** Milliseconds before the next request; null: give up. `early`: the answer came before the wait was over. */
	#delay({ status, sent, retryAfter, body }, failures, early) {
		const left = this.#until - clock();
		const random = 1000 * Math.random();
		const kept = body.place_kept_ms > 0;
		if (status === 409 && left > 0) return early && !kept ? Math.min(left, Math.min(retryAfter, 1000) + random) : 0;
		if (!UNAVAILABLE.includes(status)) return null;
		if (left > 0) { // another server at once; after the last one a pause
			// not for as long as a server rests that keeps a place: the place would be gone
			return failures % this.#servers.count ? 0 : Math.min(left, (kept ? 0 : retryAfter) + random);
		}
		// each server once, and once more where the answer was lost
		return failures < this.#servers.count + (status === 0 && sent ? 1 : 0) ? 0 : null;
	}

	/** Nobody wants the lock any more: finds and releases the lease that may have been granted. */
	async #takeBack() {
		const limit = Math.min(this.#servers.timeout, 1000);
		const answer = await this.#servers.ask(this.#wanted.acquisition(this.#key, 0, limit));
		const grant = this.#wanted.grantIn(answer, clock());
		if (grant) await this.#servers.ask(this.#wanted.release(grant.token, limit));
	}
}

module.exports = { Acquisition, Wanted, checkOptions };
