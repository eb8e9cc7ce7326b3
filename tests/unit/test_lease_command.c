/* The commands to a master, read back by hiredis's own reader, and the buckets of the fences. */
#include <check.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/leases/lease_internal.h"
#include "server/masters/master_internal.h"
#include "server/scripts/scripts.h"

#define TOKEN "0123456789abcdef0123456789abcdef01234567"
#define X16 "xxxxxxxxxxxxxxxx"
#define X64 X16 X16 X16 X16

enum { BUCKETS = 16384 };

/* Worked out apart from the code, from the 64-bit FNV-1a of the bytes: h ^ h >> 32, the low 14 bits. All redlockd over
 * the same masters must agree on them, also those of another version: a change here breaks the order of fences while
 * old and new run side by side. */
static const struct {
	const char *resource;
	unsigned bucket;
} buckets[] = {
	{"a", 12480},
	{"foobar", 9881},
	{"orders/42", 14377},
	{"nightly-report", 12173},
	{"\xe9\x8d\xb5", 15585},
	{X64 X64 X64 X64, 4957},
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

/* Epoch and deadline, as long as each master's own have not been written over them. */
#define GUARD "----------------", "9999999999999999"

static struct options options = {.key_prefix = "app:", .max_hold_ms = 86400000};
static const struct lease_request request = {
	.ttl_ms = 30000,
	.resource = "orders/42",
	.resource_len = 9,
	.owner = "me:you",
	.owner_len = 6,
	.token = "",
	.operation = LEASE_ACQUIRE,
};

/* The words of a command; free with freeReplyObject(). */
static redisReply *words_of(const char *command, size_t len)
{
	redisReader *reader = redisReaderCreate();
	void *words = NULL;
	redisReaderFeed(reader, command, len);
	ck_assert_int_eq(redisReaderGetReply(reader, &words), REDIS_OK);
	ck_assert_ptr_nonnull(words);
	redisReaderFree(reader);
	return words;
}

static redisReply *format_command(const struct lease_command *what)
{
	char command[LEASE_COMMAND_SOURCE_MAX];
	size_t len = lease_command_format(&options, &request, what, command,
					  what->with_source ? sizeof command : LEASE_COMMAND_MAX);
	return words_of(command, len);
}

static redisReply *format(enum redlock_script script, uint64_t fence, bool with_source)
{
	return format_command(
		&(struct lease_command){.script = script, .token = TOKEN, .fence = fence, .with_source = with_source});
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
		"2",      "app:orders/42", "app:redlockd:master", TOKEN, "30000", "86400000",
		"me:you", "14377",         "9007199254740991",    "",    GUARD,   NULL,
	};
	static const char *const raise[] = {
		"2", "app:orders/42", "app:redlockd:master", TOKEN, "14377", "1795215206922001", GUARD, NULL};
	static const char *const extend[] = {"2", "app:orders/42", "app:redlockd:master", TOKEN, "30000", GUARD, NULL};
	static const char *const release[] = {"2", "app:orders/42", "app:redlockd:master", TOKEN, "", GUARD, NULL};
	static const char *const inspect[] = {"2", "app:orders/42", "app:redlockd:master", GUARD, NULL};
	assert_words(format(REDLOCK_SCRIPT_ACQUIRE, REDLOCK_FENCE_LIMIT - 1, false), "EVALSHA",
		     scripts[REDLOCK_SCRIPT_ACQUIRE].sha1, acquire);
	assert_words(format(REDLOCK_SCRIPT_RAISE, UINT64_C(1795215206922001), false), "EVALSHA",
		     scripts[REDLOCK_SCRIPT_RAISE].sha1, raise);
	assert_words(format(REDLOCK_SCRIPT_RAISE, UINT64_C(1795215206922001), true), "EVAL",
		     scripts[REDLOCK_SCRIPT_RAISE].source, raise);
	assert_words(format(REDLOCK_SCRIPT_EXTEND, 0, false), "EVALSHA", scripts[REDLOCK_SCRIPT_EXTEND].sha1, extend);
	assert_words(format(REDLOCK_SCRIPT_RELEASE, 0, false), "EVALSHA", scripts[REDLOCK_SCRIPT_RELEASE].sha1,
		     release);
	assert_words(format(REDLOCK_SCRIPT_INSPECT, 0, false), "EVALSHA", scripts[REDLOCK_SCRIPT_INSPECT].sha1,
		     inspect);
}
END_TEST

