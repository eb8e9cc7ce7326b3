/* Waiting for a lock: whom to ask, how long to pause, when to give up. */
#include <check.h>
#include <stdlib.h>

#include "wait.h"

#define MS UINT64_C(1000)
#define T0 (1000000 * MS)

static const struct answer held = {.outcome = OUTCOME_HELD, .retry_after_ms = 60000}, nearly = {.outcome = OUTCOME_HELD, .retry_after_ms = 120};
static const struct answer split = {.outcome = OUTCOME_SPLIT}, gone = {.outcome = OUTCOME_UNAVAILABLE}, invalid = {.outcome = OUTCOME_INVALID};

static struct wait waiting(size_t servers, uint64_t wait_ms)
{
	struct wait wait;
	wait_init(&wait, servers, 0, wait_ms, T0);
	return wait;
}

START_TEST(held_is_asked_again_within_a_second)
{
	struct wait wait = waiting(2, 300000);
	struct wait_step step = wait_next(&wait, &held, 0, T0);
	ck_assert_int_eq(step.what, WAIT_PAUSE);
	ck_assert_uint_eq(step.until_us, T0 + 500 * MS);
	ck_assert_uint_eq(wait_next(&wait, &held, UINT32_MAX, T0).until_us, T0 + 1000 * MS);
	ck_assert_uint_eq(wait_next(&wait, &nearly, UINT32_MAX, T0).until_us, T0 + 120 * MS);
	ck_assert_uint_eq(wait_next(&wait, &split, UINT32_MAX, T0).until_us, T0 + 200 * MS);
	ck_assert_uint_eq(wait.server, 0);
}
END_TEST

START_TEST(all_servers_before_a_pause)
{
	struct wait wait = waiting(3, 300000);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_ASK);
	ck_assert_uint_eq(wait.server, 1);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_ASK);
	ck_assert_uint_eq(wait.server, 2);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_PAUSE);
	ck_assert_uint_eq(wait.server, 0);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_ASK);
}
END_TEST

START_TEST(whoever_answered_is_asked_again)
{
	struct wait wait = waiting(3, 300000);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_ASK);
	ck_assert_int_eq(wait_next(&wait, &held, 0, T0).what, WAIT_PAUSE);
	ck_assert_uint_eq(wait.server, 1);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_ASK);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_ASK);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_PAUSE);
}
END_TEST

START_TEST(no_wait)
{
	struct wait wait = waiting(2, 0);
	ck_assert_int_eq(wait_ask(&wait, T0).what, WAIT_ASK);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_ASK);
	ck_assert_int_eq(wait_next(&wait, &gone, 0, T0).what, WAIT_GIVE_UP);
	wait = waiting(2, 0);
	ck_assert_int_eq(wait_next(&wait, &held, 0, T0).what, WAIT_GIVE_UP);
}
END_TEST

START_TEST(the_last_try_is_at_the_end)
{
	struct wait wait = waiting(1, 400);
	struct wait_step step = wait_next(&wait, &held, UINT32_MAX, T0);
	ck_assert_int_eq(step.what, WAIT_PAUSE);
	ck_assert_uint_eq(step.until_us, T0 + 400 * MS);
	ck_assert_int_eq(wait_next(&wait, &held, UINT32_MAX, T0 + 400 * MS).what, WAIT_GIVE_UP);
}
END_TEST

START_TEST(no_use_in_waiting)
{
	struct wait wait = waiting(2, 300000);
	ck_assert_int_eq(wait_next(&wait, &invalid, 0, T0).what, WAIT_GIVE_UP);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_wait");
	TCase *tests = tcase_create("cli_wait");
	tcase_add_test(tests, held_is_asked_again_within_a_second);
	tcase_add_test(tests, all_servers_before_a_pause);
	tcase_add_test(tests, whoever_answered_is_asked_again);
	tcase_add_test(tests, no_wait);
	tcase_add_test(tests, the_last_try_is_at_the_end);
	tcase_add_test(tests, no_use_in_waiting);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
