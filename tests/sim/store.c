/* SPDX-License-Identifier: MIT */
/* The keys of a store: see store.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "store_internal.h"

enum { SLOTS_MIN = 64 };

/* ---- texts ---- */

struct store_text *store_text_new(const char *bytes, size_t len)
{
	struct store_text *text = memory_alloc(sizeof *text + len + 1);
	text->references = 1;
	text->len = (uint32_t)len;
	memcpy(text->bytes, bytes, len);
	text->bytes[len] = '\0';
	return text;
}

struct store_text *store_text_ref(struct store_text *text)
{
	if (text)
		text->references++;
	return text;
}

void store_text_unref(struct store_text *text)
{
	if (text && --text->references == 0)
		free(text);
}

/* In place where nobody shares it and it is long enough. */
static void set_text(struct store_text **text, const char *bytes, size_t len)
{
	struct store_text *old = *text;
	if (old && old->references == 1 && old->len >= len) {
		memmove(old->bytes, bytes, len);
		old->bytes[len] = '\0';
		old->len = (uint32_t)len;
		return;
	}
	*text = store_text_new(bytes, len);
	store_text_unref(old);
}

static int compare_text(const struct store_text *text, const char *bytes, size_t len)
{
	int order = memcmp(text->bytes, bytes, text->len < len ? text->len : len);
	return order != 0 ? order : (text->len > len) - (text->len < len);
}

