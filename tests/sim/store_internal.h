/* SPDX-License-Identifier: MIT */
/* Shared by the files of the store. Commands leave their reply on the stack of Lua. Scripts take it from there; for all
 * other callers it becomes a reply of hiredis (store_script.c). */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include <string.h>

#include "store.h"

/* Bytes that several keys of several stores may share. */
struct store_text {
	uint32_t references, len;
	char bytes[]; /* and a zero */
};

enum store_type { STORE_STRING, STORE_HASH, STORE_SORTED_SET, STORE_LIST /* only its length */ };

/* Of a hash: a field and its value; of a sorted set: a member and its score. */
struct store_item {
	struct store_text *name, *value;
	double score;
	uint64_t hash; /* of its name */
};

/* Shared by copies of a store: changed only through store_own(). */
struct store_key {
	uint32_t references;
	enum store_type type;
	uint64_t hash, expires_ms; /* expires_ms 0: never */
	struct store_text *name;
	struct store_text *string;
	struct store_item *items; /* a sorted set: by score, then by member */
	size_t count, room;
	uint64_t filter; /* a bit for the hash of each item that there is or was */
};

struct store {
	uint64_t now_us;
	struct store_key **slots; /* a hash table: the next one after a slot that is taken */
	size_t slot_count, count; /* slot_count: a power of two */
	store_publish_fn *publish;
	void *arg;
};

static inline uint64_t store_now_ms(const struct store *store)
{
	return store->now_us / 1000;
}

static inline bool store_has_ended(const struct store *store, const struct store_key *key)
{
	return key->expires_ms != 0 && key->expires_ms < store_now_ms(store);
}

/* ---- store.c ---- */

struct store_text *store_text_new(const char *bytes, size_t len);
struct store_text *store_text_ref(struct store_text *text);
void store_text_unref(struct store_text *text);
static inline bool store_text_is(const struct store_text *text, const char *bytes, size_t len)
{
	return text->len == len && memcmp(text->bytes, bytes, len) == 0;
}

/* The key that has not ended; NULL: there is none. store_find() removes one that has ended. */
const struct store_key *store_peek(const struct store *store, const char *name, size_t len);
struct store_key *store_find(struct store *store, const char *name, size_t len);
/* The key, for a change: a copy of it if a copy of the store has it, too. */
struct store_key *store_own(struct store *store, struct store_key *key);
/* The key for a change, or a new one without content. */
struct store_key *store_make(struct store *store, const char *name, size_t len, enum store_type type);
void store_remove(struct store *store, struct store_key *key);
/* Removes all keys that have ended, as the server does over time. */
void store_sweep(struct store *store);

/* The item; NULL: there is none. */
struct store_item *store_item(const struct store_key *key, const char *name, size_t len);
/* The number in a field of a hash; 0: there is none. */
uint64_t store_number(const struct store_key *hash, const char *field, int base);
/* Changes of a key that the store owns: the string; a field of a hash or the score of a member (true: it is new). */
void store_set_string(struct store_key *key, const char *bytes, size_t len);
bool store_set_field(struct store_key *key, const char *name, size_t len, const char *value, size_t value_len);
bool store_set_score(struct store_key *key, const char *name, size_t len, double score);
/* Removes items from `first` on. The key may be empty afterwards: remove it. */
void store_remove_items(struct store_key *key, size_t first, size_t count);

/* ---- store_commands.c ---- */

/* The arguments, the command's name first. */
struct words {
	struct store *store;
	size_t argc;
	const char *const *argv;
	const size_t *lens;
};

enum { NUMBER_MAX = 40 };

/* Carries out a command: one value is on the stack of Lua then. */
void store_carry_out(const struct words *words);

/* True if argument i exists and is that text, in capitals. */
static inline bool store_is(const struct words *words, size_t i, const char *text)
{
	size_t len = strlen(text); /* of a literal: the compiler knows it */
	return i < words->argc && words->lens[i] == len && memcmp(words->argv[i], text, len) == 0;
}

/* The key that argument i names; NULL: none. */
struct store_key *store_find_key(const struct words *words, size_t i);
/* Removes the items that the arguments from 2 on name, of a key of that type; the reply is their number. */
void store_remove_named(const struct words *words, enum store_type type);
/* The key of argument 1, or NULL. False: it is of another type, and that error is the reply. */
bool store_find_typed(const struct words *words, enum store_type type, struct store_key **ret_key);
/* False: argument i is no integer as Redis writes them, and that error is the reply. */
bool store_integer(const struct words *words, size_t i, long long *ret);
/* Converts an index, which counts from the end if it is negative. */
size_t store_from_end(long long index, size_t len);
/* Removes a key without items. */
void store_remove_if_empty(struct store *store, struct store_key *key);

/* ---- store_sorted_set.c ---- */

void store_zadd(const struct words *words);
void store_zcard(const struct words *words);
void store_zscore(const struct words *words);
void store_zrank(const struct words *words);
void store_zrem(const struct words *words);
void store_zrange(const struct words *words);
void store_zremrangebyrank(const struct words *words);
void store_zcount(const struct words *words);
void store_zrangebyscore(const struct words *words);

/* ---- store_script.c ---- */

enum { SHA1_HEX_LEN = 40 };

/* redis.sha1hex(): release.lua makes the token under which it keeps a lease with it. */
void store_sha1hex(const char *text, size_t len, char ret_hex[SHA1_HEX_LEN]);

/* ---- store_script.c: replies ---- */

void store_reply_number(long long number);
void store_reply_text(const char *bytes, size_t len);
void store_reply_status(const char *text);
void store_reply_nil(void);
void store_reply_error(const char *text);
void store_reply_wrong_type(void);
void store_reply_syntax_error(void);
/* NIL for NULL. */
void store_reply_string(const struct store_text *text);
/* An array: after it each element, and store_reply_put() of its index, from 0 on. */
void store_reply_array(size_t count);
void store_reply_put(size_t index);

#endif
