/* The commands that scripts, redlockd and the tests use: see store.h. Each has as many arguments as Redis demands, or
 * more; options that nobody uses are errors. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "store_internal.h"

redisReply *store_wrong_type(void)
{
	return store_reply_error("WRONGTYPE Operation against a key holding the wrong kind of value");
}

redisReply *store_syntax_error(void)
{
	return store_reply_error("ERR syntax error");
}

bool store_is(const struct words *words, size_t i, const char *text)
{
	return i < words->argc && words->lens[i] == strlen(text) &&
	       strncasecmp(words->argv[i], text, words->lens[i]) == 0;
}

struct store_key *store_find_key(const struct words *words, size_t i)
{
	return store_find(words->store, words->argv[i], words->lens[i]);
}

/* As string2ll(): no blanks, no sign in front but a minus, no zeros in front. */
bool store_integer(const struct words *words, size_t i, long long *ret)
{
	char text[NUMBER_MAX], again[NUMBER_MAX];
	if (i >= words->argc || words->lens[i] == 0 || words->lens[i] >= sizeof text)
		return false;
	memcpy(text, words->argv[i], words->lens[i]);
	text[words->lens[i]] = '\0';
	*ret = strtoll(text, NULL, 10);
	snprintf(again, sizeof again, "%lld", *ret);
	return strcmp(text, again) == 0;
}

redisReply *store_text_reply(const struct store_text *text)
{
	return text ? store_reply_text(REDIS_REPLY_STRING, text->bytes, text->len) : store_reply_nil();
}

static redisReply *ok(void)
{
	return store_reply_text(REDIS_REPLY_STATUS, "OK", 2);
}

/* Without items there is no key. */
void store_remove_if_empty(struct store *store, struct store_key *key)
{
	if (key->count == 0 && key->type != STORE_STRING)
		store_remove(store, key);
}

/* ---- keys ---- */

static redisReply *command_del(const struct words *words)
{
	long long count = 0;
	for (size_t i = 1; i < words->argc; i++) {
		struct store_key *key = store_find_key(words, i);
		count += key != NULL;
		if (key)
			store_remove(words->store, key);
	}
	return store_reply_number(count);
}

static redisReply *command_exists(const struct words *words)
{
	long long count = 0;
	for (size_t i = 1; i < words->argc; i++)
		count += store_find_key(words, i) != NULL;
	return store_reply_number(count);
}

/* A time that is not in the future removes the key. */
static redisReply *expire_at(const struct words *words, uint64_t since_ms)
{
	struct store_key *key = store_find_key(words, 1);
	long long ms;
	if (!store_integer(words, 2, &ms))
		return store_reply_error("ERR value is not an integer or out of range");
	if (!key)
		return store_reply_number(0);
	long long at_ms = (long long)since_ms + ms;
	if (at_ms <= (long long)store_now_ms(words->store))
		store_remove(words->store, key);
	else
		key->expires_ms = (uint64_t)at_ms;
	return store_reply_number(1);
}

static redisReply *command_pexpire(const struct words *words)
{
	return expire_at(words, store_now_ms(words->store));
}

static redisReply *command_pexpireat(const struct words *words)
{
	return expire_at(words, 0);
}

static redisReply *command_persist(const struct words *words)
{
	struct store_key *key = store_find_key(words, 1);
	bool had = key && key->expires_ms != 0;
	if (had)
		key->expires_ms = 0;
	return store_reply_number(had);
}

static redisReply *command_pttl(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	if (!key)
		return store_reply_number(-2);
	return store_reply_number(key->expires_ms == 0 ? -1
						       : (long long)(key->expires_ms - store_now_ms(words->store)));
}

static redisReply *command_pexpiretime(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	return store_reply_number(!key ? -2 : key->expires_ms == 0 ? -1 : (long long)key->expires_ms);
}

static redisReply *command_type(const struct words *words)
{
	static const char *const names[] = {"string", "hash", "zset", "list"};
	const struct store_key *key = store_find_key(words, 1);
	const char *name = key ? names[key->type] : "none";
	return store_reply_text(REDIS_REPLY_STATUS, name, strlen(name));
}

static redisReply *command_flushall(const struct words *words)
{
	while (words->store->count > 0)
		store_remove(words->store, words->store->keys);
	return ok();
}

/* ---- strings ---- */

static redisReply *command_get(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	if (key && key->type != STORE_STRING)
		return store_wrong_type();
	return store_text_reply(key ? key->string : NULL);
}

size_t store_from_end(long long index, size_t len)
{
	long long at = index < 0 ? (long long)len + index : index;
	return at < 0 ? 0 : (size_t)at;
}

