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

/* The body of the answer; null if it has none. Throws Problem. */
async function ask(path, method = "GET") {
	const headers = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
	let answer;
	try {
		answer = await fetch(path, { method, headers, cache: "no-store", credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(ANSWER_MS) });
		if (answer.ok) return answer.status === 204 ? null : await answer.json();
	} catch (error) {
		throw new Problem(0, "away", error.name === "TimeoutError" ? `No answer for ${ANSWER_MS / 1000} s.` : "redlockd cannot be reached.");
	}
	throw await problemOf(answer);
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
