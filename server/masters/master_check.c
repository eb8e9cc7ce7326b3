/* SPDX-License-Identifier: MIT */
/* Tries whether a master can do all that locks need: once on each connection, before its vote counts, and again with
 * each heartbeat while it fails, or after another command was refused.
 *
 *   probes   each command that the scripts and redlockd itself use, with arguments that change nothing: on a name that
 *            no lock has, with XX, or so wrong that Redis refuses them after everything else that it may refuse them
 *            for (rights, memory, the role). All at once, so that the reason names everything that is missing.
 *            SUBSCRIBE is one of them, on the second connection (master_notification.c).
 *   trials   each script, on keys of our own that are deleted at once and run out by themselves; its answer is
 *            compared. Only after probes without a fault, so that no key stays on a server that refuses to
 *            delete.
 *
 * A refusal stays the reason until a run has passed. A heartbeat, or the success of a script that needs less, does not
 * remove it. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum { ARGUMENTS_MAX = 18, ARGUMENT_SIZE = 2 * sizeof(((struct options *)0)->key_prefix) + 96, AGAIN_MS = 900 };

struct step {
	enum master_command_kind command;
	const struct script *script; /* its source comes first; NULL: none */
	const char *name;            /* of the script */
	long long answer;            /* of the script: its first number */
	const char *harmless;        /* the error that the command gets where it is allowed */
	const char *arguments[ARGUMENTS_MAX];
};

