/* Pending releases: those that could not be sent to a master, or whose answer was lost. They go first on its next
 * connection, so that the key of a released lock does not keep the lock until it runs out. Bounded in number
 * (MASTER_PENDING_MAX for each master), and each kept only for as long as a lease can live. A release belongs either to
 * the list of its master or to the command under way that carries it. The worker's thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

static void pending_push(struct master *master, struct pending_release *pending)
{
	assert(master->pending_count > 0 && master->pending_count <= MASTER_PENDING_MAX);
	pending->next = NULL;
	if (master->pending_last)
		master->pending_last->next = pending;
	else
		master->pending_first = pending;
	master->pending_last = pending;
}

static void pending_free(struct master *master, struct pending_release *pending)
{
	assert(master->pending_count > 0);
	master->pending_count--;
	free(pending);
}

static void on_settled(struct master *master, const struct master_command *done, uint64_t now_us,
		       struct master_reply *reply, const redisReply *raw);

static bool pending_send(struct master *master, struct pending_release *pending)
{
	uint64_t epoch = master_guard_stamp(master, pending->bytes, pending->len, REDLOCK_NEVER);
	struct master_command *command = master_command_push(master, REDLOCK_SCRIPT_RELEASE, pending->bytes,
							     pending->len);
	if (!command)
		return false;
	command->epoch = epoch;
	command->settle = on_settled;
	command->arg = pending;
	return true;
}

/* The master has forgotten the script: it gets it, and the release once more. */
static bool pending_send_again(struct master *master, struct pending_release *pending)
{
	const char *load[] = {"SCRIPT", "LOAD", scripts[REDLOCK_SCRIPT_RELEASE].source};
	bool first = !pending->reloaded; /* a master that keeps no scripts gets this one only once */
	pending->reloaded = true;
	return first && master->link.state == LINK_UP && master_command_send(master, NULL, 3, load) &&
	       pending_send(master, pending);
}

/* The release is done with, unless the connection broke or the script was forgotten. */
static void on_settled(struct master *master, const struct master_command *done, uint64_t now_us,
		       struct master_reply *reply, const redisReply *raw)
{
	struct pending_release *pending = done->arg;
	assert(done->script == REDLOCK_SCRIPT_RELEASE && pending);
	(void)now_us;
	(void)raw;
	if (reply->no_script && !master->link.closing && pending_send_again(master, pending))
		return;
	if ((reply->lost || reply->no_script) && !master->link.closing)
		pending_push(master, pending); /* the next handshake loads the scripts */
	else
		pending_free(master, pending);
}

void master_pending_keep(struct master *master, const char *bytes, size_t len)
{
	if (master->link.closing || master->pending_count >= MASTER_PENDING_MAX)
		return; /* the key runs out by itself */
	struct pending_release *pending = malloc(sizeof *pending + len);
	if (!pending)
		return;
	pending->until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
	pending->len = len;
	pending->reloaded = false;
	memcpy(pending->bytes, bytes, len);
	master->pending_count++;
	/* also where the master hangs: behind the acquire that lies in its socket */
	bool sent = master->link.state == LINK_UP && pending_send(master, pending);
	if (!sent)
		pending_push(master, pending);
}

static struct pending_release *pending_shift(struct master *master)
{
	struct pending_release *pending = master->pending_first;
	assert(pending);
	master->pending_first = pending->next;
	if (!master->pending_first)
		master->pending_last = NULL;
	return pending;
}

void master_pending_send_all(struct master *master)
{
	uint64_t now_us = clock_now_us();
	for (size_t left = master->pending_count; left > 0 && master->pending_first; left--) {
		struct pending_release *pending = pending_shift(master);
		if (pending->until_us <= now_us)
			pending_free(master, pending);
		else if (!pending_send(master, pending))
			pending_push(master, pending);
	}
}

void master_pending_drop_all(struct master *master)
{
	while (master->pending_first)
		pending_free(master, pending_shift(master));
}
