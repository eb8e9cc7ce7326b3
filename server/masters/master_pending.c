/* SPDX-License-Identifier: MIT */
/* Pending releases: not sent to a master, refused by it, or without an answer. If they were not repeated, the key of a
 * released lock would keep the lock until it expires.
 *
 *   not sent, or lost   first on the next connection; at once if the master hangs or is quarantined
 *   refused             again after a short pause, a few at a time: each that is carried out lets two more follow
 *
 * Both end with the lease. A repeated release does no harm: it deletes only the key of its own token. A release belongs
 * either to the list of its master or to the command under way that carries it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

/* While a master refuses: at most AGAIN_MAX releases in AGAIN_MS. */
enum { AGAIN_MS = 100, AGAIN_MAX = 32 };

static void pending_free(struct master *master, struct pending_release *pending)
{
	assert(master->pending_count > 0);
	master->pending_count--;
	free(pending);
}

static void on_settled(struct master *master, const struct master_command *done, uint64_t now_us,
		       struct master_reply *reply, const redisReply *raw);

static void pending_send(struct master *master, struct pending_release *pending)
{
	master_command_send_script(master, &pending->script, REDLOCK_NEVER, on_settled, NULL, pending);
}

/* Sends at most `count_max` of the list; drops those whose lease is over. */
static void send_some(struct master *master, size_t count_max)
{
	uint64_t now_us = clock_now_us();
	struct pending_release *pending;
	assert(master->link.state == LINK_UP);
	while (count_max > 0 && (pending = STAILQ_FIRST(&master->pending))) {
		STAILQ_REMOVE_HEAD(&master->pending, entry);
		if (pending->until_us <= now_us) {
			pending_free(master, pending);
		} else {
			pending_send(master, pending);
			count_max--;
		}
	}
}

/* ---- refused ---- */

/* Runs while a master refuses, or has more releases to be sent again. */
static void start_timer(struct masters *masters)
{
	if (!masters->pending_timer_runs)
		transport_timer_start(masters->pending_timer, AGAIN_MS);
	masters->pending_timer_runs = true;
}

static void on_pending_tick(void *arg)
{
	struct masters *masters = arg;
	masters->pending_timer_runs = false;
	for (size_t i = 0; i < masters->count; i++) {
		struct master *master = &masters->list[i];
		if (master->link.state != LINK_UP)
			continue;
		send_some(master, AGAIN_MAX);
		if (!STAILQ_EMPTY(&master->pending))
			start_timer(masters);
	}
}

/* After the others and in a command of its own, so that a release that is always refused delays no other. */
static void send_later(struct master *master, struct pending_release *pending)
{
	pending->script.with_source = false;
	pending->script.alone = true;
	STAILQ_INSERT_TAIL(&master->pending, pending, entry);
	start_timer(master->all);
}

/* ---- answers ---- */

static void on_settled(struct master *master, const struct master_command *done, uint64_t now_us,
		       struct master_reply *reply, const redisReply *raw)
{
	struct pending_release *pending = done->arg;
	assert(done->kind == REDLOCK_SCRIPT_RELEASE && pending);
	(void)raw;
	bool is_up = master->link.state == LINK_UP;
	if (master->link.state == LINK_CLOSED || pending->until_us <= now_us) {
		pending_free(master, pending);
	} else if (!master_reply_is_error(reply)) {
		pending_free(master, pending);
		if (is_up)
			send_some(master, 2);
	} else if (reply->lost || !is_up) {
		STAILQ_INSERT_TAIL(&master->pending, pending, entry);
	} else if (reply->no_script && !pending->script.with_source) {
		pending->script.with_source = true;
		pending_send(master, pending);
	} else {
		send_later(master, pending);
	}
}

/* ---- for the other files ---- */

void masters_keep_release(struct masters *masters, size_t i, const struct master_script *release, bool refused)
{
	struct master *master = &masters->list[i];
	assert(i < masters->count && release->script == REDLOCK_SCRIPT_RELEASE);
	if (master->link.state == LINK_CLOSED)
		return;
	if (master->pending_count >= MASTER_PENDING_MAX) { /* the key runs out by itself */
		log_begin(LOG_WARN, "release-dropped");
		log_text("master", master->link.address->shown);
		log_end();
		return;
	}
	struct pending_release *pending = memory_zeroed(1, sizeof *pending + RANDOM_TOKEN_LEN + release->resource_len);
	pending->until_us = clock_now_us() + guard_longest_us(&masters->guard);
	pending->script = *release;
	pending->script.with_source = pending->script.alone = false;
	pending->script.entry.place = 0; /* a place is kept at once or not at all */
	pending->script.label = NULL;    /* the operation's, which ends before; a release has none */
	if (release->token)
		pending->script.token = memcpy(pending->bytes, release->token, RANDOM_TOKEN_LEN);
	pending->script.resource = memcpy(pending->bytes + RANDOM_TOKEN_LEN, release->resource, release->resource_len);
	master->pending_count++;
	/* also if the master hangs: after the acquire that its socket has not read */
	if (master->link.state != LINK_UP)
		STAILQ_INSERT_TAIL(&master->pending, pending, entry);
	else if (refused)
		send_later(master, pending);
	else
		pending_send(master, pending);
}

void master_pending_send_all(struct master *master)
{
	send_some(master, master->pending_count);
}

void master_pending_drop_all(struct master *master)
{
	for (struct pending_release *pending; (pending = STAILQ_FIRST(&master->pending));) {
		STAILQ_REMOVE_HEAD(&master->pending, entry);
		pending_free(master, pending);
	}
}

void master_pending_init(struct masters *masters)
{
	masters->pending_timer = transport_timer_new(masters->loop, on_pending_tick, masters);
}

void master_pending_close(struct masters *masters)
{
	masters->pending_timer_runs = true; /* it is not started again */
	transport_timer_free(masters->pending_timer);
}
