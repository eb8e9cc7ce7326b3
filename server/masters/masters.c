/* SPDX-License-Identifier: MIT */
/* The masters of one worker: implements masters.h, and joins the layers of the folder (master_internal.h). It passes on
 * the events of a connection and evaluates the answers to scripts. */
#include "masters.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

/* ---- events of a connection ---- */

static void on_failed(struct master *master, enum link_state was, const char *reason, enum link_end how)
{
	char refused[STATUS_REASON_MAX];
	enum master_error error = master->check.error;
	assert(master->link.state == LINK_DOWN && was != LINK_DOWN && was != LINK_CLOSED);
	if (how == LINK_END_PROTOCOL)
		master_state_count_error(master, MASTER_ERROR_PROTOCOL);
	/* the server sent the reason before it closed, as Redis does without a login: it takes no script of over 16
	 * KiB */
	bool is_refused = how == LINK_END_PEER && was == LINK_HANDSHAKE && master->check.error_text[0];
	if (is_refused) {
		master_check_write(master, refused);
		master_state_count_error(master, error);
		reason = refused;
	}
	master_check_end(master, was == LINK_HANDSHAKE);
	master->hung = false;
	master->heartbeat = HEARTBEAT_IDLE;
	master->rtt_us = 0;
	master->soft_reason[0] = '\0';
	master_guard_notify(master, GUARD_LOST);
	if (is_refused)
		master_guard_handle_refusal(master, error);
	snprintf(master->reason, sizeof master->reason, "%s", reason);
	master_state_report(master);
	master_command_fail_batches(master);
}

static const struct master_link_events link_events = {master_handshake_start, master_command_answer,
						      master_handshake_tick, on_failed};

/* ---- the list ---- */

struct masters *masters_new(struct uv_loop_s *loop, const struct options *options, struct metrics *metrics)
{
	assert(loop && metrics && options->master_count >= 1 && options->master_count <= OPTIONS_MASTERS_MAX);
	struct masters *masters = memory_zeroed(1, sizeof *masters);
	masters->loop = loop;
	masters->options = options;
	masters->count = options->master_count;
	masters->prefix_len = strlen(options->key_prefix);
	masters->hash_key_len = (size_t)snprintf(masters->hash_key, sizeof masters->hash_key, "%sredlockd:master",
						 options->key_prefix);
	master_guard_init(masters);
	master_notification_init(masters);
	master_pending_init(masters);
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		master->all = masters;
		master->index = i;
		master->metrics = &metrics->masters[i];
		STAILQ_INIT(&master->under_way);
		STAILQ_INIT(&master->spare);
		master_command_init_batches(master);
		STAILQ_INIT(&master->pending);
		master->reported_state = MASTER_DOWN;
		snprintf(master->reason, sizeof master->reason, "connecting");
		master->link.loop = loop;
		master->address = options->masters[i];
		master->link.address = &master->address;
		master->link.events = &link_events;
		master->link.owner = master;
		master_link_start(&master->link);
	}
	return masters;
}

void masters_close(struct masters *masters)
{
	master_notification_close(masters);
	master_pending_close(masters);
	for (size_t i = 0; i < masters->count; i++) {
		master_link_close(&masters->list[i].link);
		master_command_fail_batches(&masters->list[i]);
	}
}

/* The status of the old server does not hold for the new one. The run_id of the old one stays: it shows that the new
 * one is another server. */
static void forget_server(struct master *master)
{
	master->info.product[0] = '\0';
	master->warning_count = 0;
	master->clocked_us = master->clock_back_until_us = 0;
	master->left_out = master->reported = false;
	master->state_since_us = 0;
	metrics_set(&master->metrics->warnings, 0);
	metrics_set(&master->metrics->clocked, 0);
	snprintf(master->reason, sizeof master->reason, "connecting");
}

void masters_set_addresses(struct masters *masters, const struct address addresses[])
{
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		bool moved = strcmp(master->address.shown, addresses[i].shown) != 0;
		assert(master->link.state != LINK_CLOSED);
		if (moved) {
			master_notification_drop(master);
			master_link_fail(&master->link, "replaced: another address was configured");
			forget_server(master);
		}
		master->address = addresses[i];
		if (!moved)
			continue;
		master_link_restart(&master->link);
		master_state_report(master);
	}
}

