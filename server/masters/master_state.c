/* The state of a master, why it does not vote, and its reports to the log and the metrics. See master_state_of().
 *
 * The state follows from the connection, from what INFO shows, from the guard (server/redlock/guard/guard.h) and from
 * the trials of master_check.c. This file reads all of them and changes none but for the doubts: a refused command
 * takes the vote away until the trials have passed again. The worker's thread. */
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

/* ---- by the guard ---- */

bool master_state_is_beginning(const struct master *master)
{
	const struct options *options = master->all->options;
	bool young = master->link.state == LINK_UP && !master->reconnected &&
		     clock_now_us() - master->up_us < MASTER_HANDSHAKE_MS * UINT64_C(1000);
	bool votes = guard_may_vote(&master->all->guard, (unsigned)master->index);
	return young && !votes && !master->excluded && master_guard_is_on(master->all) &&
	       (options->bootstrap || options->dev);
}

/* The few round trips until the masters of a new cluster have their epochs are not shown as a quarantine. */
static bool is_bootstrapping(const struct master *master)
{
	return master_state_is_beginning(master) && master->all->guard.masters[master->index].reason == GUARD_NO_EPOCH;
}

bool master_state_is_asking(const struct master *master)
{
	return master_guard_is_on(master->all) &&
	       (master->all->guard.masters[master->index].state <= GUARD_ASKING || is_bootstrapping(master));
}

bool master_state_is_quarantined(const struct master *master)
{
	return master_guard_is_on(master->all) && master->all->guard.masters[master->index].state >= GUARD_MARKING;
}

bool master_state_is_settled(const struct master *master)
{
	if (master->link.state != LINK_UP || clock_now_us() - master->up_us > MASTER_HANDSHAKE_MS * UINT64_C(1000))
		return true;
	bool moves = master_guard_is_on(master->all) && guard_in_motion(&master->all->guard, (unsigned)master->index);
	return master->excluded || (master->read && master->check.ended && !moves && !is_bootstrapping(master));
}

uint64_t master_state_guard_left_ms(const struct master *master)
{
	return (guard_quarantine_left_us(&master->all->guard, (unsigned)master->index, clock_now_us()) + 999) / 1000;
}

static const char *words_for(enum guard_reason reason)
{
	switch (reason) {
	case GUARD_NO_EPOCH: return "it never had an epoch, or lost all it had; see --bootstrap";
	case GUARD_RESTARTED: return "another server than the one of its epoch; it may have forgotten locks";
	case GUARD_BAD_EPOCH: return "its epoch is gone or another one; it may have forgotten locks";
	case GUARD_CLOCK_FORWARD: return "its clock jumped forward, so locks may have run out early";
	case GUARD_EVICTED: return "it dropped keys to save memory";
	case GUARD_ROLLED_BACK: return "an older image of it was put back";
	case GUARD_OTHER_DIGEST: return "its epoch is for another number of masters or another version";
	case GUARD_OTHER_CLUSTER: return "its epoch is for another cluster of redlockd";
	case GUARD_NO_REASON: break;
	}
	return "";
}

static enum quarantine_reason guard_reason_of(const struct master *master)
{
	const struct guard *guard = &master->all->guard;
	assert(master_state_is_quarantined(master));
	bool recovery = guard_fences_missing(guard, (unsigned)master->index) > 0;
	return recovery ? QUARANTINE_RECOVERY : (enum quarantine_reason)guard->masters[master->index].reason;
}

static void describe_guard(const struct master *master, char *ret_reason, size_t size)
{
	const struct guard *guard = &master->all->guard;
	const struct guard_master *guarded = &guard->masters[master->index];
	unsigned missing = guard_fences_missing(guard, (unsigned)master->index);
	if (missing > 0)
		snprintf(ret_reason, size, "fence-recovery: %s before; waits for the fences of %u more masters",
			 guard_reason_name(guarded->reason), missing);
	else
		snprintf(ret_reason, size, "%s: %s", guard_reason_name(guarded->reason), words_for(guarded->reason));
}

/* ---- the state ---- */

enum master_state master_state_of(const struct master *master)
{
	if (master->link.state != LINK_UP || master->hung)
		return MASTER_DOWN;
	if (master->quarantine_reason[0])
		return MASTER_QUARANTINED;
	if (master_state_is_asking(master))
		return MASTER_DOWN;
	if (master_state_is_quarantined(master))
		return MASTER_QUARANTINED;
	return master->check.passed ? MASTER_VOTING : MASTER_DOWN;
}

uint64_t master_state_quarantine_left_ms(const struct master *master)
{
	return master_state_of(master) == MASTER_QUARANTINED && !master->quarantine_reason[0]
		       ? master_state_guard_left_ms(master)
		       : 0;
}

void master_state_write_reason(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	const char *refused = master->soft_reason;
	if (master->link.state != LINK_UP || master->hung)
		snprintf(ret_reason, STATUS_REASON_MAX, "%s", master->reason);
	else if (master->quarantine_reason[0])
		snprintf(ret_reason, STATUS_REASON_MAX, "%s", master->quarantine_reason);
	else if (master_state_is_quarantined(master) && !master_state_is_asking(master))
		describe_guard(master, ret_reason, STATUS_REASON_MAX);
	else
		snprintf(ret_reason, STATUS_REASON_MAX, "%s",
			 refused[0]                       ? refused
			 : master_state_is_asking(master) ? "connecting: its epoch is being read"
							  : "connecting: its commands are being tried");
	size_t len = strlen(ret_reason);
	if (refused[0] && master_state_of(master) == MASTER_QUARANTINED)
		snprintf(ret_reason + len, STATUS_REASON_MAX - len, "; also refused: %s", refused);
}

