// SPDX-License-Identifier: MIT
/* Plots: SVG lines that fill their box at any width, with axes, and the values at a point in time under the pointer or the keys.
 *
 * A plot must also be readable as text: its legend is a table with the last, the mean and the highest value of each series, and a slider over it
 * shows the values at each point. Lines differ by dashes as well as by colour. */

const PLOT_WINDOWS = [30, 60, 150, 300]; /* points: 1, 2, 5, 10 minutes of 2 s; a service that has just started gets a shorter axis */
const PLOT_WIDTH = 600, PLOT_HEIGHT = 120;

/* The smallest of 1, 2, 5, 10, 20 … that is at least `value`. */
function roundUp(value) {
	if (!(value > 0)) return 1;
	const power = 10 ** Math.floor(Math.log10(value));
	return [1, 2, 5, 10].map(step => step * power).find(step => step >= value * 0.9999);
}

const windowOf = count => PLOT_WINDOWS.find(points => points >= count) || count;
const yOf = (value, most, height) => (height - Math.min(value / most, 1) * (height - 2) - 1).toFixed(1);

/* The `d` of a line: the last point lies at the right edge; null interrupts it. */
function linePath(values, most, width, height) {
	const step = width / (windowOf(values.length) - 1), from = width - (values.length - 1) * step;
	let d = "", drawn = false;
	values.forEach((value, i) => {
		if (value === null) {
			drawn = false;
			return;
		}
		const x = (from + i * step).toFixed(1), y = yOf(value, most, height);
		d += drawn ? `L${x} ${y}` : `M${x} ${y}h.01`;
		drawn = true;
	});
	return d;
}

function summary(values) {
	const known = values.filter(value => value !== null);
	return {
		last: values.length > 0 ? values[values.length - 1] : null,
		mean: known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null,
		most: known.length > 0 ? Math.max(...known) : null,
	};
}

/* At most two decimals. */
function wordsForValue(value) {
	if (value === null || value === undefined) return "–";
	if (value > 0 && value < .01) return "< 0.01";
	return value < 1 ? String(Number(value.toFixed(2))) : wordsForNumber(value);
}

/* ---- the selected point in time: the same one in all plots ---- */

const pointed = { back: null, plots: [] }; /* how many points before the last one; null: none */

function pointAt(back) {
	pointed.back = back;
	for (const plot of pointed.plots) drawPointed(plot);
}

function drawPointed(plot) {
	const { lists, interval_ms } = plot, count = lists[0].length, at = count - 1 - pointed.back;
	const hidden = pointed.back === null || at < 0;
	plot.tip.hidden = hidden;
	plot.cursor.setAttribute("d", "");
	plot.dots.forEach(dot => dot.setAttribute("d", ""));
	if (hidden) return;
	const x = PLOT_WIDTH * (1 - pointed.back / (windowOf(count) - 1)), values = lists.map(list => list[at]);
	const time = new Date(Date.now() - pointed.back * interval_ms).toLocaleTimeString("en-GB");
	plot.cursor.setAttribute("d", `M${x.toFixed(1)} 0V${PLOT_HEIGHT}`);
	values.forEach((value, i) => value !== null && plot.dots[i].setAttribute("d", `M${x.toFixed(1)} ${yOf(value, plot.most, PLOT_HEIGHT)}h.01`));
	setClass(plot.tip, x > PLOT_WIDTH / 2 ? "plot-tip left" : "plot-tip");
	say(plot.tip.firstChild, time);
	values.forEach((value, i) => say(plot.tip.children[i + 1].lastChild, wordsForValue(value)));
	plot.slider.setAttribute("aria-valuetext", `${time}: ${plot.series.map(([name], i) => `${name} ${wordsForValue(values[i])}`).join(", ")}`);
}

