/* SPDX-License-Identifier: MIT */
/* The answers to several commands that went as one. */
#include "master_answer.h"
#include "suite.h"

static const struct master_reply parts[] = {
	{IS(GRANTED), .fence = 5},
	{IS(HELD), .remaining_us = 500000, VALUE("abc")},
	{IS(QUEUED), .remaining_us = 500000, VALUE("x")},
	{FAILS(OTHER)},
	{IS(QUARANTINED)},
	{IS(GRANTED), .fence = REDLOCK_FENCE_LIMIT - 1},
};

TEST_EACH(each_part_has_its_vote, 0, COUNT(parts))
{
	redisReply *raw = parse("*7\r\n" NOW ":5\r\n*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n*4\r\n:2\r\n" NOW
				":500\r\n$1\r\nx\r\n-WRONGTYPE no queue\r\n*2\r\n:-3\r\n" NOW ":9007199254740991\r\n");
	struct master_reply reply;
	master_reply_map_part(REDLOCK_SCRIPT_ACQUIRE, raw, (size_t)_i, COUNT(parts), &reply);
	assert_reply(&reply, &parts[_i]);
	freeReplyObject(raw);
}

static const struct {
	const char *bytes;
	enum master_error error;
	bool no_script;
} broken_batches[] = {
	{"*2\r\n" NOW ":5\r\n", MASTER_ERROR_OTHER, false}, /* one answer for two */
	{"*2\r\n:1\r\n" NOW, MASTER_ERROR_OTHER, false},
	{"*2\r\n:-1\r\n" NOW, MASTER_ERROR_OTHER, false},
	{"*4\r\n" NOW ":5\r\n:5\r\n:5\r\n", MASTER_ERROR_OTHER, false},
	{"*3\r\n:0\r\n:5\r\n:5\r\n", MASTER_ERROR_OTHER, false}, /* no time */
	{"*3\r\n$1\r\n1\r\n:5\r\n:5\r\n", MASTER_ERROR_OTHER, false},
	{"*3\r\n" NOW ":-1\r\n:-1\r\n", MASTER_ERROR_OTHER, false},
	{"*3\r\n" NOW ":9007199254740992\r\n:9007199254740992\r\n", MASTER_ERROR_OTHER, false},
	{"*3\r\n" NOW "$1\r\n5\r\n+OK\r\n", MASTER_ERROR_OTHER, false},
	{"*3\r\n" NOW "$-1\r\n*-1\r\n", MASTER_ERROR_OTHER, false},
	{"*3\r\n" NOW "*1\r\n:1\r\n*3\r\n:1\r\n:0\r\n:1\r\n", MASTER_ERROR_OTHER, false},
	{"*0\r\n", MASTER_ERROR_OTHER, false},
	{":5\r\n", MASTER_ERROR_OTHER, false},
	{"-OOM command not allowed\r\n", MASTER_ERROR_OOM, false},
	{"-NOSCRIPT No matching script. Please use EVAL.\r\n", MASTER_ERROR_OTHER, true},
};

/* Also the first part of an answer that has too few is not used: nothing tells which command it belongs to. */
TEST_EACH(a_broken_batch_fails_as_a_whole, 0, COUNT(broken_batches))
{
	const struct master_reply expected = {.vote = REDLOCK_VOTE_FAILED,
					      .error = broken_batches[_i].error,
					      .no_script = broken_batches[_i].no_script};
	redisReply *raw = parse(broken_batches[_i].bytes);
	struct master_reply reply;
	for (size_t i = 0; i < 2; i++) {
		master_reply_map_part(REDLOCK_SCRIPT_ACQUIRE, raw, i, 2, &reply);
		assert_reply(&reply, &expected);
	}
	freeReplyObject(raw);
}

/* A lock that was deleted has its value alone; a number of an acquisition is none of a release. */
TEST(parts_of_releases)
{
	static const struct master_reply releases[] = {{IS(GRANTED), VALUE("abc")},
						       {IS(GONE)},
						       {IS(HELD), .remaining_us = 500000, VALUE("x")},
						       {FAILS(OTHER)}};
	redisReply *raw = parse("*5\r\n" NOW "$3\r\nabc\r\n*2\r\n:-1\r\n" NOW "*4\r\n:0\r\n" NOW
				":500\r\n$1\r\nx\r\n:5\r\n");
	struct master_reply reply;
	for (size_t i = 0; i < COUNT(releases); i++) {
		master_reply_map_part(REDLOCK_SCRIPT_RELEASE, raw, i, COUNT(releases), &reply);
		assert_reply(&reply, &releases[i]);
	}
	freeReplyObject(raw);
}

/* One that a single release has, and that is never for all. */
TEST(a_release_of_one_is_none_of_all)
{
	redisReply *raw = parse("*2\r\n:-1\r\n" NOW);
	const struct master_reply expected = {FAILS(OTHER)};
	struct master_reply reply;
	for (size_t i = 0; i < 2; i++) {
		master_reply_map_part(REDLOCK_SCRIPT_RELEASE, raw, i, 2, &reply);
		assert_reply(&reply, &expected);
	}
	freeReplyObject(raw);
}

/* A text is no part of theirs. */
TEST_EACH(only_a_release_may_be_a_value_alone, 0, 3)
{
	static const enum redlock_script others[] = {REDLOCK_SCRIPT_ACQUIRE, REDLOCK_SCRIPT_EXTEND,
						     REDLOCK_SCRIPT_INSPECT};
	redisReply *raw = parse("*3\r\n" NOW "$3\r\nabc\r\n$3\r\nabc\r\n");
	const struct master_reply expected = {FAILS(OTHER)};
	struct master_reply reply;
	master_reply_map_part(others[_i], raw, 0, 2, &reply);
	assert_reply(&reply, &expected);
	freeReplyObject(raw);
}

TEST_EACH(one_answer_may_be_for_all, 0, 2)
{
	redisReply *raw = parse(_i == 0 ? "*2\r\n:-3\r\n" NOW : "*2\r\n:-2\r\n" NOW);
	const struct master_reply quarantined = {IS(QUARANTINED)}, late = {IS(FAILED), .error = MASTER_ERROR_LATE};
	struct master_reply reply;
	for (size_t i = 0; i < 32; i++) {
		master_reply_map_part(REDLOCK_SCRIPT_EXTEND, raw, i, 32, &reply);
		assert_reply(&reply, _i == 0 ? &quarantined : &late);
	}
	freeReplyObject(raw);
}
