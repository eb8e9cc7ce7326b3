/* The list of masters of one worker: sending, what is under way, releases owed, and what is shown. See master.h; the
 * connection itself is in master_link.c, its beginning and heartbeat in master_greet.c.
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
	for (size_t i = 0; i < masters->count; i++)
		master_link_close(&masters->list[i]);
}

void masters_free(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		assert(!master->first && !master->io);
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
		if (!masters->list[i].tried)
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

/* ---- state ---- */

static enum master_state state_of(const struct master *master)
{
	if (master->link != LINK_UP || master->hung)
		return MASTER_DOWN;
	if (master->bar_reason[0])
		return MASTER_BARRED;
	return master->soft_reason[0] ? MASTER_DOWN : MASTER_VOTING;
}

static const char *reason_of(const struct master *master)
{
	if (master->link != LINK_UP || master->hung)
		return master->reason;
	return master->bar_reason[0] ? master->bar_reason : master->soft_reason;
}

/* Tells the log and the metrics where a master stands, if that is new. */
void master_state_changed(struct master *master)
{
	enum master_state state = state_of(master);
	atomic_store_explicit(&master->all->metrics->masters[master->index].up, state == MASTER_VOTING, memory_order_relaxed);
	bool connecting = !master->tried;
	if ((master->told && state == master->shown) || connecting || master->closing)
		return;
	master->shown = state;
	master->told = true;
	log_begin(state == MASTER_VOTING ? LOG_INFO : LOG_WARN, "master");
	log_text("master", master->address->shown);
	log_text("state", master_state_name(state));
	if (state == MASTER_VOTING)
		log_text("version", master->info.version);
	else
		log_text("reason", reason_of(master));
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
	if (reply->vote == REDLOCK_VOTE_FAILED && !reply->no_script && !reply->lost) {
		bool told = raw && raw->type == REDIS_REPLY_ERROR;
		snprintf(master->soft_reason, sizeof master->soft_reason, "%s: %.120s", master_error_name(reply->error),
			 told ? raw->str : "an answer that is not Redis's");
	}
	master_state_changed(master);
}

/* ---- commands under way ---- */

/* True if the oldest command had waited for too long at `when_us`. */
static bool is_behind(const struct master *master, uint64_t when_us)
{
	const struct master_call *oldest = master->first;
	return oldest && when_us > oldest->sent_us && when_us - oldest->sent_us >= master->all->options->master_timeout_ms * UINT64_C(1000);
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
	return call;
}

static void call_recycle(struct master *master, struct master_call *call)
{
	call->next = master->spare;
	master->spare = call;
}

static void owed_push(struct master *master, struct owed_release *owed)
{
	owed->next = NULL;
	if (master->owed_last)
		master->owed_last->next = owed;
	else
		master->owed_first = owed;
	master->owed_last = owed;
}

static void owed_free(struct master *master, struct owed_release *owed)
{
	master->owed_count--;
	free(owed);
}

/* The answer to a release that was owed: it is settled, unless the connection broke or the script was forgotten. */
static void owed_answered(struct master *master, struct owed_release *owed, const redisReply *reply)
{
	struct master_reply mapped;
	master_reply_map(REDLOCK_SCRIPT_RELEASE, reply, &mapped);
	if ((mapped.lost || mapped.no_script) && !master->closing)
		owed_push(master, owed); /* the next greeting loads the scripts */
	else
		owed_free(master, owed);
}

static void on_reply(redisAsyncContext *context, void *raw, void *privdata)
{
	(void)context;
	struct master_call *call = privdata;
	struct master *master = call->master;
	const redisReply *reply = raw;
	struct master_call done = *call_shift(master, call);
	call_recycle(master, call);
	if (reply)
		note_answer(master, clock_now_us() - done.sent_us);
	if (done.owed) {
		owed_answered(master, done.owed, reply);
		return;
	}
	if (done.script == REDLOCK_SCRIPT_NONE) {
		if (done.raw)
			done.raw(done.arg, reply);
		return;
	}
	struct master_reply mapped;
	master_reply_map(done.script, reply, &mapped);
	if (mapped.vote == REDLOCK_VOTE_FAILED && !mapped.no_script)
		count_error(master, mapped.error);
	if (mapped.vote == REDLOCK_VOTE_FAILED || master->soft_reason[0])
		note_soft_error(master, done.script, &mapped, reply);
	if (done.reply)
		done.reply(done.arg, &mapped);
}

