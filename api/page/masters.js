// SPDX-License-Identifier: MIT
/* The quorum at a glance and the masters, from GET /masters. */

const STATE_MARKS = { voting: "✓", quarantined: "!", down: "✗" };
const stateLook = state => ({ voting: "good", quarantined: "warn", down: "bad" }[state] || "bad");

const shown = { quorum: null, states: new Map() }; /* what was announced last */

/* ---- the quorum ---- */

function showQuorum(body) {
	const { voting, needed, masters } = body.quorum;
	const enough = voting >= needed;
	setClass(by("quorum"), enough ? (voting < masters ? "quorum good thin" : "quorum good") : "quorum bad");
	say(by("quorum-mark"), enough ? "✓" : "✗");
	say(by("quorum-title"), enough ? "Quorum" : "No quorum");
	say(by("quorum-text"), quorumWords(body));
	setClass(by("mini"), enough ? (voting < masters ? "pill warn" : "pill good") : "pill bad");
	say(by("mini"), `${enough ? "✓" : "✗ no quorum"} ${voting}/${masters}`);
	by("mini").hidden = false;
	document.title = enough ? `✓ ${voting}/${masters} · redlockd` : `✗ NO QUORUM ${voting}/${masters} · redlockd`;
}

/* When enough masters will vote, if time alone ends that, as GET /readyz says; else "". */
function quorumWait({ masters, quorum }) {
	const waits = masters.map(master => master.quarantine_remaining_ms).filter(ms => ms !== null).sort((a, b) => a - b);
	const last_ms = waits[quorum.needed - quorum.voting - 1];
	return last_ms === undefined ? "" : ` In ${wordsForWholeSeconds(Math.ceil(last_ms / 1000))} enough will vote.`;
}

function quorumWords(body) {
	const { voting, needed, masters } = body.quorum, left = voting - needed;
	const end = left < 0 ? `no lock can be acquired.${quorumWait(body)}` : left === 0 ? "locks can be acquired, but no other master may fail." : "locks can be acquired.";
	return `${voting} of ${masters} masters ${voting === 1 ? "votes" : "vote"}, ${needed} ${needed === 1 ? "is" : "are"} needed: ${end}`;
}

function showSeats(masters) {
	const seats = by("seats");
	while (seats.children.length > masters.length) seats.lastElementChild.remove();
	while (seats.children.length < masters.length) seats.append(make("li"));
	masters.forEach((master, i) => {
		setClass(seats.children[i], stateLook(master.state));
		say(seats.children[i], STATE_MARKS[master.state] || "?");
	});
}

/* ---- the table ---- */

function createMaster() {
	const head = rowHead(), address = make("span", { class: "address" }), version = make("span", { class: "soft" });
	const state = make("span", {}), mark = make("span", { "aria-hidden": "true" }), word = make("span", { class: "state" });
	const reason = make("span", {}), quarantine = make("span", { class: "quarantine-left" }), warnings = make("ul", { class: "warnings" });
	const spark = makeSpark(), rtt = rowCell("number", "Round trip");
	const cells = [rowCell("", "State"), rowCell("", "Reason"), rtt, rowCell("spark-cell", "Recent")];
	const since = make("span", { class: "since" });
	state.append(mark, " ", word);
	head.append(address, version);
	cells[0].append(make("div", { class: "state-line" }, state, " ", since));
	cells[1].append(reason, quarantine, warnings);
	cells[3].append(spark.drawing);
	const row = make("tr", { role: "row" }, head, ...cells);
	row.cells_ = { address, version, state, mark, word, since, reason, quarantine, warnings, rtt, spark, reason_cell: cells[1] };
	return row;
}

function updateMaster(row, master) {
	const cells = row.cells_, look = stateLook(master.state);
	setClass(row, `master ${look}`);
	say(cells.address, master.address);
	say(cells.version, master.version || "");
	setClass(cells.state, `pill ${look}`);
	say(cells.mark, STATE_MARKS[master.state] || "?");
	say(cells.word, master.state);
	say(cells.reason, master.reason || "");
	say(cells.rtt, wordsForMs(master.rtt_us));
	row.since = performance.now() - master.state_ms;
	row.quarantine_ends = master.quarantine_remaining_ms === null ? null : performance.now() + master.quarantine_remaining_ms;
	cells.warnings.hidden = master.warnings.length === 0;
	if (cells.warnings.dataset.all !== String(master.warnings))
		cells.warnings.replaceChildren(...master.warnings.map(warning => make("li", {}, `Warning: ${warning}`)));
	cells.warnings.dataset.all = String(master.warnings);
	setClass(cells.reason_cell, master.reason || master.warnings.length ? "" : "nothing");
	tickMaster(row);
}

function tickMaster(row) {
	const left_ms = row.quarantine_ends === null ? null : Math.max(0, row.quarantine_ends - performance.now());
	row.cells_.quarantine.hidden = left_ms === null;
	say(row.cells_.since, `for ${wordsForWholeSeconds((performance.now() - row.since) / 1000)}`);
	if (left_ms !== null) say(row.cells_.quarantine, `${wordsForSeconds(left_ms / 1000)} left`);
}

/* ---- announcing: only what changed, in one sentence ---- */

function announce(text) {
	by("announce").textContent = text;
}

function announceChanges(body) {
	const { masters, quorum } = body, words = [], first = shown.quorum === null, enough = quorum.voting >= quorum.needed;
	for (const { address, state, reason } of masters) {
		if (!first && shown.states.get(address) !== state) words.push(`${address} is ${state}${reason ? `: ${reason}` : ""}.`);
		shown.states.set(address, state);
	}
	if (words.length > 0 || shown.quorum !== enough) announce([...words, `${enough ? "Quorum" : "No quorum"}: ${quorumWords(body)}`].join(" "));
	if (enough && shown.quorum === false) pollers.locks.kick(); /* they can be listed again */
	shown.quorum = enough;
}

function showMasters(body) {
	showQuorum(body);
	showSeats(body.masters);
	syncRows(by("masters"), body.masters, master => master.address, createMaster, updateMaster);
	say(by("masters-note"), "");
	announceChanges(body);
}

function forgetMasters(words) {
	setClass(by("quorum"), "quorum unknown");
	say(by("quorum-mark"), "?");
	say(by("quorum-title"), "Quorum: unknown");
	say(by("quorum-text"), words);
	by("mini").hidden = true;
	by("seats").replaceChildren();
	clearRows(by("masters"));
	say(by("masters-note"), words);
	document.title = "? redlockd";
	shown.quorum = null;
	shown.states.clear();
}
