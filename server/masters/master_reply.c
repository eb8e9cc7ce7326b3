/* From the answers that hiredis read to votes of the core. Pure: no state, no I/O, so that it can be fuzzed. An answer
 * of a shape that our scripts never give counts as a failure, whatever server sent it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master_internal.h"

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

static bool begins_with(const char *text, size_t len, const char *word)
{
	size_t word_len = strlen(word);
	return len >= word_len && memcmp(text, word, word_len) == 0 && (len == word_len || text[word_len] == ' ');
}

/* The code is the first word; Redis 6.2 puts an error from within a script behind "@user_script: 12: -CODE". */
enum master_error master_error_classify(const char *text, size_t len)
{
	static const char marker[] = "@user_script:";
	assert(text);
	const char *inner = memmem(text, len, marker, sizeof marker - 1);
	const char *dash = inner ? memchr(inner, '-', len - (size_t)(inner - text)) : NULL;
	const char *code = dash ? dash + 1 : text;
	size_t code_len = len - (size_t)(code - text);
	for (size_t i = 0; i < sizeof error_codes / sizeof *error_codes; i++)
		if (begins_with(text, len, error_codes[i].code) || begins_with(code, code_len, error_codes[i].code))
			return error_codes[i].error;
	return MASTER_ERROR_OTHER;
}

void master_error_words(const char *text, size_t len, char ret_words[MASTER_WORDS_MAX])
{
	static const char *const rests[] = {", with args beginning with", " script: ", ". "};
	for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
		const char *rest = memmem(text, len, rests[i], strlen(rests[i]));
		if (rest)
			len = (size_t)(rest - text);
	}
	if (len > MASTER_WORDS_MAX - 1)
		len = MASTER_WORDS_MAX - 1;
	for (size_t i = 0; i < len; i++)
		ret_words[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	assert(len < MASTER_WORDS_MAX);
	ret_words[len] = '\0';
	if (len == 0)
		snprintf(ret_words, MASTER_WORDS_MAX, "an error without words");
}

static void map_failure(enum master_error error, struct master_reply *ret)
{
	assert(error < MASTER_ERROR_COUNT);
	ret->vote = REDLOCK_VOTE_FAILED;
	ret->error = error;
}

/* The value is only copied; its reader makes an identity of it. */
static bool map_value(const redisReply *element, struct master_reply *ret)
{
	if (element->type == REDIS_REPLY_NIL)
		return true;
	if (element->type != REDIS_REPLY_STRING)
		return false;
	ret->value = element->str;
	ret->value_len = (size_t)element->len;
	return true;
}

static bool map_held(const redisReply *reply, struct master_reply *ret)
{
	if (reply->elements < 4 || reply->element[2]->type != REDIS_REPLY_INTEGER)
		return false;
	long long remaining_ms = reply->element[2]->integer;
	ret->remaining_us = remaining_ms < 0 || remaining_ms > INT64_MAX / 1000 ? REDLOCK_NEVER
										: (uint64_t)remaining_ms * 1000U;
	return map_value(reply->element[3], ret);
}

/* Inspect alone: the last element is the number of waiters. */
static bool map_waiters(enum redlock_script script, const redisReply *reply, size_t elements, struct master_reply *ret)
{
	if (script != REDLOCK_SCRIPT_INSPECT)
		return reply->elements == elements;
	if (reply->elements != elements + 1 || reply->element[elements]->type != REDIS_REPLY_INTEGER)
		return false;
	long long waiters = reply->element[elements]->integer;
	ret->waiters = waiters < 0 ? 0 : waiters > UINT32_MAX ? UINT32_MAX : (uint32_t)waiters;
	return true;
}

/* The number of a bucket. */
static bool map_number(const redisReply *reply, struct master_reply *ret)
{
	if (reply->elements != 3 || reply->element[2]->type != REDIS_REPLY_INTEGER || reply->element[2]->integer < 0)
		return false;
	ret->fence = (uint64_t)reply->element[2]->integer;
	return ret->fence < REDLOCK_FENCE_LIMIT;
}

static bool map_granted(enum redlock_script script, const redisReply *reply, struct master_reply *ret)
{
	ret->vote = REDLOCK_VOTE_GRANTED;
	if (script == REDLOCK_SCRIPT_ACQUIRE)
		return map_number(reply, ret);
	if (script == REDLOCK_SCRIPT_RELEASE)
		return reply->elements == 3 && map_value(reply->element[2], ret);
	if (script != REDLOCK_SCRIPT_EXTEND)
		return reply->elements == 2 && script != REDLOCK_SCRIPT_INSPECT;
	if (reply->elements != 4 || reply->element[2]->type != REDIS_REPLY_INTEGER)
		return false;
	long long ttl_ms = reply->element[2]->integer;
	ret->ttl_us = ttl_ms <= 0 || ttl_ms > INT64_MAX / 1000 ? 0 : (uint64_t)ttl_ms * 1000U;
	return map_value(reply->element[3], ret);
}

