// SPDX-License-Identifier: MIT
"use strict";
// The lines of the log.

const { debuglog } = require("node:util");

const debug = debuglog("redlockd");
const LOG = { debug, info: debug, warn: debug, lost: (text) => process.emitWarning(text, "LockLost") };
const SILENT = { debug() {}, info() {}, warn() {} };

/**
 * Each line has a turn of the event loop of its own, after the timers and requests that are due. An error of the
 * logger changes nothing.
 */
class Log {
	#logger;
	#lines = [];

	constructor(logger = LOG) { this.#logger = logger ?? SILENT; }

	debug(text) { this.#add("debug", text); }
	info(text) { this.#add("info", text); }
	warn(text) { this.#add("warn", text); }
	/** A loss is shown by default, as a warning of the process. */
	lost(text) { this.#add(this.#logger === LOG ? "lost" : "warn", text); }

	#add(level, text) {
		if (this.#lines.push({ level, text }) === 1) setImmediate(() => this.#writeNext());
	}

	async #writeNext() {
		const { level, text } = this.#lines.shift();
		if (this.#lines.length > 0) setImmediate(() => this.#writeNext());
		try {
			await this.#logger[level](text);
		} catch { /* there is nobody to tell */ }
	}
}

module.exports = { Log };