/* The slider covers the plot: keys, a finger and the pointer move it in the same way. */
function makeSlider(plot, title) {
	const slider = make("input", { type: "range", class: "plot-slider", min: 0, max: 1, step: 1, value: 1, "aria-label": `${title}, at a point in time` });
	slider.addEventListener("input", () => pointAt(Number(slider.max) - Number(slider.value)));
	slider.addEventListener("focus", () => slider.matches(":focus-visible") && pointAt(Number(slider.max) - Number(slider.value)));
	slider.addEventListener("blur", () => pointAt(null));
	slider.addEventListener("pointermove", event => {
		const points = windowOf(plot.lists[0].length) - 1;
		const back = Math.round(points * (1 - event.offsetX / slider.clientWidth));
		pointAt(Math.min(Math.max(back, 0), plot.lists[0].length - 1));
	});
	slider.addEventListener("pointerleave", () => pointAt(null));
	return slider;
}

/* ---- making ---- */

function makeSwatch(look) {
	return makeSvg("svg", { class: "swatch", viewBox: "0 0 24 8", "aria-hidden": "true" }, makeSvg("path", { class: `line ${look}`, d: "M0 4H24" }));
}

function makeLegendRow(look, name) {
	const cells = [rowCell("number"), rowCell("number"), rowCell("number")];
	const row = make("tr", { role: "row" }, make("th", { role: "rowheader", scope: "row" }, makeSwatch(look), name), ...cells);
	return { row, cells };
}

function makeLegend(id, lines) {
	const heads = ["now", "mean", "most"].map(name => make("th", { role: "columnheader", scope: "col", class: "number" }, name));
	const head = make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, rowCell(), ...heads));
	const body = make("tbody", { role: "rowgroup" }, ...lines.map(line => line.row));
	return make("table", { role: "table", class: "legend", "aria-labelledby": id }, head, body);
}

function makeDrawing(id, plot) {
	const grid = makeSvg("path", { class: "grid", d: `M0 1H${PLOT_WIDTH}M0 ${PLOT_HEIGHT / 2}H${PLOT_WIDTH}M0 ${PLOT_HEIGHT - 1}H${PLOT_WIDTH}` });
	const box = { viewBox: `0 0 ${PLOT_WIDTH} ${PLOT_HEIGHT}`, preserveAspectRatio: "none" };
	const lines = [...plot.paths].reverse(), dots = [...plot.dots].reverse(); /* the first line lies on top */
	return makeSvg("svg", { class: "plot", ...box, role: "img", "aria-labelledby": `${id}-title ${id}-words` }, grid, plot.cursor, ...lines, ...dots);
}

const makeAxis = (className, ticks) => make("p", { class: `${className} soft`, "aria-hidden": "true" }, ...ticks);

/* A plot of some series. `series`: [[name, look], …]. Its update(lists, interval_ms) takes one list of numbers and nulls for each. */
function makePlot(id, title, unit, series) {
	const plot = {
		series, lists: [[]], most: 1, interval_ms: 1000,
		paths: series.map(([, look]) => makeSvg("path", { class: `line ${look}` })), dots: series.map(([, look]) => makeSvg("path", { class: `dot ${look}` })),
		cursor: makeSvg("path", { class: "cursor" }), legends: series.map(([name, look]) => makeLegendRow(look, name)),
		ys: [make("span"), make("span"), make("span", {}, "0")], xs: [make("span"), make("span"), make("span", {}, "now")], label: make("span", { class: "unseen" }),
	};
	plot.label.id = `${id}-words`;
	plot.slider = makeSlider(plot, title);
	plot.tip = make("div", { class: "plot-tip", "aria-hidden": "true" }, make("span", { class: "plot-time" }),
		...series.map(([name, look]) => make("span", {}, makeSwatch(look), `${name} `, make("b"))));
	plot.tip.hidden = true;
	pointed.plots.push(plot);
	const figure = make("figure", { id, class: "card" },
		make("figcaption", {}, make("h3", { id: `${id}-title` }, title), make("span", { class: "soft" }, unit)),
		make("div", { class: "plot-frame" }, makeAxis("plot-y", plot.ys), make("div", { class: "plot-box" }, makeDrawing(id, plot), plot.slider, plot.tip),
			makeAxis("plot-axis", plot.xs)), plot.label, makeLegend(`${id}-title`, plot.legends));
	return { figure, update: (lists, interval_ms) => updatePlot(Object.assign(plot, { lists, interval_ms })) };
}

