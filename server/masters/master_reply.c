/* SPDX-License-Identifier: MIT */
/* Maps the answers that hiredis read to votes of the core. Pure: no state, no I/O, so that it can be fuzzed. An answer
 * of a shape that our scripts never give counts as a failure. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"
#include "server/base/base.h"

static const struct {
	const char *code;
	enum master_error error;
} error_codes[] = {
	{"LOADING", MASTER_ERROR_LOADING},
	{"READONLY", MASTER_ERROR_READONLY},
	{"OOM", MASTER_ERROR_OOM},
	{"NOAUTH", MASTER_ERROR_AUTH},
	{"WRONGPASS", MASTER_ERROR_AUTH},
	{"NOPERM", MASTER_ERROR_AUTH},
	{"MOVED", MASTER_ERROR_CLUSTER},
	{"ASK", MASTER_ERROR_CLUSTER},
	{"CLUSTERDOWN", MASTER_ERROR_CLUSTER},
	{"CROSSSLOT", MASTER_ERROR_CLUSTER},
	{"BUSY", MASTER_ERROR_BUSY},
	{"DENIED", MASTER_ERROR_AUTH},
	{"ERR unknown command", MASTER_ERROR_COMMAND},
	{"ERR Unknown Redis command", MASTER_ERROR_COMMAND},
	{"ERR ACL failure in script:", MASTER_ERROR_AUTH},
	{"ERR The user executing the script", MASTER_ERROR_AUTH},
};

static bool begins_with(const char *text, const char *word)
{
	size_t len = strlen(word);
	return strncmp(text, word, len) == 0 && (text[len] == '\0' || text[len] == ' ');
}

/* The code is the first word; Redis 6.2 puts an error from within a script after "@user_script: 12: -CODE". */
enum master_error master_error_classify(const char *text)
{
	const char *inner = strstr(text, "@user_script:");
	const char *dash = inner ? strchr(inner, '-') : NULL;
	for (size_t i = 0; i < sizeof error_codes / sizeof *error_codes; i++)
		if (begins_with(text, error_codes[i].code) || (dash && begins_with(dash + 1, error_codes[i].code)))
			return error_codes[i].error;
	return MASTER_ERROR_OTHER;
}

void master_error_text(const char *text, char ret_text[MASTER_ERROR_TEXT_MAX])
{
	static const char *const rests[] = {", with args beginning with", " script: ", ". "};
	size_t len = strnlen(text, MASTER_ERROR_TEXT_MAX - 1);
	for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
		const char *rest = strstr(text, rests[i]);
		if (rest && (size_t)(rest - text) < len)
			len = (size_t)(rest - text);
	}
	for (size_t i = 0; i < len; i++)
		ret_text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	assert(len < MASTER_ERROR_TEXT_MAX);
	ret_text[len] = '\0';
	if (len == 0)
		snprintf(ret_text, MASTER_ERROR_TEXT_MAX, "an error without words");
}

void master_reply_fail(struct master_reply *reply, enum master_error error)
{
	assert(error < MASTER_ERROR_COUNT);
	reply->vote = REDLOCK_VOTE_FAILED;
	reply->error = error;
}

#define OF(script) (1U << REDLOCK_SCRIPT_##script)