/* Appends a command to the connection. NULL where it cannot be (memory, or the connection is being dropped). */
struct master_call *master_call_push(struct master *master, enum redlock_script script, const char *command, size_t len)
{
	assert(master->io && master->io->context);
	struct master_call *call = master->spare;
	if (call)
		master->spare = call->next;
	else if (!(call = malloc(sizeof *call)))
		return NULL;
	*call = (struct master_call){ .master = master, .sent_us = clock_now_us(), .script = script };
	if (redisAsyncFormattedCommand(master->io->context, on_reply, call, command, len) != REDIS_OK) {
		call_recycle(master, call);
		return NULL;
	}
	if (master->last)
		master->last->next = call;
	else
		master->first = call;
	master->last = call;
	return call;
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
	if (!master->hung && is_behind(master, master->all->looked_us)) /* not now: if we were the ones that stood still, answers may lie unread */
		become_hung(master);
	if (master->hung)
		return MASTER_UNSENT;
	return master->bar_reason[0] ? MASTER_REFUSED : MASTER_SENT;
}

enum master_sent masters_send(struct masters *masters, size_t i, enum redlock_script script, const char *command, size_t len, master_reply_fn *reply,
			      void *arg)
{
	assert(i < masters->count && script != REDLOCK_SCRIPT_NONE);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	if (sent != MASTER_SENT) {
		if (sent == MASTER_UNSENT)
			count_error(master, MASTER_ERROR_DOWN);
		return sent;
	}
	struct master_call *call = master_call_push(master, script, command, len);
	if (!call)
		return MASTER_UNSENT;
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
	if (master->link != LINK_UP || !is_behind(master, clock_now_us()))
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
	for (size_t i = 0; i < masters->count; i++)
		master_link_flush(&masters->list[i]);
}

/* ---- owed releases ---- */

static bool owed_send(struct master *master, struct owed_release *owed)
{
	struct master_call *call = master_call_push(master, REDLOCK_SCRIPT_RELEASE, owed->command, owed->len);
	if (call)
		call->owed = owed;
	return call != NULL;
}

void masters_owe_release(struct masters *masters, size_t i, const char *command, size_t len)
{
	struct master *master = &masters->list[i];
	if (master->closing || master->owed_count >= MASTER_OWED_MAX)
		return; /* the key runs out by itself: only time is lost */
	struct owed_release *owed = malloc(sizeof *owed + len);
	if (!owed)
		return;
	owed->until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
	owed->len = len;
	memcpy(owed->command, command, len);
	master->owed_count++;
	bool sent = master->link == LINK_UP && owed_send(master, owed); /* hung: behind the acquire that lies in its socket */
	if (!sent)
		owed_push(master, owed);
}

static struct owed_release *owed_shift(struct master *master)
{
	struct owed_release *owed = master->owed_first;
	master->owed_first = owed->next;
	if (!master->owed_first)
		master->owed_last = NULL;
	return owed;
}

/* First of all on a new connection: before anything is asked of a master it gets the releases that it missed. */
void master_send_owed(struct master *master)
{
	uint64_t now_us = clock_now_us();
	for (size_t left = master->owed_count; left > 0 && master->owed_first; left--) {
		struct owed_release *owed = owed_shift(master);
		if (owed->until_us <= now_us)
			owed_free(master, owed);
		else if (!owed_send(master, owed))
			owed_push(master, owed);
	}
}

void master_drop_owed(struct master *master)
{
	while (master->owed_first)
		owed_free(master, owed_shift(master));
}

/* ---- what is shown ---- */

const char *master_state_name(enum master_state state)
{
	static const char *const names[] = { "voting", "barred", "down" };
	assert((size_t)state < sizeof names / sizeof *names);
	return names[state];
}

size_t masters_count(const struct masters *masters)
{
	return masters->count;
}

void masters_status(const struct masters *masters, size_t i, struct master_status *ret_status)
{
	assert(i < masters->count);
	const struct master *master = &masters->list[i];
	memset(ret_status, 0, sizeof *ret_status);
	ret_status->state = state_of(master);
	snprintf(ret_status->address, sizeof ret_status->address, "%s", master->address->shown);
	if (ret_status->state != MASTER_VOTING)
		snprintf(ret_status->reason, sizeof ret_status->reason, "%s", reason_of(master));
	ret_status->has_rtt = master->has_rtt;
	ret_status->rtt_us = master->rtt_us;
	if (master->has_info) {
		memcpy(ret_status->version, master->info.version, sizeof ret_status->version);
		memcpy(ret_status->run_id, master->info.run_id, sizeof ret_status->run_id);
	}
	ret_status->warning_count = master->warning_count;
	memcpy(ret_status->warnings, master->warnings, sizeof ret_status->warnings);
}

void masters_quorum(const struct masters *masters, struct quorum_status *ret_quorum)
{
	uint8_t voting = 0;
	for (size_t i = 0; i < masters->count; i++)
		voting = (uint8_t)(voting + (state_of(&masters->list[i]) == MASTER_VOTING));
	*ret_quorum = (struct quorum_status){ redlock_majority((uint8_t)masters->count), voting, (uint8_t)masters->count };
}
