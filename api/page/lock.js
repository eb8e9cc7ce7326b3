/* One lock, from the event stream of GET /locks?resource=: it has an address of its own, also while nobody holds it.
 *
 * An event tells another holder, not an extension or a waiter: these come from the listing. Where it does not tell, the lock is requested
 * once when it seems to be over. */

const OVER_MS = 1000;

const one_lock = { state: null, asked: false };

const pathOfLock = resource => `/locks?resource=${encodeURIComponent(resource)}`;
const lockPath = () => pathOfLock(view.lock);

/* Another tab is the browser's task. */
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
	by("lock-facts").hidden = by("lock-release").hidden = true;
	by("lock-waiting").hidden = true;
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
	by("lock-facts").hidden = false;
	say(by("lock-state"), state.held ? "held" : "free");
	setClass(by("lock-state"), state.held ? "pill held-pill" : "pill good");
	sayName(by("lock-owner"), !state.held ? "–" : ownerWords(state) || "no owner given");
	sayName(by("lock-caller"), state.caller || "");
	sayName(by("lock-metadata"), state.metadata ? JSON.stringify(state.metadata) : "");
	by("lock-caller-row").hidden = !state.caller;
	by("lock-metadata-row").hidden = !state.metadata;
	sayNames(by("lock-resources"), state.resources || []);
	by("lock-resources-row").hidden = !state.resources;
	say(by("lock-fence"), fenceWords(state) || "–");
	by("lock-release").hidden = !state.held || !mayForce(view.lock);
	showLockWaiters();
	tickOneLock();
}

function failLock(problem) {
	setClass(by("lock-note"), "note bad");
	say(by("lock-note"), problem.status === 403 ? `Refused: ${problem.message}` : `Not known: ${wordsForProblem(problem)}`);
	if (problem.status === 403) by("lock-facts").hidden = by("lock-waiting").hidden = by("lock-release").hidden = true;
}

function tickOneLock() {
	const { state } = one_lock;
	if (state === null) return;
	say(by("lock-held"), state.held ? heldWords(state) : "–");
	say(by("lock-remaining"), state.held ? leftWords(state) : "–");
	const over = state.held && state.ends !== null && performance.now() > state.ends + OVER_MS;
	if (over && !one_lock.asked) askOver(state);
	one_lock.asked = over;
}

async function askOver(state) {
	const found = await ask(lockPath()).catch(() => null);
	if (found !== null && one_lock.state === state) showLock(found);
}

/* What a listing knows of the same holder. */
function updateOneLock(locks) {
	const { state } = one_lock, listed = state !== null && state.held && locks.get(view.lock);
	if (!listed || holderKey(listed) !== holderKey(state)) return;
	Object.assign(state, { ends: listed.ends, waiters: listed.waiters });
	showLockWaiters();
}

/* ---- who waits ---- */

/* The state counts the waiters of all redlockd, /stats knows the first ones of this process. */
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
