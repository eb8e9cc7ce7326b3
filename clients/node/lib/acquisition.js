// SPDX-License-Identifier: MIT
"use strict";
// The requests until a lease is granted: docs/reference/client-rules.md has the rules.

const { randomBytes } = require("node:crypto");

const { noAnswer } = require("./answer.js");
const { APART, clock, pause } = require("./term.js");

const WAIT_MAX = 60_000; // of one request: the default of --max-wait-ms
const RELEASE_MAX = 2000; // for the answer to a DELETE

/** All its requests have one Idempotency-Key, so that each finds the lease whose answer was lost. */
class Acquisition {
	#wanted;
	#servers;
	#until;
	#key;
	#begun; // before the first request with this key
	#unknown = false; // there may be a lease of which nobody knows
	#silent = 0; // answers in a row that did not come
	#told = false; // the warning of that

	constructor(wanted, servers) {
		this.#wanted = wanted;
		this.#servers = servers;
		this.#begin();
		this.#until = this.#begun + wanted.wait;
	}

	#begin() {
		this.#key = randomBytes(16).toString("hex");
		this.#begun = clock();
		this.#unknown = false;
	}

	/** The grant. If the signal is aborted: throws its reason, and leaves neither a waiting request nor a lease. */
	async run(signal) {
		try {
			return await this.#askUntilGranted(signal);
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
			failures = answer.locked ? 0 : failures + 1;
			const delay = this.#delay(answer, failures, sent, wait);
			const error = this.#wanted.errorOf(answer);
			if (delay === null) throw error;
			const said = `${error.message}; again in ${Math.round(delay)} ms`;
			this.#servers.log.debug(`acquire ${this.#wanted.resources}: ${said}`);
			this.#warn(answer, error);
			await pause(delay, { signal });
		}
	}

	/** Once, after the first round in which no server answered. */
	#warn(answer, error) {
		this.#silent = answer.status === 0 ? this.#silent + 1 : 0;
		if (this.#silent < this.#servers.count || this.#told || clock() >= this.#until) return;
		this.#told = true;
		const names = this.#wanted.resources.join(", ").replace(/\p{C}/gu, "?");
		this.#servers.log.silence(`${error.message}; waiting up to ${this.#wanted.wait} ms for the lock on ${names}`);
	}

	/** One request: the grant, or the answer if there is none. */
	async #ask(wait, sent, signal) {
		const known = !this.#unknown;
		this.#unknown = true;
		const answer = await this.#servers.ask(this.#request(wait, wait + this.#servers.timeout), signal);
		const granted = [200, 201].includes(answer.status);
		const granting = granted || (answer.sent && [0, 503].includes(answer.status));
		this.#unknown = granting || (!known && answer.status !== 409);
		signal?.throwIfAborted();
		if (!granted) return { answer };
		const grant = this.#wanted.grantOf(answer.body, sent);
		this.#unknown = false;
		if (!grant.term.loss) return { grant };
		// it was over before it could be used: the next one needs another key
		await this.#servers.askEach(this.#wanted.release(grant.token, Math.min(this.#servers.timeout, RELEASE_MAX)));
		this.#begin();
		this.#silent = -1; // the server was not
		return { answer: noAnswer("the lease came too late to be used", true) };
	}

	#request(wait, timeout) {
		return this.#wanted.acquisition(this.#key, this.#begun, wait, timeout);
	}

	/** Milliseconds before the next request; null: give up. */
	#delay(answer, failures, sent, wait) {
		const now = clock();
		const left = this.#until - now;
		const random = 1000 * Math.random();
		const kept = answer.body.place_kept_ms > 0;
		if (answer.locked && left > 0) {
			const goesOn = kept || now - sent >= wait - 500; // the wait of the request is over
			const chosen = goesOn ? 0 : Math.min(left, Math.min(answer.retryAfter, 1000) + random);
			return Math.max(chosen, sent + APART - now);
		}
		if (!answer.unavailable) return null;
		if (left > 0) { // another server at once; after the last one a pause
			// not for as long as a server rests that keeps a place: the place would be gone
			const rest = kept ? 0 : answer.retryAfter;
			return failures % this.#servers.count ? 0 : Math.min(left, rest + random);
		}
		// each server once, and once more where the answer was lost
		return failures < this.#servers.count + (answer.status === 0 && answer.sent ? 1 : 0) ? 0 : null;
	}

	/** Nobody wants the lock any more: finds and releases the lease that may have been granted. */
	async #takeBack() {
		const limit = Math.min(this.#servers.timeout, 1000);
		const { status, body } = await this.#servers.askEach(this.#request(0, limit));
		if ([200, 201].includes(status)) await this.#servers.askEach(this.#wanted.release(body.token, limit));
	}
}

module.exports = { Acquisition };
