/* SPDX-License-Identifier: MIT */
/* From Redis's answers to votes. The answers are parsed by hiredis's own reader, so they have the shapes that a real
 * connection gives; also those that only a broken server, or one that is no Redis, sends. */
#include <stdio.h>

#include "master_answer.h"
#include "suite.h"

/* Bits: the scripts to which an answer is tried. */
enum {
	ACQUIRE = 1 << REDLOCK_SCRIPT_ACQUIRE,
	RAISE = 1 << REDLOCK_SCRIPT_RAISE,
	EXTEND = 1 << REDLOCK_SCRIPT_EXTEND,
	RELEASE = 1 << REDLOCK_SCRIPT_RELEASE,
	INSPECT = 1 << REDLOCK_SCRIPT_INSPECT,
	ALL = ACQUIRE | RAISE | EXTEND | RELEASE | INSPECT
};

/* `bytes` as the answer to each of the scripts; NULL: lost. */
static void assert_answer(unsigned scripts, const char *bytes, const struct master_reply *expected)
{
	redisReply *raw = bytes ? parse(bytes) : NULL;
	struct master_reply reply;
	for (unsigned script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++) {
		if (!(scripts >> script & 1))
			continue;
		master_reply_map((enum redlock_script)script, raw, &reply);
		assert_reply(&reply, expected);
	}
	freeReplyObject(raw);
}

/* ---- one answer ---- */

