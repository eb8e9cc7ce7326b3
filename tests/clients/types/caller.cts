// SPDX-License-Identifier: MIT
// The same for `require`.

import redlockd = require("redlockd");

const client: redlockd.Client = new redlockd.Client("unix:/run/redlockd");

export async function force(resource: string): Promise<boolean> {
	const lease: redlockd.Lease = await client.acquire(resource);
	await client.force(resource, lease.fence);
	try {
		lease.signal.throwIfAborted();
	} catch (error) {
		return error instanceof redlockd.LockLost;
	}
	return lease.release();
}

// @ts-expect-error only a client makes leases
export const lease = new redlockd.Lease();
