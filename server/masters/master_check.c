/* Can this master do all that locks need? It is tried once on each connection, before its vote counts, and again with
 * each heartbeat for as long as it fails or the answer to something else has cast doubt on it.
 *
 *   probes   each command that the scripts and redlockd itself use, with arguments that change nothing: on a name that
 *            no lock has, with XX, or so wrong that Redis refuses them after everything else that it may refuse them
 *            for (rights, memory, the role). All at once, so that the reason names everything that is missing.
 *            SUBSCRIBE is one of them, on the second connection (master_notification.c).
 *   trials   each script, on keys of our own that are deleted at once and run out by themselves; its answer is
 *            compared. Only after probes without a fault, so that nothing is left behind on a server that refuses to
 *            delete.
 *
 * What was refused is the reason until a run has passed: neither a heartbeat nor the success of a script that needs
 * less takes it away. The worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"
#include "server/scripts/scripts.h"

enum {
	WORDS_MAX = 12,
	KEY_MAX = 2 * sizeof(((struct options *)0)->key_prefix) + 96,
	AGAIN_MS = 900,
	NO_SCRIPT = REDLOCK_SCRIPT_NONE
};

/* Arguments that begin with $ stand for the names of names_make(). */
struct step {
	enum master_command_kind command;
	unsigned script; /* its source comes first */
	const char *words[WORDS_MAX];
	const char *harmless; /* the error that it gets where it is allowed */
	long long answer;     /* of the script: its first number */
};

#define TOKEN "00000000000000000000000000000000000000"
#define LATEST "9999999999999999"
#define MARK "0000000000000001"