static const struct {
	unsigned scripts;
	const char *bytes; /* NULL: lost */
	struct master_reply expected;
} answers[] = {
	/* all sixteen digits of a bucket's number */
	{ACQUIRE, "*3\r\n:1\r\n" NOW ":0\r\n", {IS(GRANTED)}},
	{ACQUIRE, "*3\r\n:1\r\n" NOW ":9007199254740991\r\n", {IS(GRANTED), .fence = REDLOCK_FENCE_LIMIT - 1}},
	{RAISE, "*2\r\n:1\r\n" NOW, {IS(GRANTED)}},
	{RAISE, "*3\r\n:2\r\n" NOW ":1795215206922001\r\n", {IS(STALE), .fence = NOW_US}},
	{RAISE | RELEASE | EXTEND | ACQUIRE,
	 "*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n",
	 {IS(HELD), .remaining_us = 500000, VALUE("abc")}},
	{RAISE | RELEASE, "*2\r\n:-1\r\n" NOW, {IS(GONE)}},
	{EXTEND, "*3\r\n:-1\r\n" NOW "$0\r\n\r\n", {IS(GONE)}},
	{EXTEND, "*3\r\n:-1\r\n" NOW "$4\r\n12,7\r\n", {IS(GONE), .buckets = "12,7", .buckets_len = 4}},
	/* the value of the key that a release has deleted */
	{RELEASE, "*3\r\n:1\r\n" NOW "$4\r\na\nbc\r\n", {IS(GRANTED), VALUE("a\nbc")}},
	{EXTEND,
	 "*5\r\n:1\r\n" NOW ":77\r\n$1\r\nv\r\n:3\r\n",
	 {IS(GRANTED), .ttl_us = 77000, VALUE("v"), .waiters = 3}},
	/* at the bound of --max-hold-ms: no validity comes of it */
	{EXTEND, "*5\r\n:1\r\n" NOW ":-5\r\n$1\r\nv\r\n:0\r\n", {IS(GRANTED), VALUE("v")}},
	{ACQUIRE, "*4\r\n:0\r\n" NOW ":1234\r\n$4\r\na\nbc\r\n", {IS(HELD), .remaining_us = 1234000, VALUE("a\nbc")}},
	{ACQUIRE, "*4\r\n:0\r\n" NOW ":-1\r\n$-1\r\n", {IS(HELD), .remaining_us = REDLOCK_NEVER}},
	{ACQUIRE, "*4\r\n:0\r\n" NOW ":9223372036854775807\r\n$-1\r\n", {IS(HELD), .remaining_us = REDLOCK_NEVER}},
	/* the first waiter, and how long it counts as alive */
	{ACQUIRE,
	 "*4\r\n:2\r\n" NOW ":987\r\n$33\r\nfedcba9876543210:1795215206922001\r\n",
	 {IS(QUEUED), .remaining_us = 987000, VALUE("fedcba9876543210:1795215206922001")}},
	{ACQUIRE, "*4\r\n:2\r\n" NOW ":0\r\n$1\r\nx\r\n", {IS(QUEUED), VALUE("x")}}, /* it has just run out */
	{ACQUIRE, "*4\r\n:2\r\n" NOW ":-2\r\n$3\r\nabc\r\n", {IS(QUEUED), .remaining_us = REDLOCK_NEVER, VALUE("abc")}},
	/* which of a set */
	{ACQUIRE | RELEASE,
	 "*5\r\n:0\r\n" NOW ":1\r\n$3\r\nabc\r\n:15\r\n",
	 {IS(HELD), .remaining_us = 1000, .blocking_index = 15, VALUE("abc")}},
	{ACQUIRE,
	 "*5\r\n:2\r\n" NOW ":987\r\n$1\r\nx\r\n:1\r\n",
	 {IS(QUEUED), .remaining_us = 987000, .blocking_index = 1, VALUE("x")}},
	{INSPECT, "*5\r\n:0\r\n" NOW ":1\r\n$0\r\n\r\n:0\r\n", {IS(HELD), .remaining_us = 1000, VALUE("")}},
	{INSPECT, "*5\r\n:0\r\n" NOW ":-1\r\n$-1\r\n:7\r\n", {IS(HELD), .remaining_us = REDLOCK_NEVER, .waiters = 7}},
	/* what the guard's part of a script answers: nothing was done, except for a release under another epoch */
	{ACQUIRE | RAISE | EXTEND, "*2\r\n:-2\r\n" NOW, {FAILS(LATE), .time_us = NOW_US}},
	{ALL, "*2\r\n:-3\r\n" NOW, {IS(QUARANTINED)}},
	{ACQUIRE, "*2\r\n:-4\r\n" NOW, {FAILS(CLOCK), .time_us = NOW_US}},
	/* no answer of a script */
	{ALL, NULL, {FAILS(LOST), .lost = true}}, /* it may have been carried out */
	{ALL, "-NOSCRIPT No matching script. Please use EVAL.\r\n", {FAILS(OTHER), .no_script = true}},
	{ALL, "-OOM command not allowed\r\n", {FAILS(OOM)}},
	{ALL, "-ERR whatever\r\n", {FAILS(OTHER)}},
};

TEST_EACH(answers_become_votes, 0, COUNT(answers))
{
	assert_answer(answers[_i].scripts, answers[_i].bytes, &answers[_i].expected);
}