static bool map_array(enum redlock_script script, const redisReply *reply, struct master_reply *ret)
{
	bool timed = reply->elements >= 2 && reply->element[0]->type == REDIS_REPLY_INTEGER &&
		     reply->element[1]->type == REDIS_REPLY_INTEGER;
	if (!timed || reply->element[1]->integer <= 0)
		return false;
	ret->time_us = (uint64_t)reply->element[1]->integer;
	switch (reply->element[0]->integer) {
	case 1: return map_granted(script, reply, ret);
	case 2:
		ret->vote = script == REDLOCK_SCRIPT_ACQUIRE ? REDLOCK_VOTE_QUEUED : REDLOCK_VOTE_BEHIND;
		if (script == REDLOCK_SCRIPT_ACQUIRE)
			return reply->elements == 4 && map_held(reply, ret);
		return script == REDLOCK_SCRIPT_RAISE && map_number(reply, ret);
	case 0: ret->vote = REDLOCK_VOTE_HELD; return map_waiters(script, reply, 4, ret) && map_held(reply, ret);
	case -1:
		ret->vote = REDLOCK_VOTE_GONE;
		return map_waiters(script, reply, 2, ret) && script != REDLOCK_SCRIPT_ACQUIRE;
	case -2:
		ret->late = true;
		map_failure(MASTER_ERROR_LATE, ret);
		return reply->elements == 2 && script != REDLOCK_SCRIPT_RELEASE && script != REDLOCK_SCRIPT_INSPECT;
	case -3:
		ret->bad_epoch = true;
		ret->vote = REDLOCK_VOTE_QUARANTINED;
		return reply->elements == 2;
	case -4: map_failure(MASTER_ERROR_CLOCK, ret); return reply->elements == 2 && script == REDLOCK_SCRIPT_ACQUIRE;
	default: return false;
	}
}

/* Lost answers and errors; false: it is an answer that the script gave. */
static bool map_general(const redisReply *reply, struct master_reply *ret)
{
	if (!reply) {
		map_failure(MASTER_ERROR_LOST, ret);
		ret->lost = true;
	} else if (reply->type == REDIS_REPLY_ERROR) {
		map_failure(master_error_classify(reply->str, (size_t)reply->len), ret);
		ret->no_script = begins_with(reply->str, (size_t)reply->len, "NOSCRIPT");
	}
	return !reply || reply->type == REDIS_REPLY_ERROR;
}

void master_reply_map(enum redlock_script script, const redisReply *reply, struct master_reply *ret_reply)
{
	assert(script != REDLOCK_SCRIPT_NONE);
	memset(ret_reply, 0, sizeof *ret_reply);
	if (map_general(reply, ret_reply) || (reply->type == REDIS_REPLY_ARRAY && map_array(script, reply, ret_reply)))
		return;
	memset(ret_reply, 0, sizeof *ret_reply);
	map_failure(MASTER_ERROR_OTHER, ret_reply);
}

/* {now_us, answer, …}, an answer being the bucket's old number alone where the lock was set. */
static bool map_granted_part(const redisReply *now, const redisReply *old, struct master_reply *ret)
{
	if (old->type != REDIS_REPLY_INTEGER || old->integer < 0)
		return false;
	ret->vote = REDLOCK_VOTE_GRANTED;
	ret->time_us = (uint64_t)now->integer;
	ret->fence = (uint64_t)old->integer;
	return ret->fence < REDLOCK_FENCE_LIMIT;
}

void master_reply_map_part(const redisReply *reply, size_t i, size_t count, struct master_reply *ret_reply)
{
	assert(i < count);
	memset(ret_reply, 0, sizeof *ret_reply);
	if (map_general(reply, ret_reply))
		return;
	bool timed = reply->type == REDIS_REPLY_ARRAY && reply->elements == count + 1 &&
		     reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer > 0;
	const redisReply *part = timed ? reply->element[i + 1] : NULL;
	if (part && part->type != REDIS_REPLY_INTEGER) {
		master_reply_map(REDLOCK_SCRIPT_ACQUIRE, part, ret_reply);
		return;
	}
	if (part && map_granted_part(reply->element[0], part, ret_reply))
		return;
	memset(ret_reply, 0, sizeof *ret_reply);
	map_failure(MASTER_ERROR_OTHER, ret_reply);
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

const char *master_scan_key(const struct master_scan *scan, size_t i, size_t *ret_len)
{
	const redisReply *keys = scan->keys;
	assert(i < scan->key_count && scan->key_count == keys->elements);
	if (keys->element[i]->type != REDIS_REPLY_STRING)
		return NULL;
	*ret_len = (size_t)keys->element[i]->len;
	return keys->element[i]->str;
}
