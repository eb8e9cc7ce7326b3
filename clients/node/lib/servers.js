"use strict";
// The servers in their order, which one is in use, and the time limits of requests.

const { setMaxListeners } = require("node:events");
const fs = require("node:fs");
const tls = require("node:tls");
const { debuglog } = require("node:util");

const { Exchange, parseServer } = require("./wire.js");

const TIMEOUT_MAX = 3_600_000;
const UNAVAILABLE = [0, 429, 503];
const debug = debuglog("redlockd");
const LOG = { debug, info: debug, warn: debug };

/** Those of a client, and its logger. An ask is `{ method, path, timeout, body, headers }`. */
class Servers {
	#all; // the first one is in use
	#common;

	constructor(urls, { key = null, timeout = 5000, ca, certificate = [], logger = LOG }) {
		this.#all = (typeof urls === "string" ? [urls] : [...urls]).map(parseServer);
		Object.assign(this, { count: this.#all.length, timeout, log: logger });
		if (this.count === 0) throw new RangeError("no server is given");
		if (!(timeout > 0 && timeout <= TIMEOUT_MAX)) throw new RangeError("timeout must be from 1 to 3600000");
		if (key !== null && !/^[!-~]+$/.test(key)) throw new TypeError("the key has characters that none has");
		const authorization = key !== null && { Authorization: `Bearer ${key}` };
		this.#common = { headers: { "User-Agent": "redlockd-node", ...authorization } };
		if (!this.#all.some((server) => server.tls)) return;
		const [authorities, cert, certKey] = [ca, ...certificate].map((file) => file && fs.readFileSync(file));
		this.#common.secureContext = tls.createSecureContext({ ca: authorities, cert, key: certKey });
	}

	/** Asks the server in use. Never rejects: an aborted signal closes the connection, and no answer came. */
	async ask(ask, signal) {
		const server = this.#all[0];
		const answer = await this.#exchange(server, ask, signal, this.count > 1);
		const failed = UNAVAILABLE.includes(answer.status) && !signal?.aborted;
		if (failed && this.#all[0] === server) this.#all.push(this.#all.shift());
		return answer;
	}

	/** Asks each server once, until one decides. */
	async askEach(ask, left = this.count) {
		const answer = await this.ask(ask);
		return left > 1 && UNAVAILABLE.includes(answer.status) ? this.askEach(ask, left - 1) : answer;
	}

	/** `probes`: a server that answers no health check while the request waits is given up. */
	async #exchange(server, ask, signal, probes) {
		const exchange = new Exchange(server, ask, this.#common);
		const ended = new AbortController();
		const limit = setTimeout(() => exchange.giveUp("it does not answer in time"), ask.timeout);
		const connect = setTimeout(() => exchange.sent || exchange.giveUp("no connection"), this.timeout);
		const probe = probes && setInterval(() => this.#probe(server, exchange, ended.signal), this.timeout);
		if (signal) setMaxListeners(0, signal); // one signal may end many requests: that is no leak
		signal?.addEventListener("abort", () => exchange.giveUp("it was cancelled"), { signal: ended.signal });
		const answer = await exchange.answer;
		ended.abort();
		for (const timer of [limit, connect, probe]) clearTimeout(timer);
		return answer;
	}

	async #probe(server, exchange, ended) {
		const ask = { method: "GET", path: "/healthz", timeout: this.timeout };
		const answer = await this.#exchange(server, ask, ended, false);
		if (answer.status === 0) exchange.giveUp("it does not answer health checks");
	}
}

module.exports = { Servers, UNAVAILABLE };
