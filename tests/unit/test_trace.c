/* SPDX-License-Identifier: MIT */
/* The id of a trace in the header traceparent. */
#include <check.h>
#include <string.h>

#include "api/http/http.h"
#include "suite.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static const char *read_trace(const char *text)
{
	static char id[HEADERS_TRACE_ID_LEN + 1];
	return headers_trace_id(text, strlen(text), id) ? id : NULL;
}

TEST(a_well_formed_traceparent)
{
	ck_assert_str_eq(read_trace("00-" TRACE "-" PARENT "-01"), TRACE);
	ck_assert_str_eq(read_trace("00-" TRACE "-" PARENT "-ff"), TRACE);
}

TEST(malformed_ones)
{
	static const char *const texts[] = {
		"",
		"00",
		"00-" TRACE "-" PARENT,
		"00-" TRACE "-" PARENT "-",
		"00-" TRACE "-" PARENT "-0",
		"00-" TRACE "-" PARENT "-0g",
		"00-" TRACE "-" PARENT "-01-",
		"00-" TRACE "-" PARENT "-01 ",
		"01-" TRACE "-" PARENT "-01",
		"ff-" TRACE "-" PARENT "-01",
		"00_" TRACE "-" PARENT "-01",
		"00-" TRACE "_" PARENT "-01",
		"00-" TRACE "-" PARENT "_01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
		"00-" TRACE "-00F067AA0BA902B7-01",
		"00-00000000000000000000000000000000-" PARENT "-01",
		"00-" TRACE "-0000000000000000-01",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		ck_assert_msg(!read_trace(texts[i]), "%s", texts[i]);
}
