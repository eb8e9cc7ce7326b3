// SPDX-License-Identifier: MIT
"use strict";
// A lease that is held: its renewal, its loss, its release. Its timers keep no program alive; when nothing else is left
// to do, the leases that are held are released.

const { LockLost } = require("./errors.js");
const { clock, pause } = require("./term.js");

const RENEW_MAX = 5000;
const RELEASE_MAX = 2000;
// why a lease ends that is not renewed in time: the reason, and the text
const LATE = ["late", "no renewal began in time: the process or the machine was stopped, or the event loop blocked"];
const OPEN = ["no-answer", "the renewal was not answered in time"];
const BOUND = ["max-hold", "the server does not extend it any further (--max-hold-ms)"];
const held = new Set(); // until the answer to their release

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
	#end = LATE;
	#released = null; // the promise of release(): true, false, or the error that says that it was not held any more
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
			if (reason.reason === "released") return;
			held.delete(this);
			servers.log.lost(reason.message);
		});
		term.explainBy(() => this.#lostBy(...this.#end));
		term.watch();
		this.#renew(renewAt);
	}

	#lostBy(reason, text, cause) {
		return new LockLost(`lease on ${this.resources.join(", ")} lost: ${text}`, { reason, cause });
	}

	/** Whole milliseconds until the lease counts as lost, if it is not renewed. */
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
		return (await this.#released) === true && first;
	}

	/** Releases the leases of a client. Those that are released already are waited for. */
	static async releaseAll(servers) {
		await Promise.all([...held].filter((lease) => lease.#servers === servers).map((lease) => lease.release()));
	}

	/** The error of a block. After a loss, an AbortError follows from it: then it is the loss, with that one as cause. */
	static errorOfBlock(lease, error) {
		const { loss } = lease.#term;
		if (!loss || lease.#released || error?.name !== "AbortError") return error;
		return new LockLost(loss.message, { reason: loss.reason, cause: error });
	}

	/** After a block: releases the lease, and throws the loss if there was one. `told`: the block knows already. */
	static async leave(lease, told) {
		const silent = lease.#released || told, loss = lease.#term.loss;
		await lease.release();
		if (silent) return;
		if (loss) throw loss;
		const error = await lease.#released;
		if (error instanceof Error) throw lease.#lostBy(error.code, "it was not held any more when it was released", error);
	}

	/** For `await using`, which does not tell how the block ended: what check() has thrown is not thrown again. */
	async [Symbol.asyncDispose ?? Symbol("asyncDispose")]() {
		await Lease.leave(this, this.#told);
	}

	async #release() {
		this.#term.lose(this.#lostBy("released", "it was released"));
		const limit = Math.min(this.#servers.timeout, RELEASE_MAX);
		const answer = await this.#servers.askEach(this.#wanted.release(this.#token, limit));
		held.delete(this);
		const done = answer.status === 204;
		const said = `release of ${this.resources}: ${done ? "done" : answer.error.message}`;
		this.#servers.log[done ? "info" : "warn"](said);
		return answer.final ? answer.error : done;
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
			if (this.#end === LATE) this.#end = OPEN;
			const answer = await this.#servers.ask(ask, this.signal, asked);
			if (answer.status === 200) {
				this.#term.extend(sent + answer.body.validity_ms);
				this.#end = answer.body.ttl_ms < this.#ttl ? BOUND : LATE;
				return sent + this.#ttl / 3;
			}
			const { error } = answer;
			if (!this.signal.aborted) this.#warn(error); // the old end holds, unless the lease is over
			if (answer.final) this.#term.lose(this.#lostBy(error.code, error.message, error));
			else if (this.#end !== BOUND) this.#end = [error.code, `it could not be renewed in time: ${error.message}`, error];
		}
		return undefined;
	}

	#warn({ message }) { this.#servers.log.warn(`renewal of ${this.resources}: ${message}`); }
}

module.exports = { Lease };
