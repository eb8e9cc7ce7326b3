/* SPDX-License-Identifier: MIT */
/* UTF-8: what is valid, and what holds a control character. */
#include <check.h>
#include <string.h>

#include "server/base/base.h"
#include "suite.h"

/* The first and the last of each length, and of the surrogates. */
static const char *const plain[] = TEXTS("", "plain", " ", "~", "\xc2\xa0", "\xc3\xa9", "\xdf\xbf", "\xe0\xa0\x80",
					 "\xe2\x82\xac", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd",
					 "\xf0\x90\x80\x80", "\xf0\x9f\x94\x92", "\xf4\x8f\xbf\xbf");

static const char *const controls[] = {"\x01", "\t", "\n", "\r", "a\x1f", "\x7f", "\xc2\x80", "\xc2\x85", "\xc2\x9f"};

/* Continuations alone, overlong ones, surrogates, beyond U+10FFFF, cut off. */
static const char *const none[] = TEXTS(
	"\x80", "\xbf", "\xc0\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
	"\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xfe",
	"\xf8\x88\x80\x80\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x94", "\xc3(", "\xe2(\xac", "\xe2\x82(", "a\xc3\xa9\xff");

TEST(only_whole_characters_count)
{
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
		ck_assert_msg(utf8_is_valid(plain[i], strlen(plain[i])), "%s", plain[i]);
		ck_assert_msg(!utf8_has_control(plain[i], strlen(plain[i])), "%s", plain[i]);
	}
	for (size_t i = 0; i < sizeof controls / sizeof *controls; i++) {
		ck_assert_msg(utf8_is_valid(controls[i], strlen(controls[i])), "%zu", i);
		ck_assert_msg(utf8_has_control(controls[i], strlen(controls[i])), "%zu", i);
	}
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		ck_assert_msg(!utf8_is_valid(none[i], strlen(none[i])), "%zu", i);
	ck_assert(utf8_is_valid("a\0b", 3) && utf8_has_control("a\0b", 3) && utf8_has_control("", 1));
}
