// SPDX-License-Identifier: MIT
/* Small tools: elements, numbers as text, rows that keep their elements.
 *
 * Nothing in this page makes HTML from text, since callers choose the names of resources and owners. Text becomes text nodes, and the policy of
 * the page (no trusted types) makes the browser reject anything else. */

const by = id => document.getElementById(id);

/* An element with attributes (`class`, `aria-label`, …) and children: nodes or text. */
function make(name, attributes = {}, ...children) {
	const element = document.createElement(name);
	for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
	element.append(...children);
	return element;
}

function makeSvg(name, attributes = {}, ...children) {
	const element = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
	element.append(...children);
	return element;
}

/* Writes only changes, so that screen readers and selections are not disturbed. */
function say(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

function setClass(element, name) {
	if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

/* Shows invisible characters, and those that change the direction of text, by their number. */
function nameNodes(text) {
	return text.split(/([\p{Cf}\p{Cc}\p{Zl}\p{Zp}\u115f\u1160\u3164])/u).filter(Boolean).map((part, i, parts) =>
		/^[\p{Cf}\p{Cc}\p{Zl}\p{Zp}\u115f\u1160\u3164]$/u.test(part)
			? make("span", { class: "code-point" }, "U+" + part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")) : part);
}

function sayName(element, text) {
	if (element.dataset.name === text) return;
	element.dataset.name = text;
	element.replaceChildren(make("bdi", { class: "name" }, ...nameNodes(text)));
}

const END_CHARACTERS = 10;

/* A name in two parts. A narrow cell cuts only the first one, since names that begin alike differ at their end. Characters keep their accents.
 * A name with invisible characters stays in one part. */
function cutNodes(text) {
	const nodes = nameNodes(text), is_wide = /[^\0-\u10ff]/u.test(text); /* Chinese characters are twice as wide */
	const end = new RegExp(`(?:\\P{M}\\p{M}*){${is_wide ? END_CHARACTERS / 2 : END_CHARACTERS}}$`, "u");
	const at = text.search(end);
	if (nodes.length > 1 || at <= 0) return nodes;
	return [make("span", { class: "cut-begin" }, text.slice(0, at)), make("span", { class: "cut-end" }, text.slice(at))];
}

/* For a cell that may be too narrow. */
function sayTitled(element, text, nodesOf = cutNodes) {
	if (element.dataset.name === text) return;
	element.dataset.name = text;
	element.replaceChildren(make("bdi", { class: "name" }, ...nodesOf(text)));
	element.title = element.textContent; /* with invisible characters by their number */
}

/* ---- numbers as text ---- */

function wordsForSeconds(seconds) {
	if (seconds < 60) return `${seconds.toFixed(1)} s`;
	const whole = Math.floor(seconds), two = number => String(number).padStart(2, "0");
	if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
	if (whole >= 86400) return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
	return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} min`;
}

/* A duration without tenths. */
const wordsForWholeSeconds = seconds => wordsForSeconds(Math.floor(seconds)).replace(".0", "");

/* Three significant digits. */
function wordsForNumber(value) {
	if (value === 0) return "0";
	if (value >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
	if (value >= 1e4) return `${(value / 1e3).toPrecision(3)} k`;
	return value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
}

const wordsForMs = us => us === null || us === undefined ? "–" : `${(us / 1000).toFixed(us < 100000 ? 2 : 0)} ms`;

/* ---- tables ---- */

const rowCell = (className = "", title = "") => make("td", { role: "cell", class: className, ...(title && { "data-title": title }) });
const rowHead = () => make("th", { role: "rowheader", scope: "row" });

/* Moves the focus away from a row that is about to be removed. */
function leaveFocus(body, row) {
	const next = row.nextElementSibling || row.previousElementSibling;
	const target = (next && next.querySelector("button:not([hidden]), a")) || document.getElementById(`${body.id}-title`);
	target.focus();
}

/* Makes the rows of `body` those of `items`, in their order. A row that stays keeps its element, so that focus and selection stay with it.
 * `keyOf` identifies an item; `create` makes a row, with its cells as its member `cells_`; `update` fills it. */
function syncRows(body, items, keyOf, create, update) {
	const before = new Map([...body.children].map(row => [row.dataset.key, row]));
	const rows = items.map(item => {
		const key = keyOf(item), row = before.get(key) || create(item);
		before.delete(key);
		if (row.dataset.key !== key) row.dataset.key = key;
		update(row, item);
		return row;
	});
	for (const row of before.values()) {
		if (row.contains(document.activeElement)) leaveFocus(body, row);
		row.remove();
	}
	rows.forEach((row, i) => {
		if (body.children[i] !== row) body.insertBefore(row, body.children[i] || null);
	});
	body.parentElement.hidden = items.length === 0;
}

function clearRows(body) {
	syncRows(body, [], String, null, null);
}
