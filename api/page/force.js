// SPDX-License-Identifier: MIT
/* Releases a lock by force: asks for confirmation, shows the effect beforehand, and then the result.
 *
 * The user confirms one holder, identified by its fence. The lock is inspected right before DELETE: if another holder has it by
 * then, the new holder is shown. DELETE names the fence, so that no holder that comes later is released. */

/* `turn` changes when the dialog opens and closes: answers for an earlier turn have no effect. */
const force = { lock: null, opener: null, busy: false, turn: 0 };

function openForce(lock, opener) {
	force.opener = opener;
	force.busy = false;
	force.turn++;
	showForced(lock);
	say(by("force-result"), "");
	setClass(by("force-result"), "result");
	by("force-do").hidden = by("force-do").disabled = false;
	say(by("force-cancel"), "Cancel");
	by("force").showModal();
	by("force-cancel").focus({ preventScroll: true });
	by("force").scrollTop = 0; /* shows the beginning of a long name */
}

function showForced(lock) {
	force.lock = lock;
	sayName(by("force-resource"), lock.resource);
	sayName(by("force-owner"), ownerWords(lock) || "no owner given");
	say(by("force-fence"), fenceWords(lock) || "unknown");
}

function sayForced(look, words) {
	setClass(by("force-result"), `result ${look}`);
	say(by("force-result"), words);
}

/* Shows the final result. */
function endForce(look, words) {
	sayForced(look, words);
	by("force-do").hidden = true;
	say(by("force-cancel"), "Close");
	by("force-cancel").focus();
}

/* Called with a new listing while the dialog may be open. */
function followForce(locks) {
	const now = by("force").open && !force.busy && !by("force-do").hidden && locks.get(force.lock.resource);
	if (now && !haveSameHolders(now, force.lock)) changeForced(now);
}

function changeForced(lock) {
	showForced(lock);
	sayForced("warn", "Another holder has the lock now: see above. Nothing was released.");
	say(by("force-cancel"), "Cancel");
	by("force-cancel").focus();
}

function forcePath({ fence }) {
	return fence === undefined ? "/locks?force=true" : `/locks?force=true&fence=${fence}`;
}

/* True if the confirmed holder still has the lock. Also true if the caller may not inspect locks. False if the dialog was closed. */
async function isSameHolder(lock, turn) {
	let now;
	try {
		now = await ask(pathOfLock(lock.resource));
	} catch (problem) {
		if (problem.status === 403) return force.turn === turn;
		throw problem;
	}
	if (force.turn !== turn) return false;
	if (now.held && haveSameHolders(now, lock)) return true;
	if (now.held) changeForced(now);
	else endForce("warn", "The lock is no longer held: there was nothing to release.");
	return false;
}

/* False if another holder came after the inspection; shows it. */
async function wasReleased(lock, turn) {
	say(by("force-cancel"), "Close");
	try {
		await ask(forcePath(lock), "DELETE", { resource: lock.resource });
	} catch (problem) {
		if (problem.status !== 409 || (await isSameHolder(lock, turn))) throw problem;
		return false;
	}
	return true;
}

function wordsForForced(problem) {
	const unsure = "The lock may have been released: check the list.";
	if (problem.status === 0) return `${problem.message} ${unsure}`;
	if (problem.status === 401) return `Not released. The key was rejected: ${problem.message}`;
	if (problem.status === 403) return `Not released. Refused: ${problem.message}`;
	if (problem.status === 409) return `Not released. ${problem.message}`;
	if (problem.status === 410) return `The lock is no longer held: there was nothing to release. ${problem.message}`;
	return problem.status === 503 ? `${problem.message} ${unsure}` : `Not released. ${problem.message}`;
}

async function releaseByForce() {
	const { lock, turn } = force;
	if (force.busy) return;
	force.busy = by("force-do").disabled = true;
	by("force-cancel").focus();
	sayForced("", "Releasing…");
	try {
		if ((await isSameHolder(lock, turn)) && (await wasReleased(lock, turn)) && force.turn === turn)
			endForce("good", "Released. The holder learns of it when it tries to renew.");
	} catch (problem) {
		if (!(problem instanceof Problem)) throw problem;
		if (force.turn === turn) endForce(problem.status === 410 ? "warn" : "bad", wordsForForced(problem));
		if (problem.status === 401) needKey(problem);
	}
	if (force.turn === turn) force.busy = by("force-do").disabled = false;
	pollers.locks.kick();
	pollers.lock.kick();
}

/* Returns the focus to the button; if its row is gone, to the filter. */
function closedForce() {
	force.turn++;
	if (!force.opener.isConnected || force.opener.hidden) by("text").focus();
	else force.opener.focus();
}

function wireForce() {
	by("force-cancel").addEventListener("click", () => by("force").close());
	by("force-do").addEventListener("click", releaseByForce);
	by("force").addEventListener("close", closedForce);
}
