/* What is said first on a new connection, the heartbeat, and what INFO tells.
 *
 *   greeting   AUTH, SELECT, CLIENT SETNAME, INFO, SCRIPT LOAD of each script: all in one write. Any error but that of
 *              SETNAME closes the connection and becomes the reason in /masters.
 *   heartbeat  once a second INFO, so that a master that hangs, changes its role or its settings is found also when
 *              nobody asks for locks.
 *   judging    a replica, a Redis older than 6.2 and a second address of one server may not vote; settings that may
 *              drop keys are warned of. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "master_internal.h"
#include "scripts.h"

/* ---- INFO ---- */

/* Copies the value of a line "name:value" to `ret`; false if there is no such line or it is too long. */
static bool info_field(const char *text, size_t len, const char *name, char *ret, size_t size)
{
	size_t name_len = strlen(name);
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

/* True if the text names a run_id, a version and a role, as Redis and Valkey do. */
bool master_info_parse(const char *text, size_t len, struct master_info *ret_info)
{
	struct master_info info = { .maxmemory = info_number(text, len, "maxmemory") };
	bool known = info_field(text, len, "run_id", info.run_id, sizeof info.run_id) &&
		     info_field(text, len, "redis_version", info.version, sizeof info.version) &&
		     info_field(text, len, "role", info.role, sizeof info.role);
	if (!known || !info.run_id[0])
		return false;
	(void)info_field(text, len, "maxmemory_policy", info.policy, sizeof info.policy);
	info.used_memory = info_number(text, len, "used_memory");
	info.loading = info_number(text, len, "loading") != 0;
	info.cluster = info_number(text, len, "cluster_enabled") != 0;
	*ret_info = info;
	return true;
}

/* ---- judging ---- */

static bool is_too_old(const char *version)
{
	unsigned major = 0, minor = 0;
	if (sscanf(version, "%3u.%3u", &major, &minor) != 2)
		return true;
	return major < 6 || (major == 6 && minor < 2);
}

static const struct master *find_twin(const struct master *master)
{
	for (size_t i = 0; i < master->index; i++) {
		const struct master *other = &master->all->list[i];
		if (other->has_info && strcmp(other->info.run_id, master->info.run_id) == 0)
			return other;
	}
	return NULL;
}

static void judge_vote(struct master *master)
{
	const struct master *twin = find_twin(master);
	char *why = master->bar_reason;
	size_t size = sizeof master->bar_reason;
	why[0] = '\0';
	if (strcmp(master->info.role, "master") != 0)
		snprintf(why, size, "replica: this server is a replica; locks need masters");
	else if (is_too_old(master->info.version))
		snprintf(why, size, "version: %s is older than 6.2", master->info.version);
	else if (twin)
		snprintf(why, size, "duplicate: the same server as %.100s", twin->address->shown);
}

static void add_warning(struct master *master, const char *warning)
{
	assert(master->warning_count < STATUS_WARNINGS_MAX);
	snprintf(master->warnings[master->warning_count++], STATUS_REASON_MAX, "%s", warning);
}

static void judge_warnings(struct master *master)
{
	size_t before = master->warning_count;
	master->warning_count = 0;
	if (master->info.policy[0] && strcmp(master->info.policy, "noeviction") != 0)
		add_warning(master, master->info.maxmemory ? "maxmemory-policy: keys may be evicted while they are held; set noeviction" :
							     "maxmemory-policy: not noeviction; harmless only as long as maxmemory is 0");
	if (clock_now_us() < master->restarted_until_us)
		add_warning(master, "restarted: another run_id than before; leases that it granted may be forgotten and given twice");
	if (master->info.cluster)
		add_warning(master, "cluster: this server is part of a Redis Cluster; use independent masters");
	atomic_store_explicit(&master->all->metrics->masters[master->index].warnings, master->warning_count, memory_order_relaxed);
	for (size_t i = before; i < master->warning_count; i++) {
		log_begin(LOG_WARN, "master-warning");
		log_text("master", master->address->shown);
		log_text("warning", master->warnings[i]);
		log_end();
	}
}

/* Out of memory shows before anybody asks for a lock. */
static void judge_memory(struct master *master)
{
	bool full = master->info.maxmemory > 0 && master->info.used_memory > master->info.maxmemory && strcmp(master->info.policy, "noeviction") == 0;
	master->soft_script = REDLOCK_SCRIPT_ACQUIRE;
	if (full)
		snprintf(master->soft_reason, sizeof master->soft_reason, "%s: used_memory is above maxmemory", master_error_name(MASTER_ERROR_OOM));
	else
		master->soft_reason[0] = '\0';
}

void master_judge(struct master *master)
{
	assert(master->has_info);
	judge_vote(master);
	judge_warnings(master);
	judge_memory(master);
	master_state_changed(master);
}

/* ---- greeting ---- */

static void reject(struct master *master, const redisReply *reply)
{
	char why[STATUS_REASON_MAX];
	enum master_error error = master_error_classify(reply->str, (size_t)reply->len);
	snprintf(why, sizeof why, "%s: %.120s", master_error_name(error), reply->str);
	metrics_add(&master->all->metrics->masters[master->index].errors[error], 1);
	master_link_fail(master, why);
}

/* AUTH, SELECT, SCRIPT LOAD: only errors matter. */
static void on_greeting_step(void *arg, const struct redisReply *reply)
{
	struct master *master = arg;
	if (!reply || master->link != LINK_GREETING)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		reject(master, reply);
	else if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_STRING)
		master_link_fail(master, "protocol: an answer that is not Redis's");
}

