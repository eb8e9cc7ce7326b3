/* From Redis's answers to votes. The answers are parsed by hiredis's own reader, so they have the shapes that a real
 * connection gives; also those that only a broken or a foreign server sends. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/masters/master_internal.h"

static struct master_reply map(enum redlock_script script, const char *bytes, redisReply **ret_raw)
{
	redisReader *reader = redisReaderCreate();
	void *raw = NULL;
	redisReaderFeed(reader, bytes, strlen(bytes));
	ck_assert_int_eq(redisReaderGetReply(reader, &raw), REDIS_OK);
	ck_assert_ptr_nonnull(raw);
	struct master_reply reply;
	master_reply_map(script, raw, &reply);
	redisReaderFree(reader);
	*ret_raw = raw;
	return reply;
}

struct row {
	enum redlock_script script;
	const char *bytes;
	enum redlock_vote vote;
};

#define NOW ":1795215206922001\r\n" /* each reply has its master's time */

static const struct row rows[] = {
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:1\r\n" NOW ":0\r\n", REDLOCK_VOTE_GRANTED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:1\r\n" NOW ":9007199254740991\r\n", REDLOCK_VOTE_GRANTED},
	{REDLOCK_SCRIPT_RAISE, "*2\r\n:1\r\n" NOW, REDLOCK_VOTE_GRANTED},
	{REDLOCK_SCRIPT_RAISE, "*3\r\n:2\r\n" NOW ":1795215206922001\r\n", REDLOCK_VOTE_BEHIND},
	{REDLOCK_SCRIPT_RAISE, "*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_HELD},
	{REDLOCK_SCRIPT_RAISE, "*2\r\n:-1\r\n" NOW, REDLOCK_VOTE_GONE},
	{REDLOCK_SCRIPT_RELEASE, "*3\r\n:1\r\n" NOW "$3\r\nabc\r\n", REDLOCK_VOTE_GRANTED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:-1\r\n" NOW, REDLOCK_VOTE_GONE},
	{REDLOCK_SCRIPT_RELEASE, "*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_HELD},
	{REDLOCK_SCRIPT_EXTEND, "*2\r\n:-1\r\n" NOW, REDLOCK_VOTE_GONE},
	{REDLOCK_SCRIPT_INSPECT, "*3\r\n:-1\r\n" NOW ":0\r\n", REDLOCK_VOTE_GONE},
	{REDLOCK_SCRIPT_INSPECT, "*3\r\n:-1\r\n" NOW ":7\r\n", REDLOCK_VOTE_GONE},
	{REDLOCK_SCRIPT_EXTEND, "*4\r\n:1\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_GRANTED},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_HELD},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:0\r\n" NOW ":-1\r\n$-1\r\n", REDLOCK_VOTE_HELD},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_QUEUED},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:2\r\n" NOW ":-2\r\n$3\r\nabc\r\n", REDLOCK_VOTE_QUEUED},
	{REDLOCK_SCRIPT_INSPECT, "*5\r\n:0\r\n" NOW ":1\r\n$0\r\n\r\n:0\r\n", REDLOCK_VOTE_HELD},
	{REDLOCK_SCRIPT_INSPECT, "*5\r\n:0\r\n" NOW ":-1\r\n$-1\r\n:7\r\n", REDLOCK_VOTE_HELD},
	/* what no script of ours says */
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:-1\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*2\r\n:1\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*4\r\n:1\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*2\r\n:-1\r\n" NOW, REDLOCK_VOTE_FAILED}, /* as before there were lines */
	{REDLOCK_SCRIPT_INSPECT, "*3\r\n:-1\r\n" NOW "$1\r\n7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*3\r\n:-1\r\n" NOW "$-1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*4\r\n:-1\r\n" NOW ":7\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n$1\r\n7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*6\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*5\r\n:0\r\n" NOW "$3\r\n500\r\n$3\r\nabc\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*5\r\n:0\r\n" NOW ":500\r\n:7\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_INSPECT, "*5\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_EXTEND, "*3\r\n:-1\r\n" NOW ":7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RAISE, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	/* in the line */
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:2\r\n" NOW "$3\r\n500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:2\r\n" NOW ":500\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*5\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:2\r\n:500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RAISE, "*4\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_EXTEND, "*4\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*4\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:1\r\n" NOW, REDLOCK_VOTE_FAILED}, /* as before there were lines */
	{REDLOCK_SCRIPT_RELEASE, "*4\r\n:1\r\n" NOW ":500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:1\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:2\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:2\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:1\r\n" NOW "$1\r\n1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:1\r\n" NOW ":-1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:1\r\n" NOW ":9007199254740992\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:1\r\n" NOW ":1\r\n:1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RAISE, "*3\r\n:1\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RAISE, "*2\r\n:2\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RAISE, "*3\r\n:2\r\n" NOW ":9007199254740992\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_EXTEND, "*3\r\n:2\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*3\r\n:1\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*3\r\n:-1\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:3\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:-5\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*0\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*-1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n$1\r\n1\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "+OK\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, ":1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "$-1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_EXTEND, "*2\r\n:1\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_EXTEND, "*4\r\n:1\r\n" NOW "$1\r\n5\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:0\r\n" NOW ":500\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:0\r\n" NOW "$1\r\n5\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:0\r\n" NOW ":5\r\n:7\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n*1\r\n:1\r\n" NOW, REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "-ERR whatever\r\n", REDLOCK_VOTE_FAILED},
	/* the same words without the time, or with none that a clock can show */
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:1\r\n:0\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RAISE, "*1\r\n:1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RAISE, "*2\r\n:2\r\n:1795215206922001\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_EXTEND, "*3\r\n:1\r\n:500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:0\r\n:500\r\n$3\r\nabc\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*1\r\n:1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*1\r\n:-1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*1\r\n:-3\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:1\r\n:0\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:1\r\n:-1\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:1\r\n$16\r\n1795215206922001\r\n", REDLOCK_VOTE_FAILED},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:1\r\n$-1\r\n", REDLOCK_VOTE_FAILED},
};

START_TEST(replies_become_votes)
{
	redisReply *raw;
	struct master_reply reply = map(rows[_i].script, rows[_i].bytes, &raw);
	ck_assert_int_eq(reply.vote, rows[_i].vote);
	ck_assert(!reply.lost && !reply.no_script && !reply.late && !reply.bad_epoch);
	if (reply.vote == REDLOCK_VOTE_FAILED) { /* nothing of it is left */
		ck_assert_int_eq(reply.error, MASTER_ERROR_OTHER);
		ck_assert(!reply.value && reply.fence == 0 && reply.remaining_us == 0 && reply.waiters == 0 &&
			  reply.time_us == 0);
	}
	freeReplyObject(raw);
}
END_TEST

/* What the guard's part of a script says: nothing was done, but for a release under another epoch. */
static const struct refusal {
	enum redlock_script script;
	const char *bytes;
	enum redlock_vote vote;
	enum master_error error; /* FAILED */
	bool late, bad_epoch;
} refusals[] = {
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:-2\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_LATE, true, false},
	{REDLOCK_SCRIPT_RAISE, "*2\r\n:-2\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_LATE, true, false},
	{REDLOCK_SCRIPT_EXTEND, "*2\r\n:-2\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_LATE, true, false},
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:-3\r\n" NOW, REDLOCK_VOTE_QUARANTINED, 0, false, true},
	{REDLOCK_SCRIPT_RAISE, "*2\r\n:-3\r\n" NOW, REDLOCK_VOTE_QUARANTINED, 0, false, true},
	{REDLOCK_SCRIPT_EXTEND, "*2\r\n:-3\r\n" NOW, REDLOCK_VOTE_QUARANTINED, 0, false, true},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:-3\r\n" NOW, REDLOCK_VOTE_QUARANTINED, 0, false, true},
	{REDLOCK_SCRIPT_INSPECT, "*2\r\n:-3\r\n" NOW, REDLOCK_VOTE_QUARANTINED, 0, false, true},
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:-4\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_CLOCK, false, false},
	/* of another shape, or of a script that never says so */
	{REDLOCK_SCRIPT_ACQUIRE, "*1\r\n:-2\r\n", REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:-2\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_RELEASE, "*2\r\n:-2\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_INSPECT, "*2\r\n:-2\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_ACQUIRE, "*1\r\n:-3\r\n", REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_ACQUIRE, "*2\r\n:-3\r\n:0\r\n", REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:-3\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:-4\r\n" NOW ":1\r\n", REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_RAISE, "*2\r\n:-4\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
	{REDLOCK_SCRIPT_EXTEND, "*2\r\n:-4\r\n" NOW, REDLOCK_VOTE_FAILED, MASTER_ERROR_OTHER, false, false},
};

START_TEST(refusals_are_told_apart)
{
	const struct refusal *refusal = &refusals[_i];
	redisReply *raw;
	struct master_reply reply = map(refusal->script, refusal->bytes, &raw);
	ck_assert_int_eq(reply.vote, refusal->vote);
	ck_assert_int_eq(reply.late, refusal->late);
	ck_assert_int_eq(reply.bad_epoch, refusal->bad_epoch);
	ck_assert(!reply.lost && !reply.no_script);
	if (reply.vote == REDLOCK_VOTE_FAILED)
		ck_assert_int_eq(reply.error, refusal->error);
	freeReplyObject(raw);
}
END_TEST

/* Every answer shows the master's clock, also one that refuses: the guard watches it for jumps. */
START_TEST(the_time_is_taken_over)
{
	static const char *const replies[] = {"*3\r\n:1\r\n" NOW ":0\r\n", "*4\r\n:0\r\n" NOW ":5\r\n$1\r\nv\r\n",
					      "*2\r\n:-2\r\n" NOW, "*2\r\n:-3\r\n" NOW, "*2\r\n:-4\r\n" NOW};
	redisReply *raw;
	struct master_reply reply;
	for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
		reply = map(REDLOCK_SCRIPT_ACQUIRE, replies[i], &raw);
		ck_assert_uint_eq(reply.time_us, UINT64_C(1795215206922001));
		freeReplyObject(raw);
	}
	reply = map(REDLOCK_SCRIPT_ACQUIRE, "-OOM command not allowed\r\n", &raw);
	ck_assert_uint_eq(reply.time_us, 0); /* not told */
	freeReplyObject(raw);
	master_reply_map(REDLOCK_SCRIPT_ACQUIRE, NULL, &reply);
	ck_assert_uint_eq(reply.time_us, 0);
}
END_TEST

START_TEST(a_lost_connection_is_a_failure_that_may_have_happened)
{
	struct master_reply reply;
	master_reply_map(REDLOCK_SCRIPT_ACQUIRE, NULL, &reply);
	ck_assert_int_eq(reply.vote, REDLOCK_VOTE_FAILED);
	ck_assert_int_eq(reply.error, MASTER_ERROR_LOST);
	ck_assert(reply.lost);
}
END_TEST

START_TEST(times_and_values_are_taken_over)
{
	redisReply *raw;
	struct master_reply reply = map(REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:0\r\n" NOW ":1234\r\n$4\r\na\nbc\r\n", &raw);
	ck_assert_uint_eq(reply.remaining_us, 1234000);
	ck_assert_uint_eq(reply.value_len, 4);
	ck_assert_mem_eq(reply.value, "a\nbc", 4);
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_EXTEND, "*4\r\n:1\r\n" NOW ":77\r\n$1\r\nv\r\n", &raw);
	ck_assert_uint_eq(reply.ttl_us, 77000);
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_EXTEND, "*4\r\n:1\r\n" NOW ":-5\r\n$1\r\nv\r\n", &raw);
	ck_assert_uint_eq(reply.ttl_us, 0); /* at the bound of --max-hold-ms: no validity comes of it */
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:0\r\n" NOW ":-1\r\n$-1\r\n", &raw);
	ck_assert_uint_eq(reply.remaining_us, REDLOCK_NEVER);
	ck_assert_ptr_null(reply.value);
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:0\r\n" NOW ":9223372036854775807\r\n$-1\r\n", &raw);
	ck_assert_uint_eq(reply.remaining_us, REDLOCK_NEVER);
	freeReplyObject(raw);
}
END_TEST

/* Who is next, for how long that one counts as alive, and what was in a key that a release has deleted. */
START_TEST(turns_and_released_values_are_taken_over)
{
	redisReply *raw;
	struct master_reply reply = map(REDLOCK_SCRIPT_ACQUIRE,
					"*4\r\n:2\r\n" NOW ":987\r\n$33\r\nfedcba9876543210:1795215206922001\r\n",
					&raw);
	ck_assert_uint_eq(reply.remaining_us, 987000);
	ck_assert_uint_eq(reply.value_len, 33);
	ck_assert_mem_eq(reply.value, "fedcba9876543210:1795215206922001", 33);
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_ACQUIRE, "*4\r\n:2\r\n" NOW ":0\r\n$1\r\nx\r\n", &raw);
	ck_assert_uint_eq(reply.remaining_us, 0); /* it has just run out */
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_RELEASE, "*3\r\n:1\r\n" NOW "$4\r\na\nbc\r\n", &raw);
	ck_assert_uint_eq(reply.value_len, 4);
	ck_assert_mem_eq(reply.value, "a\nbc", 4);
	freeReplyObject(raw);
}
END_TEST

