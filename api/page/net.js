/* Questions to the service: the key, one question, and what is asked again and again. */

/* ---- the key: in this tab only ---- */

const key = {
	get: () => sessionStorage.getItem("redlockd-key"),
	set: value => sessionStorage.setItem("redlockd-key", value),
	forget: () => sessionStorage.removeItem("redlockd-key"),
};

/* ---- one question ---- */

const ANSWER_MS = 5000; /* a service that is silent for longer counts as away */

/* An answer that is none of the wanted ones. `status` 0: there was no answer. */
class Refusal extends Error {
	constructor(status, code, detail) {
		super(detail);
		this.status = status;
		this.code = code;
	}
}

async function problemOf(answer) {
	const problem = await answer.json().catch(() => ({}));
	return new Refusal(answer.status, problem.code || "", problem.detail || problem.title || `The answer was ${answer.status}.`);
}

/* The body of the answer, null where it has none; throws Refusal. */
async function ask(path, method = "GET") {
	const headers = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
	let answer;
	try {
		answer = await fetch(path, { method, headers, cache: "no-store", credentials: "same-origin", redirect: "error", signal: AbortSignal.timeout(ANSWER_MS) });
		if (answer.ok) return answer.status === 204 ? null : await answer.json();
	} catch (error) {
		throw new Refusal(0, "away", error.name === "TimeoutError" ? `No answer for ${ANSWER_MS / 1000} s.` : "redlockd cannot be reached.");
	}
	throw await problemOf(answer);
}

/* ---- again and again ---- */

const AWAY_FIRST_MS = 1000, AWAY_MOST_MS = 8000;

/* Asks `path()` every `every_ms`, never twice at once, and only while `may()`. Told the answer: taken(body), else refused(refusal). While it is
 * refused the pauses grow. */
class Poller {
	constructor({ path, every_ms, may, taken, refused }) {
		Object.assign(this, { path, every_ms, may, taken, refused, timer: 0, running: false, again: false, failures: 0, answered: null, due: 0 });
	}

	/* Now, or as soon as the question that is under way has been answered. */
	kick() {
		clearTimeout(this.timer);
		if (this.running) this.again = true;
		else this.run();
	}

	pause_ms() {
		return this.failures === 0 ? this.every_ms : Math.max(this.every_ms, Math.min(AWAY_MOST_MS, AWAY_FIRST_MS * 2 ** (this.failures - 1)));
	}

	async run() {
		if (!this.may()) return; /* whoever changes that kicks */
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

	/* An answer to what was asked with another key, or for another page, is not taken. */
	async once() {
		const path = this.path(), with_key = key.get(), changed = () => path !== this.path() || with_key !== key.get();
		try {
			const body = await ask(path);
			if (changed()) return;
			this.failures = 0;
			this.answered = performance.now();
			this.taken(body);
		} catch (error) {
			if (!(error instanceof Refusal)) throw error;
			if (changed()) return;
			this.failures++;
			this.refused(error);
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
