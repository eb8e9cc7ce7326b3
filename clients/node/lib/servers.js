// SPDX-License-Identifier: MIT
"use strict";
// The servers in their order, which one is in use, and the time limits of requests.

const { setMaxListeners } = require("node:events");
const fs = require("node:fs");
const tls = require("node:tls");

const { Exchange } = require("./exchange.js");
const { Log } = require("./log.js");
const { Renewals } = require("./renewals.js");
const { Server, parseAddress } = require("./server.js");

const TIMEOUT_MAX = 3_600_000;
// headers that the program cannot set
const OWN = new Set(["accept", "authorization", "connection", "content-length", "content-type", "expect", "host",
	"idempotency-key", "if-none-match", "lock-token", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
	"x-api-key"]);

/** Those of the program for one request that may be sent. An error of its function must not cost a lease. */
function moreHeaders(headers) {
	try {
		const all = Object.entries((typeof headers === "function" ? headers() : headers) ?? {});
		return Object.fromEntries(all.filter(([name, value]) => /^[\w!#$%&'*+.^`|~-]+$/.test(name)
			&& !OWN.has(name.toLowerCase()) && typeof value === "string" && /^[\t -~]*$/.test(value)));
	} catch {
		return {};
	}
}

/** Another server is to be asked. For a lease, an error is decisive only if it says that the lease is over. */
function failed(ask, answer) {
	if (ask.once && answer.sent) return false;
	if (answer.parts) return answer.parts.every((part) => failed(ask, part));
	return ask.ofLease ? (answer.status === 0 || answer.status >= 400) && !answer.final : answer.unavailable;
}

function checkToken(token, where) {
	if (!/^[!-~]+$/.test(token)) throw new TypeError(`${where} has characters that none has`);
	return token;
}

function readToken(file) { return checkToken(fs.readFileSync(file, "utf8").trim(), `the token in ${file}`); }

/** The files for HTTPS, as of now: others replace them there. If they cannot be used, what was read last counts. */
class SecureFiles {
	#files;
	#seen;
	#context;

	constructor(...files) {
		this.#files = files;
		this.#read();
	}

	#read() {
		const stats = this.#files.map((file) => file && fs.statSync(file));
		const seen = stats.map((file) => file && `${file.ino} ${file.mtimeMs} ${file.size}`).join();
		if (seen === this.#seen) return;
		const [ca, cert, key] = this.#files.map((file) => file && fs.readFileSync(file));
		this.#context = tls.createSecureContext({ ca, cert, key });
		this.#seen = seen;
	}

	get context() {
		try {
			this.#read();
		} catch {
			// only one of two files is new
		}
		return this.#context;
	}
}

/**
 * The servers of a client, its log and its renewals. An ask is `{ method, path, timeout, body, headers, waits, once,
 * ofLease, wrong, checks }`. `waits`: the server may wait before it answers; `once`: it must not be carried out twice;
 * `ofLease`: it extends or releases; `wrong(body)`: the member of a lease that does not fit the request; `checks`: such
 * a function for each lease of a request for several.
 */
class Servers {
	#all; // the first one is in use
	#more; // headers of the program
	#token; // the key, or the last one of the file
	#tokenFile;

	constructor(urls, { key = null, tokenFile = null, timeout = 5000, ca, certificate = [], headers, logger }) {
		const addresses = (typeof urls === "string" ? [urls] : [...urls]).map((url) => parseAddress(url));
		Object.assign(this, { count: addresses.length, timeout, log: new Log(logger), renewals: new Renewals(this) });
		if (this.count === 0) throw new RangeError("no server is given");
		if (!(timeout > 0 && timeout <= TIMEOUT_MAX)) throw new RangeError("timeout must be from 1 to 3600000");
		if (key !== null && tokenFile !== null) throw new TypeError("key and tokenFile: one of them only");
		this.#token = key !== null ? checkToken(key, "the key") : tokenFile && readToken(tokenFile);
		this.#tokenFile = tokenFile;
		this.#more = headers;
		const secure = addresses.some((address) => address.tls) && new SecureFiles(ca, ...certificate);
		this.#all = addresses.map((address) => new Server(address, secure));
	}

	/**
	 * Asks the server in use, or the next one that is not in `asked`, and adds it. Never rejects: an aborted signal
	 * closes the connection, and no answer came.
	 */
	async ask(ask, signal, asked = new Set()) {
		const server = this.#all.find((one) => !asked.has(one));
		asked.add(server);
		const answer = await this.#exchange(server, ask, signal, ask.once);
		const leaves = failed(ask, answer) && !answer.queued && !signal?.aborted && this.#all[0] === server;
		if (leaves) this.#all.push(this.#all.shift());
		return answer;
	}

	/** Asks each server once, until one decides. */
	async askEach(ask, asked = new Set()) {
		const answer = await this.ask(ask, undefined, asked);
		return failed(ask, answer) && asked.size < this.count ? this.askEach(ask, asked) : answer;
	}

	/** The file may be replaced at any time. One that cannot be read leaves the last token. */
	#headers() {
		try {
			if (this.#tokenFile !== null) this.#token = readToken(this.#tokenFile);
		} catch (error) {
			this.log.warn(error.message);
		}
		const authorization = this.#token !== null && { Authorization: `Bearer ${this.#token}` };
		return { ...moreHeaders(this.#more), "User-Agent": "redlockd-node", ...authorization };
	}

	/** If there are other servers, one that answers no health check while the request waits is given up. */
	async #exchange(server, ask, signal, once = false) {
		const exchange = new Exchange(server, ask, { connect: this.timeout, headers: this.#headers(), once });
		const limit = setTimeout(() => exchange.giveUp("it does not answer in time"), ask.timeout);
		const endProbes = this.count > 1 && ask.waits && this.#beginProbes(server, exchange);
		const cancel = () => exchange.giveUp("it was cancelled");
		if (signal) setMaxListeners(0, signal); // one signal may end many requests: that is no leak
		signal?.addEventListener("abort", cancel);
		const answer = await exchange.answer;
		signal?.removeEventListener("abort", cancel);
		clearTimeout(limit);
		if (endProbes) endProbes();
		return answer;
	}

	/** Asks for the health of the server at which an exchange waits. Returns a function that ends it. */
	#beginProbes(server, exchange) {
		const ended = new AbortController();
		const ask = { method: "GET", path: "/healthz", timeout: this.timeout };
		const timer = setInterval(async () => {
			const answer = await this.#exchange(server, ask, ended.signal, true);
			if (answer.status === 0) exchange.giveUp("it does not answer health checks");
		}, this.timeout);
		return () => {
			clearInterval(timer);
			ended.abort();
		};
	}
}

module.exports = { Servers };
