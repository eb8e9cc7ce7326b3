// SPDX-License-Identifier: MIT
/* One lock, from the event stream of GET /locks?resource=: it has its own address, also while nobody holds it.
 *
 * An event reports a new holder, but no extension or waiter: these come from the listing. Without the listing, the lock is requested
 * once when a lease seems to be over. */

const OVER_MS = 1000;
const LOCK_PARTS = ["lock-facts", "lock-next", "lock-holders-box", "lock-waiting", "lock-release"];

const one_lock = { state: null, asked: false };

const pathOfLock = resource => `/locks?resource=${encodeURIComponent(resource)}`;
const lockPath = () => pathOfLock(view.lock);

function makeLockLink(resource) {
	const link = make("a", { class: "lock-link", href: `#${new URLSearchParams({ lock: resource })}` });
	sayTitled(link, resource);
	if (link.querySelector(".cut-end")) link.setAttribute("aria-label", resource); /* read without a space */
	link.addEventListener("click", event => followLock(event, resource));
	return link;
}

/* The browser handles clicks for another tab. */
function followLock(event, resource) {
	if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
	event.preventDefault();
	chooseLock(resource);
}

function chooseLock(resource) {
	changeView({ lock: resource });
	by("lock-title").focus({ preventScroll: true });
	by("lock").scrollIntoView({ block: "nearest" });
}

function restartLock() {
	one_lock.state = null;
	by("lock").hidden = view.lock === null;
	for (const id of LOCK_PARTS) by(id).hidden = true;
	setClass(by("lock-note"), "note");
	say(by("lock-note"), "Loading…");
	for (const row of by("locks").children) tickLock(row);
	pollers.lock.forget();
	pollers.lock.kick(); /* also ends the stream of the last one */
	if (view.lock !== null) sayName(by("lock-name"), view.lock);
}

function showLock(state) {
	one_lock.state = dateLock(state);
	say(by("lock-note"), "");
	by("lock-facts").hidden = by("lock-next").hidden = false;
	say(by("lock-state"), state.kept ? "kept" : state.held ? "held" : "free");
	setClass(by("lock-state"), state.held ? "pill held-pill" : "pill good");
	showOneHolder(state);
	showHolders(state);
	by("lock-release").hidden = !state.held || !mayForce(view.lock);
	showLockWaiters();
	tickOneLock();
}

function showOneHolder(state) {
	for (const name of ["owner", "held", "fence"]) by(`lock-${name}-row`).hidden = Boolean(state.holders);
	sayName(by("lock-owner"), !state.held ? "–" : state.owner || "no owner given");
	say(by("lock-fence"), fenceWords(state) || "–");
	by("lock-caller-row").hidden = !state.caller;
	sayName(by("lock-caller"), state.caller || "");
	by("lock-metadata-row").hidden = !state.metadata;
	sayName(by("lock-metadata"), state.metadata ? JSON.stringify(state.metadata) : "");
	by("lock-resources-row").hidden = !state.resources;
	sayResources(by("lock-resources"), state.resources || []);
}

/* Links from this lock to the other resources of its lease. */
function sayResources(element, resources) {
	const all = JSON.stringify([view.lock, resources]);
	if (element.dataset.all === all) return;
	element.dataset.all = all;
	element.replaceChildren(...resources.map(name =>
		name === view.lock ? make("bdi", { class: "name" }, ...nameNodes(name)) : makeLockLink(name)));
}

/* ---- several holders ---- */

function showHolders({ mode, holders = [], holder_count: count = 0 }) {
	by("lock-count-row").hidden = by("lock-holders-box").hidden = count === 0;
	say(by("lock-count"), `${count}, ${mode === "shared" ? "shared" : "on slots"}`);
	syncRows(by("lock-holders"), holders, ({ fence, slot }) => `${fence} ${slot}`, createHolder, updateHolder);
	for (const name of ["metadata", "caller", "resources"]) showColumn(name, holders.some(holder => holder[name]));
	say(by("lock-unlisted"), count > holders.length ? `${count - holders.length} more, which end later.` : "");
}

/* Columns that few holders have. */
function showColumn(name, wanted) {
	by(`lock-holders-${name}`).hidden = !wanted;
	for (const row of by("lock-holders").children) row.cells_[name].hidden = !wanted;
}

