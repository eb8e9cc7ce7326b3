/* SPDX-License-Identifier: MIT */
/* The commands that scripts, redlockd and the tests use: see store.h. Each has as many arguments as Redis demands, or
 * more; options that nobody uses are errors. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/base/base.h"
#include "store_internal.h"

enum { COMMAND_LEN_MAX = 15 };

struct store_key *store_find_key(const struct words *words, size_t i)
{
	return store_find(words->store, words->argv[i], words->lens[i]);
}

/* As string2ll(): no blanks, no sign in front but a minus, no zeros in front. */
static bool read_integer(const char *bytes, size_t len, long long *ret)
{
	bool negative = len > 0 && bytes[0] == '-', overflow = false;
	const char *at = bytes + negative, *end = bytes + len;
	if (at == end || (*at == '0' && (end - at > 1 || negative)))
		return false;
	for (*ret = 0; at < end; at++) {
		if (*at < '0' || *at > '9')
			return false;
		overflow |= __builtin_mul_overflow(*ret, 10, ret);
		overflow |= negative ? __builtin_sub_overflow(*ret, *at - '0', ret)
				     : __builtin_add_overflow(*ret, *at - '0', ret);
	}
	return !overflow;
}

bool store_integer(const struct words *words, size_t i, long long *ret)
{
	bool good = i < words->argc && read_integer(words->argv[i], words->lens[i], ret);
	if (!good)
		store_reply_error("ERR value is not an integer or out of range");
	return good;
}

bool store_find_typed(const struct words *words, enum store_type type, struct store_key **ret_key)
{
	*ret_key = store_find_key(words, 1);
	bool fits = !*ret_key || (*ret_key)->type == type;
	if (!fits)
		store_reply_wrong_type();
	return fits;
}

static void reply_ok(void)
{
	store_reply_status("OK");
}

/* Without items there is no key. */
void store_remove_if_empty(struct store *store, struct store_key *key)
{
	if (key->count == 0 && key->type != STORE_STRING)
		store_remove(store, key);
}

/* ---- keys ---- */

static void command_del(const struct words *words)
{
	long long count = 0;
	for (size_t i = 1; i < words->argc; i++) {
		struct store_key *key = store_find_key(words, i);
		count += key != NULL;
		if (key)
			store_remove(words->store, key);
	}
	store_reply_number(count);
}

static void command_exists(const struct words *words)
{
	long long count = 0;
	for (size_t i = 1; i < words->argc; i++)
		count += store_find_key(words, i) != NULL;
	store_reply_number(count);
}

/* A time that is not in the future removes the key. */
static void expire_at(const struct words *words, uint64_t since_ms)
{
	struct store_key *key = store_find_key(words, 1);
	long long ms;
	if (!store_integer(words, 2, &ms))
		return;
	long long at_ms = (long long)since_ms + ms;
	if (key && at_ms <= (long long)store_now_ms(words->store))
		store_remove(words->store, key);
	else if (key)
		store_own(words->store, key)->expires_ms = (uint64_t)at_ms;
	store_reply_number(key != NULL);
}

static void command_pexpire(const struct words *words)
{
	expire_at(words, store_now_ms(words->store));
}

static void command_pexpireat(const struct words *words)
{
	expire_at(words, 0);
}

static void command_persist(const struct words *words)
{
	struct store_key *key = store_find_key(words, 1);
	bool had = key && key->expires_ms != 0;
	if (had)
		store_own(words->store, key)->expires_ms = 0;
	store_reply_number(had);
}

static void command_pttl(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	store_reply_number(!key                   ? -2
			   : key->expires_ms == 0 ? -1
						  : (long long)(key->expires_ms - store_now_ms(words->store)));
}

static void command_pexpiretime(const struct words *words)
{
	const struct store_key *key = store_find_key(words, 1);
	store_reply_number(!key ? -2 : key->expires_ms == 0 ? -1 : (long long)key->expires_ms);
}

static void command_type(const struct words *words)
{
	static const char *const names[] = {"string", "hash", "zset", "list"};
	const struct store_key *key = store_find_key(words, 1);
	store_reply_status(key ? names[key->type] : "none");
}

static void command_flushall(const struct words *words)
{
	store_clear(words->store);
	reply_ok();
}

/* ---- strings ---- */

static void command_get(const struct words *words)
{
	struct store_key *key;
	if (store_find_typed(words, STORE_STRING, &key))
		store_reply_string(key ? key->string : NULL);
}

