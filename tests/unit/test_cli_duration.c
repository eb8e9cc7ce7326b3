/* SPDX-License-Identifier: MIT */
/* The text of durations in messages. */
#include <check.h>

#include "cli/base/cli_base.h"
#include "suite.h"

TEST(written)
{
	static const struct {
		uint64_t ms;
		const char *text;
	} cases[] = {{0, "0 ms"},       {999, "999 ms"},      {1000, "1.0 s"},       {12345, "12.3 s"},
		     {59999, "59.9 s"}, {60000, "1 min 0 s"}, {302000, "5 min 2 s"}, {3780000, "1 h 3 min"}};
	char text[DURATION_TEXT_MAX];
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		duration_format(cases[i].ms, text);
		ck_assert_str_eq(text, cases[i].text);
	}
	duration_format(UINT64_MAX, text);
}
