"use strict";
// One request and its answer, and the address of a server.
//
// Each request has a connection of its own. So closing it ends the request, and no request meets a connection that the
// server has just closed.

const http = require("node:http");
const https = require("node:https");

const errors = require("./errors.js");

const ANSWER_MAX = 4 << 20;
const WITHOUT_CODE = [200, 201, 204, 304];
const BY_CODE = new Map(Object.values(errors).map((kind) => [kind.code, kind]));

/** `status` is 0 where no whole answer of redlockd came; `sent`: the request may have been carried out nevertheless. */
class Answer {
	constructor(status, headers, body, sent = true, cause = undefined) {
		Object.assign(this, { status, headers, body, sent, cause });
	}

	/** Milliseconds; a second where the answer names none. */
	get retryAfter() {
		const value = this.headers["retry-after"] ?? "";
		return /^\d{1,5}$/.test(value) ? Number(value) * 1000 : 1000;
	}

	get error() {
		const { status, body: problem, cause } = this;
		const kind = status ? BY_CODE.get(problem.code) ?? errors.RedlockdError : errors.NoAnswer;
		return new kind(String(problem.detail ?? `status ${status}`), { status, problem, cause });
	}
}

function noAnswer(why, sent, cause) {
	return new Answer(0, {}, { detail: `no answer of redlockd: ${why}` }, sent, cause);
}

/** An answer that was read to its end. It counts only if it is redlockd's: a proxy answers, too. */
function parseAnswer({ statusCode, headers }, content) {
	try {
		const body = content === "" ? {} : JSON.parse(content);
		const object = body !== null && typeof body === "object" && !Array.isArray(body);
		const counts = object && (WITHOUT_CODE.includes(statusCode) || typeof body.code === "string");
		if (counts) return new Answer(statusCode, headers, body);
	} catch { /* it is no JSON */ }
	return noAnswer(`a strange one, status ${statusCode}`, true);
}

/** Where to connect to: `http://host:port`, `https://host:port/path` or `unix:/path`. */
function parseServer(text) {
	if (/^unix:[!-~]+$/.test(text)) return { url: text, path: "", address: { socketPath: text.slice(5) } };
	const url = /^https?:\/\/[!-~]+$/.test(text) ? new URL(text) : {};
	if (!url.hostname || url.username || url.password || url.search || url.hash) {
		throw new TypeError(`not the address of a server: ${JSON.stringify(text)}`);
	}
	const tls = url.protocol === "https:";
	const host = url.hostname.replace(/^\[|\]$/g, "");
	// Node 18 would try only the first address of a name
	const address = { host, port: url.port || (tls ? 443 : 80), autoSelectFamily: true };
	return { url: text, path: url.pathname.replace(/\/+$/, ""), address, tls };
}

/** One request on its way. `answer` is a promise that never rejects. */
class Exchange {
	sent = false;
	#server;
	#request;
	#settle;

	constructor(server, ask, { headers, secureContext }) {
		this.#server = server;
		this.answer = new Promise((resolve) => { this.#settle = resolve; });
		const content = ask.body === undefined ? "" : JSON.stringify(ask.body);
		const type = content === "" ? {} : { "Content-Type": "application/json" };
		const framing = { Connection: "close", "Content-Length": Buffer.byteLength(content), ...type };
		this.#request = (server.tls ? https : http).request({
			...server.address, secureContext, rejectUnauthorized: true, agent: false,
			method: ask.method, path: server.path + ask.path,
			headers: { ...framing, ...headers, ...ask.headers },
		});
		const connected = server.tls ? "secureConnect" : "connect";
		this.#request.on("socket", (socket) => socket.once(connected, () => { this.sent = true; }));
		this.#request.on("response", (response) => this.#read(response));
		this.#request.on("error", (error) => this.giveUp(error.message || error.code, error));
		this.#request.on("close", () => this.giveUp("the connection was closed"));
		this.#request.end(content);
	}

	/** Closes the connection; the answer is none, unless it has come already. */
	giveUp(why, cause) {
		this.#finish(noAnswer(`${this.#server.url}: ${why}`, this.sent, cause));
	}

	#finish(answer) {
		this.#settle(answer);
		this.#request.destroy();
	}

	#read(response) {
		let content = Buffer.alloc(0);
		response.on("data", (part) => {
			content = Buffer.concat([content, part]);
			if (content.length > ANSWER_MAX) this.giveUp("the answer is too long");
		});
		response.on("end", () => response.complete && this.#finish(parseAnswer(response, content.toString())));
		response.on("error", (error) => this.giveUp("the answer was cut off", error));
	}
}

module.exports = { Exchange, parseServer, noAnswer };
