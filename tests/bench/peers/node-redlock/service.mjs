// SPDX-License-Identifier: MIT
// A lock service over HTTP such as one writes oneself with npm's `redlock` and `ioredis`: the same calls as redlockd's, over the same masters.
// `node service.mjs MASTERS HOST:PORT` serves; `node service.mjs MASTERS direct SECONDS PARALLEL` calls the library without HTTP and prints how often as JSON.
import { createServer } from "node:http";
import Redis from "ioredis";
import { ResourceLockedError, ExecutionError } from "redlock";
import redlock from "redlock";

const Redlock = redlock.default ?? redlock;
const [masters, where, seconds, parallel] = process.argv.slice(2);
const locks = new Redlock(masters.split(",").map(master => new Redis(master)), { retryCount: 0 });

function answer(response, status, body) {
	const text = body === undefined ? "" : JSON.stringify(body);
	response.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(text) });
	response.end(text);
}

async function read(request) {
	let text = "";
	for await (const part of request) text += part;
	return JSON.parse(text);
}

async function post(request, response) {
	const { resource, ttl_ms } = await read(request);
	if (typeof resource !== "string" || !Number.isInteger(ttl_ms)) return answer(response, 400, { code: "invalid-request" });
	try {
		const lock = await locks.acquire([resource], ttl_ms);
		answer(response, 201, { resource, token: lock.value, validity_ms: lock.expiration - Date.now() });
	} catch (error) {
		if (!(error instanceof ExecutionError) && !(error instanceof ResourceLockedError)) throw error;
		answer(response, 409, { code: "locked" });
	}
}

async function release(request, response) {
	const resource = decodeURIComponent(request.url.slice("/locks/".length));
	try {
		await locks.release({ resources: [resource], value: request.headers["lock-token"] });
		answer(response, 204);
	} catch {
		answer(response, 410, { code: "lease-expired" });
	}
}

async function one(worker, until) {
	let count = 0;
	for (; performance.now() < until; count++) await locks.acquire([`direct/${process.pid}/${worker}/${count}`], 10000);
	return count;
}

if (where === "direct") {
	const begin = performance.now();
	const counts = await Promise.all(Array.from({ length: Number(parallel) }, (_, worker) => one(worker, begin + seconds * 1000)));
	console.log(JSON.stringify({ acquisitions: counts.reduce((a, b) => a + b), seconds: (performance.now() - begin) / 1000 }));
	process.exit(0);
}
const [host, port] = where.split(":");
createServer((request, response) => {
	const call = request.method === "POST" ? post : request.method === "DELETE" ? release : null;
	if (call === null) return answer(response, 404);
	call(request, response).catch(error => answer(response, 500, { code: String(error) }));
}).listen(Number(port), host);
