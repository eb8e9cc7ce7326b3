/* SPDX-License-Identifier: MIT */
/* The state of a master, why it does not vote, and its reports to the log and the metrics. See master_state_of().
 *
 * The state follows from the connection, from what INFO shows, from the guard (server/redlock/guard/guard.h) and from
 * the trials of master_check.c. This file only reads them, except for doubts: a refused command takes the vote away
 * until the trials have passed again. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

const char *master_state_name(enum master_state state)
{
	static const char *const names[] = {"voting", "quarantined", "down"};
	assert((size_t)state < sizeof names / sizeof *names);
	return names[state];
}

/* ---- the state, and what it follows from ---- */

bool master_state_is_beginning(const struct master *master)
{
	const struct options *options = master->all->options;
	bool young = master->link.state == LINK_UP && master->ups == 1 &&
		     clock_now_us() - master->up_us < MASTER_HANDSHAKE_MS * UINT64_C(1000);
	bool votes = guard_may_vote(&master->all->guard, (unsigned)master->index);
	return young && !votes && master_is_member(master) && master_guard_is_on(master->all) &&
	       (options->bootstrap || options->dev);
}

/* The few round trips until the masters of a new cluster have their epochs are not shown as a quarantine. */
static bool is_bootstrapping(const struct master *master)
{
	return master_state_is_beginning(master) && master->all->guard.masters[master->index].reason == GUARD_NO_EPOCH;
}

enum master_cause master_state_cause(const struct master *master)
{
	enum guard_state guarded = master->all->guard.masters[master->index].state;
	bool guards = master_guard_is_on(master->all);
	if (master->link.state != LINK_UP || master->hung)
		return MASTER_CAUSE_LINK;
	if (master->quarantine_reason[0])
		return MASTER_CAUSE_INFO;
	if (guards && (guarded <= GUARD_ASKING || is_bootstrapping(master)))
		return MASTER_CAUSE_ASKING;
	if (guards && guarded >= GUARD_MARKING)
		return MASTER_CAUSE_GUARD;
	return master->check.state == CHECK_PASSED ? MASTER_CAUSE_NONE : MASTER_CAUSE_CHECK;
}

enum master_state master_state_of(const struct master *master)
{
	switch (master_state_cause(master)) {
	case MASTER_CAUSE_INFO:
	case MASTER_CAUSE_GUARD: return MASTER_QUARANTINED;
	case MASTER_CAUSE_NONE: return MASTER_VOTING;
	default: return MASTER_DOWN;
	}
}

bool master_state_is_settled(const struct master *master)
{
	bool watched = guard_other_is_watched(&master->all->guard, (unsigned)master->index);
	uint64_t up_for_us = clock_now_us() - master->up_us;
	if (master->link.state != LINK_UP || (up_for_us > MASTER_HANDSHAKE_MS * UINT64_C(1000) && !watched))
		return true;
	bool moves = master_guard_is_on(master->all) && guard_in_motion(&master->all->guard, (unsigned)master->index);
	return !master_is_member(master) || (master->member == MEMBER_READ && master->check.state != CHECK_UNTRIED &&
					     !moves && !is_bootstrapping(master));
}

uint64_t master_state_guard_left_ms(const struct master *master)
{
	return (guard_quarantine_left_us(&master->all->guard, (unsigned)master->index, clock_now_us()) + 999) / 1000;
}

/* 0: the master is not quarantined, or time alone does not end its quarantine. */
static uint64_t quarantine_left_ms(const struct master *master)
{
	return master_state_cause(master) == MASTER_CAUSE_GUARD ? master_state_guard_left_ms(master) : 0;
}

/* ---- why ---- */

/* False: a master has, or had, an epoch, so the cluster is not new and --bootstrap is wrong. */
static bool is_cluster_new(const struct guard *guard)
{
	for (unsigned i = 0; i < guard->params.masters; i++)
		if (guard->masters[i].cluster != 0)
			return false;
	return true;
}

static const char *explanation_of(enum guard_reason reason)
{
	switch (reason) {
	case GUARD_NO_EPOCH: return "it never had an epoch, or lost all it had; it votes again by itself";
	case GUARD_RESTARTED: return "another server than the one of its epoch; it may have forgotten locks";
	case GUARD_BAD_EPOCH: return "its epoch is gone or another one; it may have forgotten locks";
	case GUARD_CLOCK_FORWARD: return "its clock jumped forward, so locks may have run out early";
	case GUARD_EVICTED: return "it dropped keys to save memory";
	case GUARD_NOT_DURABLE: return "its settings or a replica did not let it keep what it answered";
	case GUARD_ROLLED_BACK: return "an older image of it was put back, or it was replaced and is back";
	case GUARD_OTHER_CLUSTER: return "its epoch is for another cluster of redlockd";
	case GUARD_OTHER_DIGEST: /* master_digest_describe() */
	case GUARD_NO_REASON: break;
	}
	return "";
}