/* Answers that no script of ours gives. */
static const struct {
	unsigned scripts;
	const char *bytes;
} malformed[] = {
	{ACQUIRE | INSPECT, "*2\r\n:-1\r\n" NOW},
	{ACQUIRE | EXTEND | RELEASE | INSPECT, "*2\r\n:1\r\n" NOW},
	{RELEASE | INSPECT, "*4\r\n:1\r\n" NOW ":500\r\n$3\r\nabc\r\n"},
	{INSPECT, "*3\r\n:-1\r\n" NOW "$1\r\n7\r\n"},
	{INSPECT, "*3\r\n:-1\r\n" NOW "$-1\r\n"},
	{INSPECT, "*4\r\n:-1\r\n" NOW ":7\r\n:7\r\n"},
	{INSPECT, "*4\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n"},
	{INSPECT, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n$1\r\n7\r\n"},
	{INSPECT, "*6\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n:7\r\n"},
	{INSPECT, "*5\r\n:0\r\n" NOW "$3\r\n500\r\n$3\r\nabc\r\n:7\r\n"},
	{INSPECT, "*5\r\n:0\r\n" NOW ":500\r\n:7\r\n:7\r\n"},
	{ACQUIRE | INSPECT, "*5\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n:16\r\n"},
	{ACQUIRE | RELEASE, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:-1\r\n"},
	{RAISE | EXTEND, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:7\r\n"},
	{EXTEND, "*3\r\n:-1\r\n" NOW ":7\r\n"},
	{ACQUIRE, "*4\r\n:2\r\n" NOW "$3\r\n500\r\n$3\r\nabc\r\n"},
	{ACQUIRE, "*4\r\n:2\r\n" NOW ":500\r\n:7\r\n"},
	{ACQUIRE, "*3\r\n:2\r\n:500\r\n$3\r\nabc\r\n"},
	{RAISE | EXTEND | RELEASE, "*4\r\n:2\r\n" NOW ":500\r\n$3\r\nabc\r\n"},
	{ACQUIRE | RAISE, "*2\r\n:2\r\n" NOW},
	{ACQUIRE | EXTEND, "*3\r\n:2\r\n" NOW ":1\r\n"},
	{ACQUIRE, "*3\r\n:1\r\n" NOW "$1\r\n1\r\n"},
	{ACQUIRE, "*3\r\n:1\r\n" NOW ":-1\r\n"},
	{ACQUIRE, "*3\r\n:1\r\n" NOW ":9007199254740992\r\n"},
	{ACQUIRE, "*4\r\n:1\r\n" NOW ":1\r\n:1\r\n"},
	{RAISE | RELEASE, "*3\r\n:1\r\n" NOW ":1\r\n"},
	{RAISE, "*3\r\n:2\r\n" NOW ":9007199254740992\r\n"},
	{RELEASE, "*3\r\n:-1\r\n" NOW ":1\r\n"},
	{RELEASE, "*2\r\n:3\r\n" NOW},
	{RELEASE, "*2\r\n:-5\r\n" NOW},
	{ALL, "*0\r\n"},
	{ALL, "*-1\r\n"},
	{ACQUIRE, "*3\r\n$1\r\n1\r\n" NOW ":1\r\n"},
	{ALL, "+OK\r\n"},
	{ALL, ":1\r\n"},
	{ALL, "$-1\r\n"},
	{EXTEND, "*5\r\n:1\r\n" NOW "$1\r\n5\r\n$3\r\nabc\r\n:0\r\n"},
	{ACQUIRE, "*3\r\n:0\r\n" NOW ":500\r\n"},
	{ACQUIRE, "*4\r\n:0\r\n" NOW "$1\r\n5\r\n$3\r\nabc\r\n"},
	{ACQUIRE, "*4\r\n:0\r\n" NOW ":5\r\n:7\r\n"},
	{ACQUIRE, "*2\r\n*1\r\n:1\r\n" NOW},
	{ACQUIRE | RELEASE, "*2\r\n:1\r\n:0\r\n"},
	{RAISE | RELEASE, "*1\r\n:1\r\n"},
	{RAISE, "*2\r\n:2\r\n:1795215206922001\r\n"},
	{EXTEND, "*3\r\n:1\r\n:500\r\n$3\r\nabc\r\n"},
	{ACQUIRE, "*3\r\n:0\r\n:500\r\n$3\r\nabc\r\n"},
	{RELEASE, "*1\r\n:-1\r\n"},
	{ACQUIRE | RELEASE, "*1\r\n:-3\r\n"},
	{RELEASE, "*2\r\n:1\r\n:-1\r\n"},
	{RELEASE, "*2\r\n:1\r\n$16\r\n1795215206922001\r\n"},
	{RELEASE, "*2\r\n:1\r\n$-1\r\n"},
	{ACQUIRE, "*1\r\n:-2\r\n"},
	{ACQUIRE, "*3\r\n:-2\r\n" NOW ":1\r\n"},
	{RELEASE | INSPECT, "*2\r\n:-2\r\n" NOW},
	{ACQUIRE, "*2\r\n:-3\r\n:0\r\n"},
	{ACQUIRE, "*3\r\n:-3\r\n" NOW ":1\r\n"},
	{ACQUIRE, "*3\r\n:-4\r\n" NOW ":1\r\n"},
	{RAISE | EXTEND, "*2\r\n:-4\r\n" NOW},
};

TEST_EACH(nothing_is_left_of_a_malformed_answer, 0, COUNT(malformed))
{
	const struct master_reply expected = {FAILS(OTHER)};
	assert_answer(malformed[_i].scripts, malformed[_i].bytes, &expected);
}

static const struct {
	const char *digits;
	uint32_t waiters;
} waiters[] = {
	{"0", 0}, {"1", 1}, {"10000", 10000}, {"4294967295", UINT32_MAX}, {"4294967296", UINT32_MAX}, {"-1", 0},
};

TEST_EACH(waiters_are_counted_of_a_held_and_of_a_free_lock, 0, COUNT(waiters))
{
	const struct master_reply held = {IS(HELD), .remaining_us = 500000, VALUE("abc"),
					  .waiters = waiters[_i].waiters},
				  free = {IS(GONE), .waiters = waiters[_i].waiters};
	char bytes[200];
	snprintf(bytes, sizeof bytes, "*5\r\n:0\r\n" NOW ":500\r\n$3\r\nabc\r\n:%s\r\n", waiters[_i].digits);
	assert_answer(INSPECT, bytes, &held);
	snprintf(bytes, sizeof bytes, "*3\r\n:-1\r\n" NOW ":%s\r\n", waiters[_i].digits);
	assert_answer(INSPECT, bytes, &free);
}

/* ---- errors ---- */

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

TEST_EACH(errors_have_reasons, 0, COUNT(errors))
{
	ck_assert_int_eq(master_error_classify(errors[_i].text), errors[_i].error);
}

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

TEST_EACH(words_are_one_line, 0, COUNT(told))
{
	char words[MASTER_ERROR_TEXT_MAX];
	master_error_text(told[_i].text, words);
	ck_assert_str_eq(words, told[_i].words);
}

TEST(words_are_bounded)
{
	char words[MASTER_ERROR_TEXT_MAX + 1], text[4096];
	for (size_t len = 1; len < sizeof text; len++) {
		memset(text, 'x', len);
		text[len] = '\0';
		memset(words, '#', sizeof words);
		master_error_text(text, words);
		ck_assert_uint_eq(strlen(words), len < MASTER_ERROR_TEXT_MAX ? len : MASTER_ERROR_TEXT_MAX - 1);
		ck_assert_int_eq(words[MASTER_ERROR_TEXT_MAX], '#');
	}
}

/* ---- SCAN ---- */

static const struct {
	const char *bytes; /* NULL: lost */
	uint64_t cursor;
	size_t keys, nothing; /* how many; how many of them are no strings */
	bool fails;
} scans[] = {
	{"*2\r\n$1\r\n0\r\n*0\r\n", 0, 0, 0, false},
	{"*2\r\n$2\r\n17\r\n*3\r\n$1\r\nk\r\n:7\r\n$1\r\nk\r\n", 17, 3, 1, false},
	{"*2\r\n$20\r\n18446744073709551615\r\n*1\r\n$1\r\nk\r\n", UINT64_MAX, 1, 0, false},
	{NULL, 0, 0, 0, true},
	{"-NOPERM no\r\n", 0, 0, 0, true},
	{"*2\r\n:0\r\n*0\r\n", 0, 0, 0, true},
	{"*2\r\n$1\r\n0\r\n$1\r\nk\r\n", 0, 0, 0, true},
	{"*1\r\n$1\r\n0\r\n", 0, 0, 0, true},
	{"*3\r\n$1\r\n0\r\n*0\r\n*0\r\n", 0, 0, 0, true},
};
static unsigned scans_answered;

static void on_scan(void *arg, const struct master_scan *scan)
{
	int row = *(int *)arg;
	size_t nothing = 0;
	scans_answered++;
	ck_assert_int_eq(!scan, scans[row].fails);
	if (!scan)
		return;
	ck_assert_uint_eq(scan->cursor, scans[row].cursor);
	ck_assert_uint_eq(scan->key_count, scans[row].keys);
	for (size_t i = 0; i < scan->key_count; i++) {
		size_t len = 0;
		const char *key = master_scan_key(scan, i, &len);
		nothing += !key;
		ck_assert(!key || (len == 1 && *key == 'k'));
	}
	ck_assert_uint_eq(nothing, scans[row].nothing);
}

TEST_EACH(a_scan_is_answered_once, 0, COUNT(scans))
{
	redisReply *raw = scans[_i].bytes ? parse(scans[_i].bytes) : NULL;
	scans_answered = 0;
	master_reply_map_scan(raw, on_scan, &_i);
	ck_assert_uint_eq(scans_answered, 1);
	freeReplyObject(raw);
}

/* ---- INFO ---- */

#define KNOWN "run_id:0123\r\nredis_version:7.0.15\r\nrole:master\r\n"
#define KNOWN_AS .run_id = "0123", .version = "7.0.15", .role = "master", .product = "7.0.15"

static const struct {
	const char *text;
	bool is_rejected;
	struct master_info info;
} infos[] = {
	{KNOWN, false, {KNOWN_AS}},
	{"# Server\r\n" KNOWN "# Memory\r\nused_memory:17\r\nused_memory_rss:99\r\nmaxmemory:2000000000000\r\n"
	 "maxmemory_policy:allkeys-lru\r\nloading:0\r\nevicted_keys:18446744073709551614\r\nconnected_slaves:2\r\n"
	 "cluster_enabled:1\r\nredis_mode:standalone",
	 false,
	 {KNOWN_AS, .used_memory = 17, .maxmemory = 2000000000000, .policy = "allkeys-lru", .cluster = 1,
	  .evicted = UINT64_MAX - 1, .replicas = 2, .mode = "standalone"}},
	/* redis_version of Valkey is the Redis that it replaces: the rules go by that, people want its own */
	{"redis_version:7.2.4\r\nvalkey_version:8.1.1\r\nrun_id:0123\r\nrole:master\r\n",
	 false,
	 {.run_id = "0123", .version = "7.2.4", .role = "master", .valkey = "8.1.1", .product = "valkey 8.1.1"}},
	/* what is not text is shown as text */
	{"redis_version:5.\xff\xfe.0\r\nrun_id:0123\r\nrole:master\r\nmaxmemory_policy:\x1b[m\r\n",
	 false,
	 {.run_id = "0123", .version = "5.??.0", .role = "master", .policy = "?[m", .product = "5.??.0"}},
	/* the first line counts; what is too long does not */
	{KNOWN "role:slave\nloading:1\nmaxmemory_policy:01234567890123456789012345678901\n",
	 false,
	 {KNOWN_AS, .loading = 1}},
	{"", true, {.role = ""}},
	{"\r\n", true, {.role = ""}},
	{"redis_version:7\nrole:master\r\n", true, {.version = "7", .role = "master", .product = "7"}},
	{"run_id:\r\nredis_version:7\r\nrole:x\r\n", true, {.version = "7", .role = "x", .product = "7"}},
	{"HTTP/1.1 400 Bad Request\r\n", true, {.role = ""}},
	{"run_id:012345678901234567890123456789012345678901234567890123456789\r\nredis_version:7\r\nrole:master\r\n",
	 true,
	 {.version = "7", .role = "master", .product = "7"}},
};

TEST_EACH(info_is_read, 0, COUNT(infos))
{
	const struct master_info *expected = &infos[_i].info;
	struct master_info info;
	ck_assert_int_eq(master_info_parse(infos[_i].text, strlen(infos[_i].text), &info), !infos[_i].is_rejected);
	ck_assert_str_eq(info.run_id, expected->run_id);
	ck_assert_str_eq(info.version, expected->version);
	ck_assert_str_eq(info.product, expected->product);
	ck_assert_mem_eq(&info, expected, sizeof info);
}