/* {number, the master's time, fields …}, as the heads of the scripts describe them. */
static const struct {
	int number;
	unsigned scripts; /* OF() each script with this answer */
	enum redlock_vote vote;
	enum master_error error; /* FAILED */
	const char *fields;      /* a letter of map_field() for each that follows */
} shapes[] = {
	{1, OF(ACQUIRE), REDLOCK_VOTE_GRANTED, 0, "f"},
	{1, OF(RAISE), REDLOCK_VOTE_GRANTED, 0, ""},
	{1, OF(EXTEND), REDLOCK_VOTE_GRANTED, 0, "tvw"},
	{1, OF(RELEASE), REDLOCK_VOTE_GRANTED, 0, "v"},
	{2, OF(ACQUIRE), REDLOCK_VOTE_QUEUED, 0, "rv"},
	{2, OF(ACQUIRE), REDLOCK_VOTE_QUEUED, 0, "rvi"},
	{2, OF(RAISE), REDLOCK_VOTE_STALE, 0, "f"},
	{2, OF(RELEASE), REDLOCK_VOTE_GRANTED, 0, "f"},
	{0, OF(ACQUIRE) | OF(RAISE) | OF(EXTEND) | OF(RELEASE), REDLOCK_VOTE_HELD, 0, "rv"},
	{0, OF(ACQUIRE) | OF(RELEASE), REDLOCK_VOTE_HELD, 0, "rvi"},
	{0, OF(ACQUIRE), REDLOCK_VOTE_HELD, 0, "rvs"},
	{0, OF(INSPECT), REDLOCK_VOTE_HELD, 0, "rvw"},
	{0, OF(INSPECT), REDLOCK_VOTE_HELD, 0, "rvwcdh"},
	{-1, OF(EXTEND), REDLOCK_VOTE_GONE, 0, "b"},
	{-1, OF(RAISE) | OF(RELEASE), REDLOCK_VOTE_GONE, 0, ""},
	{-1, OF(INSPECT), REDLOCK_VOTE_GONE, 0, "w"},
	{-2, OF(ACQUIRE) | OF(RAISE) | OF(EXTEND), REDLOCK_VOTE_FAILED, MASTER_ERROR_LATE, ""},
	{-3, ~0U, REDLOCK_VOTE_QUARANTINED, 0, ""},
	{-4, OF(ACQUIRE), REDLOCK_VOTE_FAILED, MASTER_ERROR_CLOCK, ""},
};

static bool map_field(char letter, const redisReply *field, struct master_reply *ret)
{
	long long number = field->type == REDIS_REPLY_INTEGER ? field->integer : -1;
	bool is_time = number >= 0 && number <= INT64_MAX / 1000;
	switch (letter) {
	case 'f': /* the number of a bucket */ ret->fence = (uint64_t)number; return ret->fence < REDLOCK_FENCE_LIMIT;
	/* milliseconds */
	case 't': ret->ttl_us = is_time ? (uint64_t)number * 1000U : 0; break;
	case 'r': ret->remaining_us = is_time ? (uint64_t)number * 1000U : REDLOCK_NEVER; break;
	case 'w': ret->waiters = number < 0 ? 0 : number > UINT32_MAX ? UINT32_MAX : (uint32_t)number; break;
	case 'i': /* of a resource in its set */
		ret->blocking_index = number >= 0 && number < MASTERS_SET_MAX ? (uint8_t)number : MASTERS_SET_MAX;
		return ret->blocking_index < MASTERS_SET_MAX;
	case 'v': /* only copied; its reader makes an identity of it */
		ret->value = field->type == REDIS_REPLY_STRING ? field->str : NULL;
		ret->value_len = ret->value ? (size_t)field->len : 0;
		return ret->value || field->type == REDIS_REPLY_NIL;
	case 'b': /* of all resources; only sent back */
		ret->buckets = field->str;
		ret->buckets_len = (size_t)field->len;
		return field->type == REDIS_REPLY_STRING && ret->buckets_len <= MASTER_BUCKETS_LEN_MAX;
	case 's': /* a digit for each slot, or one for all */
		ret->taken = field->str;
		ret->taken_len = (size_t)field->len;
		return field->type == REDIS_REPLY_STRING;
	case 'c': ret->holder_count = number < 0 || number > UINT32_MAX ? 0 : (uint32_t)number; break;
	case 'd':
		ret->digest = field->type == REDIS_REPLY_STRING
				      ? master_reply_number(field->str, (size_t)field->len, 10)
				      : 0;
		return field->type == REDIS_REPLY_STRING;
	case 'h': /* value or token, score, … */
		ret->holders = field;
		ret->listed = field->elements / 2;
		return field->type == REDIS_REPLY_ARRAY;
	default: assert(false);
	}
	return field->type == REDIS_REPLY_INTEGER;
}

static bool map_array(enum redlock_script script, const redisReply *reply, struct master_reply *ret)
{
	bool timed = reply->elements >= 2 && reply->element[0]->type == REDIS_REPLY_INTEGER &&
		     reply->element[1]->type == REDIS_REPLY_INTEGER;
	if (!timed || reply->element[1]->integer <= 0)
		return false;
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		if (shapes[i].number != reply->element[0]->integer || !(shapes[i].scripts >> script & 1) ||
		    reply->elements != 2 + strlen(shapes[i].fields))
			continue;
		ret->time_us = (uint64_t)reply->element[1]->integer;
		ret->vote = shapes[i].vote;
		ret->error = shapes[i].error;
		bool good = true;
		for (size_t at = 2; good && at < reply->elements; at++)
			good = map_field(shapes[i].fields[at - 2], reply->element[at], ret);
		if (good)
			return true;
		*ret = (struct master_reply){0};
	}
	return false;
}