/* How the wait for old leases can end early. */
static const char *bootstrap_hint(const struct guard *guard)
{
	if (guard->bootstrap_open)
		return ", or at once when every master has answered (--bootstrap)";
	return guard->params.bootstrap ? "" : "; --bootstrap avoids the wait if all masters are new";
}

static void describe_guard(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	const struct guard *guard = &master->all->guard;
	enum guard_reason reason = guard->masters[master->index].reason;
	unsigned missing = guard_fences_missing(guard, (unsigned)master->index);
	if (reason == GUARD_OTHER_DIGEST && missing == 0)
		master_digest_describe(master, ret_reason);
	else if (missing > 0)
		snprintf(ret_reason, STATUS_REASON_MAX,
			 "fence-recovery: %s before; waits for the fences of %u more masters",
			 guard_reason_name(reason), missing);
	else if (reason == GUARD_NO_EPOCH && is_cluster_new(guard))
		snprintf(
			ret_reason, STATUS_REASON_MAX,
			"%s: no connected master has an epoch, so all are new or may have lost locks; it votes in %.1f "
			"s, when these have expired%s",
			guard_reason_name(reason), (double)quarantine_left_ms(master) / 1000, bootstrap_hint(guard));
	else
		snprintf(ret_reason, STATUS_REASON_MAX, "%s: %s", guard_reason_name(reason), explanation_of(reason));
}

void master_state_write_reason(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	const char *refused = master->soft_reason;
	enum master_cause cause = master_state_cause(master);
	if (cause == MASTER_CAUSE_GUARD)
		describe_guard(master, ret_reason);
	else
		snprintf(ret_reason, STATUS_REASON_MAX, "%s",
			 cause == MASTER_CAUSE_LINK     ? master->reason
			 : cause == MASTER_CAUSE_INFO   ? master->quarantine_reason
			 : refused[0]                   ? refused
			 : cause == MASTER_CAUSE_ASKING ? "connecting: its epoch is being read"
							: "connecting: its commands are being tried");
	size_t len = strlen(ret_reason);
	if (refused[0] && master_state_of(master) == MASTER_QUARANTINED)
		snprintf(ret_reason + len, STATUS_REASON_MAX - len, "; also refused: %s", refused);
}

/* ---- the log and the metrics ---- */

static void log_state(const struct master *master, enum master_state state)
{
	char reason[STATUS_REASON_MAX];
	master_state_write_reason(master, reason);
	log_begin(state == MASTER_VOTING ? LOG_INFO : LOG_WARN,
		  state == MASTER_QUARANTINED ? "master-quarantined" : "master");
	log_text("master", master->link.address->shown);
	log_text("state", master_state_name(state));
	if (state == MASTER_VOTING)
		log_text("version", master->info.product);
	else
		log_text("reason", reason);
	if (state == MASTER_QUARANTINED)
		log_num("quarantine_ms", (int64_t)quarantine_left_ms(master));
	log_end();
}

static enum quarantine_reason quarantine_of(const struct master *master)
{
	const struct guard *guard = &master->all->guard;
	switch (master_state_cause(master)) {
	case MASTER_CAUSE_INFO: return master->quarantine_code;
	case MASTER_CAUSE_GUARD:
		return guard_fences_missing(guard, (unsigned)master->index) > 0
			       ? QUARANTINE_RECOVERY
			       : (enum quarantine_reason)guard->masters[master->index].reason;
	default: return QUARANTINE_NONE;
	}
}

/* Counts and logs a quarantine when it begins, and again only for another hazard. Waiting for the fences of other
 * masters at its end is part of it. */
static void count_quarantine(struct master *master)
{
	enum quarantine_reason reason = quarantine_of(master);
	uint64_t left_ms = quarantine_left_ms(master);
	assert((unsigned)reason < 8 * sizeof master->quarantined_for);
	bool first = master->quarantined_for == 0, counted = master->quarantined_for >> reason & 1;
	metrics_set(&master->metrics->quarantined, reason);
	metrics_set(&master->metrics->quarantine_until_us, left_ms > 0 ? clock_now_us() + left_ms * 1000 : 0);
	master->quarantined_for = reason == QUARANTINE_NONE ? 0 : master->quarantined_for | UINT32_C(1) << reason;
	if (reason == QUARANTINE_NONE || counted)
		return;
	metrics_add(&master->metrics->quarantines[reason], 1);
	if (first || reason != QUARANTINE_RECOVERY)
		log_state(master, MASTER_QUARANTINED);
}

void master_state_report(struct master *master)
{
	enum master_cause cause = master_state_cause(master);
	enum master_state state = master_state_of(master);
	metrics_set(&master->metrics->up, state == MASTER_VOTING);
	if (state != master->state || master->state_since_us == 0)
		master->state_since_us = clock_now_us();
	master->state = state;
	if (master->link.state == LINK_CLOSED)
		return;
	count_quarantine(master);
	bool asking = cause == MASTER_CAUSE_ASKING ||
		      (cause == MASTER_CAUSE_CHECK && master->check.state == CHECK_UNTRIED);
	bool connecting = !master->link.tried || (asking && !master->soft_reason[0]);
	uint64_t refused = atomic_load_explicit(&master->metrics->refused, memory_order_relaxed);
	bool same = master->reported && state == master->reported_state && refused == master->reported_refused;
	if (same || connecting)
		return;
	/* by count_quarantine(), unless only the refused commands are new */
	bool logged = state == MASTER_QUARANTINED && master->reported_state != MASTER_QUARANTINED;
	master->reported_state = state;
	master->reported_refused = refused;
	master->reported = true;
	if (!logged)
		log_state(master, state);
}

