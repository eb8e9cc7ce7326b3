/* What the files of the store share. */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include "store.h"

/* Bytes that never change. */
struct store_text {
	size_t len;
	char bytes[]; /* and a zero */
};

enum store_type { STORE_STRING, STORE_HASH, STORE_SORTED_SET, STORE_LIST /* only its length */ };

/* Of a hash: a field and its value; of a sorted set: a member and its score. */
struct store_item {
	struct store_text *name, *value;
	double score;
};

struct store_key {
	struct store_text *name;
	struct store_text *string;
	struct store_item *items; /* a sorted set: by score, then by member */
	size_t count;
	uint64_t expires_ms; /* 0: never */
	enum store_type type;
};

struct store {
	uint64_t now_us;
	struct store_key *keys; /* sorted by name */
	size_t count;
	store_publish_fn *publish;
	void *arg;
};

static inline uint64_t store_now_ms(const struct store *store)
{
	return store->now_us / 1000;
}

/* ---- store.c ---- */

struct store_text *store_text_new(const char *bytes, size_t len);
int store_text_compare(const struct store_text *text, const char *bytes, size_t len);

/* The key that has not ended; NULL: there is none. */
struct store_key *store_find(struct store *store, const char *name, size_t len);
/* The same, or a new one without content. Other pointers to keys are void afterwards. */
struct store_key *store_make(struct store *store, const char *name, size_t len, enum store_type type);
void store_remove(struct store *store, struct store_key *key);

/* The item; NULL: there is none. */
struct store_item *store_item(const struct store_key *key, const char *name, size_t len);
/* Sets a field of a hash. True: it is new. */
bool store_set_field(struct store_key *key, const char *name, size_t len, const char *value, size_t value_len);
/* Sets the score of a member. True: it is new. */
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

/* True if argument i is there and is that word, in capitals or not. */
bool store_is(const struct words *words, size_t i, const char *text);
/* The key that argument i names; NULL: there is none. */
struct store_key *store_find_key(const struct words *words, size_t i);
/* Removes the items that the arguments from 2 on name, of a key of that type; the reply is their number. */
redisReply *store_remove_named(const struct words *words, enum store_type type);
/* False: argument i is no integer as Redis writes them. */
bool store_integer(const struct words *words, size_t i, long long *ret);
/* An index that is counted from the end where it is negative. */
size_t store_from_end(long long index, size_t len);
/* Without items there is no key. */
void store_remove_if_empty(struct store *store, struct store_key *key);
redisReply *store_wrong_type(void);
redisReply *store_syntax_error(void);
/* NIL for NULL. */
redisReply *store_text_reply(const struct store_text *text);

/* ---- store_sorted_set.c ---- */

redisReply *store_zadd(const struct words *words);
redisReply *store_zcard(const struct words *words);
redisReply *store_zscore(const struct words *words);
redisReply *store_zrank(const struct words *words);
redisReply *store_zrem(const struct words *words);
redisReply *store_zrange(const struct words *words);
redisReply *store_zremrangebyrank(const struct words *words);
redisReply *store_zcount(const struct words *words);
redisReply *store_zrangebyscore(const struct words *words);

/* ---- replies ---- */

redisReply *store_reply_number(long long number);
redisReply *store_reply_text(int type, const char *bytes, size_t len);
redisReply *store_reply_nil(void);
redisReply *store_reply_array(size_t count);
redisReply *store_reply_error(const char *words);

#endif