bool master_reply_holder(const struct master_reply *reply, size_t i, const char **ret_value, size_t *ret_len,
			 uint64_t *ret_remaining_us)
{
	const redisReply *holders = reply->holders;
	assert(i < reply->listed);
	const redisReply *value = holders->element[2 * i], *score = holders->element[2 * i + 1];
	bool are_texts = value->type == REDIS_REPLY_STRING && score->type == REDIS_REPLY_STRING;
	uint64_t now_ms = reply->time_us / 1000,
		 over_ms = are_texts ? master_reply_number(score->str, (size_t)score->len, 10) : 0;
	bool good = over_ms > now_ms && over_ms <= INT64_MAX / 1000;
	*ret_value = good ? value->str : NULL;
	*ret_len = good ? (size_t)value->len : 0;
	*ret_remaining_us = good ? (over_ms - 1 - now_ms) * 1000 : 0;
	return good;
}

/* Lost answers and errors; false: it is an answer that the script gave. */
static bool map_general(const redisReply *reply, struct master_reply *ret)
{
	if (!reply) {
		master_reply_fail(ret, MASTER_ERROR_LOST);
		ret->lost = true;
	} else if (reply->type == REDIS_REPLY_ERROR) {
		master_reply_fail(ret, master_error_classify(reply->str));
		ret->no_script = begins_with(reply->str, "NOSCRIPT");
	}
	return !reply || reply->type == REDIS_REPLY_ERROR;
}

void master_reply_map(enum redlock_script script, const redisReply *reply, struct master_reply *ret_reply)
{
	assert(script != REDLOCK_SCRIPT_NONE);
	*ret_reply = (struct master_reply){0};
	if (!map_general(reply, ret_reply) &&
	    (reply->type != REDIS_REPLY_ARRAY || !map_array(script, reply, ret_reply)))
		*ret_reply = (struct master_reply){.vote = REDLOCK_VOTE_FAILED, .error = MASTER_ERROR_OTHER};
}

/* Maps {now_us, answer, …}. An answer is a single field if a lock was set (the bucket's old number) or deleted (its
 * value). If the command is late or has another epoch, one answer stands for all. */
void master_reply_map_part(enum redlock_script script, const redisReply *reply, size_t i, size_t count,
			   struct master_reply *ret_reply)
{
	assert(i < count && count > 1);
	*ret_reply = (struct master_reply){0};
	if (map_general(reply, ret_reply))
		return;
	if (reply->elements == 2 && (master_reply_begins(reply, -2) || master_reply_begins(reply, -3))) {
		master_reply_map(script, reply, ret_reply);
		return;
	}
	bool timed = reply->type == REDIS_REPLY_ARRAY && reply->elements == count + 1 &&
		     reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer > 0;
	const redisReply *part = timed ? reply->element[i + 1] : NULL;
	bool set = part && script == REDLOCK_SCRIPT_ACQUIRE && part->type == REDIS_REPLY_INTEGER;
	bool deleted = part && script == REDLOCK_SCRIPT_RELEASE && part->type == REDIS_REPLY_STRING;
	if (part && !set && !deleted) {
		master_reply_map(script, part, ret_reply);
		return;
	}
	ret_reply->vote = REDLOCK_VOTE_GRANTED;
	if (part && map_field(set ? 'f' : 'v', part, ret_reply))
		ret_reply->time_us = (uint64_t)reply->element[0]->integer;
	else
		*ret_reply = (struct master_reply){.vote = REDLOCK_VOTE_FAILED, .error = MASTER_ERROR_OTHER};
}

void master_reply_map_scan(const redisReply *reply, master_scan_fn *scan, void *arg)
{
	assert(scan);
	bool good = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		    reply->element[0]->type == REDIS_REPLY_STRING && reply->element[1]->type == REDIS_REPLY_ARRAY;
	if (!good) {
		scan(arg, NULL);
		return;
	}
	const redisReply *keys = reply->element[1];
	scan(arg, &(struct master_scan){.cursor = strtoull(reply->element[0]->str, NULL, 10),
					.key_count = keys->elements,
					.keys = keys});
}

