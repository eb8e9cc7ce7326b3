/* SPDX-License-Identifier: MIT */
/* Tokens: well-formed and never twice. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "suite.h"

enum { MANY = 20000 };

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, RANDOM_TOKEN_LEN);
}

/* It uses more than one reserve of random bytes: a mistake at its edges would show as a repetition. */
TEST(tokens_do_not_repeat)
{
	char(*tokens)[RANDOM_TOKEN_LEN] = malloc(MANY * sizeof *tokens);
	ck_assert_ptr_nonnull(tokens);
	for (int i = 0; i < MANY; i++)
		random_token(tokens[i]);
	qsort(tokens, MANY, sizeof *tokens, compare);
	for (int i = 1; i < MANY; i++)
		ck_assert_int_ne(compare(tokens[i - 1], tokens[i]), 0);
	free(tokens);
}

/* Every digit of a token takes every value, and every bit of a seed both. */
TEST(tokens_use_all_digits)
{
	unsigned seen[RANDOM_TOKEN_LEN] = {0};
	uint64_t ones = 0, zeros = 0;
	for (int i = 0; i < 2000; i++) {
		char token[RANDOM_TOKEN_LEN];
		random_token(token);
		for (int at = 0; at < RANDOM_TOKEN_LEN; at++)
			seen[at] |= 1U << (token[at] <= '9' ? token[at] - '0' : token[at] - 'a' + 10);
		uint64_t random = random_number();
		ones |= random;
		zeros |= ~random;
	}
	for (int at = 0; at < RANDOM_TOKEN_LEN; at++)
		ck_assert_uint_eq(seen[at], 0xffff);
	ck_assert_uint_eq(ones, UINT64_MAX);
	ck_assert_uint_eq(zeros, UINT64_MAX);
}
