// SPDX-License-Identifier: MIT
"use strict";
// One server: its address, its connections, and the turns of the requests that share them.
//
// Requests that do not wait take turns, so that they have at most 16 connections. Requests that wait have one for as
// long as it takes, and all leave it to the next one.

const http = require("node:http");
const https = require("node:https");

const MOST = 16; // requests that do not wait, and idle connections
const HEAD_MAX = 16 << 10;
const IDLE_MS = 5000; // where the server does not say how long it keeps a connection
const idleTime = new WeakMap(); // of a socket: milliseconds after its last answer

/** Nothing was asked on an idle connection: what comes would be taken for the next answer. */
function close() { this.destroy(); }

/** An agent that closes an idle connection before the server does. It keeps no program alive. */
const keeping = (Agent) => class extends Agent {
	constructor() { super({ keepAlive: true, maxFreeSockets: MOST }); }

	keepSocketAlive(socket) {
		const left = idleTime.get(socket) ?? 0;
		socket.unref().setTimeout(left).on("data", close);
		return left > 0;
	}

	reuseSocket(socket, request) {
		super.reuseSocket(socket, request);
		socket.setTimeout(0).off("data", close);
	}
};
const PLAIN = { request: http.request, Agent: keeping(http.Agent) };
const TLS = { request: https.request, Agent: keeping(https.Agent) };

/** The parts of an address: `http://host:port`, `https://host:port/path` or `unix:/path`. */
function parseAddress(text) {
	const socketPath = /^unix:([!-~]+)$/.exec(text)?.[1];
	if (socketPath) return { url: text, tls: false, path: "", address: { socketPath } };
	const url = /^https?:\/\/[!-~]+$/.test(text) ? new URL(text) : {};
	if (!url.hostname || url.username || url.password || url.search || url.hash) {
		const forms = "http://host:port, https://host:port or unix:/path";
		throw new TypeError(`not the address of a server: ${JSON.stringify(text)}: use ${forms}`);
	}
	const tls = url.protocol === "https:";
	const host = url.hostname.replace(/^\[|\]$/g, "");
	// Node 18 would try only the first address of a name
	const address = { host, port: url.port || (tls ? 443 : 80), autoSelectFamily: true };
	return { url: text, tls, path: url.pathname.replace(/\/+$/, ""), address };
}

class Server {
	#path;
	#protocol;
	#agent;
	#options; // of each request
	#secure; // SecureFiles
	#turns = MOST;
	#queue = [];

	/** The first argument is of parseAddress(). */
	constructor({ url, tls, path, address }, secure) {
		Object.assign(this, { url, tls });
		this.#secure = secure;
		this.#path = path;
		this.#protocol = tls ? TLS : PLAIN;
		this.#agent = new this.#protocol.Agent();
		this.#options = { ...address, maxHeaderSize: HEAD_MAX };
		if (tls) this.#options.rejectUnauthorized = true;
	}

	/** Begins a request: on an idle connection if there is one. `once`: on a new one that is closed afterwards. */
	request(method, path, headers, once) {
		const agent = !once && this.#agent;
		const secure = this.tls && { secureContext: this.#secure.context };
		return this.#protocol.request({ ...this.#options, ...secure, method, path: this.#path + path, headers, agent });
	}

	/** `header`: Keep-Alive of the answer that came last. A second is left for the way of the next request. */
	setIdleTime(socket, header = "") {
		const timeout = /\btimeout="?(\d{1,6})/i.exec(header);
		idleTime.set(socket, timeout ? Math.max(0, timeout[1] - 1) * 1000 : IDLE_MS);
	}

	/** The next request has a new connection. */
	closeIdle() {
		for (const socket of Object.values(this.#agent.freeSockets).flat()) socket.destroy();
	}

	async turn() {
		if (this.#turns > 0) this.#turns--;
		else await new Promise((resolve) => { this.#queue.push(resolve); });
	}

	endTurn() {
		const next = this.#queue.shift();
		if (next) next();
		else this.#turns++;
	}
}

module.exports = { Server, parseAddress };
