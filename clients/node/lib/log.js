// SPDX-License-Identifier: MIT
"use strict";
// The lines of the log.

const { debuglog } = require("node:util");

const debug = debuglog("redlockd");
const warn = (type) => (text) => process.emitWarning(text, type);
const LOG = { debug, info: debug, warn: debug, lost: warn("LockLost"), silence: warn("NoAnswer") };
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
	/** By default a loss is a warning of the process, and so is an acquisition that no server answers. */
	lost(text) { this.#add(this.#logger === LOG ? "lost" : "warn", text); }
	silence(text) { this.#add(this.#logger === LOG ? "silence" : "warn", text); }

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
