/* The commands to a master, read back by hiredis's own reader, and the buckets of the fences. */
#include <check.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease_internal.h"
#include "scripts.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define X16 "xxxxxxxxxxxxxxxx"
#define X64 X16 X16 X16 X16

enum { BUCKETS = 16384 };

/* Worked out apart from the code, from the 64-bit FNV-1a of the bytes: h ^ h >> 32, the low 14 bits. All redlockd over the same masters
 * must agree on them, also those of another version: a change here breaks the order of fences while old and new run side by side. */
static const struct { const char *resource; unsigned bucket; } buckets[] = {
	{ "a", 12480 }, { "foobar", 9881 }, { "orders/42", 14377 }, { "nightly-report", 12173 },
	{ "\xe9\x8d\xb5", 15585 }, { X64 X64 X64 X64, 4957 },
};

START_TEST(buckets_never_change)
{
	ck_assert_uint_eq(lease_command_bucket(buckets[_i].resource, strlen(buckets[_i].resource)), buckets[_i].bucket);
}
END_TEST

/* Names as people choose them fall into all buckets about alike: 40 a bucket, and chance spreads them by 6.3. */
START_TEST(buckets_are_filled_evenly)
{
	static unsigned filled[BUCKETS];
	char name[32];
	for (unsigned i = 0; i < 40 * BUCKETS; i++) {
		int len = snprintf(name, sizeof name, "orders/%u", i);
		unsigned bucket = lease_command_bucket(name, (size_t)len);
		if (bucket >= BUCKETS)
			ck_abort_msg("%s in bucket %u", name, bucket);
		filled[bucket]++;
	}
	double deviation = 0;
	for (unsigned i = 0; i < BUCKETS; i++) {
		if (filled[i] == 0 || filled[i] > 120)
			ck_abort_msg("%u names in bucket %u", filled[i], i);
		deviation += ((double)filled[i] - 40) * ((double)filled[i] - 40) / 40;
	}
	ck_assert_msg(deviation < 1.1 * BUCKETS, "chi-squared %g with %d buckets", deviation, BUCKETS);
}
END_TEST

/* ---- the commands ---- */

static struct options options = { .key_prefix = "app:", .max_hold_ms = 86400000 };
static const struct lease_request request = {
	.ttl_ms = 30000, .resource = "orders/42", .resource_len = 9, .owner = "me:you", .owner_len = 6, .token = "", .call = LEASE_ACQUIRE,
};

/* The command's words; free with freeReplyObject(). */
static redisReply *format(enum redlock_script script, uint64_t fence, bool with_source)
{
	struct lease_command what = { .script = script, .token = TOKEN, .fence = fence, .with_source = with_source };
	size_t len = 0;
	char *command = lease_command_format(&options, &request, &what, &len);
	redisReader *reader = redisReaderCreate();
	void *words = NULL;
	ck_assert_ptr_nonnull(command);
	redisReaderFeed(reader, command, len);
	ck_assert_int_eq(redisReaderGetReply(reader, &words), REDIS_OK);
	ck_assert_ptr_nonnull(words);
	redisReaderFree(reader);
	lease_command_free(command);
	return words;
}

/* Checks all words after the script's name; `expected` ends with NULL. */
static void assert_words(redisReply *words, const char *first, const char *script, const char *const *expected)
{
	ck_assert_str_eq(words->element[0]->str, first);
	ck_assert_str_eq(words->element[1]->str, script);
	size_t at = 2;
	for (; *expected; expected++, at++) {
		ck_assert_uint_lt(at, words->elements);
		ck_assert_str_eq(words->element[at]->str, *expected);
	}
	ck_assert_uint_eq(at, words->elements);
	freeReplyObject(words);
}

START_TEST(commands_are_as_the_scripts_want_them)
{
	static const char *const acquire[] = {
		"2", "app:orders/42", "app:redlockd:master", TOKEN, "30000", "86400000", "me:you", "14377", "9007199254740991", NULL,
	};
	static const char *const raise[] = { "2", "app:orders/42", "app:redlockd:master", TOKEN, "14377", "1795215206922001", NULL };
	static const char *const extend[] = { "1", "app:orders/42", TOKEN, "30000", NULL };
	static const char *const release[] = { "1", "app:orders/42", TOKEN, NULL };
	static const char *const inspect[] = { "1", "app:orders/42", NULL };
	assert_words(format(REDLOCK_SCRIPT_ACQUIRE, REDLOCK_FENCE_LIMIT - 1, false), "EVALSHA", scripts[REDLOCK_SCRIPT_ACQUIRE].sha1, acquire);
	assert_words(format(REDLOCK_SCRIPT_RAISE, UINT64_C(1795215206922001), false), "EVALSHA", scripts[REDLOCK_SCRIPT_RAISE].sha1, raise);
	assert_words(format(REDLOCK_SCRIPT_RAISE, UINT64_C(1795215206922001), true), "EVAL", scripts[REDLOCK_SCRIPT_RAISE].source, raise);
	assert_words(format(REDLOCK_SCRIPT_EXTEND, 0, false), "EVALSHA", scripts[REDLOCK_SCRIPT_EXTEND].sha1, extend);
	assert_words(format(REDLOCK_SCRIPT_RELEASE, 0, false), "EVALSHA", scripts[REDLOCK_SCRIPT_RELEASE].sha1, release);
	assert_words(format(REDLOCK_SCRIPT_INSPECT, 0, false), "EVALSHA", scripts[REDLOCK_SCRIPT_INSPECT].sha1, inspect);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lease_command");
	TCase *tests = tcase_create("lease_command");
	tcase_add_loop_test(tests, buckets_never_change, 0, sizeof buckets / sizeof *buckets);
	tcase_add_test(tests, buckets_are_filled_evenly);
	tcase_add_test(tests, commands_are_as_the_scripts_want_them);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
