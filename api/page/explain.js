// SPDX-License-Identifier: MIT
/* What keeps a job from the lock of the card, and what to do about it: the first reason that holds, as `redlockctl explain` has it. */

/* null: the service does not tell. */
function mayTake(resource) {
	if (rights === null) return null;
	return rights.rights.includes("acquire") && (rights.prefixes || [""]).some(prefix => resource.startsWith(prefix));
}

function heldNextWords({ kept, mode, holders, votes, fence }) {
	if (kept) return "Its last holder ended, and keeps it for the remaining time (keep_ms). A release by force ends that.";
	if (mode === "shared") return "A job that asks for a shared lock joins them, unless others wait before it. Any other job waits for all of them.";
	if (holders) return "Each holder has a slot: a job gets one if it asks for more slots than there are holders, or when one of them ends.";
	if (votes.granted < votes.needed) return "Too few masters have this holder for a lease: it is an attempt, or what is left of one. Try again in the remaining time.";
	if (!fence) return "Another program wrote this key: look for it.";
	return "Wait for it: it is free in the remaining time unless the holder extends it. If the holder is dead, release the lock by force.";
}

function nextWords(state) {
	if (shown.quorum === false) return "Too few masters may vote, so nobody gets a lock. Start those that are down; a quarantined one votes again by itself.";
	if (mayTake(view.lock) === false) return "You may not take this lock: ask the operator for the right acquire and a prefix of its name.";
	if (state.held) return heldNextWords(state);
	if (state.waiters > 0) return "It is free, and goes to the first that waits.";
	return "Nothing is in the way: the next request gets it.";
}

function showExplained(state) {
	const { votes } = state, may = mayTake(view.lock);
	by("lock-votes-row").hidden = !state.held;
	say(by("lock-votes"), `at least ${votes.granted} of ${votes.masters}`);
	by("lock-may-row").hidden = may === null;
	say(by("lock-may"), may ? "yes" : "no");
	say(by("lock-next"), nextWords(state));
}