void master_reply_map_read(const redisReply *reply, master_scan_fn *scan, void *arg)
{
	assert(scan);
	if (reply && reply->type == REDIS_REPLY_ARRAY)
		scan(arg, &(struct master_scan){.key_count = reply->elements, .keys = reply});
	else
		scan(arg, NULL);
}

const char *master_scan_key(const struct master_scan *scan, size_t i, size_t *ret_len)
{
	const redisReply *keys = scan->keys;
	assert(i < scan->key_count && scan->key_count == keys->elements);
	if (keys->element[i]->type != REDIS_REPLY_STRING)
		return NULL;
	*ret_len = (size_t)keys->element[i]->len;
	return keys->element[i]->str;
}

/* ---- answers to the scripts of the guard ---- */

bool master_reply_begins(const redisReply *reply, long long number)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
	       reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer == number;
}

uint64_t master_reply_number(const char *text, size_t len, int base)
{
	char digits[TEXT_DECIMAL_MAX + 1] = "";
	size_t len_max = base == 16 ? 16 : TEXT_DECIMAL_MAX;
	memcpy(digits, text, len < len_max ? len : len_max);
	return strtoull(digits, NULL, base);
}

/* 0: the text is not a number. */
static uint64_t number_at(const redisReply *reply, size_t i, int base)
{
	const redisReply *at = i < reply->elements ? reply->element[i] : NULL;
	if (at && at->type == REDIS_REPLY_INTEGER)
		return at->integer > 0 ? (uint64_t)at->integer : 0;
	return at && at->type == REDIS_REPLY_STRING ? master_reply_number(at->str, (size_t)at->len, base) : 0;
}

uint64_t master_scan_end_ms(const struct master_scan *scan, size_t i)
{
	uint64_t end_ms = number_at(scan->keys, i, 10);
	return end_ms <= INT64_MAX / 1000 ? end_ms : 0;
}

/* No redlockd gives longer leases (--max-ttl-ms). A larger number in the hash is a mistake, and would quarantine a
 * master for ever. */
static uint64_t ttl_us_at(const redisReply *reply, size_t i)
{
	uint64_t ttl_ms = number_at(reply, i, 10);
	return ttl_ms < GUARD_TTL_MAX_US / 1000 ? ttl_ms * 1000 : GUARD_TTL_MAX_US;
}

static void map_epoch(const redisReply *reply, struct guard_event *event, const char **ret_evicted)
{
	event->beat = number_at(reply, 2, 10);
	event->epoch = number_at(reply, 3, 16);
	event->epoch_run_id = number_at(reply, 4, 16);
	event->cluster = number_at(reply, 5, 16);
	event->digest = number_at(reply, 6, 16);
	event->ttl_us = ttl_us_at(reply, 7);
	event->marker = number_at(reply, 8, 16);
	event->marker_run_id = number_at(reply, 9, 16);
	event->kept = number_at(reply, 10, 10) == 1;
	event->clocked_us = number_at(reply, 11, 10);
	if (reply->elements > 12 && reply->element[12]->type == REDIS_REPLY_STRING)
		*ret_evicted = reply->element[12]->str;
}

/* In seconds of the master's time. An end beyond the longest possible lease is a mistake; the quarantine then lasts for
 * the longest lease. */
static void map_leases(const redisReply *reply, uint64_t time_us, struct guard_event *event)
{
	uint64_t until_s = number_at(reply, 4, 10), time_s = time_us / 1000000, timeout_ms = number_at(reply, 5, 10);
	if (until_s > time_s + GUARD_TTL_MAX_US / 1000000)
		until_s = time_s + GUARD_TTL_MAX_US / 1000000;
	event->leases_us = until_s * 1000000 > time_us ? until_s * 1000000 - time_us : 0;
	event->timeout_us = timeout_ms < GUARD_TTL_MAX_US / 1000 ? timeout_ms * 1000 : GUARD_TTL_MAX_US;
}

