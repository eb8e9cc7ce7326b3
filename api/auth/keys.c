/* Finds the key of a caller, and keeps the usage of keys over a reload. See keys.h; keys_parse.c reads the file.
 *
 * A key is found by the SHA-256 of the text that the caller shows. The search compares every hash as a whole and does
 * not stop at a match, so that the time of an answer tells nothing about the hashes in the file. A hash table would
 * show by its timing where it looked; the list is short: 2 µs for a thousand keys. gnutls_memcmp() compares byte by
 * byte and takes 54 µs.
 *
 * `usages` is the only state: one usage for each name of a key in any living `struct keys`. A new file takes over the
 * usages of the old one, which still counts while it is loaded. The last reference frees a usage. The lock is taken on
 * loading and freeing alone: requests change a usage by atomic operations. Any thread. */
#include "keys.h"

#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "keys_internal.h"

/* ---- usage, which outlives a reload ---- */

static pthread_mutex_t usages_lock = PTHREAD_MUTEX_INITIALIZER;
static struct key_usage *usages;

static struct key_usage *usage_find(const char *name)
{
	struct key_usage *usage = usages;

	while (usage && strcmp(usage->name, name) != 0)
		usage = usage->next;
	return usage;
}

struct key_usage *keys_usage_get(const char *name)
{
	assert(strlen(name) > 0 && strlen(name) <= KEY_NAME_MAX);
	pthread_mutex_lock(&usages_lock);
	struct key_usage *usage = usage_find(name);
	if (!usage && (usage = calloc(1, sizeof *usage))) {
		strcpy(usage->name, name);
		usage->next = usages;
		usages = usage;
	}
	if (usage) {
		usage->references++;
		assert(usage->references > 0);
	}
	pthread_mutex_unlock(&usages_lock);
	return usage;
}

void keys_usage_put(struct key_usage *usage)
{
	pthread_mutex_lock(&usages_lock);
	assert(usage->references > 0);
	if (--usage->references == 0) {
		struct key_usage **link = &usages;
		while (*link != usage) {
			assert(*link);
			link = &(*link)->next;
		}
		*link = usage->next;
		assert(atomic_load(&usage->waiting) == 0);
		free(usage);
	}
	pthread_mutex_unlock(&usages_lock);
}

bool key_wait_begin(const struct key *key)
{
	uint32_t waiting = atomic_load_explicit(&key->usage->waiting, memory_order_relaxed);

	do {
		if (key->max_waiting > 0 && waiting >= key->max_waiting)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&key->usage->waiting, &waiting, waiting + 1,
							memory_order_relaxed, memory_order_relaxed));
	return true;
}

void key_wait_end(const struct key *key)
{
	uint32_t before = atomic_fetch_sub_explicit(&key->usage->waiting, 1, memory_order_relaxed);
	assert(before > 0);
}

void key_wait_move(const struct key *from, const struct key *to)
{
	assert(atomic_load_explicit(&from->usage->waiting, memory_order_relaxed) > 0);
	atomic_fetch_add_explicit(&to->usage->waiting, 1, memory_order_relaxed);
	key_wait_end(from);
}

/* ---- finding ---- */

size_t keys_count(const struct keys *keys)
{
	return keys->count;
}

/* A key is made of visible ASCII. Any other text is not a key, whatever its hash. */
static bool is_secret(const char *secret, size_t len)
{
	if (len < KEY_SECRET_MIN || len > KEY_SECRET_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (secret[i] <= 0x20 || secret[i] >= 0x7f)
			return false;
	return true;
}

/* 0 if all the words are the same. The empty asm keeps the compiler from stopping at the first difference. */
static uint64_t hash_difference(const unsigned char *hash, const unsigned char *other)
{
	uint64_t left[KEY_HASH_LEN / sizeof(uint64_t)], right[KEY_HASH_LEN / sizeof(uint64_t)], difference = 0;

	memcpy(left, hash, KEY_HASH_LEN);
	memcpy(right, other, KEY_HASH_LEN);
	for (size_t i = 0; i < KEY_HASH_LEN / sizeof(uint64_t); i++)
		difference |= left[i] ^ right[i];
	__asm__("" : "+r"(difference));
	return difference;
}

const struct key *keys_find(const struct keys *keys, const char *secret, size_t len,
			    unsigned char ret_hash[KEY_HASH_LEN])
{
	assert(keys && secret);
	if (!is_secret(secret, len) || gnutls_hash_fast(GNUTLS_DIG_SHA256, secret, len, ret_hash) != 0)
		return NULL;
	return keys_find_hash(keys, ret_hash);
}

const struct key *keys_find_hash(const struct keys *keys, const unsigned char hash[KEY_HASH_LEN])
{
	const struct key *found = NULL;

	assert(keys->count <= KEYS_MAX);
	for (size_t i = 0; i < keys->count; i++)
		for (size_t j = 0; j < keys->keys[i].hash_count; j++)
			if (hash_difference(hash, keys->keys[i].hashes[j]) == 0)
				found = &keys->keys[i]; /* each hash is in the file once */
	return found;
}

static bool has_certificate(const struct key *key, const char *name)
{
	for (size_t i = 0; i < key->certificate_count; i++)
		if (strcmp(key->certificates[i], name) == 0)
			return true;
	return false;
}

const struct key *keys_find_certificate(const struct keys *keys, const char *const names[], size_t count)
{
	assert(names || count == 0);
	for (size_t n = 0; n < count; n++)
		for (size_t i = 0; i < keys->count; i++)
			if (has_certificate(&keys->keys[i], names[n]))
				return &keys->keys[i];
	return NULL;
}

/* ---- rights ---- */

bool key_allows_prefix(const struct key *key, const char *bytes, size_t len)
{
	assert(bytes && key->prefix_count <= KEY_PREFIXES_MAX);
	for (size_t i = 0; i < key->prefix_count; i++) {
		const struct key_prefix *prefix = &key->prefixes[i];
		if (prefix->len <= len && memcmp(bytes, prefix->bytes, prefix->len) == 0)
			return true;
	}
	return false;
}

const char *key_right_name(enum key_right right)
{
	switch (right) {
	case KEY_ACQUIRE: return "acquire";
	case KEY_INSPECT: return "inspect";
	case KEY_LIST: return "list";
	case KEY_ADMIN: return "admin";
	}
	assert(false);
	return "";
}
