// SPDX-License-Identifier: MIT
"use strict";
// Until when a lease may be relied on. Every question compares the clock, since a timer can be late: the process may
// have been stopped, or its event loop blocked.

const { setMaxListeners } = require("node:events");
const os = require("node:os");
const { performance } = require("node:perf_hooks");

const { LockLost } = require("./errors.js");

const APART = 500; // milliseconds from one request to the next that asks the same
const PAUSE_MAX = 2 ** 31 - 1; // of a timer
const started = os.uptime() * 1000 - performance.now();
let slept = 0;
let looked = -Infinity;

/**
 * Milliseconds of a clock that nobody can set and that goes on while the machine sleeps. On Linux performance.now()
 * stands still then; os.uptime() goes on, but counts in hundredths of a second, so it only tells the difference. It
 * reads a file, and is not asked twice in a millisecond: a machine takes longer to fall asleep and to wake up.
 */
function clock() {
	const now = performance.now();
	if (process.platform === "linux" && now - looked >= 1) {
		looked = now;
		slept = Math.max(slept, os.uptime() * 1000 - now - started);
	}
	return now + slept;
}

/** Ends after so many milliseconds, or when the signal is aborted. Never rejects. Without `ref` the program may end. */
function pause(milliseconds, { signal, ref = true } = {}) {
	return new Promise((resolve) => {
		const end = () => {
			clearTimeout(timer);
			signal?.removeEventListener("abort", end);
			resolve();
		};
		const timer = setTimeout(end, Math.min(milliseconds, PAUSE_MAX));
		if (!ref) timer.unref();
		if (signal?.aborted) end();
		else signal?.addEventListener("abort", end);
	});
}

/** Aborted with either signal. `end()` leaves nothing that listens. AbortSignal.any() needs Node 20. */
function joinSignals(...signals) {
	const controller = new AbortController();
	const given = signals.filter((signal) => signal);
	const abort = () => controller.abort(given.find(({ aborted }) => aborted).reason);
	for (const signal of given) {
		setMaxListeners(0, signal); // one signal may end many calls: that is no leak
		signal.addEventListener("abort", abort);
	}
	if (given.some(({ aborted }) => aborted)) abort();
	return { signal: controller.signal, end: () => given.forEach((signal) => signal.removeEventListener("abort", abort)) };
}

/** Once it is over, it stays over. The timer is for those who only listen to the signal. */
class Term {
	margin;
	#stop;
	#loss = null;
	#late = () => new LockLost("the lease could not be renewed in time");
	#timer = null;
	#controller = new AbortController();

	constructor(end, margin) {
		this.margin = margin;
		this.#stop = end - margin;
		Object.defineProperties(this.signal, {
			aborted: { get: () => this.loss !== null },
			reason: { get: () => this.loss ?? undefined },
			throwIfAborted: { value: () => this.check() },
		});
	}

	/** Aborted at the loss or release, with the LockLost as its reason. */
	get signal() { return this.#controller.signal; }
	/** Whole milliseconds; 0 once it is over. */
	get remaining() { return this.#loss ? 0 : Math.max(0, Math.floor(this.#stop - clock())); }

	/** The function makes the LockLost if no renewal comes in time. */
	explainBy(late) { this.#late = late; }

	/** The LockLost, or null while the lease may be relied on. */
	get loss() {
		if (this.#loss) return this.#loss;
		if (this.remaining === 0) this.lose(this.#late());
		return this.#loss;
	}

	check() {
		if (this.loss) throw new LockLost(this.#loss.message, this.#loss);
	}

	/** Never to an earlier end, and not if it is over. */
	extend(end) {
		if (!this.loss) this.#stop = Math.max(this.#stop, end - this.margin);
	}

	lose(why) {
		if (this.#loss) return;
		this.#loss = why;
		clearTimeout(this.#timer);
		this.#controller.abort(why);
	}

	/** From now on the signal tells the loss by itself. */
	watch() {
		const left = Math.min(this.remaining, PAUSE_MAX);
		this.#timer = setTimeout(() => this.loss || this.watch(), left).unref();
	}
}

module.exports = { APART, PAUSE_MAX, Term, clock, joinSignals, pause };
