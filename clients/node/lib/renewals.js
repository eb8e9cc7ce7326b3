// SPDX-License-Identifier: MIT
"use strict";
// The renewals of a client: one timer, and one request for all leases that are due about the same time. Each of them
// is decided alone, as if it had been asked for alone.

const { AsyncResource } = require("node:async_hooks");

const { LockLost } = require("./errors.js");
const { PAUSE_MAX, clock } = require("./term.js");

const RENEW_MAX = 5000;
const MOST = 256; // leases in a request
const ROOM = 60_000; // bytes of them: the server takes 64 KiB
// why a lease ends that is not renewed in time: the reason, and the text
const LATE = ["late", "no renewal began in time: the process or the machine was stopped, or the event loop blocked"];
const OPEN = ["no-answer", "the renewal was not answered in time"];
const BOUND = ["max-hold", "the server does not extend it any further (--max-hold-ms)"];

/** The renewals of one lease. */
class Renewal {
	waiters = 0; // as the last one said; an older server does not count
	request = null; // that is under way
	#busy = false; // the last one asked for more leases than the rate of the server allows
	asked; // the ttl of the next one; undefined: the server chooses it
	#token;
	#wanted;
	#names;
	#ttl;
	#end = LATE;
	#tell;

	/** The first argument is of Wanted.grantOf(). `tell`: is called when others begin to wait for the lock. */
	constructor({ token, ttl, term, renewAt }, wanted, tell) {
		Object.assign(this, { term, due: renewAt });
		this.#token = token;
		this.#wanted = wanted;
		this.askFor(ttl);
		this.size = Buffer.byteLength(JSON.stringify(this.item)) + 1;
		this.#names = wanted.resources.join(", ");
		this.#ttl = ttl;
		this.#tell = tell;
		term.explainBy(() => this.lostBy(...this.#end));
	}

	askFor(ttl) {
		this.asked = ttl;
		this.item = this.#wanted.extension(this.#token, ttl);
		this.check = this.#wanted.extensionCheck(this.#token, ttl);
	}

	lostBy(reason, text, cause) {
		return new LockLost(`lease on ${this.#names} lost: ${text}`, { reason, cause });
	}

	/** It may come early, to go with others: it extends the lease from when it is sent, and never shortens it. */
	isDue(now) { return this.due - now <= (this.#busy ? 0 : this.#ttl / 20); }

	/** Milliseconds for the answer. Some are left for each of so many servers. */
	limit(servers) { return Math.min(this.#ttl / 5, RENEW_MAX, this.term.remaining / servers); }

	begin(request) {
		this.request = request;
		if (this.#end === LATE) this.#end = OPEN;
	}

	/** `sent`: the clock before the request. Returns whether it is decided: no other server is to be asked. */
	decide(answer, sent, log) {
		this.request = null;
		if (answer.status === 200) return this.#extend(answer.body, sent);
		const { error } = answer;
		this.#busy = answer.status === 429;
		if (this.term.loss) return true;
		this.warn(error, log); // the old end holds, unless the lease is over
		if (answer.final) this.term.lose(this.lostBy(error.code, error.message, error));
		else if (this.#end !== BOUND) this.#end = [error.code, `it could not be renewed in time: ${error.message}`, error];
		return answer.final;
	}

	#extend({ validity_ms: validity, ttl_ms: ttl, waiters = 0 }, sent) {
		if (this.asked === undefined) {
			this.askFor(ttl);
			this.#ttl = ttl;
			this.term.margin = this.#wanted.marginOf(ttl);
		}
		this.term.extend(sent + validity);
		this.#end = ttl < this.#ttl ? BOUND : LATE;
		this.#busy = false;
		this.due = sent + this.#ttl / 3;
		const begins = waiters > 0 && this.waiters === 0;
		this.waiters = waiters;
		if (begins && !this.term.loss) this.#tell();
		return true;
	}

	/** No server has renewed it. `later`: of the half that comes later, if they were too many. */
	postpone(later) { this.due = clock() + this.#ttl * (this.#busy && later ? 3 : 2) / 20; }

	warn({ message }, log) { log.warn(`renewal of ${this.#names}: ${message}`); }
}

/** The parts of a list, each for one request. A lease that has much time is not given up with one that has little. */
function batchesOf(renewals, servers) {
	const batches = [];
	let room = 0, longest = 0;
	const timed = renewals.map((renewal) => ({ renewal, limit: renewal.limit(servers) }));
	for (const { renewal, limit } of timed.sort((one, other) => one.limit - other.limit)) {
		room -= renewal.size;
		if (room < 0 || limit > longest || batches.at(-1).length === MOST) {
			batches.push([]);
			room = ROOM - renewal.size;
			longest = 1.25 * limit;
		}
		batches.at(-1).push(renewal);
	}
	return batches;
}

/** Whether the server names leases whose ttl its bounds do not allow any more. It chooses the next one of these. */
function leaveTtls(batch, { errors }) {
	const fields = (Array.isArray(errors) ? errors : []).map((error) => Object(error).field);
	const named = fields.map((field) => /^leases\[(\d{1,3})\]\.ttl_ms$/.exec(field));
	const wrong = new Set(named.map((found) => found && batch[found[1]]?.asked).filter((ttl) => ttl));
	for (const renewal of batch) if (wrong.has(renewal.asked)) renewal.askFor(undefined);
	return wrong.size > 0;
}

class Renewals {
	#servers;
	#waiting = new Set(); // for their time
	#timer = null;
	#next = Infinity; // when it ends
	#wake;

	constructor(servers) {
		this.#servers = servers;
		// leases of several callers are renewed together, in the asynchronous context of none of them
		this.#wake = AsyncResource.bind(() => this.#renewDue());
	}

	/** Until the term of the lease is over. */
	add(renewal) {
		if (renewal.term.loss) return;
		this.#waiting.add(renewal);
		if (renewal.due < this.#next) this.#wakeAt(renewal.due);
	}

	/** The lease is over. A request is given up when it is for no other one. */
	remove(renewal) {
		this.#waiting.delete(renewal);
		const { request } = renewal;
		if (request?.batch.every(({ term }) => term.loss)) request.abort();
	}

	/** The timer keeps no program alive. */
	#wakeAt(time) {
		clearTimeout(this.#timer);
		this.#next = time;
		if (time === Infinity) return;
		this.#timer = setTimeout(this.#wake, Math.min(Math.max(0, time - clock()), PAUSE_MAX)).unref();
	}

	#renewDue() {
		const now = clock(), due = [];
		let next = Infinity;
		for (const renewal of this.#waiting) {
			if (renewal.isDue(now)) due.push(renewal);
			else next = Math.min(next, renewal.due);
		}
		due.forEach((renewal) => this.#waiting.delete(renewal));
		this.#wakeAt(next);
		for (const batch of batchesOf(due, this.#servers.count)) this.#renew(batch);
	}

	/** Asks each server once, until each lease is decided. An error of any kind is a renewal that failed. */
	async #renew(batch) {
		let left = batch;
		try {
			for (const asked = new Set(); asked.size < this.#servers.count && left.length > 0;) {
				left = await this.#ask(left, asked);
			}
		} catch (error) {
			for (const renewal of left) renewal.warn(error, this.#servers.log);
		}
		left.forEach((renewal, index) => {
			renewal.postpone(2 * index >= left.length);
			this.add(renewal);
		});
	}

	/** Asks one server. Returns the leases that are not decided. */
	async #ask(renewals, asked) {
		const batch = renewals.filter(({ term }) => !term.loss);
		if (batch.length === 0) return batch;
		const before = new Set(asked);
		const limits = batch.map((renewal) => renewal.limit(this.#servers.count - asked.size));
		const controller = new AbortController();
		for (const renewal of batch) renewal.begin({ batch, abort: () => controller.abort() });
		const ask = this.#request(batch, Math.min(this.#servers.timeout, ...limits));
		const sent = clock();
		const answer = await this.#servers.ask(ask, controller.signal, asked);
		if (answer.status === 400 && leaveTtls(batch, answer.body)) return this.#ask(batch, before);
		// one lease of a request can be wrong for the server: the others do not suffer
		if ([400, 413].includes(answer.status) && batch.length > 1) return this.#askHalves(batch, before);
		const left = [];
		batch.forEach((renewal, index) => {
			const decided = renewal.decide(answer.parts?.[index] ?? answer, sent, this.#servers.log);
			if (decided) this.add(renewal);
			else left.push(renewal);
		});
		return left;
	}

	async #askHalves(batch, asked) {
		const middle = batch.length >> 1, halves = [batch.slice(0, middle), batch.slice(middle)];
		return (await Promise.all(halves.map((half) => this.#ask(half, new Set(asked))))).flat();
	}

	#request(batch, timeout) {
		const body = { leases: batch.map(({ item }) => item) }, checks = batch.map(({ check }) => check);
		return { method: "PUT", path: "/locks", timeout, body, ofLease: true, checks };
	}
}

module.exports = { Renewal, Renewals };
