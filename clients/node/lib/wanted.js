// SPDX-License-Identifier: MIT
"use strict";
// The lease that is asked for, its requests, and the lease that an answer has.

const { Term, clock } = require("./term.js");

const OPTIONS = ["ttl", "wait", "margin", "atLeast", "onWanted", "signal", "owner", "metadata", "mode", "slots"];
const TTL_OF_AT_LEAST = 10_000; // from here on atLeast is the ttl, too: a shorter one is not worth its renewals
const MARGIN = 0.1; // of the ttl
const CLOCKS = 0.99; // the server's clock and ours may differ by a hundredth
const MOST = Number.MAX_SAFE_INTEGER;

/** Refuses misspelt options, which would otherwise change nothing, silently. */
function checkOptions(options, known) {
	const wrong = Object.keys(options).find((name) => !known.includes(name));
	if (wrong !== undefined) throw new TypeError(`there is no option ${wrong}: the options are ${known.join(", ")}`);
}

/** A name, or a set of names in any order. */
function areSame(found, asked) {
	if (!Array.isArray(asked) || !Array.isArray(found)) return found === asked;
	return JSON.stringify([...found].sort()) === JSON.stringify([...asked].sort());
}

function isWithin(number, least, most) {
	return Number.isSafeInteger(number) && number >= least && number <= most;
}

/** For instance `orders/42: held by worker-7 (fence 7), lease ends in 2500 ms unless it is extended`. */
function describeHeld({ resource, holder, retry_after_ms: left }, names) {
	const { owner, fence } = Object(holder);
	const by = `${owner || "somebody else"}${fence > 0 ? ` (fence ${fence})` : ""}`;
	const end = left > 0 ? `, lease ends in ${left} ms unless it is extended` : "";
	return `${resource ?? names.join(", ")}: held by ${by}${end}`.replace(/\p{C}/gu, "?");
}

/** One resource, or all of several at once. */
class Wanted {
	#ttlName; // of the option that has it

	constructor(names, options) {
		checkOptions(options, OPTIONS);
		const { ttl: chosen, wait = 60_000, margin, atLeast = 0, onWanted, signal: _, ...members } = options;
		this.#ttlName = chosen === undefined && atLeast >= TTL_OF_AT_LEAST ? "atLeast" : "ttl";
		const ttl = this.#ttlName === "ttl" ? chosen : atLeast; // a server that grants it also keeps a lock for so long
		const known = ttl === undefined || (ttl > 0 && ttl < Infinity); // otherwise the server says the ttl
		if (!known) throw new RangeError(`ttl must be a positive number of milliseconds: ${ttl}`);
		if (!(wait >= 0)) throw new RangeError(`wait must be a number of milliseconds that is not negative: ${wait}`);
		if (!((margin ?? 0) >= 0 && (margin ?? 0) <= (ttl ?? Infinity) / 2)) {
			throw new RangeError(`margin must be a number of milliseconds from 0 to half of ttl: ${margin}`);
		}
		if (!(atLeast >= 0 && atLeast <= (ttl ?? Infinity))) {
			throw new RangeError(`atLeast must be a number of milliseconds from 0 to ttl: ${atLeast}`);
		}
		if (typeof (onWanted ?? checkOptions) !== "function") throw new TypeError("onWanted must be a function");
		const single = typeof names === "string";
		this.resources = Object.freeze(single ? [names] : [...names]);
		Object.assign(this, { wait, margin, atLeast, onWanted });
		this.names = single ? { resource: names } : { resources: this.resources };
		const given = Object.entries(members).filter(([, value]) => value !== null && value !== undefined);
		const body = { ...this.names, ttl_ms: ttl && Math.round(ttl), ...Object.fromEntries(given) };
		this.body = JSON.parse(JSON.stringify(body)); // every request of an acquisition says the same
	}

	/** The error of an acquisition. Locked names the lock and its holder. */
	errorOf(answer) {
		if (answer.locked) return answer.errorThatSays(describeHeld(answer.body, this.resources));
		return answer.errorThatSays(answer.error.message.replace(/\bttl\b/g, this.#ttlName));
	}

	/** `begun`: the clock before the first request with this key. */
	acquisition(key, begun, wait, timeout) {
		const body = { ...this.body, wait_ms: Math.floor(wait) };
		const headers = { "Idempotency-Key": key };
		const wrong = (lease) => {
			return this.#wrongInAnyLease(lease, body.ttl_ms) ?? this.#wrongInNewLease(lease, begun);
		};
		return { method: "POST", path: "/locks", timeout, body, headers, waits: body.wait_ms > 0, wrong };
	}

	/** `keep`: milliseconds for which nobody gets the lock then. */
	release(token, timeout, keep = 0) {
		const body = keep > 0 ? { ...this.names, keep_ms: Math.ceil(keep) } : this.names;
		return { method: "DELETE", path: "/locks", timeout, body, headers: { "Lock-Token": token }, ofLease: true };
	}

	/** One of the leases that a request extends. */
	extension(token, ttl) { return { ...this.names, token, ttl_ms: ttl }; }

	/** A function that returns the member of the lease in its answer that does not fit. */
	extensionCheck(token, ttl) {
		const wrongNumber = ({ waiters = 0 }) => (isWithin(waiters, 0, MOST) ? undefined : "waiters");
		return (lease) => this.#wrongInAnyLease(lease, ttl, token) ?? wrongNumber(lease);
	}

	/** The member that does not fit the request. `token`: the one that was sent, if it is not a new lease. */
	#wrongInAnyLease(lease, ttl = MOST, token = lease.token) {
		const [[name, asked]] = Object.entries(this.names);
		if (!areSame(lease[name], asked)) return name;
		if (lease.token !== token || typeof token !== "string" || !/^[0-9a-f]{40}$/.test(token)) return "token";
		const most = { fence: MOST, ttl_ms: ttl, validity_ms: lease.ttl_ms };
		return Object.keys(most).find((member) => !isWithin(lease[member], 1, most[member]));
	}

	#wrongInNewLease({ waited_ms: waited = 0, slot }, begun) {
		if (!isWithin(waited, 0, MOST) || CLOCKS * waited > clock() - begun + 1) return "waited_ms";
		return this.body.slots === undefined || isWithin(slot, 0, this.body.slots - 1) ? undefined : "slot";
	}

	marginOf(ttl) { return Math.min(this.margin ?? ttl * MARGIN, ttl / 2); }

	/** `lease`: of an answer that fits the acquisition; `sent`: the clock before its request. */
	grantOf({ token, fence, slot = null, ttl_ms: ttl, validity_ms: validity, waited_ms: waited = 0 }, sent) {
		const begin = sent + Math.min(CLOCKS * waited, clock() - sent);
		const term = new Term(begin + validity, this.marginOf(ttl));
		const mine = this.body.slots === undefined ? null : slot;
		return { token, fence, slot: mine, ttl, renewAt: begin + ttl / 3, term };
	}
}

module.exports = { Wanted, checkOptions };