static uint64_t hash_name(const char *name, size_t len)
{
	uint64_t hash = len, word;
	for (; len >= sizeof word; len -= sizeof word, name += sizeof word) {
		memcpy(&word, name, sizeof word);
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	word = 0;
	memcpy(&word, name, len);
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 32;
}

/* ---- a store ---- */

struct store *store_new(store_publish_fn *publish, void *arg)
{
	struct store *store = memory_zeroed(1, sizeof *store);
	store->publish = publish;
	store->arg = arg;
	store->slot_count = SLOTS_MIN;
	store->slots = memory_zeroed(store->slot_count, sizeof(struct store_key *));
	return store;
}

static void unref_key(struct store_key *key)
{
	if (--key->references > 0)
		return;
	for (size_t i = 0; i < key->count; i++) {
		store_text_unref(key->items[i].name);
		store_text_unref(key->items[i].value);
	}
	free(key->items);
	store_text_unref(key->string);
	store_text_unref(key->name);
	free(key);
}

void store_clear(struct store *store)
{
	for (size_t i = 0; i < store->slot_count; i++)
		if (store->slots[i])
			unref_key(store->slots[i]);
	memset(store->slots, 0, store->slot_count * sizeof *store->slots);
	store->count = 0;
}

void store_free(struct store *store)
{
	if (!store)
		return;
	store_clear(store);
	free(store->slots);
	free(store);
}

struct store *store_copy(const struct store *from)
{
	struct store *store = memory_alloc(sizeof *store);
	*store = *from;
	store->slots = memory_alloc(store->slot_count * sizeof(struct store_key *));
	memcpy(store->slots, from->slots, store->slot_count * sizeof(struct store_key *));
	for (size_t i = 0; i < store->slot_count; i++)
		if (store->slots[i])
			store->slots[i]->references++;
	return store;
}

void store_set_time(struct store *store, uint64_t now_us)
{
	store->now_us = now_us;
}

/* ---- keys ---- */

/* Where the key is, or belongs. */
static size_t slot_of(const struct store *store, uint64_t hash, const char *name, size_t len)
{
	size_t at = hash & (store->slot_count - 1);
	for (; store->slots[at]; at = (at + 1) & (store->slot_count - 1))
		if (store->slots[at]->hash == hash && store_text_is(store->slots[at]->name, name, len))
			break;
	return at;
}

static size_t slot_of_key(const struct store *store, const struct store_key *key)
{
	size_t at = key->hash & (store->slot_count - 1);
	while (store->slots[at] != key)
		at = (at + 1) & (store->slot_count - 1);
	return at;
}

/* Those behind it that belong here or before move up. */
void store_remove(struct store *store, struct store_key *key)
{
	size_t mask = store->slot_count - 1, hole = slot_of_key(store, key);
	for (size_t at = (hole + 1) & mask; store->slots[at]; at = (at + 1) & mask) {
		size_t home = store->slots[at]->hash & mask;
		if (((at - home) & mask) < ((at - hole) & mask))
			continue;
		store->slots[hole] = store->slots[at];
		hole = at;
	}
	store->slots[hole] = NULL;
	store->count--;
	unref_key(key);
}

const struct store_key *store_peek(const struct store *store, const char *name, size_t len)
{
	const struct store_key *key = store->slots[slot_of(store, hash_name(name, len), name, len)];
	return key && !store_has_ended(store, key) ? key : NULL;
}

struct store_key *store_find(struct store *store, const char *name, size_t len)
{
	struct store_key *key = store->slots[slot_of(store, hash_name(name, len), name, len)];
	if (!key || !store_has_ended(store, key))
		return key;
	store_remove(store, key);
	return NULL;
}

struct store_key *store_own(struct store *store, struct store_key *key)
{
	if (key->references == 1)
		return key;
	struct store_key *own = memory_alloc(sizeof *own);
	*own = *key;
	own->references = 1;
	own->room = key->count;
	own->items = key->count > 0 ? memory_alloc(key->count * sizeof *key->items) : NULL;
	for (size_t i = 0; i < key->count; i++) {
		own->items[i] = key->items[i];
		store_text_ref(own->items[i].name);
		store_text_ref(own->items[i].value);
	}
	store_text_ref(own->string);
	store_text_ref(own->name);
	store->slots[slot_of_key(store, key)] = own;
	key->references--;
	return own;
}

static void grow(struct store *store)
{
	size_t count = store->slot_count;
	struct store_key **old = store->slots;
	store->slot_count *= 2;
	store->slots = memory_zeroed(store->slot_count, sizeof *old);
	for (size_t i = 0; i < count; i++)
		if (old[i])
			store->slots[slot_of(store, old[i]->hash, old[i]->name->bytes, old[i]->name->len)] = old[i];
	free(old);
}

struct store_key *store_make(struct store *store, const char *name, size_t len, enum store_type type)
{
	struct store_key *key = store_find(store, name, len);
	if (key)
		return store_own(store, key);
	if (2 * ++store->count > store->slot_count)
		grow(store);
	key = memory_alloc(sizeof *key);
	*key = (struct store_key){.references = 1, .hash = hash_name(name, len), .type = type};
	key->name = store_text_new(name, len);
	store->slots[slot_of(store, key->hash, name, len)] = key;
	return key;
}

void store_sweep(struct store *store)
{
	for (size_t i = 0; i < store->slot_count; i++)
		while (store->slots[i] && store_has_ended(store, store->slots[i]))
			store_remove(store, store->slots[i]);
}

/* ---- items ---- */

struct store_item *store_item(const struct store_key *key, const char *name, size_t len)
{
	uint64_t hash = hash_name(name, len);
	for (size_t i = 0; i < key->count && key->filter >> hash % 64 & 1; i++)
		if (key->items[i].hash == hash && store_text_is(key->items[i].name, name, len))
			return &key->items[i];
	return NULL;
}

uint64_t store_number(const struct store_key *hash, const char *field, int base)
{
	const struct store_item *item = hash ? store_item(hash, field, strlen(field)) : NULL;
	return item ? strtoull(item->value->bytes, NULL, base) : 0;
}

static struct store_item *add_item(struct store_key *key, size_t at, const char *name, size_t len)
{
	assert(key->references == 1);
	if (key->count == key->room) {
		key->room = key->room > 0 ? 2 * key->room : 4;
		key->items = realloc(key->items, key->room * sizeof *key->items);
		if (!key->items)
			memory_exhausted("store");
	}
	memmove(&key->items[at + 1], &key->items[at], (key->count++ - at) * sizeof *key->items);
	key->items[at] = (struct store_item){.name = store_text_new(name, len), .hash = hash_name(name, len)};
	key->filter |= UINT64_C(1) << key->items[at].hash % 64;
	return &key->items[at];
}

void store_remove_items(struct store_key *key, size_t first, size_t count)
{
	assert(first + count <= key->count && key->references == 1);
	for (size_t i = first; i < first + count; i++) {
		store_text_unref(key->items[i].name);
		store_text_unref(key->items[i].value);
	}
	memmove(&key->items[first], &key->items[first + count], (key->count - first - count) * sizeof *key->items);
	key->count -= count;
}

void store_set_string(struct store_key *key, const char *bytes, size_t len)
{
	assert(key->references == 1);
	set_text(&key->string, bytes, len);
}

bool store_set_field(struct store_key *key, const char *name, size_t len, const char *value, size_t value_len)
{
	struct store_item *item = store_item(key, name, len);
	bool is_new = !item;
	assert(key->references == 1);
	if (is_new)
		item = add_item(key, key->count, name, len);
	set_text(&item->value, value, value_len);
	return is_new;
}

bool store_set_score(struct store_key *key, const char *name, size_t len, double score)
{
	struct store_item *item = store_item(key, name, len);
	bool is_new = !item;
	size_t at = key->count;
	if (item && item->score == score)
		return false;
	if (item) {
		store_remove_items(key, (size_t)(item - key->items), 1);
		at = key->count;
	}
	while (at > 0 && (key->items[at - 1].score > score ||
			  (key->items[at - 1].score == score && compare_text(key->items[at - 1].name, name, len) > 0)))
		at--;
	add_item(key, at, name, len)->score = score;
	return is_new;
}