static void log_quarantine(const struct master *master)
{
	char reason[STATUS_REASON_MAX];
	assert(master_state_of(master) == MASTER_QUARANTINED);
	master_state_write_reason(master, reason);
	log_begin(LOG_WARN, "master-quarantined");
	log_text("master", master->link.address->shown);
	log_text("state", master_state_name(MASTER_QUARANTINED));
	log_text("reason", reason);
	log_num("quarantine_ms", (int64_t)master_state_quarantine_left_ms(master));
	log_end();
}

/* Counts and logs a quarantine when it begins, and again only for another hazard. Waiting for the fences of other
 * masters at its end is part of it. */
static void note_quarantine(struct master *master, enum master_state state)
{
	enum quarantine_reason reason = state != MASTER_QUARANTINED    ? QUARANTINE_NONE
					: master->quarantine_reason[0] ? master->quarantine_code
								       : guard_reason_of(master);
	assert((unsigned)reason < 8 * sizeof master->quarantined_for);
	bool first = master->quarantined_for == 0, counted = master->quarantined_for >> reason & 1;
	metrics_set(&master->all->metrics->masters[master->index].quarantined, reason);
	uint64_t left_ms = master_state_quarantine_left_ms(master);
	metrics_set(&master->all->metrics->masters[master->index].quarantine_until_us,
		    left_ms > 0 ? clock_now_us() + left_ms * 1000 : 0);
	master->quarantined_for = reason == QUARANTINE_NONE ? 0 : master->quarantined_for | UINT32_C(1) << reason;
	if (reason == QUARANTINE_NONE || counted)
		return;
	metrics_add(&master->all->metrics->masters[master->index].quarantines[reason], 1);
	if (first || reason != QUARANTINE_RECOVERY)
		log_quarantine(master);
}

static void log_state(const struct master *master, enum master_state state)
{
	char reason[STATUS_REASON_MAX];
	assert(state != MASTER_QUARANTINED); /* log_quarantine() */
	master_state_write_reason(master, reason);
	log_begin(state == MASTER_VOTING ? LOG_INFO : LOG_WARN, "master");
	log_text("master", master->link.address->shown);
	log_text("state", master_state_name(state));
	if (state == MASTER_VOTING)
		log_text("version", master->info.product);
	else
		log_text("reason", reason);
	log_end();
}

void master_state_report(struct master *master)
{
	enum master_state state = master_state_of(master);
	atomic_store_explicit(&master->all->metrics->masters[master->index].up, state == MASTER_VOTING,
			      memory_order_relaxed);
	if (!master->link.closing)
		note_quarantine(master, state);
	bool asking = master_state_is_asking(master) || (state == MASTER_DOWN && !master->hung && !master->check.ended);
	bool connecting = !master->link.tried || (master->link.state == LINK_UP && asking && !master->soft_reason[0]);
	uint64_t refused = atomic_load_explicit(&master->all->metrics->masters[master->index].refused,
						memory_order_relaxed);
	bool same = master->reported && state == master->reported_state && refused == master->reported_refused;
	if (same || connecting || master->link.closing)
		return;
	/* by note_quarantine() */
	bool logged = state == MASTER_QUARANTINED && master->reported_state != MASTER_QUARANTINED;
	master->reported_state = state;
	master->reported_refused = refused;
	master->reported = true;
	if (state != MASTER_QUARANTINED)
		log_state(master, state);
	else if (!logged)
		log_quarantine(master); /* what it refuses is new */
}

void master_state_count_error(struct master *master, enum master_error error)
{
	assert(error < MASTER_ERROR_COUNT);
	metrics_add(&master->all->metrics->masters[master->index].errors[error], 1);
}

/* The reason is kept where the trials have failed already: what they found says more than this one error. */
void master_state_doubt(struct master *master, enum master_error error, const char *text, size_t len)
{
	char words[MASTER_WORDS_MAX];
	assert(error < MASTER_ERROR_COUNT);
	if (!master->check.passed)
		return;
	master_error_words(text, len, words);
	master->check.passed = false;
	snprintf(master->soft_reason, sizeof master->soft_reason, "%s: %s", master_error_name(error), words);
	master_state_report(master);
}

void master_state_note_failure(struct master *master, const struct master_reply *reply, const redisReply *raw)
{
	assert(reply->vote == REDLOCK_VOTE_FAILED);
	bool one_off = reply->no_script || reply->lost || reply->late || reply->error == MASTER_ERROR_QUARANTINED;
	bool refused = raw && raw->type == REDIS_REPLY_ERROR;
	const char *text = refused                              ? raw->str
			   : reply->error == MASTER_ERROR_CLOCK ? "our clock is more than a day ahead of its own"
								: "an answer that is not Redis's";
	if (!one_off)
		master_state_doubt(master, reply->error, text, refused ? (size_t)raw->len : strlen(text));
}

void master_state_doubt_reply(struct master *master, const redisReply *reply)
{
	static const char strange[] = "an answer that is not Redis's";
	assert(reply);
	bool refused = reply->type == REDIS_REPLY_ERROR;
	enum master_error error = refused ? master_error_classify(reply->str, (size_t)reply->len) : MASTER_ERROR_OTHER;
	master_state_count_error(master, error);
	master_state_doubt(master, error, refused ? reply->str : strange,
			   refused ? (size_t)reply->len : sizeof strange - 1);
}
