/* The growing text: always terminated. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "suite.h"

TEST(an_empty_text_needs_no_memory)
{
	struct text text;

	text_init(&text);
	ck_assert_ptr_null(text.bytes);
	ck_assert_uint_eq(text.len, 0);
	text_append(&text, NULL, 0);
	ck_assert_str_eq(text.bytes, "");
	text_fini(&text);
	ck_assert_ptr_null(text.bytes);
}

TEST(pieces_follow_each_other)
{
	struct text text;

	text_init(&text);
	text_append(&text, "abcdef", 3);
	ck_assert_str_eq(text.bytes, "abc");
	text_printf(&text, "-%d-%s", 42, "x");
	ck_assert_str_eq(text.bytes, "abc-42-x");
	text_append(&text, "\0y", 2);
	ck_assert_uint_eq(text.len, 10);
	ck_assert_mem_eq(text.bytes, "abc-42-x\0y", 11);
	text_fini(&text);
}

TEST(it_grows_by_bytes_and_by_blocks)
{
	char block[3000], *expected = malloc(200000);
	struct text text;
	size_t len = 0;

	text_init(&text);
	for (int i = 0; i < 60; i++) {
		memset(block, 'a' + i % 26, sizeof(block));
		text_append(&text, block, sizeof(block));
		text_printf(&text, "%*d", i + 1, i);
		memcpy(expected + len, block, sizeof(block));
		len += sizeof(block);
		len += (size_t)snprintf(expected + len, 100, "%*d", i + 1, i);
		ck_assert_uint_eq(text.len, len);
		ck_assert_uint_gt(text.size, text.len);
	}
	ck_assert_mem_eq(text.bytes, expected, len + 1);
	text_fini(&text);
	free(expected);
}
