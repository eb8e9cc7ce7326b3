/* What comes first on a new connection, the heartbeat, and what INFO shows.
 *
 *   handshake   AUTH, SELECT, CLIENT SETNAME, INFO, CLIENT ID, SCRIPT LOAD of each script: all in one write. Any error
 *               but that of SETNAME closes the connection and becomes the reason in /masters.
 *   heartbeat   INFO and the guard's epoch.lua once a second, so that a master that hangs, changes its role or its
 *               settings is found also while there are no requests.
 *   evaluation  a replica, a Redis older than 6.2 and a second address of one server may not vote; settings that may
 *               drop keys are warned of.
 *
 * The worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

/* ---- INFO ---- */

/* Copies the value of a line "name:value" to `ret`; false if there is no such line or it is too long. */
static bool info_field(const char *text, size_t len, const char *name, char *ret, size_t size)
{
	size_t name_len = strlen(name);
	assert(name_len > 0 && size > 0);
	const char *end = text + len;
	for (const char *line = text; line < end;) {
		const char *eol = memchr(line, '\n', (size_t)(end - line));
		const char *stop = eol ? eol : end;
		size_t line_len = (size_t)(stop - line);
		if (line_len > name_len && memcmp(line, name, name_len) == 0 && line[name_len] == ':') {
			size_t value_len = line_len - name_len - 1;
			const char *value = line + name_len + 1;
			if (value_len > 0 && value[value_len - 1] == '\r')
				value_len--;
			if (value_len >= size)
				return false;
			memcpy(ret, value, value_len);
			ret[value_len] = '\0';
			return true;
		}
		line = eol ? eol + 1 : end;
	}
	return false;
}

static uint64_t info_number(const char *text, size_t len, const char *name)
{
	char digits[24];
	return info_field(text, len, name, digits, sizeof digits) ? strtoull(digits, NULL, 10) : 0;
}

bool master_info_parse(const char *text, size_t len, struct master_info *ret_info)
{
	assert(text && ret_info);
	struct master_info info = {.maxmemory = info_number(text, len, "maxmemory")};
	bool known = info_field(text, len, "run_id", info.run_id, sizeof info.run_id) &&
		     info_field(text, len, "redis_version", info.version, sizeof info.version) &&
		     info_field(text, len, "role", info.role, sizeof info.role);
	if (!known || !info.run_id[0])
		return false;
	(void)info_field(text, len, "maxmemory_policy", info.policy, sizeof info.policy);
	char valkey[32];
	bool is_valkey = info_field(text, len, "valkey_version", valkey, sizeof valkey);
	snprintf(info.product, sizeof info.product, "%s%s", is_valkey ? "valkey " : "",
		 is_valkey ? valkey : info.version);
	info.used_memory = info_number(text, len, "used_memory");
	info.evicted = info_number(text, len, "evicted_keys");
	info.replicas = info_number(text, len, "connected_slaves");
	info.loading = info_number(text, len, "loading") != 0;
	info.cluster = info_number(text, len, "cluster_enabled") != 0;
	*ret_info = info;
	return true;
}

/* ---- evaluation ---- */

#define CLOCKED_SHOWN_US (24 * UINT64_C(3600000000)) /* how long the warning stays */

static bool is_too_old(const char *version)
{
	unsigned major = 0, minor = 0;
	if (sscanf(version, "%3u.%3u", &major, &minor) != 2)
		return true;
	return major < 6 || (major == 6 && minor < 2);
}

/* Of two connections to one server, the one that was there first keeps its vote. */
static const struct master *find_twin(const struct master *master)
{
	for (size_t i = 0; i < master->all->count; i++) {
		const struct master *other = &master->all->list[i];
		bool counts = i != master->index && other->link.state == LINK_UP && !other->excluded;
		if (counts && strcmp(other->info.run_id, master->info.run_id) == 0)
			return other;
	}
	return NULL;
}

static void quarantine(struct master *master, enum quarantine_reason code, const char *why, const char *more)
{
	assert(code != QUARANTINE_NONE);
	master->quarantine_code = code;
	snprintf(master->quarantine_reason, sizeof master->quarantine_reason, "%s: %.80s%.60s",
		 quarantine_reason_name(code), why, more);
}

/* True if this server is none of our masters, which no setting can mend. */
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
}

static void evaluate_vote(struct master *master)
{
	master->quarantine_reason[0] = '\0';
	bool excluded = evaluate_kind(master);
	if (!excluded)
		evaluate_settings(master);
	master_guard_exclude(master, excluded);
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
	metrics_set(&master->all->metrics->masters[master->index].clocked, clocked);
	if (clocked)
		add_warning(master,
			    "fences: too few masters remembered; their order rests on clocks across that point");
	atomic_store_explicit(&master->all->metrics->masters[master->index].warnings, master->warning_count,
			      memory_order_relaxed);
	for (size_t i = before; i < master->warning_count; i++) {
		log_begin(LOG_WARN, "master-warning");
		log_text("master", master->link.address->shown);
		log_text("warning", master->warnings[i]);
		log_end();
	}
}

