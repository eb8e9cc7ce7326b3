// SPDX-License-Identifier: MIT
/* The held locks, from GET /locks: all of them up to a limit, filtered and sorted here, so that a filter finds text anywhere in a name or an owner.
 *
 * A listing scans the masters. So the longer it takes, the longer is the pause after it. */

const LOCKS_PAGE = 1000, LOCKS_MOST = 5000, ROWS_STEP = 200;

const listing = { locks: [], more: false, rows: ROWS_STEP, known: false };

const locksPath = () => `/locks?${new URLSearchParams({ limit: LOCKS_PAGE, prefix: view.prefix })}`;

/* A page may be short or empty and still not be the last: only the cursor shows whether it is. */
async function loadLocks(path, most = LOCKS_MOST) {
	const found = new Map(); /* a key that moves during the scan may be listed twice */
	const { prefix } = view;
	let cursor = null;
	do {
		const body = await ask(cursor === null ? path : `${path}&cursor=${encodeURIComponent(cursor)}`);
		for (const lock of body.locks) found.set(lock.resource, lock);
		cursor = body.cursor;
	} while (cursor !== null && found.size < most && view.prefix === prefix);
	return { locks: [...found.values()], more: cursor !== null };
}

/* ---- rows ---- */

/* The rows in the window. The others keep their last times until they are visible, to save work. */
const rows_seen = new Set();

const row_observer = new IntersectionObserver(entries => {
	for (const { target, isIntersecting } of entries) {
		if (isIntersecting) tickLock(target);
		rows_seen[isIntersecting ? "add" : "delete"](target);
	}
});

function createLock(lock) {
	const head = rowHead(), link = makeLockLink(lock.resource), owner = rowCell("owner"), held = rowCell("number held");
	const remaining = rowCell("number remaining"), waiters = rowCell("number waiters"), fence = rowCell("number fence"), votes = rowCell("number votes");
	const action = rowCell("action"), of = make("span", { class: "unseen" }, ` ${lock.resource}`), button = make("button", { type: "button", class: "small quiet" }, "Release…", of);
	head.append(link);
	action.append(button);
	const row = make("tr", { role: "row" }, head, owner, held, remaining, waiters, fence, votes, action);
	row.cells_ = { link, owner, held, remaining, waiters, fence, votes, button };
	button.addEventListener("click", () => openForce(row.lock, button));
	row.lock = lock;
	tickLock(row);
	row_observer.observe(row);
	return row;
}

function updateLock(row, lock) {
	const cells = row.cells_;
	row.lock = lock;
	const owner = ownerWords(lock);
	if (owner) sayTitled(cells.owner, owner, lock.holders ? nameNodes : cutNodes);
	else {
		sayName(cells.owner, "–");
		cells.owner.removeAttribute("title");
	}
	say(cells.waiters, wordsForNumber(lock.waiters));
	say(cells.fence, lock.holders ? "" : fenceWords(lock) || "–");
	sayVotes(cells.votes, lock.votes);
	if (cells.button.hidden === mayForce(lock.resource)) cells.button.hidden = !cells.button.hidden;
	if (rows_seen.has(row)) tickLock(row);
}

/* While a lock is not on all masters, none of the masters with it must be restarted. */
function sayVotes(cell, { granted, masters }) {
	say(cell, `${granted} of ${masters}`);
	setClass(cell, granted < masters ? "number votes few" : "number votes");
	if (granted < masters) cell.title = "Some masters do not have this lock: they were away, slow or restarted when it was acquired or extended. The next extension gives it back to those that vote.";
	else cell.removeAttribute("title");
}

const heldWords = lock => lock.held_ms === undefined ? "–" : wordsForSeconds((performance.now() - lock.began) / 1000);
const leftMs = lock => lock.ends === null ? null : Math.max(0, lock.ends - performance.now());

/* Whether a lease that has come to its end was extended is unknown until the next answer. */
function leftWords(lock) {
	if (lock.ends === null) return "no end";
	return leftMs(lock) === 0 ? "checking…" : wordsForSeconds(leftMs(lock) / 1000);
}

function tickLock(row) {
	const left_ms = leftMs(row.lock);
	say(row.cells_.held, heldWords(row.lock));
	say(row.cells_.remaining, leftWords(row.lock));
	setClass(row, (left_ms === 0 ? "lock over" : left_ms !== null && left_ms < 2000 ? "lock ending" : "lock") + (row.lock.resource === view.lock ? " chosen" : ""));
}

/* Converts relative times to times of this browser's clock. */
function dateLock(lock) {
	for (const lease of [lock, ...(lock.holders || [])]) {
		lease.ends = lease.remaining_ms === undefined ? null : performance.now() + lease.remaining_ms;
		lease.began = performance.now() - lease.held_ms;
	}
	return lock;
}

/* ---- the holders of a lock: one, or several together ---- */

const HOLDERS_NAMED = 5;

const holderWords = ({ owner, slot }) => (owner || "no owner") + (slot === undefined ? "" : ` on slot ${slot}`);

function ownerWords({ owner, holders, holder_count: count }) {
	if (!holders) return owner;
	const names = holders.slice(0, HOLDERS_NAMED).map(holderWords);
	const more = count > names.length ? [`${count - names.length} more`] : [];
	return `${count === 1 ? "1 holder" : `${count} holders`}: ${[...names, ...more].join(", ")}`;
}

/* A listing has three of many holders, the answer about one lock a hundred: those that end first. If neither has all of
 * them, only their number is compared. */
