/* SPDX-License-Identifier: MIT */
/* The longest lease in a master's answers, with its epoch and its fences, is bounded by the longest that any redlockd
 * gives: a wrong number in the hash cannot quarantine the master for ever. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/masters/master_internal.h"
#include "suite.h"

enum { A_DAY_MS = 86400000 };

static const struct {
	const char *ttl_ms;
	uint64_t read_ms;
} numbers[] = {
	{"0", 0},
	{"1", 1},
	{"60000", 60000},
	{"86399999", 86399999},
	{"86400000", A_DAY_MS},
	{"86400001", A_DAY_MS},
	{"9223372036854775807", A_DAY_MS}, /* the largest integer of a reply */
	{"18446744073709551", A_DAY_MS},   /* in µs it is beyond 64 bits */
	{"18446744073709552", A_DAY_MS},
};

static struct guard_event read_answer(const char *bytes, enum guard_event_kind kind)
{
	struct guard_event event = {.kind = kind, .now_us = 1000000000};
	uint64_t time_us;
	const char *evicted;
	redisReader *reader = redisReaderCreate();
	void *raw = NULL;
	redisReaderFeed(reader, bytes, strlen(bytes));
	ck_assert_int_eq(redisReaderGetReply(reader, &raw), REDIS_OK);
	ck_assert_ptr_nonnull(raw);
	ck_assert(master_reply_map_guard(raw, &event, &time_us, &evicted));
	ck_assert_uint_eq(time_us, UINT64_C(1795215206922001));
	ck_assert_str_eq(evicted, "");
	freeReplyObject(raw);
	redisReaderFree(reader);
	return event;
}

/* As epoch.lua answers. */
static struct guard_event read_epoch(const char *run_id, const char *ttl_ms)
{
	char bytes[500];
	snprintf(bytes, sizeof bytes,
		 "*13\r\n:1\r\n:1795215206922001\r\n:7\r\n$16\r\n1111111111111111\r\n$16\r\n%s\r\n$"
		 "16\r\n3333333333333333\r\n$16\r\n0000000000000001\r\n$%zu\r\n%s\r\n"
		 "$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n",
		 run_id, strlen(ttl_ms), ttl_ms);
	return read_answer(bytes, GUARD_EPOCH);
}

TEST_EACH(of_an_epoch, 0, sizeof numbers / sizeof *numbers)
{
	ck_assert_uint_eq(read_epoch("2222222222222222", numbers[_i].ttl_ms).ttl_us, numbers[_i].read_ms * 1000);
}

TEST(of_an_epoch_without_a_number)
{
	ck_assert_uint_eq(read_epoch("2222222222222222", "").ttl_us, 0);
	ck_assert_uint_eq(read_epoch("2222222222222222", "a day").ttl_us, 0);
	ck_assert_uint_eq(read_epoch("2222222222222222", "99999999999999999999999").ttl_us, UINT64_C(1000) * A_DAY_MS);
	ck_assert_uint_eq(read_epoch("2222222222222222", "-1").ttl_us, UINT64_C(1000) * A_DAY_MS);
}

/* As fences.lua answers. */
TEST_EACH(with_its_fences, 0, sizeof numbers / sizeof *numbers)
{
	char bytes[100];
	snprintf(bytes, sizeof bytes, "*4\r\n:1\r\n:1795215206922001\r\n:9\r\n:%.19s\r\n", numbers[_i].ttl_ms);
	struct guard_event event = read_answer(bytes, GUARD_FENCES);
	ck_assert_uint_eq(event.ttl_us, numbers[_i].read_ms * 1000);
	ck_assert_uint_eq(event.fence, 9);
}
