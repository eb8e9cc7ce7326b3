// SPDX-License-Identifier: MIT
/* When the page sends which request, and what it shows without an answer.
 *
 * /masters is requested most often, since it costs the masters nothing and shows whether the service is reachable. While it is not, nothing
 * else is requested. Nothing is requested while the page is hidden, or while a key is missing. */

const MASTERS_MS = 500, STATS_MS = 1000, LOCKS_MS = 2000, LOCK_MS = 1000, RIGHTS_MS = 30000, TICK_MS = 100, CALM_TICK_MS = 1000;
const STALE_MS = 2500, LOCKS_STALE_MS = 6000; /* older data is marked as out of date */

let locked_out = false;  /* a key is required */
let reachable = false;   /* the last request of /masters was answered */
let away = null;         /* the problem of that request; null: it was answered */
let resumed = -Infinity; /* when the page was shown last: data is old then without being late */

const maySend = () => !document.hidden && !locked_out;
const mayFollow = () => maySend() && reachable && view.lock !== null;

const pollers = {
	masters: new Poller({ path: () => "/masters", every_ms: MASTERS_MS, may: maySend, shown: showReachable, failed: failMasters }),
	stats: new Poller({ path: () => "/stats", every_ms: STATS_MS, may: () => maySend() && reachable, shown: showStats, failed: orKey(failStats) }),
	locks: new Poller({ path: locksPath, every_ms: LOCKS_MS, may: () => maySend() && reachable, shown: showLocks, failed: orKey(failLocks), load: loadLocks }),
	lock: new Follower({ path: lockPath, every_ms: LOCK_MS, may: mayFollow, shown: showLock, failed: orKey(problem => mayFollow() && failLock(problem)), back: () => say(by("lock-note"), "") }),
	rights: new Poller({ path: () => "/whoami", every_ms: RIGHTS_MS, may: () => maySend() && reachable, shown: showRights, failed: orKey(() => showRights(null)) }),
};

function kickAll() {
	for (const poller of Object.values(pollers)) poller.kick();
}

/* ---- reachable, away ---- */

function showReachable(body) {
	if (!reachable) returnFromAway();
	showMasters(body);
}

function returnFromAway() {
	if (away !== null) announce("redlockd can be reached again.");
	away = null;
	reachable = true;
	for (const name of ["stats", "locks", "lock", "rights"]) pollers[name].kick();
}

function failMasters(problem) {
	if (problem.status === 401) {
		needKey(problem);
		return;
	}
	if (away === null) announce(`${problem.message} The data shown is out of date.`);
	away = problem;
	reachable = false;
	pollers.lock.kick();
	if (pollers.masters.answered === null) forgetMasters(problem.message);
}

function failStats(problem) {
	if (problem.status === 403) forgetStats(`Refused: ${problem.message}`);
	else say(by("stats-note"), problem.message);
}

/* What to do about a problem, unless a key is missing. */
function orKey(failed) {
	return problem => problem.status === 401 ? needKey(problem) : failed(problem);
}

/* ---- the key ---- */

/* Removes all that was shown to another caller. */
function forgetAll(words) {
	for (const poller of Object.values(pollers)) poller.forget();
	reachable = false;
	forgetMasters(words);
	forgetStats(words);
	forgetLocks(words);
	restartLock();
	showRights(null);
}

function showKeyCard(wanted) {
	by("key").hidden = !wanted;
	by("all").hidden = by("nav").hidden = wanted;
}

function showKeyForm(title, why, wrong) {
	showKeyCard(true);
	say(by("key-title"), title);
	say(by("key-why"), why);
	setClass(by("key-why"), wrong ? "bad-text" : "");
	by("key-input").setAttribute("aria-invalid", String(wrong));
	by("forget").hidden = key.get() === null;
}

function needKey(problem) {
	const wrong = key.get() !== null;
	if (locked_out) return;
	locked_out = true;
	away = null;
	if (by("force").open) by("force").close();
	forgetAll("Authentication required.");
	const asks_key = !wrong && problem.message.includes("Authorization"); /* not for a client certificate */
	showKeyForm(wrong ? "Key rejected" : "Authentication required", asks_key ? "Enter your API key." : problem.message, wrong);
	announce(`${by("key-title").textContent}. ${by("key-why").textContent}`);
	by("key-input").focus();
}

