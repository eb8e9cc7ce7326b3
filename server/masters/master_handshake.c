/* SPDX-License-Identifier: MIT */
/* The handshake of a new connection, the heartbeat, and the consequences of INFO.
 *
 *   handshake   AUTH, SELECT, CLIENT SETNAME, INFO, CLIENT ID, SCRIPT LOAD of each script: all in one write. Any error
 *               but that of SETNAME closes the connection and becomes the reason in /masters.
 *   heartbeat   INFO and the guard's epoch.lua once a second, so that a master that hangs, changes its role or its
 *               settings is found also while there are no requests.
 *               With --durable-masters CONFIG GET, too, before INFO: master_durable.c.
 *   evaluation  a replica, a Redis older than 6.2 and a second address of one server may not vote; settings that may
 *               drop keys are warned of. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

/* ---- evaluation ---- */

#define CLOCKED_SHOWN_US (24 * UINT64_C(3600000000)) /* how long the warning stays */

static bool is_too_old(const char *version)
{
	unsigned major = 0, minor = 0;
	if (sscanf(version, "%3u.%3u", &major, &minor) != 2)
		return true;
	return major < 6 || (major == 6 && minor < 2);
}

/* If two connections lead to one server, the first keeps its vote. */
static const struct master *find_twin(const struct master *master)
{
	for (size_t i = 0; i < master->all->count; i++) {
		const struct master *other = &master->all->list[i];
		bool counts = i != master->index && other->link.state == LINK_UP && master_is_member(other);
		if (counts && strcmp(other->info.run_id, master->info.run_id) == 0)
			return other;
	}
	return NULL;
}

static void quarantine(struct master *master, enum quarantine_reason code, const char *why, const char *more)
{
	assert(code != QUARANTINE_NONE);
	master->quarantine_code = code;
	snprintf(master->quarantine_reason, sizeof master->quarantine_reason, "%s: %.80s%s",
		 quarantine_reason_name(code), why, more);
}

/* True if this server cannot be one of our masters, whatever its settings. */
static bool evaluate_kind(struct master *master)
{
	const struct master *twin = find_twin(master);
	if (strcmp(master->info.role, "master") != 0)
		quarantine(master, QUARANTINE_REPLICA, "this server is a replica; locks need masters", "");
	else if (is_too_old(master->info.version))
		quarantine(master, QUARANTINE_VERSION, master->info.version, " is older than 6.2");
	else if (master->info.cluster)
		quarantine(master, QUARANTINE_REDIS_CLUSTER,
			   "this server is part of a Redis Cluster; use independent masters", "");
	else if (twin)
		quarantine(master, QUARANTINE_DUPLICATE, "the same server as ", twin->link.address->shown);
	return master->quarantine_reason[0] != '\0';
}

static void evaluate_settings(struct master *master)
{
	const struct master_info *info = &master->info;
	if (info->maxmemory > 0 && info->policy[0] && strcmp(info->policy, "noeviction") != 0)
		quarantine(master, QUARANTINE_MAXMEMORY_POLICY, info->policy,
			   " may drop keys while they are held; set noeviction");
	else if (info->replicas > 0 && !master->all->options->allow_replicas)
		quarantine(master, QUARANTINE_REPLICAS_ATTACHED,
			   "one that takes over has not seen the last locks; see --allow-replicas", "");
	else if (master->durable.fault[0])
		quarantine(master, QUARANTINE_NOT_DURABLE, "", master->durable.fault);
}

static void evaluate_vote(struct master *master)
{
	master->quarantine_reason[0] = '\0';
	bool excluded = evaluate_kind(master);
	master_durable_evaluate(master);
	if (!excluded)
		evaluate_settings(master);
	master_guard_exclude(master, excluded);
	master_durable_report(master);
}

static void add_warning(struct master *master, const char *warning)
{
	assert(master->warning_count < STATUS_WARNINGS_MAX);
	snprintf(master->warnings[master->warning_count++], STATUS_REASON_MAX, "%s", warning);
}

static void evaluate_warnings(struct master *master)
{
	size_t before = master->warning_count;
	master->warning_count = 0;
	if (master->info.maxmemory == 0 && master->info.policy[0] && strcmp(master->info.policy, "noeviction") != 0)
		add_warning(master, "maxmemory-policy: not noeviction; harmless only as long as maxmemory is 0");
	if (!master_guard_is_on(master->all) && clock_now_us() < master->restarted_until_us)
		add_warning(master, "restarted: another run_id than before; leases that it granted may be forgotten "
				    "and given twice");
	if (clock_now_us() < master->clock_back_until_us)
		add_warning(master, "clock-back: its clock went back; locks on it last longer than they should");
	bool clocked = master->clocked_us > 0 && master->time_us - master->clocked_us < CLOCKED_SHOWN_US;
	metrics_set(&master->metrics->clocked, clocked);
	if (clocked)
		add_warning(master,
			    "fences: too few masters remembered; their order rests on clocks across that point");
	metrics_set(&master->metrics->warnings, master->warning_count);
	for (size_t i = before; i < master->warning_count; i++) {
		log_begin(LOG_WARN, "master-warning");
		log_text("master", master->link.address->shown);
		log_text("warning", master->warnings[i]);
		log_end();
	}
}

