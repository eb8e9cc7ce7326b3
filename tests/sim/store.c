/* The keys of a store: see store.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "store_internal.h"

/* ---- texts ---- */

struct store_text *store_text_new(const char *bytes, size_t len)
{
	struct store_text *text = memory_alloc(sizeof *text + len + 1);
	text->len = len;
	memcpy(text->bytes, bytes, len);
	text->bytes[len] = '\0';
	return text;
}

int store_text_compare(const struct store_text *text, const char *bytes, size_t len)
{
	int order = memcmp(text->bytes, bytes, text->len < len ? text->len : len);
	return order != 0 ? order : (text->len > len) - (text->len < len);
}

/* ---- a store ---- */

struct store *store_new(store_publish_fn *publish, void *arg)
{
	struct store *store = memory_zeroed(1, sizeof *store);
	store->publish = publish;
	store->arg = arg;
	return store;
}

static void clear(struct store_key *key)
{
	for (size_t i = 0; i < key->count; i++) {
		free(key->items[i].name);
		free(key->items[i].value);
	}
	free(key->items);
	free(key->string);
	free(key->name);
}

void store_free(struct store *store)
{
	for (size_t i = 0; i < store->count; i++)
		clear(&store->keys[i]);
	free(store->keys);
	free(store);
}

void store_set_time(struct store *store, uint64_t now_us)
{
	store->now_us = now_us;
}

/* ---- keys ---- */

/* Where the key is, or belongs. */
static size_t place_of(const struct store *store, const char *name, size_t len, bool *ret_found)
{
	size_t low = 0, high = store->count;
	*ret_found = false;
	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = store_text_compare(store->keys[middle].name, name, len);
		if (order == 0) {
			*ret_found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void store_remove(struct store *store, struct store_key *key)
{
	size_t at = (size_t)(key - store->keys);
	assert(at < store->count);
	clear(key);
	memmove(key, key + 1, (--store->count - at) * sizeof *key);
}

struct store_key *store_find(struct store *store, const char *name, size_t len)
{
	bool found;
	size_t at = place_of(store, name, len, &found);
	if (!found)
		return NULL;
	struct store_key *key = &store->keys[at];
	if (key->expires_ms == 0 || key->expires_ms >= store_now_ms(store))
		return key;
	store_remove(store, key);
	return NULL;
}

struct store_key *store_make(struct store *store, const char *name, size_t len, enum store_type type)
{
	bool found;
	struct store_key *key = store_find(store, name, len);
	if (key)
		return key;
	size_t at = place_of(store, name, len, &found);
	store->keys = realloc(store->keys, (store->count + 1) * sizeof *store->keys);
	if (!store->keys)
		memory_exhausted("store");
	memmove(&store->keys[at + 1], &store->keys[at], (store->count++ - at) * sizeof *store->keys);
	store->keys[at] = (struct store_key){.name = store_text_new(name, len), .type = type};
	return &store->keys[at];
}

/* ---- items ---- */

struct store_item *store_item(const struct store_key *key, const char *name, size_t len)
{
	for (size_t i = 0; i < key->count; i++)
		if (store_text_compare(key->items[i].name, name, len) == 0)
			return &key->items[i];
	return NULL;
}

static struct store_item *add_item(struct store_key *key, size_t at, const char *name, size_t len)
{
	key->items = realloc(key->items, (key->count + 1) * sizeof *key->items);
	if (!key->items)
		memory_exhausted("store");
	memmove(&key->items[at + 1], &key->items[at], (key->count++ - at) * sizeof *key->items);
	key->items[at] = (struct store_item){.name = store_text_new(name, len)};
	return &key->items[at];
}

void store_remove_items(struct store_key *key, size_t first, size_t count)
{
	assert(first + count <= key->count);
	for (size_t i = first; i < first + count; i++) {
		free(key->items[i].name);
		free(key->items[i].value);
	}
	memmove(&key->items[first], &key->items[first + count], (key->count - first - count) * sizeof *key->items);
	key->count -= count;
}

bool store_set_field(struct store_key *key, const char *name, size_t len, const char *value, size_t value_len)
{
	struct store_item *item = store_item(key, name, len);
	bool is_new = !item;
	if (is_new)
		item = add_item(key, key->count, name, len);
	free(item->value);
	item->value = store_text_new(value, value_len);
	return is_new;
}

bool store_set_score(struct store_key *key, const char *name, size_t len, double score)
{
	struct store_item *item = store_item(key, name, len);
	bool is_new = !item;
	size_t at = 0;
	if (item && item->score == score)
		return false;
	if (item)
		store_remove_items(key, (size_t)(item - key->items), 1);
	while (at < key->count &&
	       (key->items[at].score < score ||
		(key->items[at].score == score && store_text_compare(key->items[at].name, name, len) < 0)))
		at++;
	add_item(key, at, name, len)->score = score;
	return is_new;
}

/* ---- replies ---- */

static redisReply *reply_new(int type)
{
	redisReply *reply = memory_zeroed(1, sizeof *reply);
	reply->type = type;
	return reply;
}

redisReply *store_reply_number(long long number)
{
	redisReply *reply = reply_new(REDIS_REPLY_INTEGER);
	reply->integer = number;
	return reply;
}

redisReply *store_reply_text(int type, const char *bytes, size_t len)
{
	redisReply *reply = reply_new(type);
	reply->str = memory_alloc(len + 1);
	memcpy(reply->str, bytes, len);
	reply->str[len] = '\0';
	reply->len = len;
	return reply;
}

redisReply *store_reply_nil(void)
{
	return reply_new(REDIS_REPLY_NIL);
}

redisReply *store_reply_array(size_t count)
{
	redisReply *reply = reply_new(REDIS_REPLY_ARRAY);
	reply->elements = count;
	reply->element = memory_zeroed(count + 1, sizeof *reply->element);
	return reply;
}

redisReply *store_reply_error(const char *words)
{
	return store_reply_text(REDIS_REPLY_ERROR, words, strlen(words));
}