/* ---- entries in the queue ---- */

#define ENTRY "fedcba9876543210:1795215206922001 60000"

START_TEST(an_entry_goes_with_acquire_and_release_alone)
{
	static const char *const acquire[] = {
		"2",      "app:orders/42", "app:redlockd:master",
		TOKEN,    "30000",         "86400000",
		"me:you", "14377",         "1",
		ENTRY,    GUARD,           NULL,
	};
	static const char *const release[] = {"2", "app:orders/42", "app:redlockd:master", TOKEN, ENTRY, GUARD, NULL};
	struct lease_command what = {.script = REDLOCK_SCRIPT_ACQUIRE, .token = TOKEN, .entry = ENTRY, .fence = 1};
	assert_words(format_command(&what), "EVALSHA", scripts[REDLOCK_SCRIPT_ACQUIRE].sha1, acquire);
	what.script = REDLOCK_SCRIPT_RELEASE;
	assert_words(format_command(&what), "EVALSHA", scripts[REDLOCK_SCRIPT_RELEASE].sha1, release);
	for (enum redlock_script script = REDLOCK_SCRIPT_RAISE; script <= REDLOCK_SCRIPT_INSPECT; script++) {
		what.script = script;
		redisReply *words = format_command(&what);
		for (size_t i = 0; i < words->elements && script != REDLOCK_SCRIPT_RELEASE; i++)
			ck_assert_str_ne(words->element[i]->str, ENTRY);
		freeReplyObject(words);
	}
}
END_TEST

/* A waiter that leaves the queue has no lock to release: an empty token, never one that a key could begin with. */
START_TEST(a_release_may_have_no_token)
{
	static const char *const leave[] = {
		"2", "app:orders/42", "app:redlockd:master", "", "fedcba9876543210:1795215206922001 0", GUARD, NULL};
	struct lease_command what = {
		.script = REDLOCK_SCRIPT_RELEASE, .token = "", .entry = "fedcba9876543210:1795215206922001 0"};
	assert_words(format_command(&what), "EVALSHA", scripts[REDLOCK_SCRIPT_RELEASE].sha1, leave);
	what.with_source = true;
	assert_words(format_command(&what), "EVAL", scripts[REDLOCK_SCRIPT_RELEASE].source, leave);
}
END_TEST

static struct masters queue_masters = {.replica = "00000000000000ab"};
static struct leases queue_leases = {.masters = &queue_masters};

/* The scripts cut it at fixed columns: 16 digits, a colon, 16 digits, a blank, the rest. */
static const struct {
	uint64_t arrival, wait_ms;
	const char *entry;
} entries[] = {
	{UINT64_C(1795215206922001), 60000, "00000000000000ab:1795215206922001 60000"},
	{1, 1, "00000000000000ab:0000000000000001 1"},
	{REDLOCK_FENCE_LIMIT - 1, 0, "00000000000000ab:9007199254740991 0"},
	{UINT64_C(1795215206922001), 86400000, "00000000000000ab:1795215206922001 86400000"},
	/* the longest there is */
	{UINT64_C(9999999999999999), UINT64_MAX, "00000000000000ab:9999999999999999 18446744073709551615"},
};

START_TEST(an_entry_has_fixed_columns)
{
	char entry[LEASE_ENTRY_MAX];
	memset(entry, 'x', sizeof entry);
	lease_command_write_entry(&queue_leases, entries[_i].arrival, entries[_i].wait_ms, entry);
	ck_assert_str_eq(entry, entries[_i].entry);
	ck_assert_int_eq(entry[MASTER_REPLICA_LEN], ':');
	ck_assert_int_eq(entry[33], ' ');
}
END_TEST

/* ---- the scripts' own words ---- */

/* The arguments by the head of each script, in this order, each with a value of its own. */
static const struct {
	const char *name, *value;
} argument_values[] = {
	{"token", TOKEN},
	{"ttl_ms", "30000"},
	{"max_hold_ms", "86400000"},
	{"owner", "me:you"},
	{"bucket", "14377"},
	{"guess", "7"},
	{"fence", "7"},
	{"entry", ENTRY},
	{"epoch", "----------------"},
	{"deadline_us", "9999999999999999"},
};