size_t store_from_end(long long index, size_t len)
{
	long long at = index < 0 ? (long long)len + index : index;
	return at < 0 ? 0 : (size_t)at;
}

static void command_getrange(const struct words *words)
{
	struct store_key *key;
	long long first, last;
	if (!store_integer(words, 2, &first) || !store_integer(words, 3, &last) ||
	    !store_find_typed(words, STORE_STRING, &key))
		return;
	size_t len = key ? key->string->len : 0, from = store_from_end(first, len), to = store_from_end(last, len);
	if (to >= len)
		to = len - 1;
	if (len == 0 || from > to)
		store_reply_text("", 0);
	else
		store_reply_text(key->string->bytes + from, to - from + 1);
}

struct set_options {
	bool if_new, if_there, keeps;
	long long ms; /* 0: it never ends */
};

/* [NX|XX] [PX ms|KEEPTTL]. False: there is an error, which is the reply. */
static bool read_set_options(const struct words *words, struct set_options *options)
{
	for (size_t i = 3; i < words->argc; i++) {
		if (store_is(words, i, "NX"))
			options->if_new = true;
		else if (store_is(words, i, "XX"))
			options->if_there = true;
		else if (store_is(words, i, "KEEPTTL"))
			options->keeps = true;
		else if (!store_is(words, i, "PX")) {
			store_reply_syntax_error();
			return false;
		} else if (!store_integer(words, ++i, &options->ms)) {
			return false;
		} else if (options->ms <= 0) {
			store_reply_error("ERR invalid expire time in 'set' command");
			return false;
		}
	}
	return true;
}

/* SET key value … */
static void command_set(const struct words *words)
{
	struct set_options options = {.ms = 0};
	if (!read_set_options(words, &options))
		return;
	struct store_key *key = store_find_key(words, 1);
	if ((options.if_new && key) || (options.if_there && !key)) {
		store_reply_nil();
		return;
	}
	uint64_t expires_ms = options.keeps && key ? key->expires_ms : 0;
	if (key && key->type != STORE_STRING)
		store_remove(words->store, key);
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_STRING);
	store_set_string(key, words->argv[2], words->lens[2]);
	key->expires_ms = options.ms > 0 ? store_now_ms(words->store) + (uint64_t)options.ms : expires_ms;
	reply_ok();
}

/* ---- hashes ---- */

static void command_hset(const struct words *words)
{
	struct store_key *key;
	long long added = 0;
	if (words->argc % 2 != 0) {
		store_reply_error("ERR wrong number of arguments for 'hset' command");
		return;
	}
	if (!store_find_typed(words, STORE_HASH, &key))
		return;
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_HASH);
	for (size_t i = 2; i < words->argc; i += 2)
		added += store_set_field(key, words->argv[i], words->lens[i], words->argv[i + 1], words->lens[i + 1]);
	store_reply_number(added);
}

static void reply_field(const struct words *words, const struct store_key *key, size_t i)
{
	const struct store_item *item = key ? store_item(key, words->argv[i], words->lens[i]) : NULL;
	store_reply_string(item ? item->value : NULL);
}

static void command_hget(const struct words *words)
{
	struct store_key *key;
	if (store_find_typed(words, STORE_HASH, &key))
		reply_field(words, key, 2);
}

static void command_hmget(const struct words *words)
{
	struct store_key *key;
	if (!store_find_typed(words, STORE_HASH, &key))
		return;
	store_reply_array(words->argc - 2);
	for (size_t i = 2; i < words->argc; i++) {
		reply_field(words, key, i);
		store_reply_put(i - 2);
	}
}

static void command_hgetall(const struct words *words)
{
	struct store_key *key;
	if (!store_find_typed(words, STORE_HASH, &key))
		return;
	store_reply_array(key ? 2 * key->count : 0);
	for (size_t i = 0; key && i < key->count; i++) {
		store_reply_string(key->items[i].name);
		store_reply_put(2 * i);
		store_reply_string(key->items[i].value);
		store_reply_put(2 * i + 1);
	}
}

