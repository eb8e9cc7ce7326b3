/* SPDX-License-Identifier: MIT */
/* The tokens that one worker has verified: a bounded table. See auth.h.
 *
 * Only verified tokens are in it, so nobody but an issuer can fill it. A token is found by the end of its bytes, which
 * is the end of its signature and as good as random, and then compared completely, in a time that does not depend on
 * where the first difference is. That is cheaper than a hash over the token. The worker's thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

enum { BUCKETS = 8192, TAIL = 8 /* bytes */ };

LIST_HEAD(token_bucket, token);

struct token_cache {
	struct keys *keys; /* a reference: with these the tokens were verified; NULL: there are none */
	size_t count;
	TAILQ_HEAD(, token) used; /* the one that was used last is at the end */
	struct token_bucket buckets[BUCKETS];
};

struct token_cache *token_cache_new(void)
{
	struct token_cache *cache = memory_zeroed(1, sizeof *cache);
	TAILQ_INIT(&cache->used);
	return cache;
}

static struct token_bucket *token_cache_bucket(struct token_cache *cache, const char *bytes, size_t len)
{
	uint64_t tail;
	assert(len >= TAIL);
	memcpy(&tail, bytes + len - TAIL, TAIL);
	/* the last digit of base64 may be one of a few, and the others have six bits each */
	return &cache->buckets[(tail * UINT64_C(0x9e3779b97f4a7c15)) >> 51];
}

static void token_cache_remove(struct token_cache *cache, struct token *token)
{
	assert(cache->count > 0);
	LIST_REMOVE(token, others);
	TAILQ_REMOVE(&cache->used, token, entry);
	cache->count--;
	token_unref(token);
}

/* Empties the cache unless its tokens were verified with these keys. */
static void token_cache_set_keys(struct token_cache *cache, struct keys *keys)
{
	if (cache->keys == keys)
		return;
	while (!TAILQ_EMPTY(&cache->used))
		token_cache_remove(cache, TAILQ_FIRST(&cache->used));
	keys_unref(cache->keys);
	cache->keys = keys ? keys_ref(keys) : NULL;
}

void token_cache_free(struct token_cache *cache)
{
	if (!cache)
		return;
	token_cache_set_keys(cache, NULL);
	free(cache);
}

/* True if both are equal. The empty asm keeps the compiler from stopping at the first difference. */
static bool token_cache_equals(const char *one, const char *other, size_t len)
{
	uint64_t left, right, difference = 0;
	size_t at = 0;
	for (; at + sizeof left <= len; at += sizeof left) {
		memcpy(&left, one + at, sizeof left);
		memcpy(&right, other + at, sizeof right);
		difference |= left ^ right;
	}
	for (; at < len; at++)
		difference |= (unsigned char)one[at] ^ (unsigned char)other[at];
	__asm__("" : "+r"(difference));
	return difference == 0;
}

struct token *token_cache_find(struct token_cache *cache, struct keys *keys, const char *bytes, size_t len,
			       int64_t now_s)
{
	struct token *token;
	token_cache_set_keys(cache, keys);
	if (len < TAIL)
		return NULL;
	LIST_FOREACH(token, token_cache_bucket(cache, bytes, len), others)
	if (token->len == len && token_cache_equals(token->bytes, bytes, len))
		break;
	if (!token)
		return NULL;
	if (token->end_s <= now_s) {
		token_cache_remove(cache, token);
		return NULL;
	}
	TAILQ_REMOVE(&cache->used, token, entry);
	TAILQ_INSERT_TAIL(&cache->used, token, entry);
	return token_ref(token);
}

void token_cache_add(struct token_cache *cache, struct token *token)
{
	assert(cache->keys && cache->count <= TOKEN_CACHE_MAX && token->len >= TAIL);
	if (cache->count == TOKEN_CACHE_MAX)
		token_cache_remove(cache, TAILQ_FIRST(&cache->used));
	struct token_bucket *bucket = token_cache_bucket(cache, token->bytes, token->len);
	token_ref(token);
	LIST_INSERT_HEAD(bucket, token, others); /* a macro, which reads its arguments more than once */
	TAILQ_INSERT_TAIL(&cache->used, token, entry);
	cache->count++;
}
