/* Releases that a master could not be sent, or whose answer was lost: they go first on its next connection, so that a lock
 * that nobody has is not kept by a key that nobody deleted. Bounded in number, and each only for as long as a lease can live. */
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "master_internal.h"
#include "server/scripts/scripts.h"

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

static bool owed_send(struct master *master, struct owed_release *owed)
{
	uint64_t certificate = master_guard_stamp(master, owed->command, owed->len, REDLOCK_NEVER);
	struct master_call *call = master_call_push(master, REDLOCK_SCRIPT_RELEASE, owed->command, owed->len);
	if (call) {
		call->certificate = certificate;
		call->owed = owed;
	}
	return call != NULL;
}

/* The master has forgotten the script: it gets it, and the release once more. */
static bool owed_send_again(struct master *master, struct owed_release *owed)
{
	const char *load[] = { "SCRIPT", "LOAD", scripts[REDLOCK_SCRIPT_RELEASE].source };
	bool first = !owed->reloaded; /* one that takes no scripts is not asked for ever */
	owed->reloaded = true;
	return first && master->link == LINK_UP && master_command(master, NULL, 3, load) && owed_send(master, owed);
}

/* The answer to a release that was owed: it is settled, unless the connection broke or the script was forgotten. */
void master_owed_answered(struct master *master, struct owed_release *owed, const redisReply *reply)
{
	struct master_reply mapped;
	master_reply_map(REDLOCK_SCRIPT_RELEASE, reply, &mapped);
	if (mapped.no_script && !master->closing && owed_send_again(master, owed))
		return;
	if ((mapped.lost || mapped.no_script) && !master->closing)
		owed_push(master, owed); /* the next greeting loads the scripts */
	else
		owed_free(master, owed);
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
	owed->reloaded = false;
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
