// SPDX-License-Identifier: MIT
/* What the caller may do, from GET /whoami. Without an answer the page offers everything, and the service refuses what is not allowed. */

let rights = null;

function mayForce(resource) {
	if (rights === null) return true;
	return rights.rights.includes("admin") && (rights.prefixes || [""]).some(prefix => resource.startsWith(prefix));
}

function showRights(body) {
	rights = body && Array.isArray(body.rights) ? body : null;
	sayName(by("caller"), rights !== null && rights.caller ? rights.caller : "");
	by("caller").hidden = by("caller").textContent === "";
	drawLocks();
	if (one_lock.state !== null && view.lock !== null) by("lock-release").hidden = !one_lock.state.held || !mayForce(view.lock);
}
