// SPDX-License-Identifier: MIT
/* The view, as the address of the page stores it: #text=…&prefix=…&sort=-held&lock=…
 *
 * It is after the #, so that it can be shared, and is never sent to a server or written to a log. Code that changes it calls changeView(). */

const SORTS = ["name", "owner", "held", "remaining", "waiters", "fence", "votes"];

const view = { text: "", prefix: "", sort: "name", down: false, lock: null };

function readView(hash) {
	const given = new URLSearchParams(hash.includes("=") ? hash.slice(1) : ""), sort = given.get("sort") || "name";
	const known = SORTS.includes(sort.replace(/^-/, ""));
	return {
		text: given.get("text") || "", prefix: given.get("prefix") || "", lock: given.get("lock") || null,
		sort: known ? sort.replace(/^-/, "") : "name", down: known && sort.startsWith("-"),
	};
}

function hashOf({ text, prefix, sort, down, lock }) {
	const words = new URLSearchParams();
	if (text) words.set("text", text);
	if (prefix) words.set("prefix", prefix);
	if (sort !== "name" || down) words.set("sort", (down ? "-" : "") + sort);
	if (lock !== null) words.set("lock", lock);
	return words.size ? `#${words}` : "";
}

/* Another lock gets an entry in the history of the browser; a filter or an order gets none. */
function changeView(changes) {
	const stays = changes.lock === undefined || changes.lock === view.lock;
	const address = hashOf({ ...view, ...changes }) || location.pathname;
	if (stays) history.replaceState(null, "", address);
	else history.pushState(null, "", address);
	applyView({ ...view, ...changes });
}

function applyView(next) {
	const prefix_changed = next.prefix !== view.prefix, lock_changed = next.lock !== view.lock;
	Object.assign(view, next);
	for (const name of ["text", "prefix"]) if (by(name).value !== view[name]) by(name).value = view[name];
	showSort();
	if (prefix_changed) restartLocks();
	else drawLocks();
	if (lock_changed) restartLock();
}

/* A link within the page moves the focus and leaves the address alone. */
function jumpTo(event) {
	const target = by(event.currentTarget.getAttribute("href").slice(1));
	event.preventDefault();
	target.focus({ preventScroll: true });
	target.scrollIntoView();
}

function wireView() {
	window.addEventListener("popstate", () => applyView(readView(location.hash)));
	for (const link of document.querySelectorAll("nav a, .skip")) link.addEventListener("click", jumpTo);
}
