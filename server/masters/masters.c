/* The list of masters of one worker: in which state each is, and whether it is asked. See master.h; what is under way
 * is in master_call.c, the connection itself in master_link.c, its beginning and heartbeat in master_handshake.c, what
 * is shown of it in master_status.c.
 *
 * A master that lets its oldest command wait for longer than --master-timeout-ms is hung: it gets no new questions, but
 * it keeps its connection, so that releases still go down the same road as the acquires that lie in its socket, and in
 * order. Its next answer makes it voting again. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "masters.h"
#include "server/base/base.h"

struct masters *masters_new(uv_loop_t *loop, const struct options *options, struct metrics *metrics)
{
	assert(options->master_count >= 1 && options->master_count <= OPTIONS_MASTERS_MAX);
	struct masters *masters = calloc(1, sizeof *masters);
	if (!masters)
		return NULL;
	masters->loop = loop;
	masters->options = options;
	masters->metrics = metrics;
	masters->count = options->master_count;
	snprintf(masters->hash_key, sizeof masters->hash_key, "%sredlockd:master", options->key_prefix);
	master_guard_init(masters);
	master_queue_init(masters);
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		master->all = masters;
		master->index = i;
		master->address = &options->masters[i];
		master->shown = MASTER_DOWN;
		snprintf(master->reason, sizeof master->reason, "connecting");
		master_link_start(master);
	}
	return masters;
}

void masters_close(struct masters *masters)
{
	master_queue_close(masters);
	for (size_t i = 0; i < masters->count; i++)
		master_link_close(&masters->list[i]);
}

void masters_free(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		assert(!master->first && !master->io && !master->batch_first);
		master_drop_pending(master);
		while (master->spare) {
			struct master_command *next = master->spare->next;
			free(master->spare);
			master->spare = next;
		}
	}
	free(masters);
}

bool masters_settled(const struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++)
		if (!masters->list[i].tried || !master_guard_is_settled(&masters->list[i]))
			return false;
	return true;
}

bool masters_find_duplicate(const struct masters *masters, size_t *ret_first, size_t *ret_second)
{
	for (size_t i = 0; i < masters->count; i++) {
		const struct master *a = &masters->list[i];
		for (size_t j = i + 1; a->has_info && j < masters->count; j++) {
			const struct master *b = &masters->list[j];
			if (!b->has_info || strcmp(a->info.run_id, b->info.run_id) != 0)
				continue;
			*ret_first = i;
			*ret_second = j;
			return true;
		}
	}
	return false;
}

bool masters_find_other_digest(const struct masters *masters, size_t *ret_which)
{
	for (size_t i = 0; i < masters->count; i++) {
		if (!master_guard_has_other_digest(&masters->list[i]))
			continue;
		*ret_which = i;
		return true;
	}
	return false;
}

/* ---- state ---- */

enum master_state master_state_of(const struct master *master)
{
	if (master->link != LINK_UP || master->hung)
		return MASTER_DOWN;
	if (master->quarantine_reason[0])
		return MASTER_QUARANTINED;
	if (master_guard_is_asking(master))
		return MASTER_DOWN;
	if (master_guard_is_quarantined(master))
		return MASTER_QUARANTINED;
	return master->check.passed ? MASTER_VOTING : MASTER_DOWN;
}

void master_write_reason(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	const char *refused = master->soft_reason;
	if (master->link != LINK_UP || master->hung)
		snprintf(ret_reason, STATUS_REASON_MAX, "%s", master->reason);
	else if (master->quarantine_reason[0])
		snprintf(ret_reason, STATUS_REASON_MAX, "%s", master->quarantine_reason);
	else if (master_guard_is_quarantined(master) && !master_guard_is_asking(master))
		master_guard_describe(master, ret_reason, STATUS_REASON_MAX);
	else
		snprintf(ret_reason, STATUS_REASON_MAX, "%s",
			 refused[0]                       ? refused
			 : master_guard_is_asking(master) ? "connecting: its epoch is being read"
							  : "connecting: its commands are being tried");
	size_t len = strlen(ret_reason);
	if (refused[0] && master_state_of(master) == MASTER_QUARANTINED)
		snprintf(ret_reason + len, STATUS_REASON_MAX - len, "; also refused: %s", refused);
}