/* Another run_id under the same address: the server was restarted, or it is another one. What it had granted may be forgotten. */
static void note_server(struct master *master)
{
	bool restarted = master->has_info && strcmp(master->last_run_id, master->info.run_id) != 0;
	master->has_info = true;
	memcpy(master->last_run_id, master->info.run_id, sizeof master->last_run_id);
	if (restarted)
		master->restarted_until_us = clock_now_us() + master->all->options->max_ttl_ms * UINT64_C(1000);
}

static void on_greeting_info(void *arg, const struct redisReply *reply)
{
	struct master *master = arg;
	if (!reply || master->link != LINK_GREETING)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		reject(master, reply);
	else if (reply->type != REDIS_REPLY_STRING || !master_info_parse(reply->str, (size_t)reply->len, &master->info))
		master_link_fail(master, "protocol: INFO does not say what a Redis server says");
	else if (master->info.loading)
		master_link_fail(master, "loading: the server is reading its data");
	else
		note_server(master);
}

/* The last answer of the greeting: from now on the master is asked. */
static void on_greeting_last(void *arg, const struct redisReply *reply)
{
	struct master *master = arg;
	on_greeting_step(master, reply);
	if (!reply || master->link != LINK_GREETING || !master->has_info)
		return;
	master->link = LINK_UP;
	if (master->was_up)
		metrics_add(&master->all->metrics->masters[master->index].reconnects, 1);
	master->was_up = true;
	master->attempts = 0;
	master->tried = true;
	master->hung = false;
	master_judge(master);
	master_send_owed(master);
	master_link_timer(master, MASTER_HEARTBEAT_MS);
}

static bool greet_login(struct master *master)
{
	const struct master_address *address = master->address;
	const char *with_user[] = { "AUTH", address->user, address->password };
	const char *without[] = { "AUTH", address->password };
	if (!address->password[0])
		return true;
	return address->user[0] ? master_command(master, on_greeting_step, 3, with_user) : master_command(master, on_greeting_step, 2, without);
}

static bool greet_select(struct master *master)
{
	char db[8];
	snprintf(db, sizeof db, "%u", master->address->db);
	const char *select[] = { "SELECT", db };
	return master->address->db == 0 || master_command(master, on_greeting_step, 2, select);
}

static bool greet_scripts(struct master *master)
{
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++) {
		const char *load[] = { "SCRIPT", "LOAD", scripts[script].source };
		bool last = script == REDLOCK_SCRIPT_INSPECT;
		if (!master_command(master, last ? on_greeting_last : on_greeting_step, 3, load))
			return false;
	}
	return true;
}

void master_greet(struct master *master)
{
	static const char *const setname[] = { "CLIENT", "SETNAME", "redlockd" };
	static const char *const info[] = { "INFO" };
	assert(master->link == LINK_GREETING);
	bool sent = greet_login(master) && greet_select(master) && master_command(master, NULL, 3, setname) &&
		    master_command(master, on_greeting_info, 1, info) && greet_scripts(master);
	if (!sent)
		master_link_timer(master, 0); /* out of memory: the greeting's deadline ends it, since nothing may be freed here */
}

/* ---- heartbeat ---- */

static void on_heartbeat(void *arg, const struct redisReply *reply)
{
	struct master *master = arg;
	master->heartbeat_out = false;
	if (!reply || master->link != LINK_UP)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		reject(master, reply);
	else if (reply->type == REDIS_REPLY_STRING && master_info_parse(reply->str, (size_t)reply->len, &master->info))
		master_judge(master);
	if (master->link == LINK_UP)
		master_link_timer(master, MASTER_HEARTBEAT_MS);
}

/* One tick sends; the answer sets the next one. Where it does not come, a tick is there when it is due. A master hung for as long as a lease can live gets
 * a new connection: nothing that lies in the old one can matter any more. */
void master_heartbeat_tick(struct master *master)
{
	static const char *const info[] = { "INFO" };
	uint32_t timeout_ms = master->all->options->master_timeout_ms;
	if (!master->heartbeat_out) {
		master->heartbeat_out = master_command(master, on_heartbeat, 1, info);
		master->heartbeat_due = false;
		master_link_timer(master, timeout_ms + 1);
		return;
	}
	if (!master->heartbeat_due) { /* once more round the loop: its answer may lie unread, if we were the ones that stood still */
		master->heartbeat_due = true;
		master_link_timer(master, 1);
		return;
	}
	master->heartbeat_due = false;
	masters_note_silence(master->all, master->index);
	uint64_t behind_us = master->first ? clock_now_us() - master->first->sent_us : 0;
	if (master->hung && behind_us > master->all->options->max_ttl_ms * UINT64_C(1000))
		master_link_fail(master, "timeout: hung for longer than the longest lease");
	else
		master_link_timer(master, MASTER_HEARTBEAT_MS);
}
