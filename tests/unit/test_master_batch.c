/* Acquisitions that leave as one command. hiredis's own reader reads the command back. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/leases/lease_internal.h"
#include "server/masters/master_internal.h"
#include "server/scripts/scripts.h"

#define HASH_KEY "app:redlockd:master"

enum { WORDS_FIRST = 3, LONGEST_NAME = LEASE_RESOURCE_MAX };

static struct options options = {.key_prefix = "app:", .max_hold_ms = 1000};
static struct master_batch batch;

static void set_up(void)
{
	memset(&batch, 0, sizeof batch);
}

/* The command of one acquisition of a name, whose token is forty times `sign`. */
static size_t format(const char *name, char sign, bool with_source, char ret_command[LEASE_COMMAND_SOURCE_MAX])
{
	struct lease_request request = {
		.operation = LEASE_ACQUIRE, .ttl_ms = 30000, .resource_len = (uint16_t)strlen(name)};
	char token[LEASE_TOKEN_LEN];
	memset(token, sign, sizeof token);
	memcpy(request.resource, name, request.resource_len);
	struct lease_command what = {
		.script = REDLOCK_SCRIPT_ACQUIRE, .token = token, .fence = 7, .with_source = with_source};
	return lease_command_format(&options, &request, &what, ret_command,
				    with_source ? LEASE_COMMAND_SOURCE_MAX : LEASE_COMMAND_MAX);
}

static bool add(const char *name, char sign)
{
	char command[LEASE_COMMAND_SOURCE_MAX];
	size_t len = format(name, sign, false, command);
	ck_assert(master_batch_suits(command));
	return master_batch_add(&batch, command, len);
}

/* The words of the command of the batch; free with freeReplyObject(). */
static redisReply *take(void)
{
	char *command = malloc(MASTER_BATCH_BYTES);
	ck_assert_ptr_nonnull(command);
	size_t len = master_batch_take(&batch, HASH_KEY, command);
	redisReader *reader = redisReaderCreate();
	void *words = NULL;
	redisReaderFeed(reader, command, len);
	ck_assert_int_eq(redisReaderGetReply(reader, &words), REDIS_OK);
	ck_assert_ptr_nonnull(words);
	ck_assert_uint_eq(batch.count, 0);
	redisReaderFree(reader);
	free(command);
	return words;
}

static void assert_word(const redisReply *words, size_t at, const char *expected)
{
	ck_assert_uint_lt(at, words->elements);
	ck_assert_str_eq(words->element[at]->str, expected);
}

START_TEST(one_alone_is_sent_as_it_is)
{
	char command[LEASE_COMMAND_SOURCE_MAX], joined[MASTER_BATCH_BYTES];
	size_t len = format("orders/42", 'a', false, command);
	ck_assert(master_batch_add(&batch, command, len));
	size_t joined_len = master_batch_take(&batch, HASH_KEY, joined);
	ck_assert_uint_eq(joined_len, len);
	ck_assert_mem_eq(joined, command, len);
}
END_TEST

START_TEST(several_are_joined_in_their_order)
{
	char name[32], token[LEASE_TOKEN_LEN + 1] = "", keys[32];
	size_t count = (size_t)_i;
	for (size_t i = 0; i < count; i++) {
		snprintf(name, sizeof name, "r%zu", i);
		ck_assert(add(name, (char)('A' + i)));
	}
	redisReply *words = take();
	snprintf(keys, sizeof keys, "%zu", count + 1);
	ck_assert_uint_eq(words->elements, WORDS_FIRST + count + 1 + count * MASTER_ACQUIRE_ARGUMENTS);
	assert_word(words, 0, "EVALSHA");
	assert_word(words, 1, scripts[REDLOCK_SCRIPT_ACQUIRE].sha1);
	assert_word(words, 2, keys);
	assert_word(words, WORDS_FIRST + count, HASH_KEY);
	for (size_t i = 0; i < count; i++) {
		size_t at = WORDS_FIRST + count + 1 + i * MASTER_ACQUIRE_ARGUMENTS;
		snprintf(name, sizeof name, "app:r%zu", i);
		memset(token, (char)('A' + i), LEASE_TOKEN_LEN);
		assert_word(words, WORDS_FIRST + i, name);
		assert_word(words, at, token);
		assert_word(words, at + 1, "30000");
		assert_word(words, at + 8, "9999999999999999");
	}
	freeReplyObject(words);
}
END_TEST

START_TEST(no_more_than_a_master_does_in_a_moment)
{
	for (unsigned i = 0; i < MASTER_BATCH_MAX; i++)
		ck_assert(add("r", 'a'));
	ck_assert(!add("r", 'a'));
	freeReplyObject(take());
	ck_assert(add("r", 'a'));
	freeReplyObject(take());
}
END_TEST

/* Names of the greatest length, until the bytes are too many. The command that found no room has left no trace. */
START_TEST(long_ones_fill_it_sooner)
{
	char name[LONGEST_NAME + 1] = "";
	memset(name, 'x', LONGEST_NAME);
	size_t count = 0;
	while (add(name, 'a'))
		count++;
	ck_assert_uint_gt(count, 16);
	ck_assert_uint_lt(count, MASTER_BATCH_MAX);
	redisReply *words = take();
	ck_assert_uint_eq(words->elements, WORDS_FIRST + count + 1 + count * MASTER_ACQUIRE_ARGUMENTS);
	freeReplyObject(words);
	ck_assert(add(name, 'a'));
}
END_TEST

START_TEST(one_that_brings_its_source_goes_alone)
{
	char command[LEASE_COMMAND_SOURCE_MAX];
	format("r", 'a', true, command);
	ck_assert(!master_batch_suits(command));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("master_batch");
	TCase *tests = tcase_create("master_batch");
	tcase_add_checked_fixture(tests, set_up, NULL);
	tcase_add_test(tests, one_alone_is_sent_as_it_is);
	tcase_add_loop_test(tests, several_are_joined_in_their_order, 1, 13);
	tcase_add_test(tests, no_more_than_a_master_does_in_a_moment);
	tcase_add_test(tests, long_ones_fill_it_sooner);
	tcase_add_test(tests, one_that_brings_its_source_goes_alone);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