static void log_quarantine(const struct master *master)
{
	char reason[STATUS_REASON_MAX];
	master_write_reason(master, reason);
	log_begin(LOG_WARN, "master-quarantined");
	log_text("master", master->address->shown);
	log_text("state", master_state_name(MASTER_QUARANTINED));
	log_text("reason", reason);
	log_num("quarantine_ms", (int64_t)master_quarantine_left_ms(master));
	log_end();
}

/* Counts a quarantine when it begins, whoever found the reason, and tells the log; again only for another hazard. That
 * the fences of others are waited for at its end is part of it. */
static void note_quarantine(struct master *master, enum master_state state)
{
	enum quarantine_reason reason = state != MASTER_QUARANTINED    ? QUARANTINE_NONE
					: master->quarantine_reason[0] ? master->quarantine_code
								       : master_guard_reason(master);
	bool first = master->quarantined_for == 0, counted = master->quarantined_for >> reason & 1;
	metrics_set(&master->all->metrics->masters[master->index].quarantined, reason);
	uint64_t left_ms = master_quarantine_left_ms(master);
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
	master_write_reason(master, reason);
	log_begin(state == MASTER_VOTING ? LOG_INFO : LOG_WARN, "master");
	log_text("master", master->address->shown);
	log_text("state", master_state_name(state));
	if (state == MASTER_VOTING)
		log_text("version", master->info.product);
	else
		log_text("reason", reason);
	log_end();
}

/* Tells the log and the metrics where a master stands, if that is new. */
void master_state_changed(struct master *master)
{
	enum master_state state = master_state_of(master);
	atomic_store_explicit(&master->all->metrics->masters[master->index].up, state == MASTER_VOTING,
			      memory_order_relaxed);
	if (!master->closing)
		note_quarantine(master, state);
	bool asking = master_guard_is_asking(master) || (state == MASTER_DOWN && !master->hung && !master->check.ended);
	bool connecting = !master->tried || (master->link == LINK_UP && asking && !master->soft_reason[0]);
	uint64_t refused = atomic_load_explicit(&master->all->metrics->masters[master->index].refused,
						memory_order_relaxed);
	bool same = master->told && state == master->shown && refused == master->told_refused;
	if (same || connecting || master->closing)
		return;
	/* by note_quarantine() */
	bool quarantine_told = state == MASTER_QUARANTINED && master->shown != MASTER_QUARANTINED;
	master->shown = state;
	master->told_refused = refused;
	master->told = true;
	if (state != MASTER_QUARANTINED)
		log_state(master, state);
	else if (!quarantine_told)
		log_quarantine(master); /* what it refuses is new */
}

void master_count_error(struct master *master, enum master_error error)
{
	metrics_add(&master->all->metrics->masters[master->index].errors[error], 1);
}

/* It refused what it must be able to do: it has no vote until it is seen to do all of it again (master_check.c). What
 * that finds says more than this one error, so it is not written over. */
void master_doubt(struct master *master, enum master_error error, const char *text, size_t len)
{
	char words[MASTER_WORDS_MAX];
	if (!master->check.passed)
		return;
	master_error_words(text, len, words);
	master->check.passed = false;
	snprintf(master->soft_reason, sizeof master->soft_reason, "%s: %s", master_error_name(error), words);
	master_state_changed(master);
}

void master_note_failure(struct master *master, const struct master_reply *reply, const redisReply *raw)
{
	bool one_off = reply->no_script || reply->lost || reply->late || reply->error == MASTER_ERROR_QUARANTINED;
	bool told = raw && raw->type == REDIS_REPLY_ERROR;
	const char *text = told                                 ? raw->str
			   : reply->error == MASTER_ERROR_CLOCK ? "our clock is more than a day ahead of its own"
								: "an answer that is not Redis's";
	if (!one_off)
		master_doubt(master, reply->error, text, told ? (size_t)raw->len : strlen(text));
}

void master_soft_error(struct master *master, const redisReply *reply)
{
	static const char strange[] = "an answer that is not Redis's";
	bool told = reply->type == REDIS_REPLY_ERROR;
	enum master_error error = told ? master_error_classify(reply->str, (size_t)reply->len) : MASTER_ERROR_OTHER;
	master_count_error(master, error);
	master_doubt(master, error, told ? reply->str : strange, told ? (size_t)reply->len : sizeof strange - 1);
}

/* ---- commands under way ---- */

