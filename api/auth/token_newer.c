/* SPDX-License-Identifier: MIT */
/* Newer tokens (JWT) of callers whose connection holds a lease. See auth.h.
 *
 * The request with a newer token may reach another worker than the one of the connection, so the text of the token is
 * kept here until that worker needs it, and verifies it with its own keys. The tree is balanced, and has an entry only
 * for a lease that a connection holds by a token. Any thread. */
#include <assert.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

struct token_newer {
	unsigned references; /* connections that hold the lease: several by an Idempotency-Key */
	int64_t end_s;       /* of the token; 0: none has come */
	size_t len;
	char *bytes; /* the token, or NULL */
	size_t lease_len;
	char lease[];
};

static pthread_mutex_t newer_lock = PTHREAD_MUTEX_INITIALIZER;
static void *newer_tree; /* of tsearch() */
static atomic_size_t newer_count;

static int compare_newer(const void *a, const void *b)
{
	const struct token_newer *one = a, *other = b;
	return one->lease_len != other->lease_len ? (one->lease_len > other->lease_len ? 1 : -1)
						  : memcmp(one->lease, other->lease, one->lease_len);
}

static struct token_newer *newer_make(const char *lease, size_t len)
{
	struct token_newer *newer = memory_zeroed(1, sizeof *newer + len);
	newer->lease_len = len;
	memcpy(newer->lease, lease, len);
	return newer;
}

static void newer_clear(struct token_newer *newer)
{
	if (newer->bytes)
		explicit_bzero(newer->bytes, newer->len);
	free(newer->bytes);
	newer->bytes = NULL;
}

bool token_newer_is_expected(void)
{
	return atomic_load_explicit(&newer_count, memory_order_relaxed) > 0;
}

struct token_newer *token_newer_get(const char *lease, size_t len)
{
	assert(len > 0);
	struct token_newer *newer = newer_make(lease, len);
	pthread_mutex_lock(&newer_lock);
	struct token_newer **found = tsearch(newer, &newer_tree, compare_newer);
	if (!found)
		memory_exhausted("lease of a token");
	if (*found != newer)
		free(newer);
	else
		atomic_fetch_add(&newer_count, 1);
	newer = *found;
	newer->references++;
	pthread_mutex_unlock(&newer_lock);
	return newer;
}

void token_newer_put(struct token_newer *newer)
{
	if (!newer)
		return;
	pthread_mutex_lock(&newer_lock);
	assert(newer->references > 0);
	if (--newer->references == 0) {
		tdelete(newer, &newer_tree, compare_newer);
		atomic_fetch_sub(&newer_count, 1);
		newer_clear(newer);
		free(newer);
	}
	pthread_mutex_unlock(&newer_lock);
}

void token_newer_offer(const char *lease, size_t len, const struct token *token)
{
	assert(len > 0 && token->len > 0);
	struct token_newer *key = newer_make(lease, len);
	pthread_mutex_lock(&newer_lock);
	struct token_newer *const *found = tfind(key, &newer_tree, compare_newer);
	if (found && token->end_s > (*found)->end_s) {
		newer_clear(*found);
		(*found)->end_s = token->end_s;
		(*found)->len = token->len;
		(*found)->bytes = memory_copy(token->bytes, token->len);
	}
	pthread_mutex_unlock(&newer_lock);
	free(key);
}

char *token_newer_copy(struct token_newer *newer, size_t *ret_len)
{
	pthread_mutex_lock(&newer_lock);
	char *bytes = newer->bytes ? memory_copy(newer->bytes, newer->len) : NULL;
	*ret_len = bytes ? newer->len : 0;
	pthread_mutex_unlock(&newer_lock);
	return bytes;
}