/* Keys that were dropped for want of memory since the last heartbeat may have been locks. A count that was set back and
 * has grown since counts as well, even where it is smaller. */
static void evaluate_evictions(struct master *master, const struct master_info *before)
{
	if (master->evicted_known && master->info.evicted != before->evicted && master->info.evicted > 0)
		master_guard_notify(master, GUARD_DROPPED_KEYS);
}

static void evaluate(struct master *master)
{
	assert(master->has_info);
	evaluate_vote(master);
	evaluate_warnings(master);
	master_check_tick(master);
	master_state_report(master);
}

/* ---- handshake ---- */

static void end_refused(struct master *master)
{
	char why[STATUS_REASON_MAX];
	enum master_error error = master->check.error;
	assert(master->check.words[0]);
	master_check_write(master, why);
	master_state_count_error(master, error);
	master_link_fail(&master->link, why);
	master_guard_note_refusal(master, error);
}

/* AUTH, SELECT, SCRIPT LOAD: only errors matter. The handshake goes on to its end, so that the reason names everything
 * that is refused. */
static void note_step(struct master *master, const redisReply *reply, enum master_command_kind command)
{
	if (!reply || master->link.state != LINK_HANDSHAKE)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		master_check_note(master, command, reply);
	else if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_STRING)
		master_link_fail(&master->link, "protocol: an answer that is not Redis's");
}

static void on_auth(struct master *master, const redisReply *reply)
{
	note_step(master, reply, MASTER_COMMAND_AUTH);
}

/* The name is for people: it may be refused. But a server that hangs up says why in answer to the first command. */
static void on_setname(struct master *master, const redisReply *reply)
{
	bool refused = reply && reply->type == REDIS_REPLY_ERROR && master->link.state == LINK_HANDSHAKE;
	if (refused && (strncmp(reply->str, "DENIED", 6) == 0 || strncmp(reply->str, "ERR max number", 14) == 0))
		master_check_note(master, MASTER_COMMAND_COUNT, reply);
}

static void on_select(struct master *master, const redisReply *reply)
{
	note_step(master, reply, MASTER_COMMAND_SELECT);
}

static void on_script(struct master *master, const redisReply *reply)
{
	note_step(master, reply, MASTER_COMMAND_SCRIPT_LOAD);
}

static bool is_sentinel(const redisReply *reply)
{
	char mode[16];
	return reply->type == REDIS_REPLY_STRING &&
	       info_field(reply->str, (size_t)reply->len, "redis_mode", mode, sizeof mode) &&
	       strcmp(mode, "sentinel") == 0;
}

/* Another run_id under the same address: the server was restarted, or it is another one. It may have forgotten what it
 * granted. */
static void note_server(struct master *master)
{
	assert(master->info.run_id[0]);
	bool restarted = master->has_info && strcmp(master->last_run_id, master->info.run_id) != 0;
	master->has_info = true;
	memcpy(master->last_run_id, master->info.run_id, sizeof master->last_run_id);
	if (restarted)
		master->restarted_until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
}

static void on_handshake_info(struct master *master, const redisReply *reply)
{
	if (!reply || master->link.state != LINK_HANDSHAKE)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		master_check_note(master, MASTER_COMMAND_INFO, reply);
	else if (is_sentinel(reply))
		master_link_fail(&master->link,
				 "sentinel: this is a Sentinel, not a master; name the masters themselves");
	else if (reply->type != REDIS_REPLY_STRING || !master_info_parse(reply->str, (size_t)reply->len, &master->info))
		master_link_fail(&master->link, "protocol: INFO lacks the fields of a Redis server");
	else if (master->info.loading)
		master_link_fail(&master->link, "loading: the server is reading its data");
	else
		note_server(master);
}

/* CLIENT ID counts up for as long as the server lives. */
static void on_handshake_id(struct master *master, const redisReply *reply)
{
	if (!reply || master->link.state != LINK_HANDSHAKE)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		master_check_note(master, MASTER_COMMAND_CLIENT_ID, reply);
	else if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0)
		master_link_fail(&master->link, "protocol: an answer that is not Redis's");
	else
		master->client_id = (uint64_t)reply->integer;
}

/* Until the next heartbeat, which comes earlier where a quarantine ends before it. */
static uint64_t heartbeat_ms(const struct master *master)
{
	uint64_t left_ms = master_state_is_quarantined(master) ? master_state_guard_left_ms(master) : 0;
	if (master_state_is_beginning(master))
		return MASTER_BEGINNING_MS;
	return left_ms > 0 && left_ms < MASTER_HEARTBEAT_MS ? left_ms : MASTER_HEARTBEAT_MS;
}

