#!/usr/bin/env node
// Books apples into a store, one by one, while nobody else does: docs/how-to/clients.md says how and why.
//
//     lock.mjs RESOURCE STORE [STEPS [STEP_MS [TTL_MS [WAIT_MS]]]]
import { execFile } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

const url = (process.env.REDLOCKD_URL ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
const key = process.env.REDLOCKD_KEY;
const clock = () => performance.now(); // milliseconds, by a clock that nobody sets
const run = promisify(execFile);

class Failure extends Error {
	constructor(exitStatus, why) {
		super(why);
		this.exitStatus = exitStatus;
	}
}

/** One request. Gives status, answer, and pause: milliseconds before another try. The status is 0 where no answer of redlockd came.
 * It does not use fetch(), which in Node 18 loses its AbortSignal when garbage is collected, and then waits for ever. */
async function call(method, path, body, timeout, more = {}) {
	let request;
	const alarm = setTimeout(() => request?.destroy(new Error("timeout")), timeout);
	try {
		const json = JSON.stringify(body);
		const headers = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(json), ...more };
		if (key) headers.Authorization = `Bearer ${key}`;
		request = (url.startsWith("https:") ? https : http).request(url + path, { method, headers });
		request.on("error", () => {}); // one that comes during the body is an error of the response as well
		request.end(json);
		const [response] = await once(request, "response");
		let text = "";
		for await (const part of response.setEncoding("utf8")) text += part;
		const pause = Number(response.headers["retry-after"] ?? 0) * 1000 + Math.random() * 1000;
		return { status: response.statusCode, answer: JSON.parse(text || "{}"), pause };
	} catch (error) {
		return { status: 0, answer: { detail: `no answer from ${url}: ${error.message || error.code}` }, pause: 1000 };
	} finally {
		clearTimeout(alarm);
	}
}

/** A lock that is renewed in the background until release(). Work with `signal`: it is aborted when the lease is lost. */
class Lease {
	#lost = new AbortController();
	#ended = new AbortController();
	signal = this.#lost.signal;

	async acquire(resource, ttl, wait) {
		const until = clock() + wait;
		const again = { "Idempotency-Key": crypto.randomUUID() }; // if an answer is lost, the next request finds the lease
		for (;;) {
			const sent = clock(); // before the request: the lease lasts for so long from here, or longer
			const wait_ms = Math.min(Math.max(Math.round(until - sent), 0), 60000);
			const { status, answer, pause } = await call("POST", "/locks", { resource, ttl_ms: ttl, wait_ms }, wait_ms + 5000, again);
			if (status === 201 || status === 200) {
				Object.assign(this, { path: `/locks/${encodeURIComponent(resource)}`, token: answer.token, fence: answer.fence, ttl, margin: ttl / 5 });
				console.log(`acquired fence=${this.fence}`);
				this.#until(sent + answer.validity_ms + 0.99 * (answer.waited_ms ?? 0));
				this.supervisor = this.#keep();
				return;
			}
			if (![0, 409, 429, 503].includes(status)) throw new Failure([401, 403].includes(status) ? 77 : 64, answer.detail);
			const left = until - clock();
			if (left <= 0) throw new Failure(status === 409 ? 75 : 69, answer.detail);
			await sleep(Math.min(left, pause));
		}
	}

	#until(end) {
		this.stopAt = end - this.margin;
		clearTimeout(this.alarm);
		this.alarm = setTimeout(() => this.lose("lease lost: it could not be renewed in time"), Math.max(this.stopAt - clock(), 0));
	}

	lose(why, exitStatus = 79) {
		this.#lost.abort(new Failure(exitStatus, why));
	}

	async #keep() {
		for (let pause = this.ttl / 3; ; ) {
			await sleep(pause, null, { signal: this.#ended.signal }).catch(() => {});
			if (this.#ended.signal.aborted || this.signal.aborted) return;
			const sent = clock();
			const timeout = Math.min(this.stopAt - sent, this.ttl / 5);
			if (timeout <= 0) return this.lose("lease lost: it could not be renewed in time");
			const { status, answer } = await call("PUT", this.path, { token: this.token, ttl_ms: this.ttl }, timeout);
			if (status === 200) {
				this.#until(sent + answer.validity_ms);
				console.log("renewed");
			} else if (status === 409 || status === 410) {
				return this.lose(`lease lost: ${answer.detail}`);
			}
			pause = this.ttl / (status === 200 ? 3 : 10); // no answer, 429, 503: the old end holds, ask again soon
		}
	}

	/** Looks at the clock itself: the process may have been stopped, and timers may be late. */
	check() {
		if (clock() >= this.stopAt) this.lose("lease lost: it could not be renewed in time");
		this.signal.throwIfAborted();
	}

	/** Stands for work that can be broken off at once. */
	async work(ms) {
		await sleep(ms, null, { signal: this.signal }).catch(() => {});
		this.check();
	}

	async release() {
		this.#ended.abort();
		await this.supervisor; // a renewal that comes after the release would look like a loss
		clearTimeout(this.alarm);
		const { status, answer } = await call("DELETE", this.path, { token: this.token }, 2000);
		console.log(status === 204 ? "released" : `not released: ${answer.detail}`);
	}
}

/** The resource refuses whoever is not the last holder: comparison and change are one statement, also with a driver; Node 18 brings none for SQLite.
 * The longest step that cannot be broken off is as long as the margin. */
async function update(store, { fence, margin }, change) {
	const sql = `UPDATE stock SET ${change}, fence = ${fence} WHERE item = 'apples' AND fence <= ${fence} RETURNING amount`;
	const { stdout } = await run("sqlite3", ["-cmd", `.timeout ${Math.round(margin)}`, store, sql]);
	if (stdout === "") throw new Failure(79, "fence refused: somebody else has had the lock since");
	return Number(stdout);
}

async function main(resource, store, steps = 5, step = 1000, ttl = 10000, wait = 20000) {
	const lease = new Lease();
	process.on("SIGTERM", () => (lease.token ? lease.lose("interrupted", 143) : process.exit(143)));
	await lease.acquire(resource, Number(ttl), Number(wait));
	try {
		let amount = await update(store, lease, "amount = amount"); // brings the fence there, then reads
		for (let n = 0; n < Number(steps); n++) {
			await lease.work(Number(step));
			amount = await update(store, lease, `amount = ${amount + 1}`);
			console.log(`wrote ${amount}`);
		}
	} finally {
		await lease.release();
	}
}

try {
	await main(...process.argv.slice(2));
} catch (error) {
	console.error(`lock: ${error.message}`);
	process.exitCode = error.exitStatus ?? 1;
}
