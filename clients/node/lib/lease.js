// SPDX-License-Identifier: MIT
"use strict";
// A lease that is held: its renewal, its loss, its release. Its timers keep no program alive; when nothing else is left
// to do, the leases that are held are released.

const { LockLost } = require("./errors.js");
const { clock, pause } = require("./term.js");

const RENEW_MAX = 5000;
const RELEASE_MAX = 2000;
const BY_RELEASE = new LockLost("the lease was released");
const held = new Set();

function releaseAll() {
	for (const lease of held) lease.release();
}

/** A lease that is renewed until release(). `fence` goes with each write to what the lock protects. */
class Lease {
	#wanted;
	#servers;
	#token;
	#ttl;
	#term;
	#released = null; // the promise of release(); null: it was not held any more
	#told = false; // the loss, by check()

	constructor(wanted, servers, { token, fence, slot, ttl, term, renewAt }) {
		this.#wanted = wanted;
		this.#servers = servers;
		this.#token = token;
		this.#ttl = ttl;
		this.#term = term;
		Object.assign(this, { fence, slot, resources: wanted.resources });
		servers.log.info(`acquired ${this.resources}, fence ${fence}`);
		held.add(this);
		process.off("beforeExit", releaseAll).on("beforeExit", releaseAll); // once
		this.signal.addEventListener("abort", ({ target: { reason } }) => {
			if (held.delete(this)) servers.log.warn(`lease on ${this.resources}: ${reason.message}`);
		});
		term.watch();
		this.#renew(renewAt);
	}

	/** Milliseconds until the lease counts as lost, if it is not renewed. */
	get remaining() { return this.#term.remaining; }

	/** An AbortSignal: aborted as soon as the lease cannot be relied on any more, or is released. */
	get signal() { return this.#term.signal; }

	/** Throws LockLost if the lease cannot be relied on any more. Call it right before each write. */
	check() {
		this.#told ||= this.#term.loss !== null;
		this.#term.check();
	}

	/** Ends the renewal and gives the lock back. False: it was not held any more, or no server answers. */
	async release() {
		const first = this.#released === null;
		this.#released ??= this.#release();
		return Boolean(await this.#released) && first;
	}

	/** After a block: releases the lease, and throws the loss if there was one. `told`: the block knows already. */
	static async leave(lease, told) {
		const silent = lease.#released || told, loss = lease.#term.loss;
		await lease.release();
		if (silent) return;
		if (loss) throw loss;
		if ((await lease.#released) !== null) return;
		throw new LockLost("it was not held any more when it was released");
	}

	/** For `await using`, which does not tell how the block ended: what check() has thrown is not thrown again. */
	async [Symbol.asyncDispose ?? Symbol("asyncDispose")]() {
		await Lease.leave(this, this.#told);
	}

	async #release() {
		held.delete(this);
		this.#term.lose(BY_RELEASE);
		const limit = Math.min(this.#servers.timeout, RELEASE_MAX);
		const answer = await this.#servers.askEach(this.#wanted.release(this.#token, limit));
		const done = answer.status === 204;
		const said = `release of ${this.resources}: ${done ? "done" : answer.error.message}`;
		this.#servers.log[done ? "info" : "warn"](said);
		return answer.final ? null : done;
	}

	/** Until the lease is lost or released. An error of any kind is a renewal that failed. */
	async #renew(renewAt) {
		for (let due = renewAt; ;) {
			await pause(Math.max(0, due - clock()), { signal: this.signal, ref: false });
			if (this.signal.aborted) return;
			due = await this.#renewAtEach().catch((error) => this.#warn(error)) ?? clock() + this.#ttl / 10;
		}
	}

	/** Asks each server until one renews the lease. The time of the next renewal, or nothing. */
	async #renewAtEach() {
		for (const asked = new Set(); asked.size < this.#servers.count && !this.signal.aborted;) {
			const sent = clock();
			// some is left for each server
			const share = this.remaining / (this.#servers.count - asked.size);
			const limit = Math.min(this.#ttl / 5, this.#servers.timeout, RENEW_MAX, share);
			const ask = this.#wanted.extension(this.#token, this.#ttl, limit);
			const answer = await this.#servers.ask(ask, this.signal, asked);
			if (answer.status === 200) {
				this.#term.extend(sent + answer.body.validity_ms);
				return sent + this.#ttl / 3;
			}
			const { error } = answer;
			if (!this.signal.aborted) this.#warn(error); // the old end holds, unless the lease is over
			if (!answer.final) continue;
			this.#term.lose(new LockLost(`lease lost: ${error.message}`, { cause: error }));
		}
		return undefined;
	}

	#warn({ message }) { this.#servers.log.warn(`renewal of ${this.resources}: ${message}`); }
}

module.exports = { Lease };