static const char *value_of(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof argument_values / sizeof *argument_values; i++)
		if (strlen(argument_values[i].name) == len && memcmp(argument_values[i].name, name, len) == 0)
			return argument_values[i].value;
	ck_abort_msg("the script has an argument %.*s", (int)len, name);
}

/* In the comment at its top a script names ARGV[1], ARGV[2], … one after the other. */
START_TEST(arguments_are_in_the_order_of_the_scripts)
{
	enum redlock_script script = (enum redlock_script)_i;
	redisReply *words = format_command(
		&(struct lease_command){.script = script, .token = TOKEN, .entry = ENTRY, .fence = 7});
	const char *at = scripts[script].source, *code = strstr(at, "\nlocal ");
	size_t count = 0;
	while ((at = strstr(at, "ARGV[")) != NULL && at < code) {
		ck_assert_uint_eq(strtoul(at + 5, NULL, 10), count + 1);
		at = strchr(at, ']') + 1;
		at += strspn(at, " ");
		size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
		ck_assert_uint_lt(5 + count, words->elements);
		ck_assert_str_eq(words->element[5 + count]->str, value_of(at, len));
		count++;
	}
	ck_assert_uint_eq(5 + count, words->elements);
	freeReplyObject(words);
}
END_TEST

/* The build resolves all --include lines, and both scripts that use the queue have the same parts. */
START_TEST(included_parts_are_in_the_scripts)
{
	static const enum redlock_script with_queue[] = {REDLOCK_SCRIPT_ACQUIRE, REDLOCK_SCRIPT_RELEASE};
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++)
		ck_assert_ptr_null(strstr(scripts[script].source, "--include"));
	for (size_t i = 0; i < 2; i++) {
		ck_assert_ptr_nonnull(
			strstr(scripts[with_queue[i]].source, "first = redis.call('ZRANGE', queue, 0, 0)[1]"));
		ck_assert_ptr_nonnull(strstr(scripts[with_queue[i]].source,
					     "redis.call('ZADD', queue, 'NX', string.sub(entry, 18), entry)"));
	}
}
END_TEST

/* ---- what each master gets written into its copy ---- */

static struct options stamp_options = {.restart_guard = OPTIONS_GUARD_ON, .max_ttl_ms = 60000, .master_timeout_ms = 50};
static struct masters masters;
static uint64_t stamp_until_us = REDLOCK_NEVER;

/* The last two words of a command for master 0. */
static redisReply *stamp(enum redlock_script script, uint64_t epoch, uint64_t *ret_epoch)
{
	struct lease_command what = {.script = script, .token = TOKEN, .fence = 1};
	char command[LEASE_COMMAND_MAX];
	size_t len = lease_command_format(&options, &request, &what, command, sizeof command);
	masters.guard.masters[0].epoch = epoch;
	*ret_epoch = master_guard_stamp(&masters.list[0], command, len, stamp_until_us);
	return words_of(command, len);
}

static void assert_stamp(uint64_t epoch, const char *shown, const char *deadline)
{
	for (enum redlock_script script = REDLOCK_SCRIPT_ACQUIRE; script <= REDLOCK_SCRIPT_INSPECT; script++) {
		uint64_t carried;
		redisReply *words = stamp(script, epoch, &carried), *plain = format(script, 1, false);
		size_t count = words->elements;
		ck_assert_uint_eq(count, plain->elements);
		for (size_t i = 0; i < count - 2; i++)
			ck_assert_str_eq(words->element[i]->str, plain->element[i]->str);
		ck_assert_str_eq(words->element[count - 2]->str, shown);
		ck_assert_msg(!deadline || strcmp(words->element[count - 1]->str, deadline) == 0, "deadline %s",
			      words->element[count - 1]->str);
		ck_assert_uint_eq(carried, shown[0] == '-' ? 0 : epoch);
		freeReplyObject(words);
		freeReplyObject(plain);
	}
}

static void stamp_set_up(void)
{
	masters = (struct masters){.options = &stamp_options, .count = 1};
	masters.list[0].all = &masters;
	stamp_options.restart_guard = OPTIONS_GUARD_ON;
	master_guard_init(&masters);
}