/* The last answer of the handshake: from now on commands are sent to the master. */
static void on_handshake_last(struct master *master, const redisReply *reply)
{
	on_script(master, reply);
	if (!reply || master->link.state != LINK_HANDSHAKE)
		return;
	if (master->check.words[0]) {
		end_refused(master);
		return;
	}
	assert(master->has_info);
	master_link_set_up(&master->link);
	if (master->was_up)
		metrics_add(&master->all->metrics->masters[master->index].reconnects, 1);
	master->reconnected = master->was_up;
	master->was_up = true;
	master->hung = false;
	master->up_us = clock_now_us();
	master->evicted_known = false;
	master->excluded = true; /* until INFO is evaluated */
	master->started = false;
	evaluate(master);
	if (master->excluded)
		master_guard_inspect_hash(master);
	master_pending_send_all(master);
	master_link_set_timer(&master->link, heartbeat_ms(master));
}

static bool handshake_login(struct master *master)
{
	const struct master_address *address = master->link.address;
	const char *with_user[] = {"AUTH", address->user, address->password};
	const char *without[] = {"AUTH", address->password};
	if (!address->password[0])
		return true;
	return address->user[0] ? master_command_send(master, on_auth, 3, with_user)
				: master_command_send(master, on_auth, 2, without);
}

static bool handshake_select(struct master *master)
{
	char db[8];
	snprintf(db, sizeof db, "%u", master->link.address->db);
	const char *select[] = {"SELECT", db};
	return master->link.address->db == 0 || master_command_send(master, on_select, 2, select);
}

static bool handshake_scripts(struct master *master)
{
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++) {
		const char *load[] = {"SCRIPT", "LOAD", scripts[script].source};
		bool last = script == REDLOCK_SCRIPT_INSPECT;
		if (!master_command_send(master, last ? on_handshake_last : on_script, 3, load))
			return false;
	}
	return true;
}

void master_handshake_start(struct master *master)
{
	static const char *const setname[] = {"CLIENT", "SETNAME", "redlockd"};
	static const char *const info[] = {"INFO"}, *const id[] = {"CLIENT", "ID"};
	assert(master->link.state == LINK_HANDSHAKE);
	bool sent = handshake_login(master) && handshake_select(master) &&
		    master_command_send(master, on_setname, 3, setname) &&
		    master_command_send(master, on_handshake_info, 1, info) &&
		    master_command_send(master, on_handshake_id, 2, id) && handshake_scripts(master);
	if (!sent) /* out of memory: the handshake's deadline ends it, since nothing may be freed here */
		master_link_set_timer(&master->link, 0);
}

/* ---- heartbeat ---- */

/* Another server behind the same connection (a proxy) needs a handshake of its own. */
static void evaluate_heartbeat(struct master *master, const struct master_info *before)
{
	if (strcmp(before->run_id, master->info.run_id) != 0) {
		master_link_fail(&master->link, "restarted: another run_id on the same connection");
		return;
	}
	evaluate_evictions(master, before);
	evaluate(master);
}

static void on_heartbeat(struct master *master, const redisReply *reply)
{
	master->heartbeat_out = false;
	if (!reply || master->link.state != LINK_UP)
		return;
	struct master_info before = master->info;
	if (reply->type == REDIS_REPLY_ERROR) {
		master->check.words[0] = '\0'; /* from the last run of the trials */
		master->check.found = 0;
		master_check_note(master, MASTER_COMMAND_INFO, reply);
		end_refused(master);
	} else if (reply->type == REDIS_REPLY_STRING &&
		   master_info_parse(reply->str, (size_t)reply->len, &master->info)) {
		evaluate_heartbeat(master, &before);
	}
	if (master->link.state == LINK_UP)
		master_link_set_timer(&master->link, heartbeat_ms(master));
}

/* One tick sends, and the answer sets the next one. Where no answer comes, the next tick is at its deadline. A master
 * that hung for as long as a lease can live gets a new connection: nothing in the old one can matter any more. */
void master_handshake_tick(struct master *master)
{
	static const char *const info[] = {"INFO"};
	uint32_t timeout_ms = master->all->options->master_timeout_ms;
	assert(master->link.state == LINK_UP);
	if (!master->heartbeat_out) {
		master->heartbeat_out = master_command_send(master, on_heartbeat, 1, info) && master_guard_read(master);
		master->heartbeat_late = false;
		master_link_set_timer(&master->link, timeout_ms + 1);
		return;
	}
	/* once more round the loop: if this process stood still, the answer may lie unread */
	if (!master->heartbeat_late) {
		master->heartbeat_late = true;
		master_link_set_timer(&master->link, 1);
		return;
	}
	master->heartbeat_late = false;
	master_command_note_silence(master);
	uint64_t behind_us = master->first ? clock_now_us() - master->first->sent_us : 0;
	if (master->hung && behind_us > master->all->options->max_ttl_ms * UINT64_C(1000))
		master_link_fail(&master->link, "timeout: hung for longer than the longest lease");
	else
		master_link_set_timer(&master->link, MASTER_HEARTBEAT_MS);
}