static const struct step steps[] = {
	{MASTER_COMMAND_TIME, NO_SCRIPT, {NULL}, NULL, 0},
	{MASTER_COMMAND_GET, NO_SCRIPT, {"$unused"}, NULL, 0},
	{MASTER_COMMAND_SET, NO_SCRIPT, {"$unused", "", "XX", "PX", "1000"}, NULL, 0},
	{MASTER_COMMAND_DEL, NO_SCRIPT, {"$unused"}, NULL, 0},
	{MASTER_COMMAND_EXISTS, NO_SCRIPT, {"$unused"}, NULL, 0},
	{MASTER_COMMAND_PTTL, NO_SCRIPT, {"$unused"}, NULL, 0},
	{MASTER_COMMAND_PEXPIRE, NO_SCRIPT, {"$unused", "1000"}, NULL, 0},
	{MASTER_COMMAND_HGET, NO_SCRIPT, {"$master", "epoch"}, NULL, 0},
	{MASTER_COMMAND_HMGET, NO_SCRIPT, {"$master", "epoch"}, NULL, 0},
	{MASTER_COMMAND_HSET, NO_SCRIPT, {"$master", "a", "b", "c"}, "ERR wrong number of arguments", 0},
	{MASTER_COMMAND_HDEL, NO_SCRIPT, {"$unused", "a"}, NULL, 0},
	{MASTER_COMMAND_HINCRBY, NO_SCRIPT, {"$master", "a", "b"}, "ERR value is not an integer", 0},
	{MASTER_COMMAND_ZADD, NO_SCRIPT, {"$unused", "XX", "0", "a"}, NULL, 0},
	{MASTER_COMMAND_ZCARD, NO_SCRIPT, {"$unused"}, NULL, 0},
	{MASTER_COMMAND_ZRANGE, NO_SCRIPT, {"$unused", "0", "0"}, NULL, 0},
	{MASTER_COMMAND_ZREM, NO_SCRIPT, {"$unused", "a"}, NULL, 0},
	{MASTER_COMMAND_SCAN, NO_SCRIPT, {"0", "COUNT", "1"}, NULL, 0},
	/* too short for a notification: every listener drops it */
	{MASTER_COMMAND_PUBLISH, NO_SCRIPT, {"$channel", ""}, NULL, 0},
	{MASTER_COMMAND_EVAL, NO_SCRIPT, {"return 1", "0"}, NULL, 0},
	{MASTER_COMMAND_EVALSHA, NO_SCRIPT, {TOKEN "00", "0"}, "NOSCRIPT", 0},

	/* left over from an earlier connection that broke in the middle */
	{MASTER_COMMAND_DEL, NO_SCRIPT, {"$lock", "$hash", "$queue"}, NULL, 0},
	{MASTER_COMMAND_EVAL,
	 NO_SCRIPT,
	 {"redis.call('HSET', KEYS[1], 'beat', 0) return redis.call('PEXPIRE', KEYS[1], 10000)", "1", "$hash"},
	 NULL,
	 0},
	{MASTER_COMMAND_EVAL, REDLOCK_SCRIPT_EPOCH, {"1", "$hash", MARK, "0", "1", "1"}, NULL, 1},
	{MASTER_COMMAND_EVAL, REDLOCK_SCRIPT_QUARANTINE, {"1", "$hash", "", MARK, MARK, "1", "1"}, NULL, 1},
	{MASTER_COMMAND_EVAL,
	 REDLOCK_SCRIPT_EPOCH_WRITE,
	 {"1", "$hash", MARK, MARK, MARK, MARK, "1", "0", "0", LATEST},
	 NULL,
	 1},
	{MASTER_COMMAND_EVAL, REDLOCK_SCRIPT_FENCES, {"1", "$hash", MARK, "0", "1"}, NULL, 1},
	/* The guess of the fence is 1: a redlockd whose own clock is wrong can still extend and release. */
	{MASTER_COMMAND_EVAL,
	 REDLOCK_SCRIPT_ACQUIRE,
	 {"2", "$lock", "$hash", TOKEN "01", "10000", "0", "", "0", "1", "", MARK, LATEST},
	 NULL,
	 1},
	{MASTER_COMMAND_EVAL,
	 REDLOCK_SCRIPT_ACQUIRE,
	 {"2", "$lock", "$hash", TOKEN "02", "10000", "0", "", "0", "1", "$entry", MARK, LATEST},
	 NULL,
	 0},
	{MASTER_COMMAND_EVAL,
	 REDLOCK_SCRIPT_RAISE,
	 {"2", "$lock", "$hash", TOKEN "01", "0", "2", MARK, LATEST},
	 NULL,
	 1},
	{MASTER_COMMAND_EVAL, REDLOCK_SCRIPT_INSPECT, {"2", "$lock", "$hash", MARK, LATEST}, NULL, 0},
	{MASTER_COMMAND_EVAL,
	 REDLOCK_SCRIPT_EXTEND,
	 {"2", "$lock", "$hash", TOKEN "01", "20000", MARK, LATEST},
	 NULL,
	 1},
	{MASTER_COMMAND_EVAL,
	 REDLOCK_SCRIPT_RELEASE,
	 {"2", "$lock", "$hash", TOKEN "01", "$leave", MARK, LATEST},
	 NULL,
	 1},
	{MASTER_COMMAND_DEL, NO_SCRIPT, {"$lock", "$hash", "$queue"}, NULL, 0},
};

enum { STEPS = sizeof steps / sizeof *steps, PROBES = 20 };

static const char *const script_names[SCRIPTS_COUNT] = {
	[REDLOCK_SCRIPT_ACQUIRE] = "acquire",         [REDLOCK_SCRIPT_RAISE] = "raise",
	[REDLOCK_SCRIPT_EXTEND] = "extend",           [REDLOCK_SCRIPT_RELEASE] = "release",
	[REDLOCK_SCRIPT_INSPECT] = "inspect",         [REDLOCK_SCRIPT_EPOCH] = "epoch",
	[REDLOCK_SCRIPT_QUARANTINE] = "quarantine",   [REDLOCK_SCRIPT_FENCES] = "fences",
	[REDLOCK_SCRIPT_EPOCH_WRITE] = "epoch_write",
};

/* ---- sending ---- */

struct names {
	char unused[KEY_MAX], lock[KEY_MAX], hash[KEY_MAX], queue[KEY_MAX], entry[64], leave[64];
};