void master_state_count_error(struct master *master, enum master_error error)
{
	assert(error < MASTER_ERROR_COUNT);
	metrics_add(&master->metrics->errors[error], 1);
}

/* ---- doubts ---- */

/* If the trials have failed already, their reason stays: it is more complete than this error. */
void master_state_doubt(struct master *master, enum master_error error, const char *text)
{
	char shown[MASTER_ERROR_TEXT_MAX];
	assert(error < MASTER_ERROR_COUNT);
	if (master->check.state != CHECK_PASSED)
		return;
	master_error_text(text, shown);
	master->check.state = CHECK_DOUBTED;
	snprintf(master->soft_reason, sizeof master->soft_reason, "%s: %s", master_error_name(error), shown);
	master_state_report(master);
}

static const char *text_of(const redisReply *reply)
{
	return reply && reply->type == REDIS_REPLY_ERROR ? reply->str : "an answer that is not Redis's";
}

void master_state_handle_failure(struct master *master, const struct master_reply *reply, const redisReply *raw)
{
	assert(reply->vote == REDLOCK_VOTE_FAILED);
	bool one_off = reply->no_script || reply->lost || reply->error == MASTER_ERROR_LATE ||
		       reply->error == MASTER_ERROR_QUARANTINED;
	if (!one_off)
		master_state_doubt(master, reply->error,
				   reply->error == MASTER_ERROR_CLOCK ? "our clock is more than a day ahead of its own"
								      : text_of(raw));
}

void master_state_doubt_reply(struct master *master, const redisReply *reply)
{
	assert(reply);
	enum master_error error = reply->type == REDIS_REPLY_ERROR ? master_error_classify(reply->str)
								   : MASTER_ERROR_OTHER;
	master_state_count_error(master, error);
	master_state_doubt(master, error, text_of(reply));
}

/* ---- as plain structs (masters.h) ---- */

size_t masters_count(const struct masters *masters)
{
	return masters->count;
}

void masters_status(const struct masters *masters, size_t i, struct master_status *ret_status)
{
	assert(i < masters->count);
	const struct master *master = &masters->list[i];
	memset(ret_status, 0, sizeof *ret_status);
	ret_status->state = master_state_of(master);
	if (ret_status->state == master->state && master->state_since_us > 0)
		ret_status->state_ms = (clock_now_us() - master->state_since_us) / 1000;
	snprintf(ret_status->address, sizeof ret_status->address, "%s", master->link.address->shown);
	if (ret_status->state != MASTER_VOTING)
		master_state_write_reason(master, ret_status->reason);
	ret_status->quarantine_remaining_ms = quarantine_left_ms(master);
	ret_status->rtt_us = master->rtt_us;
	memcpy(ret_status->version, master->info.product, sizeof ret_status->version);
	if (master->info.product[0]) /* else it is that of a server that was replaced */
		memcpy(ret_status->run_id, master->info.run_id, sizeof ret_status->run_id);
	ret_status->warning_count = master->warning_count;
	memcpy(ret_status->warnings, master->warnings, sizeof ret_status->warnings);
}

/* The time until `missing` quarantines have ended; 0: time alone does not end enough of them. */
static uint64_t wait_for(const struct masters *masters, size_t missing)
{
	uint64_t wait_ms = 0;
	for (size_t i = 0; i < masters->count; i++) {
		uint64_t left_ms = quarantine_left_ms(&masters->list[i]);
		size_t ended = 0;
		for (size_t j = 0; j < masters->count; j++) {
			uint64_t other_ms = quarantine_left_ms(&masters->list[j]);
			ended += other_ms > 0 && other_ms <= left_ms;
		}
		if (ended >= missing && (wait_ms == 0 || left_ms < wait_ms))
			wait_ms = left_ms;
	}
	return wait_ms;
}

void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum)
{
	uint8_t voting = 0, quarantined = 0;
	for (size_t i = 0; i < masters->count; i++) {
		enum master_state state = master_state_of(&masters->list[i]);
		voting = (uint8_t)(voting + (state == MASTER_VOTING));
		quarantined = (uint8_t)(quarantined + (state == MASTER_QUARANTINED));
	}
	*ret_quorum = (struct quorum_status){.needed = redlock_majority((uint8_t)masters->count),
					     .voting = voting,
					     .quarantined = quarantined,
					     .masters = (uint8_t)masters->count};
	if (voting < ret_quorum->needed)
		ret_quorum->wait_ms = wait_for(masters, (size_t)ret_quorum->needed - voting);
}
