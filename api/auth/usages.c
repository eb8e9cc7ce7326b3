/* SPDX-License-Identifier: MIT */
/* The usages of callers, which outlive a reload: one for each name of a key or a token that is in use. See
 * auth_internal.h. The tree is balanced, and only loading keys and verifying tokens take the lock: requests change a
 * usage by atomic operations. Any thread. */
#include <assert.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "auth_internal.h"

static pthread_mutex_t usages_lock = PTHREAD_MUTEX_INITIALIZER;
static void *usages; /* of tsearch() */

static int compare_usages(const void *a, const void *b)
{
	const struct key_usage *one = a, *other = b;
	return one->kind != other->kind ? one->kind - other->kind : strcmp(one->name, other->name);
}

struct key_usage *usage_get(enum usage_kind kind, const char *name)
{
	size_t len = strlen(name);
	assert(len > 0 && len <= ISSUER_TEXT_MAX);
	struct key_usage *usage = memory_zeroed(1, sizeof *usage + len + 1);
	usage->kind = (char)kind;
	memcpy(usage->name, name, len + 1);
	pthread_mutex_lock(&usages_lock);
	struct key_usage **found = tsearch(usage, &usages, compare_usages);
	if (!found)
		memory_exhausted("usage of a caller");
	if (*found != usage)
		free(usage);
	usage = *found;
	usage->references++;
	pthread_mutex_unlock(&usages_lock);
	return usage;
}

void usage_put(struct key_usage *usage)
{
	if (!usage)
		return;
	pthread_mutex_lock(&usages_lock);
	assert(usage->references > 0);
	if (--usage->references == 0) {
		assert(atomic_load(&usage->waiting) == 0);
		tdelete(usage, &usages, compare_usages);
		free(usage);
	}
	pthread_mutex_unlock(&usages_lock);
}
