// SPDX-License-Identifier: MIT
/* Requests to the service: the key, one request, and requests that are repeated. */

/* ---- the key: in this tab only ---- */

const key = {
	get: () => sessionStorage.getItem("redlockd-key"),
	set: value => sessionStorage.setItem("redlockd-key", value),
	forget: () => sessionStorage.removeItem("redlockd-key"),
};

/* ---- one request ---- */

const ANSWER_MS = 5000; /* without an answer for longer, the service counts as away */

/* An answer that is not 2xx. `status` 0: there was no answer. */
class Problem extends Error {
	constructor(status, code, detail) {
		super(detail);
		this.status = status;
		this.code = code;
	}
}

/* The page repeats its requests, so that nobody has to read Retry-After. */
function wordsForProblem({ status, message }) {
	return status === 503 ? `${message.replace(/ Try again after Retry-After.*$/, "")} The page tries again by itself.` : message;
}

async function problemOf(answer) {
	const problem = await answer.json().catch(() => ({}));
	return new Problem(answer.status, problem.code || "", problem.detail || problem.title || `HTTP status ${answer.status}.`);
}

/* Returns read(answer) for the answer to a request. Throws Problem. */
async function send(path, { more_headers, ...how }, read) {
	const headers = { ...(key.get() && { Authorization: `Bearer ${key.get()}` }), ...more_headers };
	let answer;
	try {
		answer = await fetch(path, { ...how, headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
		if (answer.ok) return await read(answer);
	} catch (error) {
		throw new Problem(0, "away", error.name === "TimeoutError" ? `No answer for ${ANSWER_MS / 1000} s.` : "redlockd cannot be reached.");
	}
	throw await problemOf(answer);
}

/* The body of the answer; null if it has none. `members`: of the body of the request. */
function ask(path, method = "GET", members = null) {
	const more = members && { more_headers: { "Content-Type": "application/json" }, body: JSON.stringify(members) };
	return send(path, { method, ...more, signal: AbortSignal.timeout(ANSWER_MS) }, answer => answer.status === 204 ? null : answer.json());
}

/* ---- repeated requests ---- */

const AWAY_FIRST_MS = 1000, AWAY_MOST_MS = 8000;
const TOOK_SHARE = 8; /* what takes long is requested more rarely */

/* Requests `path()` every `every_ms`, never twice at once, and only while `may()`. Calls shown(body), or failed(problem), after which the
 * pauses grow. */
class Poller {
	constructor({ path, every_ms, may, shown, failed, load = ask }) {
		Object.assign(this, { path, every_ms, may, shown, failed, load, timer: 0, running: false, again: false, failures: 0, answered: null, due: 0, took_ms: 0 });
	}

	/* Sends a request now, or as soon as the pending one has been answered. */
	kick() {
		clearTimeout(this.timer);
		if (this.running) this.again = true;
		else this.run();
	}

	pause_ms() {
		if (this.failures === 0) return Math.max(this.every_ms, TOOK_SHARE * this.took_ms);
		return Math.max(this.every_ms, Math.min(AWAY_MOST_MS, AWAY_FIRST_MS * 2 ** (this.failures - 1)));
	}

	async run() {
		if (!this.may()) return; /* the code that changes this calls kick() */
		const start = performance.now();
		this.running = true;
		try {
			await this.once();
		} finally {
			this.next(start);
		}
	}

	next(start) {
		this.running = false;
		const pause = this.again ? 0 : Math.max(this.failures ? this.pause_ms() : 50, this.pause_ms() - (performance.now() - start));
		this.again = false;
		this.due = performance.now() + pause;
		clearTimeout(this.timer);
		this.timer = setTimeout(() => this.run(), pause);
	}

	/* Ignores an answer to a request with another key, or for another page. */
	async once() {
		const start = performance.now(), path = this.path(), with_key = key.get(), changed = () => path !== this.path() || with_key !== key.get();
		try {
			const body = await this.load(path);
			if (changed()) return;
			this.took_ms = performance.now() - start;
			this.failures = 0;
			this.answered = performance.now();
			this.shown(body);
		} catch (error) {
			if (!(error instanceof Problem)) throw error;
			if (changed()) return;
			this.failures++;
			this.failed(error);
		}
	}

	forget() {
		this.answered = null;
		this.failures = 0;
	}

	age_ms() {
		return this.answered === null ? null : performance.now() - this.answered;
	}
}

/* ---- a stream of events ---- */

const SILENT_MS = 35000;                             /* the service writes every 15 s */
const SHORT_MS = 10000, SHORTS = 3, REFUSED_MS = 60000; /* after SHORTS short streams, or a refusal, requests are repeated for REFUSED_MS */

/* Calls heard() for each piece of the body, and told() with the fields of each event. */
async function readEvents(body, heard, told) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let text = "";
	for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
		const events = (text + piece.value).split("\n\n");
		text = events.pop();
		heard();
		for (const event of events) told(Object.fromEntries(event.split("\n").map(line => line.split(/: (.*)/s, 2))));
	}
}

/* Calls shown() with each event of the stream at `path()`, and connects again when it ends. EventSource could not send a key. */
class Follower extends Poller {
	constructor({ shown, back, ...more }) {
		super({ ...more, shown: body => body && shown(body), load: path => this.follow(path) });
		Object.assign(this, { back, id: null, stream: null, shorts: 0, polls_until: 0 });
	}

	/* Ends a stream that is no longer wanted. */
	kick() {
		const { stream } = this;
		if (stream && this.may() && stream.path === this.path() && stream.key === key.get()) return;
		if (stream) stream.control.abort();
		super.kick();
	}

	pause_ms() {
		this.took_ms = 0; /* a stream lasts as long as it may */
		return super.pause_ms();
	}

	async follow(path) {
		if (performance.now() < this.polls_until) return ask(path);
		try {
			await this.listen(path);
		} catch (problem) {
			if (problem.status !== 429) throw problem;
			this.polls_until = performance.now() + REFUSED_MS;
			return ask(path);
		}
		return null;
	}

	async listen(path) {
		const control = new AbortController(), began = performance.now();
		let silence = setTimeout(() => control.abort(), SILENT_MS);
		const heard = () => {
			clearTimeout(silence);
			silence = setTimeout(() => control.abort(), SILENT_MS);
			if (!control.signal.aborted) this.hear();
		};
		const more_headers = { Accept: "text/event-stream", ...(this.id && { "Last-Event-ID": this.id }) };
		this.stream = { path, key: key.get(), control };
		try {
			await send(path, { more_headers, signal: control.signal }, answer => readEvents(answer.body, heard, event => control.signal.aborted || this.tell(event)));
		} finally {
			clearTimeout(silence);
			this.stream = null;
			if (!control.signal.aborted) this.count(performance.now() - began);
		}
	}

	hear() {
		this.answered = performance.now();
		if (this.failures > 0) this.back();
		this.failures = 0;
	}

	tell({ id, event, data }) {
		if (data === undefined) return; /* a comment */
		this.id = id;
		if (event === "unknown") this.failed(new Problem(503, "no-quorum", "Too few masters answer."));
		else this.shown(JSON.parse(data));
	}

	count(lasted_ms) {
		this.shorts = lasted_ms < SHORT_MS ? this.shorts + 1 : 0;
		if (this.shorts < SHORTS) return;
		this.shorts = 0;
		this.polls_until = performance.now() + REFUSED_MS;
	}

	forget() {
		super.forget();
		this.id = null;
	}
}