static const struct {
	const char *digits;
	uint32_t waiters;
} waiters[] = {
	{"0", 0}, {"1", 1}, {"10000", 10000}, {"4294967295", UINT32_MAX}, {"4294967296", UINT32_MAX}, {"-1", 0},
};

START_TEST(waiters_are_counted_whether_it_is_held_or_free)
{
	char bytes[200];
	redisReply *raw;
	snprintf(bytes, sizeof bytes, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:%s\r\n", waiters[_i].digits);
	struct master_reply reply = map(REDLOCK_SCRIPT_INSPECT, bytes, &raw);
	ck_assert_int_eq(reply.vote, REDLOCK_VOTE_HELD);
	ck_assert_uint_eq(reply.waiters, waiters[_i].waiters);
	ck_assert_uint_eq(reply.remaining_us, 500000);
	ck_assert_uint_eq(reply.value_len, 3);
	freeReplyObject(raw);
	snprintf(bytes, sizeof bytes, "*3\r\n:-1\r\n" NOW ":%s\r\n", waiters[_i].digits);
	reply = map(REDLOCK_SCRIPT_INSPECT, bytes, &raw);
	ck_assert_int_eq(reply.vote, REDLOCK_VOTE_GONE);
	ck_assert_uint_eq(reply.waiters, waiters[_i].waiters);
	freeReplyObject(raw);
}
END_TEST

/* All sixteen digits of them; and none is left over from a reply that is refused for its shape. */
START_TEST(numbers_of_buckets_are_taken_over)
{
	redisReply *raw;
	struct master_reply reply = map(REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:1\r\n" NOW ":9007199254740991\r\n", &raw);
	ck_assert_uint_eq(reply.fence, REDLOCK_FENCE_LIMIT - 1);
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_RAISE, "*3\r\n:2\r\n" NOW ":1795215206922001\r\n", &raw);
	ck_assert_uint_eq(reply.fence, UINT64_C(1795215206922001));
	freeReplyObject(raw);
	reply = map(REDLOCK_SCRIPT_ACQUIRE, "*3\r\n:1\r\n" NOW ":9007199254740992\r\n", &raw);
	ck_assert_uint_eq(reply.fence, 0);
	freeReplyObject(raw);
}
END_TEST

static const struct {
	const char *text;
	enum master_error error;
} errors[] = {
	{"LOADING Redis is loading the dataset in memory", MASTER_ERROR_LOADING},
	{"READONLY You can't write against a read only replica.", MASTER_ERROR_READONLY},
	{"READONLY You can't write against a read only replica. script: 0123, on @user_script:7.",
	 MASTER_ERROR_READONLY},
	{"ERR Error running script (call to f_0123): @user_script:18: -READONLY You can't write against a read only "
	 "replica.",
	 MASTER_ERROR_READONLY},
	{"OOM command not allowed when used memory > 'maxmemory'.", MASTER_ERROR_OOM},
	{"ERR Error running script (call to f_0123): @user_script: 18: -OOM command not allowed", MASTER_ERROR_OOM},
	{"NOAUTH Authentication required.", MASTER_ERROR_AUTH},
	{"WRONGPASS invalid username-password pair or user is disabled.", MASTER_ERROR_AUTH},
	{"NOPERM this user has no permissions to run the 'evalsha' command", MASTER_ERROR_AUTH},
	{"MOVED 3999 127.0.0.1:6381", MASTER_ERROR_CLUSTER},
	{"CLUSTERDOWN Hash slot not served", MASTER_ERROR_CLUSTER},
	{"BUSY Redis is busy running a script.", MASTER_ERROR_BUSY},
	{"BUSYGROUP Consumer Group name already exists", MASTER_ERROR_OTHER},
	{"ERR unknown command", MASTER_ERROR_COMMAND},
	{"ERR unknown command 'HSET', with args beginning with: 'a' ", MASTER_ERROR_COMMAND},
	{"ERR Unknown Redis command called from script script: 0123, on @user_script:7.", MASTER_ERROR_COMMAND},
	{"ERR The user executing the script can't run this command or subcommand script: 0123, on @user_script:7.",
	 MASTER_ERROR_AUTH},
	{"ERR ACL failure in script: User poor has no permissions to run the 'hset' command script: 0123",
	 MASTER_ERROR_AUTH},
	{"DENIED Redis is running in protected mode because", MASTER_ERROR_AUTH},
	{"ASKING", MASTER_ERROR_OTHER},
	{"", MASTER_ERROR_OTHER},
	{"@user_script:", MASTER_ERROR_OTHER},
	{"@user_script: 1: -", MASTER_ERROR_OTHER},
};

START_TEST(errors_have_reasons)
{
	ck_assert_int_eq(master_error_classify(errors[_i].text, strlen(errors[_i].text)), errors[_i].error);
}
END_TEST

static const struct {
	const char *text, *words;
} told[] = {
	{"NOPERM this user has no permissions to run the 'hset' command",
	 "NOPERM this user has no permissions to run the 'hset' command"},
	{"ERR unknown command 'EVALSHA', with args beginning with: '0123' '2' 'secret-name' ",
	 "ERR unknown command 'EVALSHA'"},
	{"ERR Unknown Redis command called from script script: 0123, on @user_script:7.",
	 "ERR Unknown Redis command called from script"},
	{"DENIED Redis is running in protected mode because no password is set. In this mode only loopback. 1) Just",
	 "DENIED Redis is running in protected mode because no password is set"},
	{"OOM command not allowed when used memory > 'maxmemory'.",
	 "OOM command not allowed when used memory > 'maxmemory'."},
	{"ERR a\nb\tc\x1b[31m\x7f\xff", "ERR a?b?c?[31m??"},
	{"", "an error without words"},
	{". x", "an error without words"},
};

START_TEST(words_are_one_line)
{
	char words[MASTER_WORDS_MAX];
	master_error_words(told[_i].text, strlen(told[_i].text), words);
	ck_assert_str_eq(words, told[_i].words);
}
END_TEST

START_TEST(words_are_bounded)
{
	char words[MASTER_WORDS_MAX + 1], text[4096];
	for (size_t len = 1; len < sizeof text; len++) {
		memset(text, 'x', len);
		memset(words, '#', sizeof words);
		master_error_words(text, len, words);
		ck_assert_uint_eq(strlen(words), len < MASTER_WORDS_MAX ? len : MASTER_WORDS_MAX - 1);
		ck_assert_int_eq(words[MASTER_WORDS_MAX], '#');
	}
}
END_TEST

START_TEST(noscript_is_told_apart)
{
	redisReply *raw;
	struct master_reply reply = map(REDLOCK_SCRIPT_ACQUIRE, "-NOSCRIPT No matching script. Please use EVAL.\r\n",
					&raw);
	ck_assert(reply.no_script && !reply.lost);
	freeReplyObject(raw);
}
END_TEST

/* ---- several acquisitions in one command ---- */

static struct master_reply map_part(const char *bytes, size_t i, size_t count, redisReply **ret_raw)
{
	redisReader *reader = redisReaderCreate();
	void *raw = NULL;
	redisReaderFeed(reader, bytes, strlen(bytes));
	ck_assert_int_eq(redisReaderGetReply(reader, &raw), REDIS_OK);
	ck_assert_ptr_nonnull(raw);
	struct master_reply reply;
	master_reply_map_part(raw, i, count, &reply);
	redisReaderFree(reader);
	*ret_raw = raw;
	return reply;
}

START_TEST(each_part_has_its_vote)
{
	static const char bytes[] = "*7\r\n" NOW ":5\r\n*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n*4\r\n:2\r\n" NOW
				    ":500\r\n$1\r\nx\r\n"
				    "-WRONGTYPE no line\r\n*2\r\n:-3\r\n" NOW ":9007199254740991\r\n";
	static const enum redlock_vote votes[] = {REDLOCK_VOTE_GRANTED, REDLOCK_VOTE_HELD,        REDLOCK_VOTE_QUEUED,
						  REDLOCK_VOTE_FAILED,  REDLOCK_VOTE_QUARANTINED, REDLOCK_VOTE_GRANTED};
	for (size_t i = 0; i < 6; i++) {
		redisReply *raw;
		struct master_reply reply = map_part(bytes, i, 6, &raw);
		ck_assert_int_eq(reply.vote, votes[i]);
		ck_assert_uint_eq(reply.time_us, votes[i] == REDLOCK_VOTE_FAILED ? 0 : UINT64_C(1795215206922001));
		ck_assert_uint_eq(reply.fence, i == 0 ? 5 : i == 5 ? UINT64_C(9007199254740991) : 0);
		ck_assert(!reply.value == (votes[i] != REDLOCK_VOTE_HELD && votes[i] != REDLOCK_VOTE_QUEUED));
		freeReplyObject(raw);
	}
}
END_TEST

static const struct {
	const char *bytes;
	enum master_error error;
	bool no_script;
} broken_batches[] = {
	{"*2\r\n" NOW ":5\r\n", MASTER_ERROR_OTHER, false}, /* one answer for two */
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

/* Also the first part of an answer that has too few is not taken: nobody knows whose it is. */
START_TEST(what_is_no_batch_fails_all_of_it)
{
	for (size_t i = 0; i < 2; i++) {
		redisReply *raw;
		struct master_reply reply = map_part(broken_batches[_i].bytes, i, 2, &raw);
		ck_assert_int_eq(reply.vote, REDLOCK_VOTE_FAILED);
		ck_assert_int_eq(reply.error, broken_batches[_i].error);
		ck_assert_int_eq(reply.no_script, broken_batches[_i].no_script);
		ck_assert(!reply.lost && reply.fence == 0 && reply.time_us == 0);
		freeReplyObject(raw);
	}
}
END_TEST

START_TEST(info_is_read)
{
	static const char text[] =
		"# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789012345678901234567890123456789\r\n# "
		"Memory\r\nused_memory:17\r\n"
		"used_memory_rss:99\r\nmaxmemory:2000000000000\r\nmaxmemory_policy:allkeys-lru\r\nloading:0\r\nevicted_"
		"keys:18446744073709551614\r\n"
		"role:master\r\nconnected_slaves:2\r\ncluster_enabled:1\r\n";
	struct master_info info;
	ck_assert(master_info_parse(text, sizeof text - 1, &info));
	ck_assert_str_eq(info.version, "7.0.15");
	ck_assert_str_eq(info.run_id, "0123456789012345678901234567890123456789");
	ck_assert_str_eq(info.role, "master");
	ck_assert_str_eq(info.policy, "allkeys-lru");
	ck_assert_uint_eq(info.maxmemory, UINT64_C(2000000000000));
	ck_assert_uint_eq(info.used_memory, 17);
	ck_assert_uint_eq(info.evicted, UINT64_MAX - 1);
	ck_assert_uint_eq(info.replicas, 2);
	ck_assert(info.cluster && !info.loading);
	ck_assert_str_eq(info.product, "7.0.15");
}
END_TEST

/* What Valkey calls redis_version is the Redis that it stands for: the rules go by that, people want its own. */
START_TEST(valkey_has_a_version_of_its_own)
{
	static const char text[] =
		"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nrun_id:0123\r\nrole:master\r\n";
	struct master_info info;
	ck_assert(master_info_parse(text, sizeof text - 1, &info));
	ck_assert_str_eq(info.version, "7.2.4");
	ck_assert_str_eq(info.product, "valkey 8.1.1");
}
END_TEST

START_TEST(what_is_not_info_is_refused)
{
	static const char *const texts[] = {
		"",
		"\r\n",
		"redis_version:7.0.15\r\nrole:master\r\n",
		"run_id:\r\nredis_version:7\r\nrole:master\r\n",
		"HTTP/1.1 400 Bad Request\r\n",
		"run_id:012345678901234567890123456789012345678901234567890123456789\r\nredis_version:7.0.15\r\nrole:"
		"master\r\n",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct master_info info;
		ck_assert_msg(!master_info_parse(texts[i], strlen(texts[i]), &info), "%s", texts[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("master_reply");
	TCase *tests = tcase_create("master_reply");
	tcase_add_loop_test(tests, replies_become_votes, 0, sizeof rows / sizeof *rows);
	tcase_add_loop_test(tests, refusals_are_told_apart, 0, sizeof refusals / sizeof *refusals);
	tcase_add_test(tests, the_time_is_taken_over);
	tcase_add_test(tests, a_lost_connection_is_a_failure_that_may_have_happened);
	tcase_add_test(tests, times_and_values_are_taken_over);
	tcase_add_test(tests, turns_and_released_values_are_taken_over);
	tcase_add_loop_test(tests, waiters_are_counted_whether_it_is_held_or_free, 0, sizeof waiters / sizeof *waiters);
	tcase_add_test(tests, numbers_of_buckets_are_taken_over);
	tcase_add_loop_test(tests, errors_have_reasons, 0, sizeof errors / sizeof *errors);
	tcase_add_loop_test(tests, words_are_one_line, 0, sizeof told / sizeof *told);
	tcase_add_test(tests, words_are_bounded);
	tcase_add_test(tests, noscript_is_told_apart);
	tcase_add_test(tests, each_part_has_its_vote);
	tcase_add_loop_test(tests, what_is_no_batch_fails_all_of_it, 0, sizeof broken_batches / sizeof *broken_batches);
	tcase_add_test(tests, info_is_read);
	tcase_add_test(tests, valkey_has_a_version_of_its_own);
	tcase_add_test(tests, what_is_not_info_is_refused);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