void masters_free(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		assert(STAILQ_EMPTY(&master->under_way) && !master->link.connection);
		master_pending_drop_all(master);
		for (struct master_command *spare; (spare = STAILQ_FIRST(&master->spare));) {
			STAILQ_REMOVE_HEAD(&master->spare, entry);
			free(spare);
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

bool masters_are_watched(const struct masters *masters)
{
	for (unsigned i = 0; i < masters->count; i++)
		if (guard_other_is_watched(&masters->guard, i))
			return true;
	return false;
}

bool masters_find_duplicate(const struct masters *masters, size_t *ret_first, size_t *ret_second)
{
	for (size_t i = 0; i < masters->count; i++) {
		const char *run_id = masters->list[i].info.run_id;
		for (size_t j = i + 1; run_id[0] && j < masters->count; j++) {
			if (strcmp(run_id, masters->list[j].info.run_id) != 0)
				continue;
			*ret_first = i;
			*ret_second = j;
			return true;
		}
	}
	return false;
}

bool masters_find_other_digest(const struct masters *masters, size_t *ret_indexes)
{
	for (size_t i = 0; i < masters->count; i++) {
		const struct guard_master *guarded = &masters->guard.masters[i];
		if (guarded->state != GUARD_REJECTED || guarded->reason != GUARD_OTHER_DIGEST)
			continue;
		*ret_indexes = i;
		return true;
	}
	return false;
}

/* ---- sending ---- */

static enum master_sent sendable(struct master *master)
{
	if (master->link.state != LINK_UP)
		return MASTER_UNSENT;
	/* by looked_us, not by now: later answers may not have been read yet */
	if (!master->hung && master_command_is_silent(master, master->all->looked_us))
		master_command_set_hung(master);
	if (master->hung)
		return MASTER_UNSENT;
	switch (master_state_cause(master)) {
	case MASTER_CAUSE_INFO:
	case MASTER_CAUSE_GUARD: return MASTER_REFUSED;
	case MASTER_CAUSE_LINK:
	case MASTER_CAUSE_ASKING: return MASTER_UNSENT;
	/* CHECK_DOUBTED: it may still do some things */
	case MASTER_CAUSE_CHECK: return master->check.state < CHECK_PASSED ? MASTER_UNSENT : MASTER_SENT;
	case MASTER_CAUSE_NONE: break;
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
		master_state_handle_failure(master, reply, raw);
	done->reply(done->arg, reply);
}

enum master_sent masters_send(struct masters *masters, size_t i, const struct master_script *script, uint64_t until_us,
			      master_reply_fn *reply, void *arg)
{
	assert(i < masters->count && reply);
	struct master *master = &masters->list[i];
	enum master_sent sent = sendable(master);
	if (sent != MASTER_SENT) {
		if (sent == MASTER_UNSENT)
			master_state_count_error(master, MASTER_ERROR_DOWN);
		return sent;
	}
	master_command_send_script(master, script, until_us, settle, reply, arg);
	return MASTER_SENT;
}

enum master_sent masters_send_scan(struct masters *masters, size_t i, const struct master_scan_command *command,
				   master_scan_fn *scan, void *arg)
{
	assert(i < masters->count);
	enum master_sent sent = sendable(&masters->list[i]);
	struct master_arguments arguments;
	if (sent == MASTER_SENT) {
		master_script_write_scan(masters, command, &arguments);
		master_command_send_read(&masters->list[i], &arguments, true, scan, arg);
	}
	return sent;
}

enum master_sent masters_send_read(struct masters *masters, size_t i, const struct master_read_command *command,
				   master_scan_fn *scan, void *arg)
{
	assert(i < masters->count);
	enum master_sent sent = sendable(&masters->list[i]);
	struct master_arguments arguments;
	if (sent == MASTER_SENT) {
		master_script_write_read(masters, command, &arguments);
		master_command_send_read(&masters->list[i], &arguments, false, scan, arg);
	}
	return sent;
}

bool masters_have_unread(const struct masters *masters, size_t i)
{
	assert(i < masters->count);
	const struct transport_connection *connection = masters->list[i].link.connection;
	return connection && transport_has_unread(connection);
}

void masters_begin_round(struct masters *masters)
{
	masters->looked_us = masters->round_us; /* between two rounds the loop has read what had arrived by the first */
	masters->round_us = clock_now_us();
}

void masters_flush(struct masters *masters)
{
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		master_command_send_batches(master);
		if (master->link.connection)
			transport_flush(master->link.connection);
		if (master->notification.connection)
			transport_flush(master->notification.connection);
	}
}
