/* SPDX-License-Identifier: MIT */
/* The bounds on a reply: the largest passes, and one that is larger ends the reading, in whatever pieces it comes. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/base/base.h"
#include "server/leases/lease_internal.h"
#include "server/masters/master_internal.h"
#include "server/transport/transport_internal.h"
#include "suite.h"

_Static_assert((int)MASTER_BATCH_INSPECT_MAX *((int)LEASE_HOLDERS_MAX + 1) *
			       (256 + (int)LEASE_OWNER_MAX + (int)LEASE_CALLER_MAX + (int)LEASE_METADATA_MAX +
				(int)LEASE_NAMES_MAX) <
		       (int)TRANSPORT_REPLY_MAX,
	       "the answer to the largest inspection may be read");

enum { WHOLE = 1 << 30 };

static struct transport_reader reader;
static struct text bytes;

static void set_up(void)
{
	transport_reader_init(&reader);
	text_init(&bytes);
}

static void tear_down(void)
{
	transport_reader_fini(&reader);
	text_fini(&bytes);
}

static void add(size_t times, const char *piece)
{
	for (size_t i = 0; i < times; i++)
		text_append(&bytes, piece, strlen(piece));
}

static void add_string(size_t len)
{
	text_printf(&bytes, "$%zu\r\n", len);
	add(len, "x");
	add(1, "\r\n");
}

/* Feeds what was added; returns how many replies there were before it ended, or an error. */
static size_t read_in(size_t piece)
{
	size_t count = 0;
	for (size_t at = 0; at < bytes.len && !reader.error[0]; at += piece) {
		redisReply *reply;
		transport_reader_feed(&reader, bytes.bytes + at, piece < bytes.len - at ? piece : bytes.len - at);
		while (!reader.error[0] && (reply = transport_reader_next(&reader))) {
			freeReplyObject(reply);
			count++;
		}
	}
	bytes.len = 0;
	return count;
}

static void assert_exceeds(size_t piece, size_t most, const char *of)
{
	char expected[TRANSPORT_REASON_MAX];
	snprintf(expected, sizeof expected, "protocol: a reply of more than %zu %s", most, of);
	ck_assert_uint_eq(read_in(piece), 0);
	ck_assert_str_eq(reader.error, expected);
	transport_reader_fini(&reader);
	transport_reader_init(&reader);
}

static const size_t pieces[] = {WHOLE, 16384, 16383, 1000, 1};

TEST_EACH(bytes_of_a_reply, 0, sizeof pieces / sizeof *pieces)
{
	size_t piece = pieces[_i] >= 1000 ? pieces[_i] : 1000;
	add_string(TRANSPORT_REPLY_MAX - 16);
	add(1, ":1\r\n");
	ck_assert_uint_eq(read_in(piece), 2);
	text_printf(&bytes, "$4000000000\r\n");
	add(TRANSPORT_REPLY_MAX, "x");
	assert_exceeds(piece, TRANSPORT_REPLY_MAX, "bytes");
	add(1, "*7\r\n");
	for (unsigned i = 0; i < 6; i++)
		add_string(1 << 20);
	assert_exceeds(piece, TRANSPORT_REPLY_MAX, "bytes");
	reader.reply_max = TRANSPORT_MESSAGE_MAX;
	add(1, "*2\r\n");
	add_string(TRANSPORT_MESSAGE_MAX);
	assert_exceeds(piece, TRANSPORT_MESSAGE_MAX, "bytes");
}

/* Those of another reply are not counted, also where all come at once. */
TEST_EACH(bytes_of_several_replies, 0, sizeof pieces / sizeof *pieces)
{
	for (unsigned i = 0; i < 10; i++)
		add_string(1 << 20);
	ck_assert_uint_eq(read_in(pieces[_i] >= 1000 ? pieces[_i] : 1000), 10);
	ck_assert_uint_eq(reader.bytes, 0);
}

TEST_EACH(a_line, 0, sizeof pieces / sizeof *pieces)
{
	static const char *const begin[] = {"+", "-ERR ", ":1", "$1", "*1", "*3\r\n:1\r\n+"};
	static const char *const more[] = {"x", "x", "1", "1", "1", "\r"};
	for (size_t i = 0; i < sizeof begin / sizeof *begin; i++) {
		add(1, begin[i]);
		add(TRANSPORT_LINE_MAX + 1, more[i]);
		assert_exceeds(pieces[_i], TRANSPORT_LINE_MAX, "bytes in one line");
	}
	add(1, "+");
	add(TRANSPORT_LINE_MAX - 2, "x");
	add(1, "\r\n:1\r\n");
	ck_assert_uint_eq(read_in(pieces[_i]), 2);
}

TEST_EACH(elements_of_a_reply, 0, sizeof pieces / sizeof *pieces)
{
	text_printf(&bytes, "*2\r\n*%d\r\n", TRANSPORT_ELEMENTS_MAX - 3);
	add(TRANSPORT_ELEMENTS_MAX - 3, ":1\r\n");
	add(1, "*1\r\n*0\r\n");
	ck_assert_uint_eq(read_in(pieces[_i]), 1);
	text_printf(&bytes, "*%d\r\n", TRANSPORT_ELEMENTS_MAX);
	add(TRANSPORT_ELEMENTS_MAX, "*0\r\n");
	ck_assert_uint_eq(read_in(pieces[_i]), 1);
	add(1, "*2\r\n*1\r\n:1\r\n");
	text_printf(&bytes, "*%d\r\n", TRANSPORT_ELEMENTS_MAX - 2);
	assert_exceeds(pieces[_i], TRANSPORT_ELEMENTS_MAX, "elements");
	add(1, "*1000000000\r\n");
	assert_exceeds(pieces[_i], TRANSPORT_ELEMENTS_MAX, "elements");
}

TEST_EACH(lists_in_one_another, 0, sizeof pieces / sizeof *pieces)
{
	add(TRANSPORT_DEPTH_MAX, "*1\r\n");
	add(1, ":1\r\n");
	ck_assert_uint_eq(read_in(pieces[_i]), 1);
	add(TRANSPORT_DEPTH_MAX + 1, "*1\r\n");
	assert_exceeds(pieces[_i], TRANSPORT_DEPTH_MAX, "lists in one another");
}

FIXTURE(set_up, tear_down)
