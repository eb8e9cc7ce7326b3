/* The held locks, a page at a time, from GET /locks. A listing scans the masters, so only the page that is shown is requested. */

const LOCKS_SHOWN = 100;

const view = { prefix: "", cursor: "", next: null };

function locksPath() {
	const query = new URLSearchParams({ limit: LOCKS_SHOWN, prefix: view.prefix });
	if (view.cursor) query.set("cursor", view.cursor);
	return `/locks?${query}`;
}

/* ---- rows ---- */

function createLock() {
	const head = rowHead(), owner = rowCell("", "Owner"), fence = rowCell("number", "Fence"), remaining = rowCell("number remaining", "Remaining");
	const waiters = rowCell("number", "Waiters"), votes = rowCell("number", "Votes"), action = rowCell("action");
	const of = make("span", { class: "unseen" }), button = make("button", { type: "button", class: "small" }, "Release…", of);
	action.append(button);
	const row = make("tr", { role: "row" }, head, owner, fence, remaining, waiters, votes, action);
	row.cells_ = { head, owner, fence, remaining, waiters, votes, of };
	button.addEventListener("click", () => openForce(row.lock, button));
	return row;
}

function updateLock(row, lock) {
	const cells = row.cells_;
	row.lock = lock;
	row.ends = lock.remaining_ms === undefined ? null : performance.now() + lock.remaining_ms;
	sayName(cells.head, lock.resource);
	sayName(cells.owner, lock.owner || "–");
	say(cells.fence, lock.fence === undefined ? "–" : String(lock.fence));
	say(cells.waiters, String(lock.waiters));
	say(cells.votes, `${lock.votes.granted} of ${lock.votes.masters}`);
	say(cells.of, ` ${lock.resource}`);
	tickLock(row);
}

function tickLock(row) {
	const left_ms = row.ends === null ? null : Math.max(0, row.ends - performance.now());
	say(row.cells_.remaining, left_ms === null ? "no expiry" : wordsForSeconds(left_ms / 1000));
	setClass(row, left_ms !== null && left_ms < 2000 ? "lock ending" : "lock");
}

function locksWords(count) {
	if (view.next) return count ? "The next page has more locks." : "No locks on this page. The next page has more.";
	if (count) return view.cursor ? "This is the last page." : `${count} ${count === 1 ? "lock is" : "locks are"} held.`;
	return view.cursor ? "No locks on this page, which is the last one." : view.prefix ? "No lock with this prefix is held." : "No lock is held.";
}

function showLocks({ locks, cursor }) {
	view.next = cursor;
	const unique = new Map(locks.map(lock => [lock.resource, lock])); /* a key that moves during the scan may be listed twice */
	const sorted = [...unique.values()].sort((a, b) => a.resource < b.resource ? -1 : 1);
	syncRows(by("locks"), sorted, lock => lock.resource, createLock, updateLock);
	showPages();
	setClass(by("locks-note"), "note");
	say(by("locks-note"), locksWords(sorted.length));
	followForce(unique);
}

function showPages() {
	for (const [id, wanted] of [["first", Boolean(view.cursor)], ["next", Boolean(view.next)]]) {
		if (!wanted && document.activeElement === by(id)) by("prefix").focus();
		by(id).hidden = !wanted;
	}
}

/* After 403 the rows are removed. After other problems they stay, marked as out of date. */
function failLocks(problem) {
	if (problem.status === 403) forgetLocks(`Refused: ${problem.message}`, "note bad");
	else {
		setClass(by("locks-note"), "note bad");
		say(by("locks-note"), `Not listed: ${problem.message}`);
	}
}

function forgetLocks(words, look = "note") {
	clearRows(by("locks"));
	setClass(by("locks-note"), look);
	say(by("locks-note"), words);
	view.next = null;
	showPages();
}

/* ---- which locks ---- */

function turnPage(cursor) {
	view.cursor = cursor;
	view.next = null;
	pollers.locks.forget();
	pollers.locks.kick();
}

function setPrefix(prefix) {
	if (prefix === view.prefix && !view.cursor) return;
	view.prefix = prefix;
	forgetLocks("Loading…");
	turnPage("");
}

/* Called when a resource is chosen elsewhere on the page. */
function showPrefix(resource) {
	by("prefix").value = resource;
	setPrefix(resource);
	by("locks-title").focus();
	by("locks-title").scrollIntoView();
}
