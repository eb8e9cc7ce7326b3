/* SPDX-License-Identifier: MIT */
/* Finds the caller of a request among the keys, and decides what it may do. See auth.h.
 *
 * A key is found by the SHA-256 of the text that the caller sends. The search compares every hash completely and does
 * not stop at a match. So its time reveals nothing about the hashes in the file; that of a hash table would. It takes 2
 * µs for a thousand keys; gnutls_memcmp() compares byte by byte and takes 54 µs. No state; any thread. */
#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>

#include "auth.h"
#include "server/base/base.h"

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

/* ---- the decision ---- */

/* The rights of a certificate of the authority if there is no keys file: all but admin. */
enum { CERTIFICATE_RIGHTS = ACCESS_RIGHT(ACCESS_ACQUIRE) | ACCESS_RIGHT(ACCESS_INSPECT) | ACCESS_RIGHT(ACCESS_LIST) };

const char *access_right_name(enum access_need need)
{
	static const char *const names[ACCESS_NEED_COUNT] = {
		[ACCESS_ACQUIRE] = "acquire",
		[ACCESS_INSPECT] = "inspect",
		[ACCESS_LIST] = "list",
		[ACCESS_ADMIN] = "admin",
	};
	assert(need < ACCESS_NEED_COUNT);
	return names[need];
}

/* Why the caller is not known (static). */
static const char *access_reason(const struct keys *keys, const struct access_credentials *credentials, bool by_key)
{
	const struct tls_peer *certificate = credentials->certificate;
	assert(keys || certificate);
	if (by_key)
		return keys ? "The key is not known to this server. Check it, or ask the operator for one."
			    : "This server takes a client certificate, not a key.";
	if (certificate && certificate->state == TLS_PEER_BAD)
		return certificate->reason;
	if (certificate && certificate->state == TLS_PEER_KNOWN)
		return "No name in the client certificate is in the keys file. Ask the operator to add one.";
	if (credentials->other_scheme)
		return "The scheme of Authorization must be Bearer. Send Authorization: Bearer KEY.";
	return keys ? "A key is needed. Send Authorization: Bearer KEY, or X-Api-Key: KEY."
		    : "A client certificate is needed. Send one of an authority that this server trusts.";
}

void access_identify(const struct keys *keys, const struct access_credentials *credentials,
		     const struct access_caller *before, struct access_caller *ret_caller)
{
	const struct tls_peer *certificate = credentials->certificate;
	bool shown = certificate && certificate->state != TLS_PEER_NONE;
	struct access_caller caller = {.controlled = before ? before->controlled : keys || certificate};
	if (!caller.controlled) {
		*ret_caller = caller;
		return;
	}
	caller.by_key = before ? before->by_key : credentials->key && (keys || !shown);
	assert(!before || (before->known && (caller.by_key || shown)));
	assert(!before || !caller.by_key || keys); /* --keys was given at the start or never */
	if (caller.by_key && before) {
		memcpy(caller.hash, before->hash, KEY_HASH_LEN);
		caller.key = keys_find_hash(keys, caller.hash);
	} else if (caller.by_key && keys) {
		caller.key = keys_find(keys, credentials->key, credentials->key_len, caller.hash);
	} else if (!caller.by_key && shown && certificate->state == TLS_PEER_KNOWN) {
		if (keys)
			caller.key = keys_find_certificate(keys, certificate->names, certificate->count);
		else
			caller.name = certificate->count > 0 ? certificate->names[0] : "certificate";
	}
	if (caller.key)
		caller.name = caller.key->name;
	caller.known = caller.name != NULL;
	caller.reason = caller.known ? NULL : access_reason(keys, credentials, caller.by_key);
	*ret_caller = caller;
}

unsigned access_rights(const struct access_caller *caller)
{
	assert(!caller->known || caller->controlled);
	if (!caller->controlled)
		return CERTIFICATE_RIGHTS | ACCESS_RIGHT(ACCESS_ADMIN);
	return caller->key ? caller->key->rights : caller->known ? CERTIFICATE_RIGHTS : 0;
}

enum access_verdict access_decide(enum access_need need, const struct access_caller *caller, const char *bytes,
				  size_t len)
{
	assert(need < ACCESS_NEED_COUNT && (!caller->known || caller->controlled));
	if (!caller->controlled || need == ACCESS_NOTHING || need == ACCESS_TOKEN)
		return ACCESS_ALLOWED;
	if (!caller->known)
		return ACCESS_UNKNOWN;
	if (need == ACCESS_KNOWN)
		return ACCESS_ALLOWED;
	if ((access_rights(caller) & ACCESS_RIGHT(need)) == 0)
		return ACCESS_NO_RIGHT;
	if (!bytes || !caller->key)
		return ACCESS_ALLOWED;
	return key_allows_prefix(caller->key, bytes, len) ? ACCESS_ALLOWED : ACCESS_NO_PREFIX;
}

/* The hash is over the kind of the caller, its name, a NUL, and the key: neither of the two holds a NUL. */
uint64_t access_hash_idempotency_key(const struct access_caller *caller, const struct access_text texts[], size_t count)
{
	unsigned char digest[KEY_HASH_LEN];
	char kind = caller->key ? 'k' : caller->known ? 'c' : '-';
	gnutls_hash_hd_t hash;
	uint64_t number = 0;
	assert(count > 0 && texts[0].len > 0);
	if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) != 0)
		memory_exhausted("hash");
	gnutls_hash(hash, &kind, 1);
	if (caller->known)
		gnutls_hash(hash, caller->name, strlen(caller->name));
	for (size_t i = 0; i < count; i++) {
		gnutls_hash(hash, "", 1); /* no text has a NUL */
		gnutls_hash(hash, texts[i].bytes, texts[i].len);
	}
	gnutls_hash_deinit(hash, digest);
	for (size_t i = 0; i < sizeof number; i++)
		number = number << 8 | digest[i];
	return number > 0 ? number : 1;
}
