/* SPDX-License-Identifier: MIT */
/* Newer tokens of callers whose connection holds a lease. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth/auth.h"
#include "suite.h"

static void offer(const char *lease, const char *bytes, int64_t end_s)
{
	size_t len = strlen(bytes);
	struct token *token = calloc(1, sizeof *token + len);
	ck_assert_ptr_nonnull(token);
	token->end_s = end_s;
	token->len = len;
	memcpy(token->bytes, bytes, len);
	token_newer_offer(lease, strlen(lease), token);
	free(token);
}

/* The newest token is this one; NULL: there is none. */
static void has(struct token_newer *newer, const char *expected)
{
	size_t len;
	char *bytes = token_newer_copy(newer, &len);
	ck_assert_int_eq(bytes == NULL, expected == NULL);
	ck_assert_uint_eq(len, expected ? strlen(expected) : 0);
	if (expected)
		ck_assert_mem_eq(bytes, expected, len);
	free(bytes);
}

TEST(the_token_that_ends_last_is_kept)
{
	struct token_newer *newer = token_newer_get("aaaa", 4);
	has(newer, NULL);
	offer("aaaa", "one", 10);
	has(newer, "one");
	offer("aaaa", "earlier", 9);
	offer("aaaa", "same", 10);
	has(newer, "one");
	offer("aaaa", "longer", 11);
	has(newer, "longer");
	has(newer, "longer");
	token_newer_put(newer);
}

TEST(each_lease_has_its_own)
{
	struct token_newer *one = token_newer_get("aaaa", 4), *other = token_newer_get("aaab", 4),
			   *part = token_newer_get("aaa", 3);
	offer("aaab", "x", 1);
	offer("aaac", "y", 1);
	offer("aa", "z", 1);
	has(one, NULL);
	has(other, "x");
	has(part, NULL);
	offer("aaa", "w", 1);
	has(part, "w");
	token_newer_put(one);
	token_newer_put(other);
	token_newer_put(part);
}

TEST(connections_with_one_lease_share_it)
{
	struct token_newer *one = token_newer_get("aaaa", 4), *other = token_newer_get("aaaa", 4);
	offer("aaaa", "x", 1);
	has(one, "x");
	token_newer_put(one);
	has(other, "x");
	token_newer_put(other);
}

TEST(nothing_outlives_the_last_connection)
{
	ck_assert(!token_newer_is_expected());
	struct token_newer *newer = token_newer_get("aaaa", 4);
	ck_assert(token_newer_is_expected());
	offer("aaaa", "x", 1);
	token_newer_put(newer);
	ck_assert(!token_newer_is_expected());
	offer("aaaa", "y", 2);
	newer = token_newer_get("aaaa", 4);
	has(newer, NULL);
	token_newer_put(newer);
	token_newer_put(NULL);
}
