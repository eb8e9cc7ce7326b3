/* Releases that a master could not be sent, or whose answer was lost: they go first on its next connection, so that a
 * lock that nobody has is not kept by a key that nobody deleted. Bounded in number, and each only for as long as a
 * lease can live. */
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

static void pending_push(struct master *master, struct pending_release *pending)
{
	pending->next = NULL;
	if (master->pending_last)
		master->pending_last->next = pending;
	else
		master->pending_first = pending;
	master->pending_last = pending;
}

static void pending_free(struct master *master, struct pending_release *pending)
{
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
	bool first = !pending->reloaded; /* a master that takes no scripts is not asked for ever */
	pending->reloaded = true;
	return first && master->link.state == LINK_UP && master_command_send(master, NULL, 3, load) &&
	       pending_send(master, pending);
}

/* The release is done with, unless the connection broke or the script was forgotten. */
static void on_settled(struct master *master, const struct master_command *done, uint64_t now_us,
		       struct master_reply *reply, const redisReply *raw)
{
	struct pending_release *pending = done->arg;
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
		return; /* the key runs out by itself: only time is lost */
	struct pending_release *pending = malloc(sizeof *pending + len);
	if (!pending)
		return;
	pending->until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
	pending->len = len;
	pending->reloaded = false;
	memcpy(pending->bytes, bytes, len);
	master->pending_count++;
	/* hung: behind the acquire that lies in its socket */
	bool sent = master->link.state == LINK_UP && pending_send(master, pending);
	if (!sent)
		pending_push(master, pending);
}

static struct pending_release *pending_shift(struct master *master)
{
	struct pending_release *pending = master->pending_first;
	master->pending_first = pending->next;
	if (!master->pending_first)
		master->pending_last = NULL;
	return pending;
}

/* First of all on a new connection: before anything is asked of a master it gets the releases that it missed. */
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