static redisReply *command_getrange(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	long long first, last;
	if (!store_integer(words, 2, &first) || !store_integer(words, 3, &last))
		return store_reply_error("ERR value is not an integer or out of range");
	if (key && key->type != STORE_STRING)
		return store_wrong_type();
	size_t len = key ? key->string->len : 0, from = store_from_end(first, len), to = store_from_end(last, len);
	if (to >= len)
		to = len - 1;
	if (len == 0 || from > to)
		return store_reply_text(REDIS_REPLY_STRING, "", 0);
	return store_reply_text(REDIS_REPLY_STRING, key->string->bytes + from, to - from + 1);
}

/* SET key value [NX|XX] [PX ms|KEEPTTL] */
static redisReply *command_set(const struct words *words)
{
	bool if_new = false, if_there = false, keeps = false;
	long long ms = 0;
	for (size_t i = 3; i < words->argc; i++) {
		if (store_is(words, i, "NX"))
			if_new = true;
		else if (store_is(words, i, "XX"))
			if_there = true;
		else if (store_is(words, i, "KEEPTTL"))
			keeps = true;
		else if (!store_is(words, i, "PX"))
			return store_syntax_error();
		else if (!store_integer(words, ++i, &ms))
			return store_reply_error("ERR value is not an integer or out of range");
		else if (ms <= 0)
			return store_reply_error("ERR invalid expire time in 'set' command");
	}
	struct store_key *key = store_find_key(words, 1);
	if ((if_new && key) || (if_there && !key))
		return store_reply_nil();
	uint64_t expires_ms = keeps && key ? key->expires_ms : 0;
	if (key)
		store_remove(words->store, key);
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_STRING);
	key->string = store_text_new(words->argv[2], words->lens[2]);
	key->expires_ms = ms > 0 ? store_now_ms(words->store) + (uint64_t)ms : expires_ms;
	return ok();
}

/* ---- hashes ---- */

static redisReply *command_hset(const struct words *words)
{
	struct store_key *key = store_find_key(words, 1);
	long long added = 0;
	if (words->argc % 2 != 0)
		return store_reply_error("ERR wrong number of arguments for 'hset' command");
	if (key && key->type != STORE_HASH)
		return store_wrong_type();
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_HASH);
	for (size_t i = 2; i < words->argc; i += 2)
		added += store_set_field(key, words->argv[i], words->lens[i], words->argv[i + 1], words->lens[i + 1]);
	return store_reply_number(added);
}

static redisReply *field_reply(const struct words *words, const struct store_key *key, size_t i)
{
	const struct store_item *item = key ? store_item(key, words->argv[i], words->lens[i]) : NULL;
	return store_text_reply(item ? item->value : NULL);
}

static redisReply *command_hget(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	return key && key->type != STORE_HASH ? store_wrong_type() : field_reply(words, key, 2);
}

static redisReply *command_hmget(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	if (key && key->type != STORE_HASH)
		return store_wrong_type();
	redisReply *all = store_reply_array(words->argc - 2);
	for (size_t i = 2; i < words->argc; i++)
		all->element[i - 2] = field_reply(words, key, i);
	return all;
}

static redisReply *command_hgetall(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	if (key && key->type != STORE_HASH)
		return store_wrong_type();
	redisReply *all = store_reply_array(key ? 2 * key->count : 0);
	for (size_t i = 0; key && i < key->count; i++) {
		all->element[2 * i] = store_text_reply(key->items[i].name);
		all->element[2 * i + 1] = store_text_reply(key->items[i].value);
	}
	return all;
}

redisReply *store_remove_named(const struct words *words, enum store_type type)
{
	struct store_key *key = store_find_key(words, 1);
	long long count = 0;
	if (key && key->type != type)
		return store_wrong_type();
	for (size_t i = 2; key && i < words->argc; i++) {
		const struct store_item *item = store_item(key, words->argv[i], words->lens[i]);
		count += item != NULL;
		if (item)
			store_remove_items(key, (size_t)(item - key->items), 1);
	}
	if (key)
		store_remove_if_empty(words->store, key);
	return store_reply_number(count);
}

static redisReply *command_hdel(const struct words *words)
{
	return store_remove_named(words, STORE_HASH);
}