bool master_reply_map_guard(const redisReply *reply, struct guard_event *event, uint64_t *ret_time_us,
			    const char **ret_evicted)
{
	*ret_evicted = "";
	if (reply->type != REDIS_REPLY_ARRAY || number_at(reply, 1, 10) == 0)
		return false;
	*ret_time_us = number_at(reply, 1, 10);
	event->done = master_reply_begins(reply, 1);
	if (event->kind == GUARD_EPOCH) {
		map_epoch(reply, event, ret_evicted);
	} else if (event->kind == GUARD_QUARANTINED) {
		event->marker = number_at(reply, 2, 16);
		event->kept = number_at(reply, 3, 10) == 1;
		event->ttl_us = ttl_us_at(reply, 4);
	} else if (event->kind == GUARD_FENCES) {
		event->fence = number_at(reply, 2, 10);
		event->ttl_us = ttl_us_at(reply, 3);
		map_leases(reply, *ret_time_us, event);
	}
	return true;
}

/* ---- INFO ---- */

#define FIELD(member) offsetof(struct master_info, member), sizeof(((struct master_info *)0)->member)

/* Texts, and numbers if the size is that of a number. */
static const struct {
	const char *name;
	size_t offset, size;
} info_fields[] = {
	{"run_id", FIELD(run_id)},
	{"redis_version", FIELD(version)},
	{"valkey_version", FIELD(valkey)},
	{"role", FIELD(role)},
	{"redis_mode", FIELD(mode)},
	{"maxmemory_policy", FIELD(policy)},
	{"maxmemory", FIELD(maxmemory)},
	{"used_memory", FIELD(used_memory)},
	{"evicted_keys", FIELD(evicted)},
	{"connected_slaves", FIELD(replicas)},
	{"loading", FIELD(loading)},
	{"cluster_enabled", FIELD(cluster)},
	{"aof_enabled", FIELD(aof)},
	{"aof_rewrite_in_progress", FIELD(aof_rewriting)},
	{"aof_rewrite_scheduled", FIELD(aof_scheduled)},
	{"aof_last_write_status", FIELD(aof_write)},
	{"master_replid2", FIELD(second_replid)},
};

enum { INFO_FIELDS = sizeof info_fields / sizeof *info_fields };

/* Returns INFO_FIELDS if there is no such field. */
static size_t info_find(const char *name, size_t len)
{
	for (size_t i = 0; i < INFO_FIELDS; i++)
		if (info_fields[i].name[0] == name[0] && strlen(info_fields[i].name) == len &&
		    memcmp(info_fields[i].name, name, len) == 0)
			return i;
	return INFO_FIELDS;
}

/* Stores nothing if the value is too long. */
static void info_store(struct master_info *info, size_t i, const char *value, size_t len)
{
	char digits[24] = "", *field = (char *)info + info_fields[i].offset;
	bool is_number = info_fields[i].size == sizeof(uint64_t);
	char *to = is_number ? digits : field;
	size_t size = is_number ? sizeof digits : info_fields[i].size;
	for (size_t at = 0; at < len && len < size; at++)
		to[at] = value[at] < ' ' || value[at] > '~' ? '?' : value[at]; /* it is shown to people */
	if (is_number)
		*(uint64_t *)(void *)field = strtoull(digits, NULL, 10);
}

/* Lines "name:value"; the first one of a name counts. */
bool master_info_parse(const char *text, size_t len, struct master_info *info)
{
	assert(text && info);
	unsigned seen = 0;
	*info = (struct master_info){0};
	for (const char *line = text, *end = text + len, *next; line < end; line = next) {
		const char *eol = memchr(line, '\n', (size_t)(end - line)), *stop = eol ? eol : end;
		const char *colon = memchr(line, ':', (size_t)(stop - line));
		size_t i = colon ? info_find(line, (size_t)(colon - line)) : INFO_FIELDS;
		next = eol ? eol + 1 : end;
		if (i == INFO_FIELDS || seen >> i & 1)
			continue;
		seen |= 1U << i;
		stop -= stop > colon + 1 && stop[-1] == '\r';
		info_store(info, i, colon + 1, (size_t)(stop - colon - 1));
	}
	_Static_assert(sizeof "valkey " - 1 + sizeof info->valkey <= sizeof info->product, "the longest fits");
	strcpy(stpcpy(info->product, info->valkey[0] ? "valkey " : ""), info->valkey[0] ? info->valkey : info->version);
	return info->run_id[0] && info->version[0] && info->role[0];
}

bool master_info_read(const redisReply *reply, struct master_info *info)
{
	bool is_text = reply->type == REDIS_REPLY_STRING;
	return master_info_parse(is_text ? reply->str : "", is_text ? (size_t)reply->len : 0, info);
}