function createHolder() {
	const owner = rowHead(), fence = rowCell("", "Fence"), held = rowCell("times", "Held for"), remaining = rowCell("times", "Remaining");
	const metadata = rowCell("", "Metadata"), caller = rowCell("", "Caller"), resources = rowCell("resources", "Also on");
	const row = make("tr", { role: "row" }, owner, fence, held, remaining, metadata, caller, resources);
	row.cells_ = { owner, fence, held, remaining, metadata, caller, resources };
	return row;
}

function updateHolder(row, holder) {
	const { owner, fence, metadata, caller, resources } = row.cells_;
	row.holder = holder;
	sayName(owner, holder.owner || holder.slot !== undefined ? holderWords(holder) : "no owner given");
	say(fence, fenceWords(holder) || "–");
	sayName(metadata, holder.metadata ? JSON.stringify(holder.metadata) : "");
	sayName(caller, holder.caller || "");
	sayResources(resources, (holder.resources || []).filter(name => name !== view.lock));
	for (const cell of [metadata, caller, resources]) cell.classList.toggle("nothing", cell.textContent === "");
}

function tickHolder(row) {
	say(row.cells_.held, heldWords(row.holder));
	say(row.cells_.remaining, leftWords(row.holder));
}

function failLock(problem) {
	setClass(by("lock-note"), "note bad");
	say(by("lock-note"), problem.status === 403 ? `Refused: ${problem.message}` : `Not known: ${wordsForProblem(problem)}`);
	if (problem.status === 403) for (const id of LOCK_PARTS) by(id).hidden = true;
}

function tickOneLock() {
	const { state } = one_lock;
	if (state === null) return;
	say(by("lock-held"), state.held ? heldWords(state) : "–");
	say(by("lock-remaining"), state.held ? leftWords(state) : "–");
	showExplained(state);
	for (const row of by("lock-holders").children) tickHolder(row);
	const is_over = ({ ends }) => ends !== null && performance.now() > ends + OVER_MS;
	const over = state.held && [state, ...(state.holders || [])].some(is_over);
	if (over && !one_lock.asked) askOver(state);
	one_lock.asked = over;
}

async function askOver(state) {
	const found = await ask(lockPath()).catch(() => null);
	if (found !== null && one_lock.state === state) showLock(found);
}

/* The data of the same holders in a listing. */
function updateOneLock(locks) {
	const { state } = one_lock, listed = state !== null && state.held && locks.get(view.lock);
	if (!listed || !haveSameHolders(listed, state)) return;
	Object.assign(state, { ends: listed.ends, waiters: listed.waiters, votes: listed.votes });
	const ends = new Map((listed.holders || []).map(holder => [holder.fence, holder.ends]));
	for (const holder of state.holders || []) holder.ends = ends.get(holder.fence) ?? holder.ends;
	showLockWaiters();
}

/* ---- waiters ---- */

/* The state counts the waiters of all redlockd, /stats has the first ones of this process. */
function showLockWaiters() {
	const here = waitingFor(view.lock), all = one_lock.state === null ? 0 : one_lock.state.waiters, first = here ? here.first : [];
	say(by("lock-waiters"), String(all));
	by("lock-waiting").hidden = first.length === 0;
	while (by("lock-first").children.length > first.length) by("lock-first").lastElementChild.remove();
	while (by("lock-first").children.length < first.length)
		by("lock-first").append(make("li", {}, make("span", {}), make("span", { class: "soft" })));
	first.forEach(({ owner, waited_ms }, i) => {
		const [name, time] = by("lock-first").children[i].children;
		sayName(name, owner || "no owner given");
		say(time, ` for ${wordsForSeconds(waited_ms / 1000)}`);
	});
	const others = Math.max(all, here ? here.waiters : 0) - first.length;
	say(by("lock-others"), others > 0 ? `${others} more, here or at other redlockd.` : "");
}

function closeLock() {
	const row = [...by("locks").children].find(each => each.dataset.key === view.lock);
	changeView({ lock: null });
	(row ? row.cells_.link : by("locks-title")).focus();
}

function wireLock() {
	by("lock-close").addEventListener("click", closeLock);
	by("lock-release").addEventListener("click", () => openForce(one_lock.state, by("lock-release")));
}