function haveSameHolders(a, b) {
	if (!a.holders || !b.holders) return !a.holders && !b.holders && a.fence === b.fence;
	const [some, more] = [a.holders, b.holders].sort((one, other) => one.length - other.length);
	const fences = new Set(more.map(({ fence }) => fence));
	return a.holder_count === b.holder_count && (more.length < b.holder_count || some.every(({ fence }) => fences.has(fence)));
}

function fenceWords({ fence, holders }) {
	return holders ? "one for each holder" : fence === undefined ? "" : String(fence);
}

/* ---- filter and order ---- */

const VALUES = {
	name: lock => lock.resource, owner: lock => ownerWords(lock) || null, held: lock => lock.held_ms ?? null,
	remaining: lock => lock.ends ?? Infinity, waiters: lock => lock.waiters, fence: lock => lock.fence ?? null, votes: lock => lock.votes.granted,
};

/* Rows without a value come last in both orders; equal rows are ordered by name. */
function compareLocks(a, b) {
	const [one, other] = [VALUES[view.sort](a), VALUES[view.sort](b)], by_name = a.resource < b.resource ? -1 : 1;
	if (one === other) return by_name;
	if (one === null || other === null) return one === null ? 1 : -1;
	return (one < other ? -1 : 1) * (view.down ? -1 : 1);
}

function matches(lock) {
	const text = view.text.toLowerCase();
	return lock.resource.toLowerCase().includes(text) || (ownerWords(lock) || "").toLowerCase().includes(text);
}

function locksWords(shown, all) {
	const held = all === 1 ? "1 lock is held" : `${all} locks are held`;
	if (listing.more) return `${shown} shown of the first ${all} locks. There are more: say how the names begin.`;
	if (all === 0) return view.prefix ? "No lock that begins so is held." : "No lock is held.";
	if (view.text && shown === 0) return `No lock matches. ${held}.`;
	return shown < all ? `${shown} of ${all} locks shown.` : `${held}.`;
}

function drawLocks() {
	if (!listing.known) return;
	const found = (view.text ? listing.locks.filter(matches) : [...listing.locks]).sort(compareLocks), rows = found.slice(0, listing.rows);
	syncRows(by("locks"), rows, lock => lock.resource, createLock, updateLock);
	if (found.length <= rows.length && document.activeElement === by("more")) by("locks-title").focus();
	by("more").hidden = found.length <= rows.length;
	setClass(by("locks-note"), "note");
	say(by("locks-note"), locksWords(rows.length, listing.locks.length));
	by("empty").hidden = listing.locks.length > 0 || listing.more || view.prefix !== "";
	if (!by("empty").hidden) say(by("empty-line"), curlLine());
}

function showLocks({ locks, more }) {
	Object.assign(listing, { locks: locks.map(dateLock), more, known: true });
	drawLocks();
	const by_name = new Map(locks.map(lock => [lock.resource, lock]));
	followForce(by_name);
	updateOneLock(by_name);
}

/* After 403 the rows are removed. After other problems they stay, marked as out of date. */
function failLocks(problem) {
	if (problem.status === 403) forgetLocks(`Refused: ${problem.message}`, "note bad");
	else {
		setClass(by("locks-note"), "note bad");
		say(by("locks-note"), `Not listed: ${wordsForProblem(problem)}`);
	}
}

function forgetLocks(words, look = "note") {
	Object.assign(listing, { locks: [], more: false, rows: ROWS_STEP, known: false });
	clearRows(by("locks"));
	by("more").hidden = by("empty").hidden = true;
	setClass(by("locks-note"), look);
	say(by("locks-note"), words);
}

function restartLocks() {
	forgetLocks("Loading…");
	pollers.locks.forget();
	pollers.locks.kick();
}

/* ---- the order, in the heads of the columns ---- */

function showSort() {
	for (const head of document.querySelectorAll("#locks-box th[data-sort]")) {
		const order = head.dataset.sort !== view.sort ? null : view.down ? "descending" : "ascending";
		if (order) head.setAttribute("aria-sort", order);
		else head.removeAttribute("aria-sort");
	}
}

/* The first click sorts names upwards, numbers downwards. */
function sortBy(name) {
	const first_down = name !== "name" && name !== "owner";
	changeView({ sort: name, down: name === view.sort ? !view.down : first_down });
}

/* ---- an empty service ---- */

function curlLine() {
	const header = key.get() === null ? "" : ' -H "Authorization: Bearer $REDLOCKD_KEY"';
	return `curl${header} -d '{"resource":"hello","owner":"me"}' ${location.origin}/locks`;
}

async function copyLine() {
	getSelection().selectAllChildren(by("empty-line"));
	let copied = true;
	try {
		await navigator.clipboard.writeText(by("empty-line").textContent);
	} catch {
		copied = false; /* not over plain HTTP from elsewhere: the line is selected */
	}
	announce(copied ? "Copied." : "The line is selected.");
	say(by("copy"), copied ? "Copied" : "Selected");
	setTimeout(() => say(by("copy"), "Copy"), 2000);
}

function wireLocks() {
	let typed = 0;
	by("text").addEventListener("input", () => changeView({ text: by("text").value }));
	by("prefix").addEventListener("input", () => {
		clearTimeout(typed);
		typed = setTimeout(() => changeView({ prefix: by("prefix").value }), 200);
	});
	by("filter").addEventListener("submit", event => {
		event.preventDefault();
		changeView({ prefix: by("prefix").value });
	});
	for (const head of document.querySelectorAll("#locks-box th[data-sort]"))
		head.querySelector("button").addEventListener("click", () => sortBy(head.dataset.sort));
	by("more").addEventListener("click", () => {
		listing.rows += ROWS_STEP;
		drawLocks();
	});
	by("copy").addEventListener("click", copyLine);
}