START_TEST(epoch_and_deadline_are_written_into_every_script)
{
	/* its clock is not known yet */
	assert_stamp(UINT64_C(0xfedcba9876543210), "fedcba9876543210", "9999999999999999");
	assert_stamp(UINT64_C(0xab), "00000000000000ab", "9999999999999999");
	stamp_options.restart_guard = OPTIONS_GUARD_OFF;
	assert_stamp(UINT64_C(0xab), "----------------", "9999999999999999");
}
END_TEST

/* In the master's own time, whatever that is: --master-timeout-ms from now, and never too early. */
START_TEST(the_deadline_is_in_the_masters_own_time)
{
	uint64_t now_us = clock_now_us(), its_us = UINT64_C(1795215206922001), carried;
	guard_time(&masters.guard, 0, now_us - 3000, now_us, its_us);
	redisReply *words = stamp(REDLOCK_SCRIPT_ACQUIRE, 1, &carried);
	uint64_t later_us = clock_now_us() - now_us,
		 deadline_us = strtoull(words->element[words->elements - 1]->str, NULL, 10);
	ck_assert_uint_eq(strlen(words->element[words->elements - 1]->str), 16);
	ck_assert_uint_eq(deadline_us % 1000, 0); /* those of one moment are the same */
	ck_assert_uint_gt(deadline_us, its_us + 49000);
	ck_assert_uint_le(deadline_us, its_us + 50000 + 3000 + 2 * later_us + 1100);
	freeReplyObject(words);
}
END_TEST

/* A ttl shorter than --master-timeout-ms: nothing is set after its attempt is over. */
START_TEST(the_deadline_is_no_later_than_its_use)
{
	uint64_t now_us = clock_now_us(), its_us = UINT64_C(1795215206922001), carried;
	guard_time(&masters.guard, 0, now_us, now_us, its_us);
	stamp_until_us = now_us + 20000;
	redisReply *words = stamp(REDLOCK_SCRIPT_ACQUIRE, 1, &carried);
	uint64_t deadline_us = strtoull(words->element[words->elements - 1]->str, NULL, 10);
	ck_assert_uint_gt(deadline_us, its_us + 19000);
	ck_assert_uint_le(deadline_us, its_us + 20000 + 1100);
	stamp_until_us = REDLOCK_NEVER;
	freeReplyObject(words);
}
END_TEST

/* Sixteen digits hold every time until the year 2286; a clock beyond gets no deadline, and none that is cut off. */
START_TEST(a_deadline_never_has_more_than_sixteen_digits)
{
	uint64_t now_us = clock_now_us();
	guard_time(&masters.guard, 0, now_us, now_us, UINT64_C(9999999999999999));
	assert_stamp(1, "0000000000000001", "9999999999999999");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lease_command");
	TCase *tests = tcase_create("lease_command");
	tcase_add_loop_test(tests, buckets_never_change, 0, sizeof buckets / sizeof *buckets);
	tcase_add_test(tests, buckets_are_filled_evenly);
	tcase_add_test(tests, commands_are_as_the_scripts_want_them);
	tcase_add_test(tests, an_entry_goes_with_acquire_and_release_alone);
	tcase_add_test(tests, a_release_may_have_no_token);
	tcase_add_loop_test(tests, an_entry_has_fixed_columns, 0, sizeof entries / sizeof *entries);
	tcase_add_loop_test(tests, arguments_are_in_the_order_of_the_scripts, REDLOCK_SCRIPT_ACQUIRE,
			    REDLOCK_SCRIPT_INSPECT + 1);
	tcase_add_test(tests, included_parts_are_in_the_scripts);
	suite_add_tcase(suite, tests);
	tests = tcase_create("stamp");
	tcase_add_checked_fixture(tests, stamp_set_up, NULL);
	tcase_add_test(tests, epoch_and_deadline_are_written_into_every_script);
	tcase_add_test(tests, the_deadline_is_in_the_masters_own_time);
	tcase_add_test(tests, the_deadline_is_no_later_than_its_use);
	tcase_add_test(tests, a_deadline_never_has_more_than_sixteen_digits);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
