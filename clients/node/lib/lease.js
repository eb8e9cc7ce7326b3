// SPDX-License-Identifier: MIT
"use strict";
// A lease that is held: its renewal, its loss, its release. Its timers keep no program alive; when nothing else is left
// to do, the leases that are held are released.

const { AsyncResource } = require("node:async_hooks");

const { LockLost } = require("./errors.js");
const { Renewal } = require("./renewals.js");
const { clock } = require("./term.js");

const RELEASE_MAX = 2000;
const held = new Set(); // until the answer to their release

function releaseAll() {
	for (const lease of held) lease.release();
}

/** A lease that is renewed until release(). `fence` goes with each write to what the lock protects. */
class Lease {
	#wanted;
	#servers;
	#token;
	#term;
	#renewal;
	#keptUntil; // after a release: nobody else gets the lock before
	#released = null; // the promise of release(): true, false, or the error that says that it was not held any more
	#told = false; // the loss, by check()

	constructor(wanted, servers, grant) {
		const { token, fence, slot, term } = grant;
		this.#wanted = wanted;
		this.#servers = servers;
		this.#token = token;
		this.#term = term;
		this.#keptUntil = clock() + wanted.atLeast;
		Object.assign(this, { fence, slot, resources: wanted.resources });
		servers.log.info(`acquired ${this.resources}, fence ${fence}`);
		held.add(this);
		process.off("beforeExit", releaseAll).on("beforeExit", releaseAll); // once
		this.#renewal = new Renewal(grant, wanted, AsyncResource.bind(() => this.#tellWanted()));
		this.signal.addEventListener("abort", ({ target: { reason } }) => {
			servers.renewals.remove(this.#renewal);
			if (reason.reason === "released") return;
			held.delete(this);
			servers.log.lost(reason.message);
		});
		term.watch();
		servers.renewals.add(this.#renewal);
	}

	/** After what runs now. An error of the callback is a line of the log. */
	#tellWanted() {
		const failed = (error) => this.#servers.log.warn(`onWanted of ${this.resources}: ${error?.message ?? error}`);
		Promise.resolve(this).then(this.#wanted.onWanted).catch(failed);
	}

	/** Whole milliseconds until the lease counts as lost, if it is not renewed. */
	get remaining() { return this.#term.remaining; }

	/** How many wait for the lock, as the last renewal said; 0 before the first one. */
	get waiters() { return this.#renewal.waiters; }

	/** An AbortSignal: aborted as soon as the lease cannot be relied on any more, or is released. */
	get signal() { return this.#term.signal; }

	/** Throws LockLost if the lease cannot be relied on any more. Call it right before each write. */
	check() {
		this.#told ||= this.#term.loss !== null;
		this.#term.check();
	}

	/**
	 * Ends the renewal and gives the lock back. False: it was not held any more, or no server answers. `keep`:
	 * milliseconds for which nobody gets it then.
	 */
	async release({ keep = 0 } = {}) {
		if (!(keep >= 0 && keep < Infinity)) throw new RangeError(`keep must be a number of milliseconds: ${keep}`);
		const first = this.#released === null;
		this.#released ??= this.#release(keep);
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
		if (!(error instanceof Error)) return;
		throw lease.#renewal.lostBy(error.code, "it was not held any more when it was released", error);
	}

	/** For `await using`, which does not tell how the block ended: what check() has thrown is not thrown again. */
	async [Symbol.asyncDispose ?? Symbol("asyncDispose")]() {
		await Lease.leave(this, this.#told);
	}

	async #release(keep) {
		const lost = this.#term.loss !== null; // there is a warning already
		this.#term.lose(this.#renewal.lostBy("released", "it was released"));
		const limit = Math.min(this.#servers.timeout, RELEASE_MAX);
		const kept = Math.max(keep, this.#keptUntil - clock());
		const answer = await this.#servers.askEach(this.#wanted.release(this.#token, limit, kept));
		held.delete(this);
		const done = answer.status === 204;
		const said = `release of ${this.resources}: ${done ? "done" : answer.error.message}`;
		this.#servers.log[done || (lost && answer.final) ? "info" : "warn"](said);
		return answer.final ? answer.error : done;
	}
}

module.exports = { Lease };
