// SPDX-License-Identifier: MIT
// The driver of the library for Node: tests/clients/driver.py has its protocol.

import { randomBytes } from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import https from "node:https";
import readline from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

import { Client, RedlockdError } from "../../../clients/node/lib/index.js";

const OPTIONS = ["ttl", "wait", "margin", "owner", "metadata", "mode", "slots"];
const CLIENT = ["key", "owner", "timeout", "ca", "certificate"];
const TIMES = new Set(["ttl", "wait", "margin", "timeout", "at_least", "keep"]);
const clients = new Map();
const leases = new Map();
const wanted = new Map(); // how often the callback of a lease was called
let interruption = new AbortController();

class Raised extends Error {} // by a block

function say(command, answer) {
	process.stdout.write(`${JSON.stringify({ id: command.id, ...answer })}\n`);
}

function errorOf(error) {
	if (error instanceof RedlockdError) {
		return { code: error.code, detail: error.detail, status: error.status, cause: error.reason };
	}
	const code = error instanceof Raised ? "raised" : error.name === "AbortError" ? "interrupted" : "other";
	return { code, detail: error.stack, status: 0 };
}

function given(command, names) {
	const there = names.filter((name) => command[name] !== undefined && command[name] !== null);
	return Object.fromEntries(there.map((name) => [name, TIMES.has(name) ? command[name] * 1000 : command[name]]));
}

function granted({ fence, remaining, slot }) {
	return { fence, remaining: remaining / 1000, slot };
}

/** Nobody else may do so at the same time. */
async function addOne(file) {
	const number = Number(fs.readFileSync(file, "utf8"));
	await pause(1);
	fs.writeFileSync(file, String(number + 1));
}

function lost({ signal }, seconds) {
	if (signal.aborted) {
		return true;
	}
	return new Promise((resolve) => {
		const timer = setTimeout(() => resolve(signal.aborted), seconds * 1000).unref();
		signal.addEventListener("abort", () => resolve(true) ?? clearTimeout(timer), { once: true });
	});
}

function acquireOptions(command) {
	const options = given(command, OPTIONS);
	options.atLeast = given(command, ["at_least"]).at_least;
	options.onWanted = () => {
		wanted.set(command.lease, (wanted.get(command.lease) ?? 0) + 1);
		throw new Raised();
	};
	if (command.interruptible) {
		interruption = new AbortController();
		options.signal = interruption.signal;
	}
	return options;
}

async function block(client, command) {
	return client.using(command.resource, acquireOptions(command), async (lease) => {
		leases.set(command.lease, lease);
		await new Promise((resolve) => setTimeout(resolve, (command.seconds ?? 0) * 1000));
		if (command.until_lost) {
			await lost(lease, 3600);
		}
		if (command.raise) {
			throw new Raised();
		}
		return { fence: lease.fence };
	});
}

async function count(client, command) {
	const fences = [];
	for (let left = command.times; left > 0; left--) {
		await client.using(command.resource, given(command, OPTIONS), async ({ fence }) => {
			await addOne(command.file);
			fences.push(fence);
		});
	}
	return { fences };
}

async function watch(client, command) {
	let left = command.count;
	for await (const state of client.watch(command.resource)) {
		if (--left === 0) {
			return { state };
		}
		say(command, { state, more: true });
	}
	throw new Error("the watch has ended");
}

async function pairs(client, { resource, times }) {
	const begun = performance.now();
	for (let left = times; left > 0; left--) {
		const lease = await client.tryAcquire(resource);
		await lease.release();
	}
	return { milliseconds: (performance.now() - begun) / times };
}

/** One request on the connection that the agent keeps, and the object that answers it, if one does. */
function send(agent, url, method, body, headers) {
	return new Promise((resolve, reject) => {
		const { request } = url.startsWith("https") ? https : http;
		const content = JSON.stringify(body);
		const framing = { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(content) };
		const how = { agent, method, headers: { ...framing, ...headers } };
		const sent = request(`${url}/locks`, how, (response) => {
			const parts = [];
			response.on("data", (part) => parts.push(part));
			response.on("end", () => resolve(JSON.parse(Buffer.concat(parts).toString() || "null")));
		});
		sent.on("error", reject).end(content);
	});
}

/** The requests of the library: with the key, which costs the server something. */
async function bare(_, { server, ca, resource, times }) {
	const how = { keepAlive: true, maxSockets: 1 };
	const agent = ca ? new https.Agent({ ...how, ca: fs.readFileSync(ca) }) : new http.Agent(how);
	const begun = performance.now();
	for (let left = times; left > 0; left--) {
		const key = { "Idempotency-Key": randomBytes(16).toString("hex") };
		const { token } = await send(agent, server, "POST", { resource, wait_ms: 0 }, key);
		await send(agent, server, "DELETE", { resource }, { "Lock-Token": token });
	}
	const milliseconds = (performance.now() - begun) / times;
	agent.destroy();
	return { milliseconds };
}

const DO = {
	client: (_, command) => {
		const headers = command.headers && { headers: () => command.headers };
		const more = { ...headers, tokenFile: command.token_file };
		clients.set(command.client, new Client(command.servers, { ...given(command, CLIENT), ...more }));
	},
	acquire: async (client, command) => {
		const call = command.try ? "tryAcquire" : "acquire";
		const lease = await client[call](command.resource, acquireOptions(command));
		leases.set(command.lease, lease);
		return lease ? granted(lease) : { held: false };
	},
	interrupt: () => interruption.abort(),
	block,
	check: (_, { lease }) => leases.get(lease).check(),
	remaining: (_, { lease }) => ({ remaining: leases.get(lease).remaining / 1000 }),
	lost: async (_, { lease, timeout }) => ({ lost: await lost(leases.get(lease), timeout) }),
	waiters: (_, { lease }) => ({ waiters: leases.get(lease).waiters, wanted: wanted.get(lease) ?? 0 }),
	release: async (_, command) => ({ released: await leases.get(command.lease).release(given(command, ["keep"])) }),
	count,
	watch,
	force: (client, { resource, fence }) => client.force(resource, fence ?? undefined),
	pairs,
	bare,
	time: () => ({ time: Date.now() / 1000 }),
};

async function carryOut(line) {
	const command = JSON.parse(line);
	try {
		const answer = await DO[command.do](clients.get(command.client), command);
		if (command.do !== "interrupt") {
			say(command, answer);
		}
	} catch (error) {
		say(command, { error: errorOf(error) });
	}
}

// at the end of the input nothing is left to do: the program ends, and the library releases what it holds
readline.createInterface({ input: process.stdin }).on("line", carryOut);
