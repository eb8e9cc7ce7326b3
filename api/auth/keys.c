/* SPDX-License-Identifier: MIT */
/* Loaded keys: their life, finding one, and its waiting requests. See auth.h.
 *
 * A key is found by the SHA-256 of the text that the caller sends. The search compares every hash completely and does
 * not stop at a match. So its time reveals nothing about the hashes in the file; that of a hash table would. It takes 2
 * µs for a thousand keys; gnutls_memcmp() compares byte by byte and takes 54 µs. Any thread. */
#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

/* ---- the life of keys ---- */

struct keys *keys_ref(struct keys *keys)
{
	unsigned before = atomic_fetch_add_explicit(&keys->references, 1, memory_order_relaxed);
	assert(before > 0);
	return keys;
}

static void keys_free_issuers(struct keys *keys)
{
	for (size_t i = 0; i < keys->issuer_count; i++) {
		struct issuer *issuer = &keys->issuers[i];
		for (size_t j = 0; j < issuer->rule_count; j++) {
			free(issuer->rules[j].key.prefixes);
			free(issuer->rules[j].matches);
		}
		free(issuer->rules);
		jwks_free(issuer->jwks);
	}
	free(keys->issuers);
}

void keys_unref(struct keys *keys)
{
	if (!keys || atomic_fetch_sub_explicit(&keys->references, 1, memory_order_acq_rel) > 1)
		return;
	assert(atomic_load(&keys->references) == 0 && keys->count <= KEYS_MAX);
	for (size_t i = 0; i < keys->count; i++) {
		usage_put(keys->keys[i].usage);
		free(keys->keys[i].prefixes);
	}
	keys_free_issuers(keys);
	json_decref(keys->root);
	free(keys);
}

/* ---- waiting requests of a key ---- */

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

/* ---- finding a key ---- */

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

/* Returns 0 if the hashes are equal. The empty asm keeps the compiler from stopping at the first difference. */
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

const struct key *keys_find_certificate(const struct keys *keys, const char *const names[], size_t count)
{
	assert(names || count == 0);
	for (size_t n = 0; n < count; n++)
		for (const struct key *key = keys->keys; key < keys->keys + keys->count; key++)
			for (size_t i = 0; i < key->certificate_count; i++)
				if (strcmp(key->certificates[i], names[n]) == 0)
					return key;
	return NULL;
}

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