void store_remove_named(const struct words *words, enum store_type type)
{
	struct store_key *key;
	long long count = 0;
	if (!store_find_typed(words, type, &key))
		return;
	for (size_t i = 2; key && i < words->argc; i++) {
		if (!store_item(key, words->argv[i], words->lens[i]))
			continue;
		key = store_own(words->store, key);
		const struct store_item *item = store_item(key, words->argv[i], words->lens[i]);
		store_remove_items(key, (size_t)(item - key->items), 1);
		count++;
	}
	if (key)
		store_remove_if_empty(words->store, key);
	store_reply_number(count);
}

static void command_hdel(const struct words *words)
{
	store_remove_named(words, STORE_HASH);
}

static void command_hincrby(const struct words *words)
{
	struct store_key *key;
	long long more, number = 0;
	char text[NUMBER_MAX];
	if (!store_integer(words, 3, &more) || !store_find_typed(words, STORE_HASH, &key))
		return;
	const struct store_item *item = key ? store_item(key, words->argv[2], words->lens[2]) : NULL;
	if (item && !read_integer(item->value->bytes, item->value->len, &number)) {
		store_reply_error("ERR hash value is not an integer");
		return;
	}
	if (__builtin_add_overflow(number, more, &number)) {
		store_reply_error("ERR increment or decrement would overflow");
		return;
	}
	int len = snprintf(text, sizeof text, "%lld", number);
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_HASH);
	store_set_field(key, words->argv[2], words->lens[2], text, (size_t)len);
	store_reply_number(number);
}

/* ---- others ---- */

static void command_rpush(const struct words *words)
{
	struct store_key *key;
	if (!store_find_typed(words, STORE_LIST, &key))
		return;
	key = store_make(words->store, words->argv[1], words->lens[1], STORE_LIST);
	for (size_t i = 2; i < words->argc; i++) {
		char number[NUMBER_MAX];
		int len = snprintf(number, sizeof number, "%zu", key->count);
		store_set_field(key, number, (size_t)len, words->argv[i], words->lens[i]);
	}
	store_reply_number((long long)key->count);
}

static void command_time(const struct words *words)
{
	uint64_t numbers[] = {words->store->now_us / 1000000, words->store->now_us % 1000000};
	char text[TEXT_DECIMAL_MAX];
	store_reply_array(2);
	for (size_t i = 0; i < 2; i++) {
		store_reply_text(text, text_decimal(numbers[i], text));
		store_reply_put(i);
	}
}

static void command_publish(const struct words *words)
{
	const struct store *store = words->store;
	if (store->publish)
		store->publish(store->arg, words->argv[1], words->lens[1], words->argv[2], words->lens[2]);
	store_reply_number(0);
}

static void command_ping(const struct words *words)
{
	(void)words;
	store_reply_status("PONG");
}

/* ---- all of them ---- */

static const struct command {
	char name[COMMAND_LEN_MAX + 1]; /* zeros behind it: memcmp() may read it all */
	int least;                      /* arguments, with the name; negative: exactly */
	void (*carry_out)(const struct words *words);
} commands[] = {
	{"DEL", 2, command_del},
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

enum { COMMANDS = sizeof commands / sizeof *commands, PLACES = 256 };

static unsigned place_of(const char *name, size_t len)
{
	return (unsigned)(len * 7 + (unsigned char)name[0] * 31U + (unsigned char)name[len / 2] * 13U +
			  (unsigned char)name[len - 1]) %
	       PLACES;
}

/* By its name, in capitals; NULL: there is none. */
static const struct command *find_command(const char *name, size_t len)
{
	static const struct command *places[PLACES];
	static bool is_filled;
	for (size_t i = 0; i < COMMANDS && !is_filled; i++) {
		unsigned at = place_of(commands[i].name, strlen(commands[i].name));
		while (places[at])
			at = (at + 1) % PLACES;
		places[at] = &commands[i];
	}
	is_filled = true;
	bool fits = len > 0 && len <= COMMAND_LEN_MAX;
	for (unsigned at = fits ? place_of(name, len) : 0; fits && places[at]; at = (at + 1) % PLACES)
		if (memcmp(places[at]->name, name, len) == 0 && places[at]->name[len] == '\0')
			return places[at];
	return NULL;
}

void store_carry_out(const struct words *words)
{
	assert(words->argc > 0);
	const struct command *command = find_command(words->argv[0], words->lens[0]);
	if (!command)
		store_reply_error("ERR unknown command");
	else if (command->least < 0 ? words->argc != (size_t)-command->least : words->argc < (size_t)command->least)
		store_reply_error("ERR wrong number of arguments");
	else
		command->carry_out(words);
}