/* True if the oldest command had waited for too long at `when_us`. */
static bool is_behind(const struct master *master, uint64_t when_us)
{
	const struct master_command *oldest = master->first;
	return oldest && when_us > oldest->sent_us &&
	       when_us - oldest->sent_us >= master->all->options->master_timeout_ms * UINT64_C(1000);
}

/* Behind, and not because we stood still or had more to read than a round does. */
static bool is_silent(const struct master *master, uint64_t when_us)
{
	return is_behind(master, when_us) && !masters_have_unread(master->all, master->index);
}

/* Others' raw questions (SCAN) have no deadline of their own: they fail now, and their late answers go nowhere. */
static void fail_raw_commands(struct master *master)
{
	for (struct master_command *call = master->first; call; call = call->next) {
		master_raw_fn *raw = call->arg == master ? NULL : call->raw;
		if (!raw)
			continue;
		call->raw = NULL;
		raw(call->arg, NULL);
	}
}

static void become_hung(struct master *master)
{
	if (master->hung)
		return;
	master->hung = true;
	fail_raw_commands(master);
	snprintf(master->reason, sizeof master->reason, "timeout: no answer for %u ms",
		 master->all->options->master_timeout_ms);
	master_state_changed(master);
}

/* An answer of any kind. The master is not hung any more once it has worked off what it was behind with. */
void master_note_answer(struct master *master, uint64_t rtt_us)
{
	master->rtt_us = master->has_rtt ? (master->rtt_us * 7 + rtt_us) / 8 : rtt_us;
	master->has_rtt = true;
	histogram_observe(&master->all->metrics->masters[master->index].rtt, rtt_us);
	if (!master->hung || is_behind(master, clock_now_us()))
		return;
	master->hung = false;
	master_state_changed(master);
}

static enum master_sent sendable(struct master *master)
{
	if (master->link != LINK_UP)
		return MASTER_UNSENT;
	/* not now: what has come since then may be on its way to us */
	if (!master->hung && is_silent(master, master->all->looked_us))
		become_hung(master);
	if (master->hung)
		return MASTER_UNSENT;
	switch (master_state_of(master)) {
	case MASTER_QUARANTINED: return MASTER_REFUSED;
	/* some things it may still do */
	case MASTER_DOWN: return master_guard_is_asking(master) || !master->check.known ? MASTER_UNSENT : MASTER_SENT;
	case MASTER_VOTING: break;
	}
	return MASTER_SENT;
}

enum master_sent masters_send(struct masters *masters, size_t i, enum redlock_script script, char *command, size_t len,
			      uint64_t until_us, master_reply_fn *reply, void *arg)
{
	assert(i < masters->count && script != REDLOCK_SCRIPT_NONE);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	if (sent != MASTER_SENT) {
		if (sent == MASTER_UNSENT)
			master_count_error(master, MASTER_ERROR_DOWN);
		return sent;
	}
	uint64_t epoch = master_guard_stamp(master, command, len, until_us);
	bool joins = script == REDLOCK_SCRIPT_ACQUIRE && master_batch_suits(command);
	struct master_command *call = joins ? master_command_join(master, command, len)
					    : master_command_push(master, script, command, len);
	if (!call)
		return MASTER_UNSENT;
	call->epoch = epoch;
	call->reply = reply;
	call->arg = arg;
	return MASTER_SENT;
}

enum master_sent masters_send_raw(struct masters *masters, size_t i, const char *command, size_t len,
				  master_raw_fn *reply, void *arg)
{
	assert(i < masters->count);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	struct master_command *call = sent == MASTER_SENT
					      ? master_command_push(master, REDLOCK_SCRIPT_NONE, command, len)
					      : NULL;
	if (!call)
		return sent == MASTER_SENT ? MASTER_UNSENT : sent;
	call->raw = reply;
	call->arg = arg;
	return MASTER_SENT;
}

void masters_note_silence(struct masters *masters, size_t i)
{
	assert(i < masters->count);
	struct master *master = &masters->list[i];
	if (master->link != LINK_UP || !is_silent(master, clock_now_us()))
		return;
	master_count_error(master, MASTER_ERROR_TIMEOUT);
	become_hung(master);
}

void masters_note_round(struct masters *masters)
{
	masters->looked_us = masters->round_us; /* between two rounds the loop has read what had arrived by the first */
	masters->round_us = clock_now_us();
}

void masters_flush(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++) {
		master_command_send_batch(&masters->list[i]);
		master_link_flush(&masters->list[i]);
	}
}