#define PROBE(kind, ...) .command = MASTER_COMMAND_##kind, .arguments = {__VA_ARGS__}
#define WRONG(kind, error, ...) PROBE(kind, __VA_ARGS__), .harmless = error
#define TRIAL(kind, lua, number, ...) \
	PROBE(EVAL, __VA_ARGS__), .script = &scripts[REDLOCK_SCRIPT_##kind], .name = lua, .answer = number

/* In arguments: $p is the prefix of keys, $r the name of this worker, $u digits that no lock has. UNUSED does not begin
 * with redlockd:, because the rights must cover the names of locks. */
#define UNUSED "$p$u"
#define LOCK "$predlockd:check:$r"
#define LOCK_2 LOCK ":2"
#define HASH LOCK ":master"
#define QUEUE LOCK ":queue:" LOCK
#define WANTED LOCK ":wanted:" LOCK
#define WANTED_2 WANTED ":2"
#define HOLDERS LOCK ":holders:" LOCK
#define MASTER "$predlockd:master"
#define CHANNEL "$predlockd:wake"
#define TOKEN "00000000000000000000000000000000000000"
#define LATEST "9999999999999999"
#define MARK "0000000000000001"

static const struct step steps[] = {
	{PROBE(TIME, NULL)},
	{PROBE(GETRANGE, UNUSED, "0", "0")},
	{PROBE(SET, UNUSED, "", "XX", "PX", "1000")},
	{PROBE(DEL, UNUSED)},
	{PROBE(EXISTS, UNUSED)},
	{PROBE(PTTL, UNUSED)},
	{PROBE(PEXPIRE, UNUSED, "1000")},
	{PROBE(PEXPIREAT, UNUSED, "1000")},
	{PROBE(HGET, MASTER, "epoch")},
	{PROBE(HMGET, MASTER, "epoch")},
	{WRONG(HSET, "ERR wrong number of arguments", MASTER, "a", "b", "c")},
	{PROBE(HDEL, UNUSED, "a")},
	{WRONG(HINCRBY, "ERR value is not an integer", MASTER, "a", "b")},
	{PROBE(ZADD, UNUSED, "XX", "0", "a")},
	{PROBE(ZCARD, UNUSED)},
	{PROBE(ZCOUNT, UNUSED, "0", "0")},
	{PROBE(ZRANGE, UNUSED, "0", "0")},
	{PROBE(ZRANGEBYSCORE, UNUSED, "0", "0")},
	{PROBE(ZRANK, UNUSED, "a")},
	{PROBE(ZREM, UNUSED, "a")},
	{PROBE(ZREMRANGEBYRANK, UNUSED, "0", "0")},
	{PROBE(ZSCORE, UNUSED, "a")},
	{PROBE(SCAN, "0", "COUNT", "1")},
	/* too short for a notification: every listener drops it */
	{PROBE(PUBLISH, CHANNEL, "")},
	{PROBE(EVAL, "return 1", "0")},
	{WRONG(EVALSHA, "NOSCRIPT", TOKEN "00", "0")},

	/* left over from an earlier connection that broke in the middle */
	{PROBE(DEL, LOCK, LOCK_2, HASH, QUEUE, WANTED, WANTED_2, HOLDERS)},
	{PROBE(EVAL, "redis.call('HSET', KEYS[1], 'beat', 0) return redis.call('PEXPIRE', KEYS[1], 10000)", "1", HASH)},
	{TRIAL(EPOCH, "epoch", 1, "1", HASH, MARK, "0", "1", "1", "1")},
	{TRIAL(QUARANTINE, "quarantine", 1, "1", HASH, "", MARK, MARK, "1", "1", MARK, "")},
	{TRIAL(EPOCH_WRITE, "epoch_write", 1, "1", HASH, MARK, MARK, MARK, MARK, "1", "0", "0", "1", LATEST)},
	{TRIAL(FENCES, "fences", 1, "1", HASH, MARK, "0", "1")},
	/* The guess of the fence is 1: a redlockd whose own clock is wrong can still extend and release. */
	{TRIAL(ACQUIRE, "acquire", 1, "2", LOCK, HASH, MARK, LATEST, "", "", TOKEN "01", "10000", ":", "0", "1", "")},
	{TRIAL(ACQUIRE, "acquire", 0, "2", LOCK, HASH, MARK, LATEST, "", "", TOKEN "02", "10000", ":", "0", "1",
	       "$r:" MARK " 1000")},
	{TRIAL(RAISE, "raise", 1, "2", LOCK, HASH, MARK, LATEST, "", "", TOKEN "01", "0", "2")},
	{TRIAL(INSPECT, "inspect", 0, "2", LOCK, HASH, MARK, LATEST, "", "", "0", "1")},
	/* without a key, which it would publish on a channel of the trial's */
	{TRIAL(EXTEND, "extend", 1, "2", LOCK, HASH, MARK, LATEST, "", "", TOKEN "01", "20000", "", "0", "1")},
	{TRIAL(RELEASE, "release", 1, "2", LOCK, HASH, MARK, LATEST, "", "", TOKEN "01", "$r:" MARK " 0", "0")},
	/* a set; the bucket of the first resource is at 2 by now */
	{TRIAL(ACQUIRE, "acquire", 1, "3", LOCK, LOCK_2, HASH, MARK, LATEST, "2", "", TOKEN "03", "10000", ":", "0,1",
	       "3", "")},
	{TRIAL(RAISE, "raise", 1, "3", LOCK, LOCK_2, HASH, MARK, LATEST, "2", "", TOKEN "03", "0,1", "4")},
	{TRIAL(EXTEND, "extend", 1, "3", LOCK, LOCK_2, HASH, MARK, LATEST, "2", "", TOKEN "03", "20000", "4:" MARK,
	       "0,1", "1")},
	{TRIAL(RELEASE, "release", 1, "3", LOCK, LOCK_2, HASH, MARK, LATEST, "2", "", TOKEN "03", "", "0")},
	/* a slot */
	{TRIAL(ACQUIRE, "acquire", 1, "2", LOCK, HASH, MARK, LATEST, "#0 2", "", TOKEN "04", "10000", ":", "0", "5",
	       "")},
	{TRIAL(ACQUIRE, "acquire", 0, "2", LOCK, HASH, MARK, LATEST, "#0 2", "", TOKEN "05", "10000", ":", "0", "5",
	       "")},
	{TRIAL(EXTEND, "extend", 1, "2", LOCK, HASH, MARK, LATEST, "", "", TOKEN "04", "20000", "5:" MARK, "0", "1")},
	{TRIAL(RELEASE, "release", 1, "2", LOCK, HASH, MARK, LATEST, "", "", TOKEN "04", "", "1000")},
	{PROBE(DEL, LOCK, LOCK_2, HASH, QUEUE, WANTED, WANTED_2, HOLDERS)},
};

enum { STEPS = sizeof steps / sizeof *steps, PROBES = 26 };

/* ---- sending ---- */

static const char *expand(const struct masters *masters, const char *unused, const char *word, char ret[ARGUMENT_SIZE])
{
	size_t len = 0;
	while (*word) {
		const char *part = word;
		size_t part_len = strcspn(word, "$");
		word += part_len > 0 ? part_len : 2;
		if (part_len == 0) {
			part = part[1] == 'p'   ? masters->options->key_prefix
			       : part[1] == 'r' ? masters->replica
						: unused;
			part_len = strlen(part);
		}
		assert(len + part_len < ARGUMENT_SIZE);
		memcpy(ret + len, part, part_len);
		len += part_len;
	}
	ret[len] = '\0';
	return ret;
}

static void on_check_answer(struct master *master, unsigned i, const redisReply *reply);

static void send_steps(struct master *master, size_t from, size_t to)
{
	char unused[33], texts[ARGUMENTS_MAX][ARGUMENT_SIZE];
	assert(from < to && to <= STEPS);
	snprintf(unused, sizeof unused, "%016" PRIx64 "%016" PRIx64, random_number(), random_number());
	for (size_t i = from; i < to; i++) {
		const char *argv[ARGUMENTS_MAX + 3] = {master_command_name(steps[i].command)};
		size_t argc = 1;
		if (steps[i].script)
			argv[argc++] = steps[i].script->source;
		for (size_t w = 0; w < ARGUMENTS_MAX && steps[i].arguments[w]; w++)
			argv[argc++] = steps[i].arguments[w][0] == '$'
					       ? expand(master->all, unused, steps[i].arguments[w], texts[w])
					       : steps[i].arguments[w];
		master_command_send(master, on_check_answer, (unsigned)i, argv);
		master->check.left++;
	}
}

/* ---- answers ---- */

/* Errors that any command would get. Without a login Redis takes no script of more than 16 KiB. */
static bool is_general(const char *text)
{
	static const char *const all[] = {"NOAUTH",
					  "DENIED",
					  "LOADING",
					  "BUSY",
					  "ERR max number of clients",
					  "ERR Protocol error: unauthenticated"};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strncmp(text, all[i], strlen(all[i])) == 0)
			return true;
	return false;
}

