// SPDX-License-Identifier: MIT
"use strict";
// An answer, and whether it counts: docs/reference/client-rules.md has the rules.

const errors = require("./errors.js");

const SUCCESS = { POST: [200, 201], PUT: [200], DELETE: [204], GET: [200, 304] };
const EMPTY = [204, 304];
const TEXTS_AND_NUMBERS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const BY_CODE = new Map(Object.values(errors).map((kind) => [kind.code, kind]));

/** The options of this library, with their unit, instead of the members of a request. */
function nameOptions(detail) {
	return detail.replace(/\b(?:ttl|wait)_ms: must be from \d+ to \d+/g, "$& ms").replace(/\b(ttl|wait)_ms\b/g, "$1");
}

/**
 * `status` is 0 where no whole answer of redlockd came; `sent`: the request may have been carried out nevertheless;
 * `queued`: it had no connection yet.
 */
class Answer {
	constructor(status, headers, body, sent = true, cause = undefined, queued = false) {
		Object.assign(this, { status, headers, body, sent, cause, queued });
	}

	/** Another server may answer otherwise. */
	get unavailable() { return [0, 429, 503].includes(this.status); }
	get locked() { return this.#is(409, "locked"); }
	/** The lease is over: no other server is asked. */
	get final() { return this.#is(409, "not-owner") || this.#is(410, "lease-expired"); }

	/** Milliseconds; a second where the answer names none. */
	get retryAfter() {
		const value = this.headers["retry-after"] ?? "";
		return /^\d{1,5}$/.test(value) ? Number(value) * 1000 : 1000;
	}

	get error() {
		const { status, body: { detail } } = this;
		const text = typeof detail === "string" ? detail : `status ${status}`;
		return this.errorThatSays(status ? nameOptions(text) : text);
	}

	errorThatSays(detail) {
		const { status, body: problem, cause } = this;
		const kind = status ? BY_CODE.get(problem.code) ?? errors.RedlockdError : errors.NoAnswer;
		return new kind(detail, { status, problem, cause });
	}

	#is(status, code) { return this.status === status && this.body.code === code; }
}

function noAnswer(why, sent, cause, queued) {
	return new Answer(0, {}, { detail: `no answer of redlockd: ${why}` }, sent, cause, queued);
}

/**
 * The object that the content is. `exact`: a number that is no integer of JSON, or that JSON.parse() would round, is
 * null. The error does not show the content, which may have a token.
 */
function parseObject(content, exact) {
	const keep = (part) => part.startsWith('"') || (/^-?\d+$/.test(part) && Number.isSafeInteger(Number(part)));
	let body = null;
	try {
		const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
		body = JSON.parse(text);
		if (exact) body = JSON.parse(text.replace(TEXTS_AND_NUMBERS, (part) => (keep(part) ? part : "null")));
	} catch { /* it is no JSON */ }
	if (body !== null && typeof body === "object" && !Array.isArray(body)) return body;
	throw new Error("its body is no JSON object");
}

/** The answer for one lease of a request. A wrong one is no answer for this lease alone. */
function parsePart(body, check) {
	const { code, status } = Object(body);
	if (typeof code === "string" && Number.isInteger(status) && status >= 400) return new Answer(status, {}, body);
	const member = code === undefined ? check(Object(body)) : "status";
	return member ? noAnswer(`its ${member} does not fit the request`, true) : new Answer(200, {}, body);
}

/** An answer that was read to its end. Throws an error that says why it does not count. */
function parseAnswer({ method, wrong, checks }, { statusCode: status, headers }, content) {
	const success = SUCCESS[method].includes(status);
	if (!success && status < 400) throw new Error(`its status ${status} does not fit the request`);
	if (EMPTY.includes(status)) return new Answer(status, headers, {});
	const body = parseObject(content, success && (wrong || checks));
	if (!success && typeof body.code !== "string") throw new Error(`its status is ${status}, without a code`);
	const fits = !checks || body.leases?.length === checks.length;
	const member = success && (fits ? wrong?.(body) : "leases");
	if (member) throw new Error(`its ${member} does not fit the request`);
	const answer = new Answer(status, headers, body);
	if (success && checks) answer.parts = checks.map((check, index) => parsePart(body.leases[index], check));
	return answer;
}

module.exports = { noAnswer, parseAnswer };
