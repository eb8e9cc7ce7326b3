/* The list of masters of one worker: sending, what is under way, and in which state each is. See master.h; the
 * connection itself is in master_link.c, its beginning and heartbeat in master_greet.c, what is shown of it in master_status.c.
 *
 * Every command under way is a `struct master_call` in the order of its connection. hiredis calls back in that order,
 * also when it drops a connection (then with NULL). A master that lets its oldest command wait for longer than
 * --master-timeout-ms is hung: it gets no new questions, but it keeps its connection, so that releases still go down
 * the same road as the acquires that lie in its socket, and in order. Its next answer makes it voting again. */
#include "master.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "master_internal.h"

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
	master_line_init(masters);
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
	master_line_close(masters);
	for (size_t i = 0; i < masters->count; i++)
		master_link_close(&masters->list[i]);
}

void masters_free(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		assert(!master->first && !master->io && !master->batch_first);
		master_drop_owed(master);
		while (master->spare) {
			struct master_call *next = master->spare->next;
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
	if (master->bar_reason[0])
		return MASTER_BARRED;
	if (master_guard_is_asking(master))
		return MASTER_DOWN;
	if (master_guard_is_barred(master))
		return MASTER_BARRED;
	return master->soft_reason[0] ? MASTER_DOWN : MASTER_VOTING;
}

void master_write_reason(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	const char *reason = master->soft_reason;
	if (master->link != LINK_UP || master->hung)
		reason = master->reason;
	else if (master->bar_reason[0])
		reason = master->bar_reason;
	else if (master_guard_is_asking(master) && !master->soft_reason[0])
		reason = "connecting: its certificate is being read";
	else if (master_guard_is_asking(master))
		reason = master->soft_reason; /* it does not let us read it */
	else if (master_guard_is_barred(master))
		reason = NULL;
	if (reason)
		snprintf(ret_reason, STATUS_REASON_MAX, "%s", reason);
	else
		master_guard_describe(master, ret_reason, STATUS_REASON_MAX);
}

/* Counts a bar when it begins, whoever found the reason. */
static void note_bar(struct master *master, enum master_state state)
{
	enum bar_reason reason = state != MASTER_BARRED ? BAR_NONE : master->bar_reason[0] ? master->bar_code : master_guard_reason(master);
	bool begins = reason != BAR_NONE && reason != master->barred_for;
	metrics_set(&master->all->metrics->masters[master->index].barred, reason);
	uint64_t left_ms = master_bar_left_ms(master);
	metrics_set(&master->all->metrics->masters[master->index].bar_until_us, left_ms > 0 ? clock_now_us() + left_ms * 1000 : 0);
	master->barred_for = reason;
	if (!begins)
		return;
	metrics_add(&master->all->metrics->masters[master->index].bars[reason], 1);
	log_begin(LOG_WARN, "master-barred");
	log_text("master", master->address->shown);
	log_text("reason", bar_reason_name(reason));
	log_num("bar_ms", (int64_t)left_ms);
	log_end();
}

/* Tells the log and the metrics where a master stands, if that is new. */
void master_state_changed(struct master *master)
{
	enum master_state state = master_state_of(master);
	atomic_store_explicit(&master->all->metrics->masters[master->index].up, state == MASTER_VOTING, memory_order_relaxed);
	if (!master->closing)
		note_bar(master, state);
	bool connecting = !master->tried || (master->link == LINK_UP && master_guard_is_asking(master) && !master->soft_reason[0]);
	if ((master->told && state == master->shown) || connecting || master->closing)
		return;
	master->shown = state;
	master->told = true;
	char reason[STATUS_REASON_MAX];
	master_write_reason(master, reason);
	log_begin(state == MASTER_VOTING ? LOG_INFO : LOG_WARN, "master");
	log_text("master", master->address->shown);
	log_text("state", master_state_name(state));
	if (state == MASTER_VOTING)
		log_text("version", master->info.version);
	else
		log_text("reason", reason);
	log_end();
}

static void count_error(struct master *master, enum master_error error)
{
	metrics_add(&master->all->metrics->masters[master->index].errors[error], 1);
}

/* A master that answers, but with an error that no question will change, is down as long as it does so: until it carries out
 * what it refused (the release that follows a refused acquisition says nothing), or until a heartbeat. */
static void note_soft_error(struct master *master, enum redlock_script script, const struct master_reply *reply, const redisReply *raw)
{
	if (reply->vote != REDLOCK_VOTE_FAILED && script != master->soft_script)
		return;
	master->soft_reason[0] = '\0';
	master->soft_script = script;
	bool one_off = reply->no_script || reply->lost || reply->late || reply->error == MASTER_ERROR_BARRED;
	if (reply->vote == REDLOCK_VOTE_FAILED && !one_off) {
		bool told = raw && raw->type == REDIS_REPLY_ERROR;
		snprintf(master->soft_reason, sizeof master->soft_reason, "%s: %.120s", master_error_name(reply->error),
			 told ? raw->str : reply->error == MASTER_ERROR_CLOCK ? "our clock is more than a day ahead of its own" : "an answer that is not Redis's");
	}
	master_state_changed(master);
}

void master_soft_error(struct master *master, const redisReply *reply)
{
	bool told = reply->type == REDIS_REPLY_ERROR;
	enum master_error error = told ? master_error_classify(reply->str, (size_t)reply->len) : MASTER_ERROR_OTHER;
	master->soft_script = REDLOCK_SCRIPT_NONE;
	snprintf(master->soft_reason, sizeof master->soft_reason, "%s: %.120s", master_error_name(error), told ? reply->str : "an answer that is not Redis's");
	count_error(master, error);
	master_state_changed(master);
}

/* ---- commands under way ---- */

/* True if the oldest command had waited for too long at `when_us`. */
static bool is_behind(const struct master *master, uint64_t when_us)
{
	const struct master_call *oldest = master->first;
	return oldest && when_us > oldest->sent_us && when_us - oldest->sent_us >= master->all->options->master_timeout_ms * UINT64_C(1000);
}

/* Behind, and not because we stood still or had more to read than a round does. */
static bool is_silent(const struct master *master, uint64_t when_us)
{
	return is_behind(master, when_us) && !masters_have_unread(master->all, master->index);
}

/* Others' raw questions (SCAN) have no deadline of their own: they fail now, and their late answers go nowhere. */
static void fail_raw_calls(struct master *master)
{
	for (struct master_call *call = master->first; call; call = call->next) {
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
	fail_raw_calls(master);
	snprintf(master->reason, sizeof master->reason, "timeout: no answer for %u ms", master->all->options->master_timeout_ms);
	master_state_changed(master);
}

/* An answer of any kind. The master is not hung any more once it has worked off what it was behind with. */
static void note_answer(struct master *master, uint64_t rtt_us)
{
	master->rtt_us = master->has_rtt ? (master->rtt_us * 7 + rtt_us) / 8 : rtt_us;
	master->has_rtt = true;
	histogram_observe(&master->all->metrics->masters[master->index].rtt, rtt_us);
	if (!master->hung || is_behind(master, clock_now_us()))
		return;
	master->hung = false;
	master_state_changed(master);
}

static struct master_call *call_shift(struct master *master, struct master_call *call)
{
	assert(master->first == call);
	master->first = call->next;
	if (!master->first)
		master->last = NULL;
	metrics_add(&master->all->metrics->masters[master->index].in_flight, (uint64_t)-1);
	return call;
}

static void call_recycle(struct master *master, struct master_call *call)
{
	call->next = master->spare;
	master->spare = call;
}

/* A script of the core has its answer. */
static void settle(struct master *master, const struct master_call *done, uint64_t now_us, struct master_reply *mapped, const redisReply *reply)
{
	if (!mapped->lost)
		master_guard_judge_reply(master, done, now_us, mapped);
	if (mapped->vote == REDLOCK_VOTE_FAILED && !mapped->no_script)
		count_error(master, mapped->error);
	if (mapped->vote == REDLOCK_VOTE_FAILED || master->soft_reason[0])
		note_soft_error(master, done->script, mapped, reply);
	if (done->reply)
		done->reply(done->arg, mapped);
}

static const redisReply *part_of(const redisReply *reply, size_t i)
{
	return reply && reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements ? reply->element[i + 1] : reply;
}

/* Several acquisitions went in one command. */
static void settle_batch(struct master *master, struct master_call *first, uint64_t now_us, const redisReply *reply)
{
	size_t count = 0, i = 0;
	uint64_t sent_us = first->sent_us;
	for (const struct master_call *call = first; call; call = call->also)
		count++;
	for (struct master_call *call = first, *also; call; call = also, i++) {
		struct master_call done = *call;
		struct master_reply mapped;
		also = call->also;
		done.sent_us = sent_us;
		call_recycle(master, call);
		master_reply_map_part(reply, i, count, &mapped);
		settle(master, &done, now_us, &mapped, part_of(reply, i));
	}
}

void master_batch_lost(struct master *master)
{
	struct master_call *first = master->batch_first;
	master->batch_first = master->batch_last = NULL;
	master->batch.count = 0;
	master->batch.keys_len = master->batch.arguments_len = 0;
	if (first)
		settle_batch(master, first, clock_now_us(), NULL);
}

static void on_reply(redisAsyncContext *context, void *raw, void *privdata)
{
	(void)context;
	struct master_call *call = privdata;
	struct master *master = call->master;
	const redisReply *reply = raw;
	call_shift(master, call);
	uint64_t now_us = clock_now_us();
	if (reply)
		note_answer(master, now_us - call->sent_us);
	if (call->also) {
		settle_batch(master, call, now_us, reply);
		return;
	}
	struct master_call done = *call;
	call_recycle(master, call);
	if (done.owed) {
		master_owed_answered(master, done.owed, reply);
		return;
	}
	master->answered_sent_us = done.sent_us;
	if (done.script == REDLOCK_SCRIPT_NONE) {
		if (done.raw)
			done.raw(done.arg, reply);
		return;
	}
	struct master_reply mapped;
	master_reply_map(done.script, reply, &mapped);
	settle(master, &done, now_us, &mapped, reply);
}

static void end_for_memory(redisAsyncContext *context)
{
	context->c.err = REDIS_ERR_OOM;
	snprintf(context->c.errstr, sizeof context->c.errstr, "out of memory");
}

/* hiredis 0.14 sends a command also where it had no memory to note whom the answer is for, and each later answer would go to the wrong one: then the
 * connection must end before anything of it is written. An error in it does that, with the next step. */
static bool is_noted(redisAsyncContext *context, const struct master_call *call)
{
	const redisCallback *last = context->replies.tail;
	if (last && last->privdata == call)
		return true;
	end_for_memory(context);
	return false;
}

static struct master_call *call_new(struct master *master, enum redlock_script script)
{
	struct master_call *call = master->spare;
	if (call)
		master->spare = call->next;
	else if (!(call = malloc(sizeof *call)))
		return NULL;
	*call = (struct master_call){ .master = master, .script = script };
	return call;
}

/* Appends a command to the connection: its answer is call's. */
static bool append(struct master *master, struct master_call *call, const char *command, size_t len)
{
	redisAsyncContext *context = master->io->context;
	call->sent_us = clock_now_us();
	if (redisAsyncFormattedCommand(context, on_reply, call, command, len) != REDIS_OK || !is_noted(context, call))
		return false;
	if (master->last)
		master->last->next = call;
	else
		master->first = call;
	master->last = call;
	metrics_add(&master->all->metrics->masters[master->index].in_flight, 1);
	return true;
}

/* The batch had to go and could not: nothing more may join those who wait for it, until the connection has ended. */
static bool is_batch_stuck(const struct master *master)
{
	return master->batch_first && master->batch.count == 0;
}

/* What the batch has goes out. Where that cannot be the connection ends, and with it the batch (master_batch_lost). */
static void send_batch(struct master *master)
{
	struct master_io *io = master->io;
	if (master->batch.count == 0 || !io || !io->context)
		return;
	char command[MASTER_BATCH_BYTES];
	size_t len = master_batch_take(&master->batch, master->all->hash_key, command);
	if (append(master, master->batch_first, command, len)) {
		master->batch_first = master->batch_last = NULL;
		return;
	}
	if (io->context->c.flags & (REDIS_DISCONNECTING | REDIS_FREEING))
		return;
	end_for_memory(io->context);
	io->want_write = true;
}

/* An acquisition, which may wait for others until the end of this round. */
static struct master_call *batch_push(struct master *master, const char *command, size_t len)
{
	assert(master->io && master->io->context);
	struct master_call *call = call_new(master, REDLOCK_SCRIPT_ACQUIRE);
	if (!call)
		return NULL;
	bool added = !is_batch_stuck(master) && master_batch_add(&master->batch, command, len);
	if (!added) {
		send_batch(master);
		added = !is_batch_stuck(master) && master_batch_add(&master->batch, command, len);
	}
	if (!added) {
		call_recycle(master, call);
		return NULL;
	}
	if (master->batch_last)
		master->batch_last->also = call;
	else
		master->batch_first = call;
	master->batch_last = call;
	return call;
}

/* Appends a command to the connection, behind what the batch has. NULL where it cannot be (memory, or the connection is being dropped). */
struct master_call *master_call_push(struct master *master, enum redlock_script script, const char *command, size_t len)
{
	assert(master->io && master->io->context);
	send_batch(master);
	struct master_call *call = call_new(master, script);
	if (call && append(master, call, command, len))
		return call;
	if (call)
		call_recycle(master, call);
	return NULL;
}

/* A command of our own (greeting, heartbeat). */
bool master_command(struct master *master, master_raw_fn *reply, int argc, const char *const argv[])
{
	char *command = NULL;
	long long len = redisFormatCommandArgv(&command, argc, (const char **)(uintptr_t)argv, NULL);
	if (len < 0)
		return false;
	struct master_call *call = master_call_push(master, REDLOCK_SCRIPT_NONE, command, (size_t)len);
	redisFreeCommand(command);
	if (!call)
		return false;
	call->raw = reply;
	call->arg = master;
	return true;
}

static enum master_sent sendable(struct master *master)
{
	if (master->link != LINK_UP)
		return MASTER_UNSENT;
	if (!master->hung && is_silent(master, master->all->looked_us)) /* not now: what has come since then may be on its way to us */
		become_hung(master);
	if (master->hung)
		return MASTER_UNSENT;
	switch (master_state_of(master)) {
	case MASTER_BARRED: return MASTER_REFUSED;
	case MASTER_DOWN: return master_guard_is_asking(master) ? MASTER_UNSENT : MASTER_SENT; /* an error that the next answer may lift */
	case MASTER_VOTING: break;
	}
	return MASTER_SENT;
}

enum master_sent masters_send(struct masters *masters, size_t i, enum redlock_script script, char *command, size_t len, uint64_t until_us,
			      master_reply_fn *reply, void *arg)
{
	assert(i < masters->count && script != REDLOCK_SCRIPT_NONE);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	if (sent != MASTER_SENT) {
		if (sent == MASTER_UNSENT)
			count_error(master, MASTER_ERROR_DOWN);
		return sent;
	}
	uint64_t certificate = master_guard_stamp(master, command, len, until_us);
	bool joins = script == REDLOCK_SCRIPT_ACQUIRE && master_batch_suits(command);
	struct master_call *call = joins ? batch_push(master, command, len) : master_call_push(master, script, command, len);
	if (!call)
		return MASTER_UNSENT;
	call->certificate = certificate;
	call->reply = reply;
	call->arg = arg;
	return MASTER_SENT;
}

enum master_sent masters_send_raw(struct masters *masters, size_t i, const char *command, size_t len, master_raw_fn *reply, void *arg)
{
	assert(i < masters->count);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	struct master_call *call = sent == MASTER_SENT ? master_call_push(master, REDLOCK_SCRIPT_NONE, command, len) : NULL;
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
	count_error(master, MASTER_ERROR_TIMEOUT);
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
		send_batch(&masters->list[i]);
		master_link_flush(&masters->list[i]);
	}
}
