// SPDX-License-Identifier: MIT
// Lets a test drive npm's `redlock`, the library that most Node programs use, as another client of the same masters.
//
//   node interop.js PACKAGE SOCKET...
//
// PACKAGE is `redlock` (version 5) or `redlock-4` (version 4). Each line of standard input is a call in JSON, each line of
// standard output its answer:
//
//   {"call":"acquire","resource":"a","ttl":10000}  →  {"ok":true,"lock":0}    several: "resource":["a","b"]
//   {"call":"extend","lock":0,"ttl":10000}         →  {"ok":true}
//   {"call":"release","lock":0}                    →  {"ok":false,"error":"ExecutionError: The operation was unable to …"}
//
// The library never retries here: one call is one answer. It ends when its input does.
"use strict";

const readline = require("node:readline");
const Redis = require("ioredis");

const [name, ...sockets] = process.argv.slice(2);
const library = require(name);
const Redlock = library.default || library;
const clients = sockets.map((path) => new Redis({ path }));
const redlock = new Redlock(clients, { retryCount: 0, driftFactor: 0.01 });
redlock.on("error", () => {}); // the calls report what matters; without a listener it would throw
for (const client of clients) client.on("error", () => {});

const locks = [];

// Version 4 says lock and unlock, version 5 acquire and release; both take a list.
const calls = {
	async acquire({ resource, ttl }) {
		const names = [].concat(resource);
		const lock = await (name === "redlock-4" ? redlock.lock(names, ttl) : redlock.acquire(names, ttl));
		return { lock: locks.push(lock) - 1 };
	},
	async extend({ lock, ttl }) {
		locks[lock] = await locks[lock].extend(ttl);
	},
	async release({ lock }) {
		await (locks[lock].release || locks[lock].unlock).call(locks[lock]);
	},
};

async function main() {
	for await (const line of readline.createInterface({ input: process.stdin })) {
		const request = JSON.parse(line);
		let answer;
		try {
			answer = { ok: true, ...(await calls[request.call](request)) };
		} catch (error) {
			answer = { ok: false, error: `${error.name}: ${error.message}` };
		}
		process.stdout.write(JSON.stringify(answer) + "\n");
	}
	for (const client of clients) client.disconnect();
}

main();