function useKey(event) {
	event.preventDefault();
	const value = by("key-input").value.trim();
	by("key-input").value = "";
	if (!/^[\x21-\x7e]+$/.test(value)) {
		showKeyForm("Invalid key", "A key consists of visible ASCII characters without spaces.", true);
		return;
	}
	key.set(value);
	showKeyCard(false);
	by("forget").hidden = false;
	locked_out = false;
	by("main").focus();
	kickAll();
	askVersion();
}

function forgetKey() {
	key.forget();
	by("forget").hidden = true;
	locked_out = false;
	showKeyCard(false);
	say(by("version"), "");
	forgetAll("Loading…");
	by("main").focus();
	kickAll();
}

/* ---- data that is out of date ---- */

function showAge(poller, id, stale_ms) {
	const age_ms = poller.age_ms(), stale = age_ms !== null && age_ms > stale_ms;
	say(by(id), stale ? `as of ${wordsForWholeSeconds(age_ms / 1000)} ago` : "");
	const section = by(id).closest("section");
	if (section.classList.contains("stale") !== stale) section.classList.toggle("stale", stale);
	return stale;
}

function liveWords(stale) {
	if (locked_out) return ["Key required", "wait"];
	if (document.hidden) return ["Paused", "wait"];
	if (away !== null) {
		const left = Math.max(0, Math.ceil((pollers.masters.due - performance.now()) / 1000));
		return [`${away.message} ${pollers.masters.running ? "Trying…" : `Next attempt in ${left} s.`}`, "away"];
	}
	if (stale) return ["No answer: the data shown is out of date", "away"];
	return pollers.masters.answered === null ? ["Loading…", "wait"] : ["Live", "on"];
}

function showLive() {
	const stale = showAge(pollers.masters, "masters-age", STALE_MS), [words, look] = liveWords(stale);
	say(by("live-text"), words);
	setClass(by("live"), `live ${look}`);
	by("retry").hidden = away === null && document.activeElement !== by("retry");
	if (stale) showOldQuorum(pollers.masters.age_ms());
	const old_stats = showAge(pollers.stats, "stats-age", STALE_MS);
	for (const id of ["queues", "hot"]) by(id).classList.toggle("stale", old_stats);
	showAge(pollers.lock.stream ? pollers.masters : pollers.lock, "lock-age", STALE_MS);
	showAge(pollers.locks, "locks-age", Math.max(LOCKS_STALE_MS, 2 * pollers.locks.pause_ms()));
}

/* The present quorum is unknown: the last text stays, with its age. */
function showOldQuorum(age_ms) {
	setClass(by("quorum"), "quorum unknown stale");
	say(by("quorum-mark"), "?");
	if (!by("quorum-text").textContent.startsWith("Last known: ")) say(by("quorum-text"), `Last known: ${by("quorum-text").textContent}`);
	by("mini").hidden = true;
	say(by("quorum-title"), `Unknown: no answer for ${wordsForWholeSeconds(age_ms / 1000)}`);
	document.title = "? no answer · redlockd";
}

/* ---- the clock: numbers that change between answers ---- */

function tick() {
	const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
	if (!document.hidden) {
		if (performance.now() - resumed > 1000) showLive();
		for (const row of by("masters").children) tickMaster(row);
		for (const row of by("waiting").children) tickWaiting(row);
		for (const row of rows_seen) tickLock(row);
		tickOneLock();
	}
	setTimeout(tick, calm ? CALM_TICK_MS : TICK_MS);
}

async function askVersion() {
	try {
		const { version, commit } = await ask("/version");
		say(by("version"), `redlockd ${version} (${commit.slice(0, 12)})`);
	} catch (problem) {
		if (!(problem instanceof Problem)) throw problem; /* the version is not essential */
	}
}

function wire() {
	by("retry").addEventListener("click", () => pollers.masters.kick());
	by("key-form").addEventListener("submit", useKey);
	by("forget").addEventListener("click", forgetKey);
	document.addEventListener("visibilitychange", () => {
		resumed = performance.now();
		kickAll();
	});
	wireView();
	wireLocks();
	wireLock();
	wireForce();
}

buildStats();
for (const id of ["masters", "waiting", "hottest", "locks"]) clearRows(by(id));
by("plots").hidden = by("now").hidden = true;
by("forget").hidden = key.get() === null;
wire();
applyView(readView(location.hash));
restartLock();
kickAll();
askVersion();
tick();
