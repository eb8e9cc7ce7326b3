/* The masters of one worker: what masters.h offers, and what joins the layers of the folder (master_internal.h): what a
 * connection reports is passed on here, and the answers of scripts are evaluated here. The worker's thread. */
#include "masters.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

/* ---- what a connection reports ---- */

static void on_connected(void *arg)
{
	master_handshake_start(arg);
}

static void on_ticked(void *arg)
{
	master_handshake_tick(arg);
}

static void on_failed(void *arg, enum link_state was, const char *reason, bool by_peer)
{
	struct master *master = arg;
	char refused[STATUS_REASON_MAX];
	assert(master->link.state == LINK_DOWN && was != LINK_DOWN && was != LINK_CLOSED);
	if (by_peer && was == LINK_HANDSHAKE && master->check.words[0]) { /* the server answered why before it closed */
		master_check_write(master, refused);
		reason = refused;
	}
	master_check_end(master, was == LINK_HANDSHAKE);
	master->hung = false;
	master->heartbeat_out = false;
	master->has_rtt = false;
	master->soft_reason[0] = '\0';
	master_guard_notify(master, GUARD_LOST);
	snprintf(master->reason, sizeof master->reason, "%s", reason);
	master_state_report(master);
}

static void on_ended(void *arg)
{
	master_command_fail_batch(arg);
}

static const struct master_link_events link_events = {on_connected, on_ticked, on_failed, on_ended};

/* ---- the list ---- */

struct masters *masters_new(struct uv_loop_s *loop, const struct options *options, struct metrics *metrics)
{
	assert(loop && metrics && options->master_count >= 1 && options->master_count <= OPTIONS_MASTERS_MAX);
	struct masters *masters = calloc(1, sizeof *masters);
	if (!masters)
		return NULL;
	masters->loop = loop;
	masters->options = options;
	masters->metrics = metrics;
	masters->count = options->master_count;
	snprintf(masters->hash_key, sizeof masters->hash_key, "%sredlockd:master", options->key_prefix);
	master_guard_init(masters);
	master_notification_init(masters, master_check_note_subscribed);
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		master->all = masters;
		master->index = i;
		master->reported_state = MASTER_DOWN;
		snprintf(master->reason, sizeof master->reason, "connecting");
		master->link.loop = loop;
		master->link.address = &options->masters[i];
		master->link.events = &link_events;
		master->link.arg = master;
		master_link_start(&master->link);
	}
	return masters;
}

void masters_close(struct masters *masters)
{
	master_notification_close(masters);
	for (size_t i = 0; i < masters->count; i++)
		master_link_close(&masters->list[i].link);
}

void masters_free(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		assert(!master->first && !master->link.io && !master->batch_first);
		master_pending_drop_all(master);
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
		if (!masters->list[i].link.tried || !master_state_is_settled(&masters->list[i]))
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

/* True if the master has an epoch of other settings than ours. */
static bool has_other_digest(const struct masters *masters, size_t i)
{
	assert(i < masters->count);
	const struct guard_master *guarded = &masters->guard.masters[i];
	return guarded->state == GUARD_REJECTED && guarded->reason == GUARD_OTHER_DIGEST;
}

bool masters_find_other_digest(const struct masters *masters, size_t *ret_which)
{
	for (size_t i = 0; i < masters->count; i++) {
		if (!has_other_digest(masters, i))
			continue;
		*ret_which = i;
		return true;
	}
	return false;
}

/* ---- sending ---- */

static enum master_sent sendable(struct master *master)
{
	if (master->link.state != LINK_UP)
		return MASTER_UNSENT;
	/* not now: what has come since then may be on its way to us */
	if (!master->hung && master_command_is_silent(master, master->all->looked_us))
		master_command_set_hung(master);
	if (master->hung)
		return MASTER_UNSENT;
	switch (master_state_of(master)) {
	case MASTER_QUARANTINED: return MASTER_REFUSED;
	/* some things it may still do */
	case MASTER_DOWN: return master_state_is_asking(master) || !master->check.known ? MASTER_UNSENT : MASTER_SENT;
	case MASTER_VOTING: break;
	}
	return MASTER_SENT;
}

/* A script of the core has its answer. */
static void settle(struct master *master, const struct master_command *done, uint64_t now_us,
		   struct master_reply *reply, const redisReply *raw)
{
	assert(done->reply);
	if (!reply->lost)
		master_guard_evaluate_reply(master, done, now_us, reply);
	if (reply->vote == REDLOCK_VOTE_FAILED && !reply->no_script)
		master_state_count_error(master, reply->error);
	if (reply->vote == REDLOCK_VOTE_FAILED)
		master_state_note_failure(master, reply, raw);
	done->reply(done->arg, reply);
}

enum master_sent masters_send(struct masters *masters, size_t i, enum redlock_script script, char *command, size_t len,
			      uint64_t until_us, master_reply_fn *reply, void *arg)
{
	assert(i < masters->count && script != REDLOCK_SCRIPT_NONE && reply);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	if (sent != MASTER_SENT) {
		if (sent == MASTER_UNSENT)
			master_state_count_error(master, MASTER_ERROR_DOWN);
		return sent;
	}
	uint64_t epoch = master_guard_stamp(master, command, len, until_us);
	bool joins = script == REDLOCK_SCRIPT_ACQUIRE && master_batch_suits(command);
	struct master_command *under_way = joins ? master_command_join(master, command, len)
						 : master_command_push(master, script, command, len);
	if (!under_way)
		return MASTER_UNSENT;
	under_way->epoch = epoch;
	under_way->settle = settle;
	under_way->reply = reply;
	under_way->arg = arg;
	return MASTER_SENT;
}

enum master_sent masters_send_scan(struct masters *masters, size_t i, const char *command, size_t len,
				   master_scan_fn *scan, void *arg)
{
	assert(i < masters->count && scan);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	if (sent != MASTER_SENT)
		return sent;
	return master_command_send_scan(master, command, len, scan, arg) ? MASTER_SENT : MASTER_UNSENT;
}

void masters_keep_release(struct masters *masters, size_t i, const char *command, size_t len)
{
	assert(i < masters->count && len > 0);
	master_pending_keep(&masters->list[i], command, len);
}

void masters_note_silence(struct masters *masters, size_t i)
{
	assert(i < masters->count);
	master_command_note_silence(&masters->list[i]);
}

bool masters_have_unread(const struct masters *masters, size_t i)
{
	assert(i < masters->count);
	const struct master_io *io = masters->list[i].link.io;
	return io && master_io_has_unread(io);
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
		master_link_flush(&masters->list[i].link);
	}
}
