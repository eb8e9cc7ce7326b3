// SPDX-License-Identifier: MIT
// What a program in TypeScript does with the package, checked by the strictest of compilers.

import { Client, Locked, LockLost, RedlockdError, type AcquireOptions, type Lease, type LockState } from "redlockd";

const [url = "", resource = ""] = process.argv.slice(2);
const client = new Client([url], { logger: console, key: "k", timeout: 5000 });
const options: AcquireOptions = { ttl: 30_000, wait: 60_000, margin: 1000, metadata: { job: 7 }, mode: "shared" };

export const fence: number = await client.using(resource, options, async (lease, signal) => {
	await fetch(url, { signal });
	lease.check();
	return lease.fence;
});
export const text: string = await client.using([resource, `${resource}/b`], () => "done");
export const none: Lease | null = await client.tryAcquire(resource, { slots: 3, signal: AbortSignal.timeout(5000) });

export async function* holders(): AsyncGenerator<LockState> {
	for await (const state of client.watch(resource)) {
		if (state.held && state.votes.granted >= state.votes.needed) yield state;
	}
}

export function explain(error: unknown): string {
	if (error instanceof LockLost) return `${error.code satisfies "lock-lost"}: ${error.reason satisfies string}, ${error.cause?.message}`;
	if (error instanceof Locked) return `${error.problem.holder?.owner} for ${error.problem.retry_after_ms} ms`;
	return error instanceof RedlockdError ? `${error.status} ${error.detail}` : String(error);
}

export async function givesWay(): Promise<boolean> {
	const onWanted = ({ waiters }: Lease): void => console.log(`${waiters satisfies number} wait`);
	const lease = await client.acquire(resource, { atLeast: 10_000, onWanted });
	return lease.release({ keep: 1000 });
}

export async function disposes(): Promise<number> {
	await using lease = await client.acquire(resource);
	return lease.remaining + (lease.slot ?? 0);
}

process.once("SIGTERM", () => client.close().finally(() => process.exit(143)));
export const silent = new Client(url, { logger: null });

// @ts-expect-error no such option
await client.acquire(resource, { waitMs: 5 });
// @ts-expect-error it never waits
await client.tryAcquire(resource, { wait: 5 });
// @ts-expect-error it may be null
none.release();
