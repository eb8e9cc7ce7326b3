/* Plots: SVG lines that fill their box at any width, with words beside them.
 *
 * A plot must also be readable as text: its legend is a table with the last, the mean and the highest value of each series. Lines differ by
 * dashes as well as by colour. */

const PLOT_WINDOWS = [30, 60, 150, 300]; /* points: 1, 2, 5, 10 minutes of 2 s; a service that has just started gets a shorter axis */
const PLOT_WIDTH = 600, PLOT_HEIGHT = 120;

/* The smallest of 1, 2, 5, 10, 20 … that is at least `value`. */
function roundUp(value) {
	if (!(value > 0)) return 1;
	const power = 10 ** Math.floor(Math.log10(value));
	return [1, 2, 5, 10].map(step => step * power).find(step => step >= value * 0.9999);
}

const windowOf = count => PLOT_WINDOWS.find(points => points >= count) || count;

/* The `d` of a line: the last point lies at the right edge; null interrupts it. */
function linePath(values, most, width, height) {
	const step = width / (windowOf(values.length) - 1), from = width - (values.length - 1) * step;
	let d = "", drawn = false;
	values.forEach((value, i) => {
		if (value === null) {
			drawn = false;
			return;
		}
		const x = (from + i * step).toFixed(1), y = (height - Math.min(value / most, 1) * (height - 2) - 1).toFixed(1);
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

function makeLegendRow(look, name) {
	const line = makeSvg("path", { class: `line ${look}`, d: "M0 4H24" });
	const swatch = makeSvg("svg", { class: "swatch", viewBox: "0 0 24 8", "aria-hidden": "true" }, line);
	const cells = [rowCell("number"), rowCell("number"), rowCell("number")];
	const row = make("tr", { role: "row" }, make("th", { role: "rowheader", scope: "row" }, swatch, name), ...cells);
	return { row, cells };
}

function makeLegend(id, lines) {
	const heads = ["now", "mean", "most"].map(name => make("th", { role: "columnheader", scope: "col", class: "number" }, name));
	const head = make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, rowCell(), ...heads));
	const body = make("tbody", { role: "rowgroup" }, ...lines.map(line => line.row));
	return make("table", { role: "table", class: "legend", "aria-labelledby": id }, head, body);
}

/* A plot of some series. `series`: [[name, look], …]. Its update(lists) takes one list of numbers and nulls for each. */
function makePlot(id, title, unit, series) {
	const paths = series.map(([, look]) => makeSvg("path", { class: `line ${look}` }));
	const legends = series.map(([name, look]) => makeLegendRow(look, name));
	const top = make("span", { class: "plot-most" }), label = make("span", { class: "unseen" }), began = make("span");
	const grid = makeSvg("path", { class: "grid", d: `M0 1H${PLOT_WIDTH}M0 ${PLOT_HEIGHT / 2}H${PLOT_WIDTH}M0 ${PLOT_HEIGHT - 1}H${PLOT_WIDTH}` });
	const box = { viewBox: `0 0 ${PLOT_WIDTH} ${PLOT_HEIGHT}`, preserveAspectRatio: "none" };
	const words = { role: "img", "aria-labelledby": `${id}-title ${id}-words` };
	const drawing = makeSvg("svg", { class: "plot", ...box, ...words }, grid, ...[...paths].reverse()); /* the first line lies on top */
	label.id = `${id}-words`;
	const figure = make("figure", { id, class: "card" },
		make("figcaption", {}, make("h3", { id: `${id}-title` }, title), make("span", { class: "soft" }, unit)),
		make("div", { class: "plot-box" }, top, drawing), label,
		make("p", { class: "plot-axis soft", "aria-hidden": "true" }, began, make("span", {}, "now")), makeLegend(`${id}-title`, legends));
	const update = (lists, interval_ms) => {
		say(began, `${windowOf(lists[0].length) * interval_ms / 60000} min ago`);
		updatePlot({ lists, paths, legends, top, label, series });
	};
	return { figure, update };
}

function updatePlot({ lists, paths, legends, top, label, series }) {
	const sums = lists.map(summary), most = roundUp(Math.max(...sums.map(sum => sum.most || 0)));
	const words = value => value === null ? "–" : wordsForNumber(value);
	lists.forEach((values, i) => {
		paths[i].setAttribute("d", linePath(values, most, PLOT_WIDTH, PLOT_HEIGHT));
		["last", "mean", "most"].forEach((name, at) => say(legends[i].cells[at], words(sums[i][name])));
	});
	say(top, words(most));
	say(label, series.map(([name], i) => `${name}: at most ${words(sums[i].most)}, now ${words(sums[i].last)}`).join("; "));
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