static redisReply *command_hincrby(const struct words *words)
{
	struct store_key *key = store_find_key(words, 1);
	long long more, number = 0;
	char text[NUMBER_MAX], again[NUMBER_MAX];
	if (!store_integer(words, 3, &more))
		return store_reply_error("ERR value is not an integer or out of range");
	if (key && key->type != STORE_HASH)
		return store_wrong_type();
	const struct store_item *item = key ? store_item(key, words->argv[2], words->lens[2]) : NULL;
	if (item) {
		number = strtoll(item->value->bytes, NULL, 10);
		snprintf(again, sizeof again, "%lld", number);
		if (strcmp(again, item->value->bytes) != 0)
			return store_reply_error("ERR hash value is not an integer");
	}
	if (__builtin_add_overflow(number, more, &number))
		return store_reply_error("ERR increment or decrement would overflow");
	int len = snprintf(text, sizeof text, "%lld", number);
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_HASH);
	store_set_field(key, words->argv[2], words->lens[2], text, (size_t)len);
	return store_reply_number(number);
}

/* ---- others ---- */

static redisReply *command_rpush(const struct words *words)
{
	struct store_key *key = store_find_key(words, 1);
	if (key && key->type != STORE_LIST)
		return store_wrong_type();
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_LIST);
	for (size_t i = 2; i < words->argc; i++) {
		char number[NUMBER_MAX];
		int len = snprintf(number, sizeof number, "%zu", key->count);
		store_set_field(key, number, (size_t)len, words->argv[i], words->lens[i]);
	}
	return store_reply_number((long long)key->count);
}

static redisReply *command_time(const struct words *words)
{
	char text[NUMBER_MAX];
	redisReply *both = store_reply_array(2);
	for (size_t i = 0; i < 2; i++) {
		uint64_t number = i == 0 ? words->store->now_us / 1000000 : words->store->now_us % 1000000;
		int len = snprintf(text, sizeof text, "%llu", (unsigned long long)number);
		both->element[i] = store_reply_text(REDIS_REPLY_STRING, text, (size_t)len);
	}
	return both;
}

static redisReply *command_publish(const struct words *words)
{
	const struct store *store = words->store;
	if (store->publish)
		store->publish(store->arg, words->argv[1], words->lens[1], words->argv[2], words->lens[2]);
	return store_reply_number(0);
}

static redisReply *command_ping(const struct words *words)
{
	(void)words;
	return store_reply_text(REDIS_REPLY_STATUS, "PONG", 4);
}

static redisReply *command_evalsha(const struct words *words)
{
	return store_eval(words->store, words->argc, words->argv, words->lens);
}

/* ---- all of them ---- */

static const struct {
	const char *name;
	int least; /* arguments, with the name; negative: exactly */
	redisReply *(*carry_out)(const struct words *words);
} commands[] = {
	{"DEL", 2, command_del},
	{"EVALSHA", 3, command_evalsha},
	{"EXISTS", 2, command_exists},
	{"FLUSHALL", 1, command_flushall},
	{"GET", -2, command_get},
	{"GETRANGE", -4, command_getrange},
	{"HDEL", 3, command_hdel},
	{"HGET", -3, command_hget},
	{"HGETALL", -2, command_hgetall},
	{"HINCRBY", -4, command_hincrby},
	{"HMGET", 3, command_hmget},
	{"HSET", 4, command_hset},
	{"PERSIST", -2, command_persist},
	{"PEXPIRE", -3, command_pexpire},
	{"PEXPIREAT", -3, command_pexpireat},
	{"PEXPIRETIME", -2, command_pexpiretime},
	{"PING", -1, command_ping},
	{"PTTL", -2, command_pttl},
	{"PUBLISH", -3, command_publish},
	{"RPUSH", 3, command_rpush},
	{"SET", 3, command_set},
	{"TIME", -1, command_time},
	{"TYPE", -2, command_type},
	{"ZADD", 4, store_zadd},
	{"ZCARD", -2, store_zcard},
	{"ZCOUNT", -4, store_zcount},
	{"ZRANGE", 4, store_zrange},
	{"ZRANGEBYSCORE", 4, store_zrangebyscore},
	{"ZRANK", -3, store_zrank},
	{"ZREM", 3, store_zrem},
	{"ZREMRANGEBYRANK", -4, store_zremrangebyrank},
	{"ZSCORE", -3, store_zscore},
};

redisReply *store_command(struct store *store, size_t argc, const char *const argv[], const size_t lens[])
{
	struct words words = {store, argc, argv, lens};
	assert(argc > 0);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		if (!store_is(&words, 0, commands[i].name))
			continue;
		int least = commands[i].least;
		bool fits = least < 0 ? argc == (size_t)-least : argc >= (size_t)least;
		return fits ? commands[i].carry_out(&words) : store_reply_error("ERR wrong number of arguments");
	}
	return store_reply_error("ERR unknown command");
}