/* `unused`: a name that no lock has. It does not begin with redlockd: since the rights must cover the names of
 * locks. */
static void names_make(const struct masters *masters, struct names *ret)
{
	const char *prefix = masters->options->key_prefix, *replica = masters->replica;
	snprintf(ret->unused, sizeof ret->unused, "%s%016llx%016llx", prefix, (unsigned long long)random_number(),
		 (unsigned long long)random_number());
	snprintf(ret->lock, sizeof ret->lock, "%sredlockd:check:%s", prefix, replica);
	snprintf(ret->hash, sizeof ret->hash, "%sredlockd:check:%s:master", prefix, replica);
	snprintf(ret->queue, sizeof ret->queue, "%sredlockd:check:%s:queue:%sredlockd:check:%s", prefix, replica,
		 prefix, replica);
	snprintf(ret->entry, sizeof ret->entry, "%s:" MARK " 1000", replica);
	snprintf(ret->leave, sizeof ret->leave, "%s:" MARK " 0", replica);
}

static const char *word_of(const struct masters *masters, const struct names *names, const char *word)
{
	const struct {
		const char *name, *means;
	} all[] = {
		{"$unused", names->unused},     {"$lock", names->lock},
		{"$hash", names->hash},         {"$queue", names->queue},
		{"$entry", names->entry},       {"$leave", names->leave},
		{"$master", masters->hash_key}, {"$channel", masters->wake_channel},
	};
	for (size_t i = 0; *word == '$' && i < sizeof all / sizeof *all; i++)
		if (strcmp(word, all[i].name) == 0)
			return all[i].means;
	assert(*word != '$');
	return word;
}

static void on_step(struct master *master, const redisReply *reply);

/* False: out of memory, or the connection is being dropped. */
static bool send_steps(struct master *master, size_t from, size_t to)
{
	struct names names;
	assert(from < to && to <= STEPS);
	names_make(master->all, &names);
	for (size_t i = from; i < to; i++) {
		const char *argv[WORDS_MAX + 2] = {master_command_name(steps[i].command)};
		int argc = 1;
		if (steps[i].script != NO_SCRIPT)
			argv[argc++] = scripts[steps[i].script].source;
		for (size_t w = 0; w < WORDS_MAX && steps[i].words[w]; w++)
			argv[argc++] = word_of(master->all, &names, steps[i].words[w]);
		if (!master_command_send(master, on_step, argc, argv))
			return false;
		master->check.left++;
	}
	return true;
}

/* ---- answers ---- */

/* Errors that any command would get. */
static bool is_general(const char *words)
{
	static const char *const all[] = {"NOAUTH", "DENIED", "LOADING", "BUSY", "ERR max number of clients"};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strncmp(words, all[i], strlen(all[i])) == 0)
			return true;
	return false;
}

static void note(struct master *master, enum master_command_kind command, enum master_error error, const char *words,
		 size_t len)
{
	assert(command <= MASTER_COMMAND_COUNT && error < MASTER_ERROR_COUNT);
	if (!master->check.words[0]) {
		master_error_words(words, len, master->check.words);
		master->check.error = error;
	}
	if (command < MASTER_COMMAND_COUNT && !is_general(words) && !(master->check.found >> MASTER_COMMAND_AUTH & 1))
		master->check.found |= UINT64_C(1) << command;
}

void master_check_note(struct master *master, enum master_command_kind command, const redisReply *reply)
{
	note(master, command, master_error_classify(reply->str, (size_t)reply->len), reply->str, (size_t)reply->len);
}

