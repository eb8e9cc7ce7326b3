// SPDX-License-Identifier: MIT
"use strict";
// One request to one server, and its answer.

const { noAnswer, parseAnswer } = require("./answer.js");

const BODY_MAX = 1 << 20;

/** `answer` is a promise that never rejects. `sent`: the request may have been carried out. */
class Exchange {
	sent = false;
	#server;
	#ask;
	#options;
	#settle;
	#request;
	#connecting;
	#begun; // the answer
	#answer; // it was read to its end
	#over = false;

	/** `connect`: milliseconds for a new connection; `once`: on one of its own, which is closed afterwards. */
	constructor(server, ask, options) {
		this.#server = server;
		this.#ask = ask;
		this.#options = options;
		this.answer = new Promise((resolve) => { this.#settle = resolve; });
		this.#carryOut();
	}

	/** Closes the connection: its answer must not become that of another request. */
	giveUp(why, cause) {
		if (this.#over) return;
		this.#request?.destroy();
		this.#request?.socket?.destroy(); // the request lets go of it once the answer has been read
		this.#finish(this.#answer ?? noAnswer(`${this.#server.url}: ${why}`, this.sent, cause, !this.#request));
	}

	#finish(answer) {
		this.#over = true;
		clearTimeout(this.#connecting);
		this.#settle(answer);
	}

	async #carryOut() {
		const counts = !this.#ask.waits && !this.#options.once;
		if (counts) await this.#server.turn();
		if (!this.#over) this.#send();
		await this.answer;
		if (counts) this.#server.endTurn();
	}

	#send() {
		try {
			const { method, path, body } = this.#ask;
			const content = body === undefined ? "" : JSON.stringify(body);
			const type = content === "" ? {} : { "Content-Type": "application/json" };
			const framing = { "Content-Length": Buffer.byteLength(content), ...type };
			const { headers, once, connect } = this.#options;
			const all = { ...framing, ...headers, ...this.#ask.headers };
			const request = this.#server.request(method, path, all, once);
			this.#listen(request);
			request.end(content);
			if (request.reusedSocket) this.sent = true;
			else this.#connecting = setTimeout(() => this.giveUp("no connection in time"), connect);
		} catch (error) {
			this.giveUp(error.message, error);
		}
	}

	#listen(request) {
		this.#request = request;
		this.#begun = false;
		request.on("socket", (socket) => {
			socket.prependOnceListener("data", () => { this.#begun = true; });
			const connected = this.#server.tls ? "secureConnect" : "connect";
			if (!request.reusedSocket) socket.once(connected, () => this.#connected());
		});
		request.on("response", (response) => this.#read(response));
		request.on("error", (error) => this.#fail(request, error));
		request.on("close", () => this.#close(request));
	}

	#connected() {
		clearTimeout(this.#connecting);
		this.sent = true;
	}

	/** A kept connection that the server has closed meanwhile is no failure of the server. */
	#fail(request, error) {
		if (this.#over || request !== this.#request) return;
		if (!request.reusedSocket || this.#begun) {
			this.giveUp(error.message || error.code, error);
			return;
		}
		this.#server.closeIdle();
		this.#send();
	}

	/** The request is over; right after this, its connection is idle. */
	#close(request) {
		if (this.#over || request !== this.#request) return;
		if (this.#answer) this.#finish(this.#answer);
		else this.giveUp("the connection was closed");
	}

	#read(response) {
		const parts = [];
		let size = 0;
		this.#server.setIdleTime(response.socket, response.headers["keep-alive"]);
		response.on("data", (part) => {
			size += part.length;
			if (size > BODY_MAX) this.giveUp("its body is too long");
			else parts.push(part);
		});
		response.on("end", () => response.complete && this.#evaluate(response, Buffer.concat(parts)));
		response.on("error", (error) => this.giveUp("its answer was cut off", error));
	}

	#evaluate(response, content) {
		try {
			this.#answer = parseAnswer(this.#ask, response, content);
		} catch (error) {
			this.giveUp(error.message);
		}
	}
}

module.exports = { Exchange };