static void record_refusal(struct master *master, enum master_command_kind command, enum master_error error,
			   const char *text)
{
	assert(command <= MASTER_COMMAND_COUNT && error < MASTER_ERROR_COUNT);
	if (!master->check.error_text[0]) {
		master_error_text(text, master->check.error_text);
		master->check.error = error;
	}
	if (command < MASTER_COMMAND_COUNT && !is_general(text) && !(master->check.refused >> MASTER_COMMAND_AUTH & 1))
		master->check.refused |= UINT64_C(1) << command;
}

void master_check_record_refusal(struct master *master, enum master_command_kind command, const redisReply *reply)
{
	record_refusal(master, command, master_error_classify(reply->str), reply->str);
}

/* "auth: HSET, ZADD: NOPERM …": everything that is refused, and the text of the first error. */
void master_check_write(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	assert(master->check.error < MASTER_ERROR_COUNT);
	size_t at = (size_t)snprintf(ret_reason, STATUS_REASON_MAX, "%s: ", master_error_name(master->check.error));
	const char *comma = "";
	for (unsigned i = 0; i < MASTER_COMMAND_COUNT; i++) {
		if (!(master->check.refused >> i & 1))
			continue;
		at += (size_t)snprintf(ret_reason + at, STATUS_REASON_MAX - at, "%s%s", comma, master_command_name(i));
		comma = ", ";
	}
	assert(at < STATUS_REASON_MAX);
	snprintf(ret_reason + at, STATUS_REASON_MAX - at, "%s%s", comma[0] ? ": " : "", master->check.error_text);
}

static void end_run(struct master *master)
{
	bool passed = !master->check.error_text[0];
	if (master->check.left > 0)
		return;
	metrics_set(&master->metrics->refused, master->check.refused);
	master->check.state = passed ? CHECK_PASSED : master->check.state < CHECK_PASSED ? CHECK_FAILED : CHECK_DOUBTED;
	master->soft_reason[0] = '\0';
	if (!passed) {
		master_check_write(master, master->soft_reason);
		master_state_count_error(master, master->check.error);
	}
	master_state_report(master);
}

static void check_answer(struct master *master, const struct step *step, const redisReply *reply)
{
	char text[MASTER_ERROR_TEXT_MAX];
	const char *harmless = step->harmless;
	if (reply->type == REDIS_REPLY_ERROR) {
		if (!harmless || strncmp(reply->str, harmless, strlen(harmless)) != 0)
			master_check_record_refusal(master, step->command, reply);
		return;
	}
	if (!step->script || master_reply_begins(reply, step->answer))
		return;
	snprintf(text, sizeof text, "%s.lua does not answer as it should", step->name);
	record_refusal(master, step->command, MASTER_ERROR_OTHER, text);
}

static void on_check_answer(struct master *master, unsigned i, const redisReply *reply)
{
	assert(i < STEPS && master->check.left > 0 && master->link.state == LINK_UP);
	check_answer(master, &steps[i], reply);
	master->check.left--;
	if (i == PROBES - 1 && !master->check.error_text[0])
		send_steps(master, PROBES, STEPS);
	end_run(master);
}

/* ---- runs ---- */

void master_check_settle_subscribe(struct master *master, enum master_error error, const char *refused)
{
	if (!master->check.subscribing)
		return;
	assert(master->check.left > 0);
	master->check.subscribing = false;
	master->check.left--;
	if (refused)
		record_refusal(master, MASTER_COMMAND_SUBSCRIBE, error, refused);
	end_run(master);
}

static void begin_run(struct master *master)
{
	assert(master->link.state == LINK_UP && master->check.left == 0);
	master->check.refused = 0;
	master->check.error_text[0] = '\0';
	master->check.began_us = clock_now_us();
	master->check.subscribing = true;
	master->check.left = 1;
	send_steps(master, 0, PROBES);
}

bool master_check_tick(struct master *master)
{
	const struct master_info *info = &master->info;
	/* a lack of memory is found before the first request */
	bool is_full = info->maxmemory > 0 && info->used_memory > info->maxmemory;
	bool again = clock_now_us() - master->check.began_us >= AGAIN_MS * UINT64_C(1000);
	if (master->link.state != LINK_UP || !master_is_member(master))
		return false;
	if (master->check.left == 0 &&
	    (master->check.state == CHECK_UNTRIED || (again && (master->check.state != CHECK_PASSED || is_full)))) {
		begin_run(master);
		return true;
	}
	if (master->check.left == 1 && master->check.subscribing && again)
		master_check_settle_subscribe(master, MASTER_ERROR_TIMEOUT, "no answer on the second connection");
	return false;
}

void master_check_end(struct master *master, bool in_handshake)
{
	metrics_set(&master->metrics->refused, in_handshake ? master->check.refused : 0);
	memset(&master->check, 0, sizeof master->check);
}