/* Keys that were evicted since the last heartbeat may have been locks. A count that was reset and has grown again
 * counts as well, even if it is smaller. */
static void evaluate_evictions(struct master *master, uint64_t before)
{
	if (master->evicted_known && master->info.evicted != before && master->info.evicted > 0)
		master_guard_notify(master, GUARD_DROPPED_KEYS);
}

static void evaluate(struct master *master)
{
	assert(master->info.run_id[0]);
	evaluate_vote(master);
	evaluate_warnings(master);
	if (master_check_tick(master))
		master_notification_check(master);
	master_state_report(master);
}

/* ---- handshake ---- */

static void end_refused(struct master *master)
{
	char why[STATUS_REASON_MAX];
	enum master_error error = master->check.error;
	assert(master->check.error_text[0]);
	master_check_write(master, why);
	master_state_count_error(master, error);
	master_link_fail(&master->link, why);
	master_guard_handle_refusal(master, error);
}

static void fail_handshake(struct master *master, const char *reason)
{
	master_state_count_error(master, MASTER_ERROR_PROTOCOL);
	master_link_fail(&master->link, reason);
}

static void read_info(struct master *master, const redisReply *reply)
{
	struct master_info info;
	bool known = master_info_read(reply, &info);
	if (strcmp(info.mode, "sentinel") == 0) {
		master_link_fail(&master->link,
				 "sentinel: this is a Sentinel, not a master; name the masters themselves");
	} else if (!known) {
		fail_handshake(master, "protocol: INFO lacks the fields of a Redis server");
	} else if (info.loading) {
		master_link_fail(&master->link, "loading: the server is reading its data");
	} else {
		/* another server under the same address, or a restarted one: it may have forgotten what it granted */
		if (master->info.run_id[0] && strcmp(master->info.run_id, info.run_id) != 0)
			master->restarted_until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
		master->info = info;
	}
}

/* SETNAME may be refused, because the name is only for people. But a server that closes the connection gives the reason
 * in the answer to the first command. */
static bool may_refuse(unsigned command, const redisReply *reply)
{
	return command == MASTER_COMMAND_COUNT && strncmp(reply->str, "DENIED", 6) != 0 &&
	       strncmp(reply->str, "ERR max number", 14) != 0;
}

/* The handshake goes on to its end, so that the reason names everything that is refused. CLIENT ID counts up for as
 * long as the server lives. */
static void on_handshake_answer(struct master *master, unsigned command, const redisReply *reply)
{
	assert(master->link.state == LINK_HANDSHAKE && command <= MASTER_COMMAND_COUNT);
	bool numbered = reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0;
	bool worded = reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_STRING;
	if (reply->type == REDIS_REPLY_ERROR && !may_refuse(command, reply))
		master_check_record_refusal(master, command, reply);
	else if (reply->type == REDIS_REPLY_ERROR)
		return;
	else if (command == MASTER_COMMAND_INFO)
		read_info(master, reply);
	else if (command == MASTER_COMMAND_CLIENT_ID && numbered)
		master->client_id = (uint64_t)reply->integer;
	else if (command == MASTER_COMMAND_CLIENT_ID || !worded)
		fail_handshake(master, "protocol: an answer that is not Redis's");
}

/* The time until the next heartbeat, which comes earlier if a quarantine ends before it. */
static uint64_t heartbeat_ms(const struct master *master)
{
	uint64_t left_ms = master_state_guard_left_ms(master);
	if (master_state_is_beginning(master))
		return MASTER_BEGINNING_MS;
	return left_ms > 0 && left_ms < MASTER_HEARTBEAT_MS ? left_ms : MASTER_HEARTBEAT_MS;
}

