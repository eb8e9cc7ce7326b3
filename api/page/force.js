/* Taking a lock away: asks first, says what will happen, and says what came of it.
 *
 * What is confirmed is one holder, told by its fence. DELETE takes the lock from whoever has it, so right before it the lock is looked at once
 * more: where another one has it by then, nothing is done and the new holder is shown. */

const force = { lock: null, opener: null, busy: false };

function openForce(lock, opener) {
	force.opener = opener;
	force.busy = false;
	showForced(lock);
	say(by("force-result"), "");
	setClass(by("force-result"), "result");
	by("force-do").hidden = by("force-do").disabled = false;
	say(by("force-cancel"), "Cancel");
	by("force").showModal();
	by("force-cancel").focus({ preventScroll: true });
	by("force").scrollTop = 0; /* a long name begins at its beginning */
}

function showForced(lock) {
	force.lock = lock;
	sayName(by("force-resource"), lock.resource);
	sayName(by("force-owner"), lock.owner || "gave no name");
	say(by("force-fence"), lock.fence === undefined ? "not known" : String(lock.fence));
}

function sayForced(look, words) {
	setClass(by("force-result"), `result ${look}`);
	say(by("force-result"), words);
}

/* Nothing is left to be done here. */
function endForce(look, words) {
	sayForced(look, words);
	by("force-do").hidden = true;
	say(by("force-cancel"), "Close");
	by("force-cancel").focus();
}

/* The listing came again while the question is open. */
function followForce(locks) {
	const now = by("force").open && !force.busy && !by("force-do").hidden && locks.get(force.lock.resource);
	if (now && now.fence !== force.lock.fence) changeForced(now);
}

function changeForced(lock) {
	showForced(lock);
	sayForced("warn", "Another holder has it now: see above. Nothing was released.");
	by("force-cancel").focus();
}

function forcePath(resource) {
	return `/locks/${encodeURIComponent(resource)}`;
}

/* True if it is still held by the one that was confirmed, as far as the caller may know: who may not look is not held up. */
async function isSameHolder(lock) {
	let now;
	try {
		now = await ask(forcePath(lock.resource));
	} catch (refusal) {
		if (refusal.status === 403) return true;
		throw refusal;
	}
	if (now.held && now.fence === lock.fence) return true;
	if (now.held) changeForced(now);
	else endForce("warn", "Nobody holds it any more: there was nothing to release.");
	return false;
}

function wordsForForced(refusal) {
	const unsure = "It is not known whether the lock was released: look at the list.";
	if (refusal.status === 0) return `${refusal.message} ${unsure}`;
	if (refusal.status === 401) return `Not released. The key is not accepted: ${refusal.message}`;
	if (refusal.status === 403) return `Not released. Refused: ${refusal.message}`;
	if (refusal.status === 409) return `Not released. ${refusal.message}`;
	if (refusal.status === 410) return `Nobody holds it any more: there was nothing to release. ${refusal.message}`;
	return refusal.status === 503 ? `${refusal.message} ${unsure}` : `Not released. ${refusal.message}`;
}

async function releaseByForce() {
	const { lock } = force;
	if (force.busy) return;
	if (lock.resource === "." || lock.resource === "..") {
		endForce("bad", "Not released. A browser cannot name this resource in an address; use curl --path-as-is.");
		return;
	}
	force.busy = by("force-do").disabled = true;
	by("force-cancel").focus();
	sayForced("", "Releasing…");
	try {
		if (await isSameHolder(lock)) {
			await ask(`${forcePath(lock.resource)}?force=true`, "DELETE");
			endForce("good", "Released. Its holder hears of it when it renews.");
		}
	} catch (refusal) {
		if (!(refusal instanceof Refusal)) throw refusal;
		endForce(refusal.status === 410 ? "warn" : "bad", wordsForForced(refusal));
		if (refusal.status === 401) needKey(refusal);
	}
	force.busy = by("force-do").disabled = false;
	pollers.locks.kick();
}

/* The browser gives the focus back to the button; where its row is gone, the prefix gets it. */
function closedForce() {
	if (!force.opener.isConnected) by("prefix").focus();
	else force.opener.focus();
}

function wireForce() {
	by("force-cancel").addEventListener("click", () => by("force").close());
	by("force-do").addEventListener("click", releaseByForce);
	by("force").addEventListener("close", closedForce);
}