function agoWords(ms) {
	return ms < 60000 ? `${ms / 1000} s ago` : `${ms / 60000} min ago`;
}

function updatePlot(plot) {
	const { lists, paths, legends, series, interval_ms } = plot, sums = lists.map(summary), count = lists[0].length;
	plot.most = roundUp(Math.max(...sums.map(sum => sum.most || 0)));
	lists.forEach((values, i) => {
		paths[i].setAttribute("d", linePath(values, plot.most, PLOT_WIDTH, PLOT_HEIGHT));
		["last", "mean", "most"].forEach((name, at) => say(legends[i].cells[at], wordsForValue(sums[i][name])));
	});
	say(plot.ys[0], wordsForNumber(plot.most));
	say(plot.ys[1], wordsForNumber(plot.most / 2));
	say(plot.xs[0], agoWords(windowOf(count) * interval_ms));
	say(plot.xs[1], agoWords(windowOf(count) * interval_ms / 2));
	say(plot.label, series.map(([name], i) => `${name}: at most ${wordsForValue(sums[i].most)}, now ${wordsForValue(sums[i].last)}`).join("; "));
	const back = Number(plot.slider.max) - Number(plot.slider.value);
	plot.slider.max = Math.max(count - 1, 0);
	plot.slider.value = Math.max(Number(plot.slider.max) - back, 0);
	plot.slider.disabled = count === 0;
	drawPointed(plot);
}

/* ---- the small graph of a master: its round trip, and a strip that shows when it did not vote ---- */

const SPARK_WIDTH = 300, SPARK_HEIGHT = 32, SPARK_STRIP = 5;

function makeSpark() {
	const line = makeSvg("path", { class: "line one" }), gaps = makeSvg("path", { class: "gap" });
	const floor = makeSvg("path", { class: "floor" });
	const box = { viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`, preserveAspectRatio: "none" };
	const drawing = makeSvg("svg", { class: "spark", ...box, role: "img", "aria-label": "nothing measured yet" }, floor, gaps, line);
	return { drawing, line, gaps, floor };
}

/* The strip: one piece for each interval in which it voted, or did not. */
function stripPath(voting, wanted) {
	const step = SPARK_WIDTH / windowOf(voting.length), from = SPARK_WIDTH - voting.length * step;
	return voting.map((votes, i) => Boolean(votes) === wanted
		? `M${(from + i * step).toFixed(1)} ${SPARK_HEIGHT - (wanted ? SPARK_STRIP / 2 : SPARK_HEIGHT / 2)}h${step.toFixed(2)}` : "").join("");
}

function updateSpark(spark, { rtt_us, voting }, interval_ms) {
	const { last, most } = summary(rtt_us), away = voting.filter(votes => !votes).length;
	spark.line.setAttribute("d", linePath(rtt_us, roundUp(most), SPARK_WIDTH, SPARK_HEIGHT - SPARK_STRIP - 2));
	spark.floor.setAttribute("d", stripPath(voting, true));
	spark.gaps.setAttribute("d", stripPath(voting, false));
	const words = `Round trip: now ${wordsForMs(last)}, at most ${wordsForMs(most)}; ` +
		(away === 0 ? "it voted all the time" : `it did not vote for ${wordsForSeconds(away * interval_ms / 1000)}`);
	if (spark.drawing.getAttribute("aria-label") !== words) spark.drawing.setAttribute("aria-label", words);
}
