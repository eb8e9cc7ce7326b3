// SPDX-License-Identifier: MIT
/* Activity, queues and the hottest resources, from GET /stats: this process alone. */

const TILES = [
	["in_flight", "In flight"], ["queued", "Waiting for masters"], ["waiters", "Waiters"], ["holds", "Held by connection"], ["connections", "Connections"],
	["workers", "Workers"],
];

const sum = (...lists) => lists[0].map((value, i) => lists.reduce((total, list) => total + list[i], 0));
const perSecond = (list, interval_ms) => list.map(count => count * 1000 / interval_ms);
const inMs = list => list.map(us => us === null ? null : us / 1000);

/* The lists of each plot, from `series` and the length of an interval. */
const PLOTS = [
	{ id: "plot-answers", title: "Acquisitions", unit: "per second", series: [["granted", "one"], ["locked", "two"], ["failed", "three"]],
	  lists: (s, ms) => [s.granted, s.locked, sum(s.split_vote, s.no_quorum, s.other)].map(list => perSecond(list, ms)) },
	{ id: "plot-latency", title: "Time to answer", unit: "milliseconds", series: [["p50", "one"], ["p99", "two"]],
	  lists: s => [inMs(s.p50_us), inMs(s.p99_us)] },
	{ id: "plot-leases", title: "Leases", unit: "per second", series: [["extended", "one"], ["released", "two"], ["lost", "three"]],
	  lists: (s, ms) => [s.extended, s.released, s.lost].map(list => perSecond(list, ms)) },
	{ id: "plot-waiters", title: "Waiters", unit: "waiting requests", series: [["waiting", "one"]], lists: s => [s.waiters] },
];

function buildStats() {
	for (const plot of PLOTS) {
		const { figure, update } = makePlot(plot.id, plot.title, plot.unit, plot.series);
		plot.update = update;
		by("plots").append(figure);
	}
	for (const [id, name] of [...TILES, ["uptime", "Uptime"]])
		by("now").append(make("div", {}, make("dt", {}, name), make("dd", { id: `now-${id}` }, "–")));
}

function showNow({ now, uptime_ms }) {
	for (const [id] of TILES) say(by(`now-${id}`), wordsForNumber(now[id]));
	say(by("now-uptime"), wordsForWholeSeconds(uptime_ms / 1000));
}

function showSparks({ masters, interval_ms }) {
	const rows = new Map([...by("masters").children].map(row => [row.dataset.key, row]));
	for (const master of masters)
		if (rows.has(master.address)) updateSpark(rows.get(master.address).cells_.spark, master, interval_ms);
}

/* ---- tables of resources ---- */

let waiting = []; /* as /stats has it */

const waitingFor = resource => waiting.find(each => each.resource === resource) || null;

/* A row whose name leads to that lock. */
function createResource({ resource }) {
	const head = rowHead(), cells = [rowCell("number"), rowCell("number"), rowCell("owner")];
	head.append(makeLockLink(resource));
	const row = make("tr", { role: "row" }, head, ...cells);
	row.cells_ = cells;
	return row;
}

/* The owners in the order in which they are served: "worker-7, worker-9 ×2, 5 more". */
function ownersWords({ waiters, first }) {
	const counts = new Map();
	for (const { owner } of first) counts.set(owner || "no owner", (counts.get(owner || "no owner") || 0) + 1);
	const names = [...counts].map(([owner, count]) => count > 1 ? `${owner} ×${count}` : owner);
	return [...names, ...(waiters > first.length ? [`${waiters - first.length} more`] : [])].join(", ");
}

function updateWaiting(row, item) {
	const { waiters, oldest_ms } = item;
	sayTitled(row.cells_[2], ownersWords(item), nameNodes);
	say(row.cells_[0], String(waiters));
	row.began = performance.now() - oldest_ms;
	tickWaiting(row);
}

function tickWaiting(row) {
	say(row.cells_[1], wordsForSeconds((performance.now() - row.began) / 1000));
}

function updateHottest(row, { acquires, refused }) {
	say(row.cells_[0], wordsForNumber(acquires));
	say(row.cells_[1], wordsForNumber(refused));
	row.cells_[2].remove();
}

function showStats(body) {
	by("plots").hidden = by("now").hidden = false;
	showNow(body);
	showSparks(body);
	waiting = body.waiting;
	if (view.lock !== null) showLockWaiters();
	for (const plot of PLOTS) plot.update(plot.lists(body.series, body.interval_ms), body.interval_ms);
	syncRows(by("waiting"), body.waiting, item => item.resource, createResource, updateWaiting);
	const hottest = body.hottest.filter(({ acquires }) => acquires > 1);
	syncRows(by("hottest"), hottest, item => item.resource, createResource, updateHottest);
	say(by("stats-note"), "");
	say(by("waiting-note"), body.waiting.length ? "" : "No waiters at this redlockd.");
	say(by("hottest-note"), hottest.length ? "" : "No lock was requested twice in the last minute.");
}

function forgetStats(words) {
	by("plots").hidden = by("now").hidden = true;
	waiting = [];
	clearRows(by("waiting"));
	clearRows(by("hottest"));
	for (const id of ["stats-note", "waiting-note", "hottest-note"]) say(by(id), words);
}