/* "auth: HSET, ZADD: NOPERM …": everything that is refused, and the text of the first error. */
void master_check_write(const struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	assert(master->check.error < MASTER_ERROR_COUNT);
	size_t at = (size_t)snprintf(ret_reason, STATUS_REASON_MAX, "%s: ", master_error_name(master->check.error));
	const char *comma = "";
	for (unsigned i = 0; i < MASTER_COMMAND_COUNT; i++) {
		if (!(master->check.found >> i & 1))
			continue;
		at += (size_t)snprintf(ret_reason + at, STATUS_REASON_MAX - at, "%s%s", comma, master_command_name(i));
		comma = ", ";
	}
	assert(at < STATUS_REASON_MAX);
	snprintf(ret_reason + at, STATUS_REASON_MAX - at, "%s%s", comma[0] ? ": " : "", master->check.words);
}

static void set_refused(struct master *master, uint64_t refused)
{
	metrics_set(&master->all->metrics->masters[master->index].refused, refused);
}

static void finish(struct master *master)
{
	bool passed = !master->check.words[0];
	/* answers are missing; or memory was too short for the trials, which begin again with the next INFO */
	if (master->check.left > 0 || (passed && master->check.at < STEPS))
		return;
	set_refused(master, master->check.found);
	master->check.passed = passed;
	master->check.known = master->check.known || passed;
	master->check.ended = true;
	master->soft_reason[0] = '\0';
	if (!passed) {
		master_check_write(master, master->soft_reason);
		master_state_count_error(master, master->check.error);
	}
	master_state_report(master);
}

static void note_answer(struct master *master, const struct step *step, const redisReply *reply)
{
	char words[MASTER_WORDS_MAX];
	const char *harmless = step->harmless;
	if (reply->type == REDIS_REPLY_ERROR) {
		if (!harmless || strncmp(reply->str, harmless, strlen(harmless)) != 0)
			master_check_note(master, step->command, reply);
		return;
	}
	if (step->script == NO_SCRIPT)
		return;
	bool fits = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
		    reply->element[0]->type == REDIS_REPLY_INTEGER;
	if (fits && reply->element[0]->integer == step->answer)
		return;
	snprintf(words, sizeof words, "%s.lua does not answer as it should", script_names[step->script]);
	note(master, step->command, MASTER_ERROR_OTHER, words, strlen(words));
}

static void on_step(struct master *master, const redisReply *reply)
{
	if (!reply || master->link.state != LINK_UP)
		return;
	assert(master->check.at < STEPS && master->check.left > 0);
	note_answer(master, &steps[master->check.at++], reply);
	master->check.left--;
	if (master->check.at == PROBES && !master->check.words[0] && !send_steps(master, PROBES, STEPS))
		return; /* the connection ends */
	finish(master);
}

/* ---- runs ---- */

void master_check_note_subscribed(struct master *master, enum master_error error, const char *refused)
{
	if (!master->check.subscribing)
		return;
	assert(master->check.left > 0);
	master->check.subscribing = false;
	master->check.left--;
	if (refused)
		note(master, MASTER_COMMAND_SUBSCRIBE, error, refused, strlen(refused));
	finish(master);
}

static void begin(struct master *master)
{
	assert(master->link.state == LINK_UP && master->check.left == 0);
	master->check.found = 0;
	master->check.words[0] = '\0';
	master->check.at = 0;
	master->check.began_us = clock_now_us();
	master->check.subscribing = true;
	master->check.left = 1;
	if (send_steps(master, 0, PROBES))
		master_notification_check(master);
}

void master_check_tick(struct master *master)
{
	const struct master_info *info = &master->info;
	/* a lack of memory is found before the first request */
	bool is_full = info->maxmemory > 0 && info->used_memory > info->maxmemory;
	bool again = clock_now_us() - master->check.began_us >= AGAIN_MS * UINT64_C(1000);
	if (master->link.state != LINK_UP || master->excluded)
		return;
	if (master->check.left == 0 && (!master->check.ended || (again && (!master->check.passed || is_full))))
		begin(master);
	else if (master->check.left == 1 && master->check.subscribing && again)
		master_check_note_subscribed(master, MASTER_ERROR_TIMEOUT, "no answer on the second connection");
}

void master_check_end(struct master *master, bool in_handshake)
{
	set_refused(master, in_handshake ? master->check.found : 0);
	memset(&master->check, 0, sizeof master->check);
}
