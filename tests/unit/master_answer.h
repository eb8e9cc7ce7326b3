/* SPDX-License-Identifier: MIT */
/* For the tests of what masters answer: bytes become what hiredis reads of them, and replies are compared. */
#ifndef MASTER_ANSWER_H
#define MASTER_ANSWER_H

#include <check.h>
#include <hiredis/hiredis.h>
#include <string.h>

#include "server/masters/master_internal.h"

#define NOW ":1795215206922001\r\n" /* each answer has its master's time */
#define NOW_US UINT64_C(1795215206922001)
#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static inline redisReply *parse(const char *bytes)
{
	redisReader *reader = redisReaderCreate();
	void *raw = NULL;
	redisReaderFeed(reader, bytes, strlen(bytes));
	ck_assert_int_eq(redisReaderGetReply(reader, &raw), REDIS_OK);
	ck_assert_ptr_nonnull(raw);
	redisReaderFree(reader);
	return raw;
}

static inline void assert_reply(const struct master_reply *reply, const struct master_reply *expected)
{
	ck_assert_int_eq(reply->vote, expected->vote);
	ck_assert_int_eq(reply->error, expected->error);
	ck_assert_int_eq(reply->lost, expected->lost);
	ck_assert_int_eq(reply->no_script, expected->no_script);
	ck_assert_uint_eq(reply->time_us, expected->time_us);
	ck_assert_uint_eq(reply->ttl_us, expected->ttl_us);
	ck_assert_uint_eq(reply->fence, expected->fence);
	ck_assert_uint_eq(reply->remaining_us, expected->remaining_us);
	ck_assert_uint_eq(reply->waiters, expected->waiters);
	ck_assert_uint_eq(reply->blocking_index, expected->blocking_index);
	ck_assert_uint_eq(reply->value_len, expected->value_len);
	ck_assert_int_eq(!reply->value, !expected->value);
	ck_assert_uint_eq(reply->buckets_len, expected->buckets_len);
	if (expected->buckets)
		ck_assert_mem_eq(reply->buckets, expected->buckets, expected->buckets_len);
	if (expected->value)
		ck_assert_mem_eq(reply->value, expected->value, expected->value_len);
}

#define IS(NAME) .vote = REDLOCK_VOTE_##NAME, .time_us = NOW_US
#define FAILS(NAME) .vote = REDLOCK_VOTE_FAILED, .error = MASTER_ERROR_##NAME
#define VALUE(TEXT) .value = (TEXT), .value_len = sizeof(TEXT) - 1

#endif
