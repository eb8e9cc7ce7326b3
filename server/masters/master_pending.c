/* Pending releases: those that could not be sent to a master, or whose answer was lost. They go first on its next
 * connection, so that the key of a released lock does not keep the lock until it runs out. A release belongs either to
 * the list of its master or to the command under way that carries it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

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

/* The release is done with, unless the connection broke or the script was forgotten. */
static void on_settled(struct master *master, const struct master_command *done, uint64_t now_us,
		       struct master_reply *reply, const redisReply *raw)
{
	struct pending_release *pending = done->arg;
	assert(done->kind == REDLOCK_SCRIPT_RELEASE && pending);
	(void)now_us;
	(void)raw;
	if (master->link.state == LINK_CLOSED || !(reply->lost || reply->no_script)) {
		pending_free(master, pending);
	} else if (reply->lost || master->link.state != LINK_UP || pending->script.with_source) {
		STAILQ_INSERT_TAIL(&master->pending, pending, entry);
	} else {
		pending->script.with_source = true;
		pending_send(master, pending);
	}
}

void masters_keep_release(struct masters *masters, size_t i, const struct master_script *release)
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
	pending->until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
	pending->script = *release;
	pending->script.with_source = false;
	pending->script.label = NULL; /* the operation's, which ends before; a release has none */
	if (release->token)
		pending->script.token = memcpy(pending->bytes, release->token, RANDOM_TOKEN_LEN);
	pending->script.resource = memcpy(pending->bytes + RANDOM_TOKEN_LEN, release->resource, release->resource_len);
	master->pending_count++;
	/* also where the master hangs: behind the acquire that lies in its socket */
	if (master->link.state == LINK_UP)
		pending_send(master, pending);
	else
		STAILQ_INSERT_TAIL(&master->pending, pending, entry);
}

void master_pending_send_all(struct master *master)
{
	uint64_t now_us = clock_now_us();
	struct pending_release *pending;
	for (size_t left = master->pending_count; left > 0 && (pending = STAILQ_FIRST(&master->pending)); left--) {
		STAILQ_REMOVE_HEAD(&master->pending, entry);
		if (pending->until_us <= now_us)
			pending_free(master, pending);
		else
			pending_send(master, pending);
	}
}

void master_pending_drop_all(struct master *master)
{
	for (struct pending_release *pending; (pending = STAILQ_FIRST(&master->pending));) {
		STAILQ_REMOVE_HEAD(&master->pending, entry);
		pending_free(master, pending);
	}
}