/* The last answer of the handshake: from now on commands are sent to the master. */
static void on_last_step(struct master *master, unsigned command, const redisReply *reply)
{
	on_handshake_answer(master, command, reply);
	if (master->link.state != LINK_HANDSHAKE)
		return;
	if (master->check.error_text[0]) {
		end_refused(master);
		return;
	}
	assert(master->info.run_id[0]);
	master_link_set_up(&master->link);
	if (master->ups++ > 0)
		metrics_add(&master->metrics->reconnects, 1);
	master->hung = false;
	master->up_us = clock_now_us();
	master->evicted_known = false;
	master->member = MEMBER_UNKNOWN;
	master_durable_begin(master);
	evaluate(master);
	if (!master_is_member(master))
		master_guard_inspect_hash(master);
	master_pending_send_all(master);
	master_link_set_timer(&master->link, heartbeat_ms(master));
}

static void send_command(struct master *master, enum master_command_kind command, const char *const argv[])
{
	master_command_send(master, on_handshake_answer, command, argv);
}

void master_handshake_start(struct master *master)
{
	const struct address *address = master->link.address;
	const char *with_user[] = {"AUTH", address->user, address->password, NULL};
	const char *without[] = {"AUTH", address->password, NULL};
	char db[8];
	assert(master->link.state == LINK_HANDSHAKE);
	if (address->password[0])
		send_command(master, MASTER_COMMAND_AUTH, address->user[0] ? with_user : without);
	snprintf(db, sizeof db, "%u", address->db);
	if (address->db != 0)
		send_command(master, MASTER_COMMAND_SELECT, (const char *[]){"SELECT", db, NULL});
	send_command(master, MASTER_COMMAND_COUNT, (const char *[]){"CLIENT", "SETNAME", "redlockd", NULL});
	master_durable_ask(master);
	send_command(master, MASTER_COMMAND_INFO, (const char *[]){"INFO", NULL});
	send_command(master, MASTER_COMMAND_CLIENT_ID, (const char *[]){"CLIENT", "ID", NULL});
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++)
		master_command_send(master, script == REDLOCK_SCRIPT_INSPECT ? on_last_step : on_handshake_answer,
				    MASTER_COMMAND_SCRIPT_LOAD,
				    (const char *[]){"SCRIPT", "LOAD", scripts[script].source, NULL});
}

/* ---- heartbeat ---- */

/* Another server behind the same connection (a proxy) needs a handshake of its own. */
static void evaluate_heartbeat(struct master *master, const struct master_info *now)
{
	uint64_t evicted = master->info.evicted;
	if (strcmp(now->run_id, master->info.run_id) != 0) {
		master_link_fail(&master->link, "restarted: another run_id on the same connection");
		return;
	}
	master->info = *now;
	evaluate_evictions(master, evicted);
	evaluate(master);
}

static void on_heartbeat(struct master *master, unsigned what, const redisReply *reply)
{
	(void)what;
	assert(master->link.state == LINK_UP);
	master->heartbeat = HEARTBEAT_IDLE;
	struct master_info now;
	if (reply->type == REDIS_REPLY_ERROR) {
		master->check.error_text[0] = '\0'; /* from the last run of the trials */
		master->check.refused = 0;
		master_check_record_refusal(master, MASTER_COMMAND_INFO, reply);
		end_refused(master);
	} else if (master_info_read(reply, &now)) {
		evaluate_heartbeat(master, &now);
	}
	if (master->link.state == LINK_UP)
		master_link_set_timer(&master->link, heartbeat_ms(master));
}

/* A tick sends the heartbeat, and its answer sets the next tick. Without an answer the next tick is at the deadline. A
 * master that hung for as long as a lease can live gets a new connection: no command in the old one matters any
 * more. */
void master_handshake_tick(struct master *master)
{
	uint32_t timeout_ms = master->all->options->master_timeout_ms;
	assert(master->link.state == LINK_UP);
	if (master->heartbeat == HEARTBEAT_IDLE) {
		master->heartbeat = HEARTBEAT_OUT;
		master_durable_ask(master);
		master_command_send(master, on_heartbeat, 0, (const char *[]){"INFO", NULL});
		master_guard_read(master, 0);
		master_link_set_timer(&master->link, timeout_ms + 1);
		return;
	}
	/* once more round the loop: if this process stood still, the answer may lie unread */
	if (master->heartbeat == HEARTBEAT_OUT) {
		master->heartbeat = HEARTBEAT_LATE;
		master_link_set_timer(&master->link, 1);
		return;
	}
	master->heartbeat = HEARTBEAT_OUT;
	masters_check_silence(master->all, master->index);
	const struct master_command *oldest = STAILQ_FIRST(&master->under_way);
	uint64_t oldest_age_us = oldest ? clock_now_us() - oldest->sent_us : 0;
	if (master->hung && oldest_age_us > master->all->options->max_ttl_ms * UINT64_C(1000))
		master_link_fail(&master->link, "timeout: hung for longer than the longest lease");
	else
		master_link_set_timer(&master->link, MASTER_HEARTBEAT_MS);
}
