/* SPDX-License-Identifier: MIT */
/* --durable-masters: checks that a master has each answer on its disk before it sends it.
 *
 * CONFIG GET is sent on each connection and with each heartbeat, before INFO. As long as a setting is wrong, the master
 * may not vote. The guard is notified once, and quarantines it (server/redlock/guard/guard_durable.c).
 *
 * After CONFIG SET appendonly yes nothing is in the file until the first rewrite has ended. INFO does not distinguish
 * this rewrite from an ordinary one, so on a new connection the master must be seen once without a rewrite.
 *
 * Redis before 7.0 is never durable. While another client's script is slow, it sends answers before it has written
 * them. It also renames a rewritten file before that file is on the disk. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"

/* appendonly, appendfsync, no-appendfsync-on-rewrite; one pattern, since Redis 6.2 takes no more */
#define SETTINGS "*append[of][ns]*"

static void copy(const redisReply *reply, char *to, size_t size)
{
	if (reply->type == REDIS_REPLY_STRING)
		snprintf(to, size, "%s", reply->str);
}

static void on_settings(struct master *master, unsigned what, const redisReply *reply)
{
	(void)what;
	const struct {
		const char *name;
		char *value;
		size_t size;
	} known[] = {{"appendonly", master->durable.appendonly, sizeof master->durable.appendonly},
		     {"appendfsync", master->durable.appendfsync, sizeof master->durable.appendfsync},
		     {"no-appendfsync-on-rewrite", master->durable.on_rewrite, sizeof master->durable.on_rewrite}};
	master->durable.refused[0] = '\0';
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		known[i].value[0] = '\0';
	if (reply->type == REDIS_REPLY_ERROR)
		master_error_text(reply->str, master->durable.refused);
	for (size_t at = 0; reply->type == REDIS_REPLY_ARRAY && at + 1 < reply->elements; at += 2)
		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			if (reply->element[at]->type == REDIS_REPLY_STRING &&
			    strcmp(reply->element[at]->str, known[i].name) == 0)
				copy(reply->element[at + 1], known[i].value, known[i].size);
}

void master_durable_ask(struct master *master)
{
	if (master->all->options->durable_masters)
		master_command_send(master, on_settings, 0, (const char *[]){"CONFIG", "GET", SETTINGS, NULL});
}

void master_durable_begin(struct master *master)
{
	master->durable.reported = master->durable.written = false;
}

/* Writes a fault like "appendfsync is everysec; set always". False: the value is right. */
static bool differs(struct master *master, const char *name, const char *value, const char *must)
{
	if (strcmp(value, must) == 0)
		return false;
	snprintf(master->durable.fault, sizeof master->durable.fault, "%s is %s; set %s", name,
		 value[0] ? value : "not shown", must);
	return true;
}

static bool find_fault(struct master *master)
{
	const struct master_info *info = &master->info;
	char *fault = master->durable.fault;
	size_t size = sizeof master->durable.fault;
	if (master->durable.refused[0])
		snprintf(fault, size, "CONFIG GET: %s", master->durable.refused);
	else if (strtoul(info->version, NULL, 10) < 7)
		snprintf(fault, size, "Redis %s is older than 7.0", info->version);
	else if (strspn(info->second_replid, "0") != strlen(info->second_replid))
		snprintf(fault, size, "it was a replica, and may lack the last writes");
	else
		return differs(master, "appendonly", master->durable.appendonly, "yes") ||
		       differs(master, "appendfsync", master->durable.appendfsync, "always") ||
		       differs(master, "no-appendfsync-on-rewrite", master->durable.on_rewrite, "no") ||
		       differs(master, "aof_enabled", info->aof ? "1" : "0", "1") ||
		       differs(master, "aof_last_write_status", info->aof_write, "ok");
	return true;
}

void master_durable_evaluate(struct master *master)
{
	const struct master_info *info = &master->info;
	master->durable.fault[0] = '\0';
	if (!master->all->options->durable_masters)
		return;
	master->durable.weak = find_fault(master);
	master->durable.written = !master->durable.weak &&
				  (master->durable.written || (!info->aof_rewriting && !info->aof_scheduled));
	if (!master->durable.weak && !master->durable.written)
		snprintf(master->durable.fault, sizeof master->durable.fault,
			 "its append-only file is being written; it votes when that has ended");
	master->durable.weak = master->durable.weak || info->replicas > 0;
}

void master_durable_report(struct master *master)
{
	if (master->durable.weak && !master->durable.reported)
		master_guard_notify(master, GUARD_WEAKENED);
	master->durable.reported = master->durable.weak;
}
