/* Waiting for a lock: whom to ask, how long the server is to wait, how long to pause, when to give up. */
#include <check.h>
#include <stdlib.h>

#include "cli/http/wait.h"

#define MS UINT64_C(1000)
#define T0 (1000000 * MS)

static const struct answer held = {.outcome = OUTCOME_HELD, .retry_after_ms = 60000},
			   nearly = {.outcome = OUTCOME_HELD, .retry_after_ms = 120};
static const struct answer split = {.outcome = OUTCOME_SPLIT}, gone = {.outcome = OUTCOME_UNAVAILABLE},
			   invalid = {.outcome = OUTCOME_INVALID};
static const struct answer untrusted = {.outcome = OUTCOME_UNTRUSTED}, forbidden = {.outcome = OUTCOME_FORBIDDEN};
static const struct answer busy = {.outcome = OUTCOME_UNAVAILABLE, .is_busy = true, .retry_after_ms = 3000};
static const struct answer no_waiting = {.outcome = OUTCOME_INVALID, .bounds_wait = true};
static const struct answer bound = {.outcome = OUTCOME_INVALID, .bounds_wait = true, .wait_max_ms = 5000};
static const struct answer usual_bound = {.outcome = OUTCOME_INVALID, .bounds_wait = true, .wait_max_ms = 60000};
static const struct answer short_bound = {.outcome = OUTCOME_INVALID, .bounds_wait = true, .wait_max_ms = 1};

static struct wait waiting(size_t servers, uint64_t wait_ms)
{
	struct wait wait;
	wait_init(&wait, servers, 0, wait_ms, T0);
	return wait;
}

static void asks(struct wait_step step, uint64_t wait_ms)
{
	ck_assert_int_eq(step.what, WAIT_ASK);
	ck_assert_uint_eq(step.wait_ms, wait_ms);
}

static void pauses(struct wait_step step, uint64_t until_us)
{
	ck_assert_int_eq(step.what, WAIT_PAUSE);
	ck_assert_uint_eq(step.until_us, until_us);
}

static void gives_up(struct wait_step step)
{
	ck_assert_int_eq(step.what, WAIT_GIVE_UP);
}

START_TEST(the_server_waits)
{
	struct wait wait = waiting(1, 150000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &usual_bound, 0, T0), 30000); /* nonsense: it is no lower */
	wait = waiting(1, 150000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &held, 0, T0 + 60001 * MS), 89999);
	asks(wait_next(&wait, &usual_bound, 0, T0 + 60002 * MS), 60000);
	asks(wait_next(&wait, &held, 0, T0 + 120003 * MS), 29997);
	gives_up(wait_next(&wait, &held, 0, T0 + 150001 * MS));
}
END_TEST

START_TEST(the_server_waits_longer_than_usual)
{
	struct wait wait = waiting(1, 150000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &held, 0, T0 + 60000 * MS), 90000);
	gives_up(wait_next(&wait, &held, 0, T0 + 150000 * MS));
}
END_TEST

START_TEST(a_bound_that_is_not_understood)
{
	struct wait wait = waiting(1, 150000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &held, 0, T0 + 60000 * MS), 90000);
	asks(wait_next(&wait, &no_waiting, 0, T0 + 60000 * MS), 60000);
	asks(wait_next(&wait, &held, 0, T0 + 120000 * MS), 30000);
}
END_TEST

START_TEST(no_longer_than_it_may)
{
	struct wait wait = waiting(2, 150000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &bound, 0, T0 + MS), 5000);
	asks(wait_next(&wait, &held, 0, T0 + 5001 * MS), 5000);
	ck_assert_uint_eq(wait.server, 0);
	asks(wait_next(&wait, &gone, 0, T0 + 5002 * MS), 60000); /* the other one has a bound of its own */
	ck_assert_uint_eq(wait.server, 1);
}
END_TEST

START_TEST(a_bound_that_is_none)
{
	struct wait wait = waiting(1, 20000);
	struct answer wrong = {.outcome = OUTCOME_INVALID, .bounds_wait = true, .wait_max_ms = 1000000};
	unsigned asked = 0;

	for (struct wait_step step = wait_ask(&wait, T0); step.what == WAIT_ASK; step = wait_next(&wait, &wrong, 0, T0))
		ck_assert_uint_lt(asked++, 20);
}
END_TEST

START_TEST(a_server_that_cannot_wait)
{
	struct wait wait = waiting(2, 300000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &no_waiting, 0, T0), 0);
	pauses(wait_next(&wait, &held, 0, T0), T0 + 500 * MS);
	asks(wait_ask(&wait, T0), 0);
	pauses(wait_next(&wait, &held, UINT32_MAX, T0), T0 + 1000 * MS);
	pauses(wait_next(&wait, &nearly, UINT32_MAX, T0), T0 + 120 * MS);
	ck_assert_uint_eq(wait.server, 0);
}
END_TEST

START_TEST(a_server_that_does_not_wait)
{
	struct wait wait = waiting(1, 300000);
	asks(wait_ask(&wait, T0), 60000);
	pauses(wait_next(&wait, &held, 0, T0 + 10 * MS), T0 + 510 * MS);
}
END_TEST

START_TEST(a_split_vote)
{
	struct wait wait = waiting(2, 300000);
	asks(wait_ask(&wait, T0), 60000);
	pauses(wait_next(&wait, &split, UINT32_MAX, T0), T0 + 200 * MS);
	ck_assert_uint_eq(wait.server, 0);
}
END_TEST

START_TEST(all_servers_before_a_pause)
{
	struct wait wait = waiting(3, 300000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &gone, 0, T0), 60000);
	ck_assert_uint_eq(wait.server, 1);
	asks(wait_next(&wait, &gone, 0, T0 + MS), 60000);
	ck_assert_uint_eq(wait.server, 2);
	pauses(wait_next(&wait, &gone, 0, T0 + 2 * MS), T0 + 500 * MS);
	ck_assert_uint_eq(wait.server, 0);
	wait_ask(&wait, T0 + 500 * MS);
	pauses(wait_next(&wait, &gone, 0, T0 + 500 * MS), T0 + 501 * MS);
	ck_assert_uint_eq(wait.server, 1);
}
END_TEST

START_TEST(whoever_answered_is_asked_again)
{
	struct wait wait = waiting(3, 300000);
	wait_ask(&wait, T0);
	asks(wait_next(&wait, &gone, 0, T0), 60000);
	asks(wait_next(&wait, &held, 0, T0 + 60000 * MS), 240000);
	ck_assert_uint_eq(wait.server, 1);
	asks(wait_next(&wait, &gone, 0, T0 + 60001 * MS), 60000);
	ck_assert_uint_eq(wait.server, 2);
	asks(wait_next(&wait, &gone, 0, T0 + 60002 * MS), 60000); /* the first has had its pause by now */
	ck_assert_uint_eq(wait.server, 0);
}
END_TEST

START_TEST(a_busy_server_is_left_in_peace)
{
	struct wait wait = waiting(2, 300000);
	wait_ask(&wait, T0);
	asks(wait_next(&wait, &busy, 0, T0), 60000);
	ck_assert_uint_eq(wait.server, 1);
	pauses(wait_next(&wait, &gone, UINT32_MAX, T0), T0 + 1000 * MS);
	ck_assert_uint_eq(wait.server, 1);
	wait_ask(&wait, T0 + 1000 * MS);
	pauses(wait_next(&wait, &busy, UINT32_MAX, T0 + 1000 * MS), T0 + 3000 * MS);
	ck_assert_uint_eq(wait.server, 0);
	/* 4.5 s after it was asked, so not all come at once */
	pauses(wait_next(&wait, &busy, UINT32_MAX, T0 + 3000 * MS), T0 + 5500 * MS);
	ck_assert_uint_eq(wait.server, 1);
}
END_TEST

START_TEST(no_wait)
{
	struct wait wait = waiting(2, 0);
	asks(wait_ask(&wait, T0), 0);
	asks(wait_next(&wait, &gone, 0, T0), 0);
	gives_up(wait_next(&wait, &gone, 0, T0 + 10000 * MS));
	wait = waiting(2, 0);
	asks(wait_ask(&wait, T0), 0);
	gives_up(wait_next(&wait, &held, 0, T0));
	wait = waiting(1, 0);
	asks(wait_ask(&wait, T0), 0);
	gives_up(wait_next(&wait, &no_waiting, 0, T0));
}
END_TEST

START_TEST(the_last_try_is_at_the_end)
{
	struct wait wait = waiting(1, 400);
	asks(wait_ask(&wait, T0), 400);
	asks(wait_next(&wait, &no_waiting, 0, T0), 0);
	pauses(wait_next(&wait, &held, UINT32_MAX, T0), T0 + 400 * MS);
	asks(wait_ask(&wait, T0 + 400 * MS), 0);
	gives_up(wait_next(&wait, &held, UINT32_MAX, T0 + 400 * MS));
}
END_TEST

START_TEST(no_use_in_waiting)
{
	struct wait wait = waiting(2, 300000);
	wait_ask(&wait, T0);
	gives_up(wait_next(&wait, &invalid, 0, T0));
	wait = waiting(2, 300000);
	wait_ask(&wait, T0);
	gives_up(wait_next(&wait, &forbidden, 0, T0));
}
END_TEST

/* A certificate that is not trusted: the others are asked, that one never again; with none left there is no use in
 * waiting. */
START_TEST(a_server_that_is_not_trusted)
{
	struct wait wait = waiting(2, 300000);
	wait_ask(&wait, T0);
	asks(wait_next(&wait, &untrusted, 0, T0), 60000);
	ck_assert_uint_eq(wait.server, 1);
	pauses(wait_next(&wait, &gone, UINT32_MAX, T0), T0 + 1000 * MS);
	ck_assert_uint_eq(wait.server, 1);
	wait_ask(&wait, T0 + 1000 * MS);
	gives_up(wait_next(&wait, &untrusted, 0, T0 + 1000 * MS));
	wait = waiting(2, 0);
	wait_ask(&wait, T0);
	asks(wait_next(&wait, &untrusted, 0, T0), 0);
	gives_up(wait_next(&wait, &untrusted, 0, T0));
}
END_TEST

/* Whatever the servers say: it ends when the time is up, nobody is asked in a tight loop, and nobody is asked to wait
 * beyond the end. */
static void draw_answers(uint32_t seed)
{
	static const struct answer *const answers[] = {&held,      &nearly,     &split, &gone,        &busy,
						       &untrusted, &no_waiting, &bound, &short_bound, &usual_bound};
	uint32_t state = seed * 2654435761U + 1;
	struct wait wait = waiting(1 + (size_t)seed % 4, 20000);
	uint64_t now_us = T0;
	unsigned asked = 0;

	for (struct wait_step step = wait_ask(&wait, now_us); step.what != WAIT_GIVE_UP;) {
		if (step.what == WAIT_PAUSE) {
			ck_assert_uint_gt(step.until_us, now_us);
			ck_assert_uint_le(step.until_us, T0 + 20000 * MS);
			now_us = step.until_us;
			step = wait_ask(&wait, now_us);
		}
		ck_assert_uint_le(now_us + step.wait_ms * MS, T0 + 20001 * MS);
		ck_assert_uint_lt(asked++, 20000 / 25 * 2);
		state = state * 1664525 + 1013904223;
		const struct answer *answer = answers[(state >> 16) % (sizeof(answers) / sizeof(*answers))];
		if (answer->outcome == OUTCOME_HELD && (state >> 8) % 2 == 0)
			now_us += step.wait_ms * MS;
		step = wait_next(&wait, answer, state, now_us);
	}
}

START_TEST(any_answers)
{
	for (uint32_t seed = 0; seed < 2000; seed++)
		draw_answers(seed);
}
END_TEST

START_TEST(a_bound_of_nearly_nothing)
{
	struct wait wait = waiting(1, 300000);
	asks(wait_ask(&wait, T0), 60000);
	asks(wait_next(&wait, &short_bound, 0, T0), 1);
	pauses(wait_next(&wait, &held, 0, T0 + MS), T0 + 501 * MS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_wait");
	TCase *tests = tcase_create("cli_wait");
	tcase_add_test(tests, the_server_waits);
	tcase_add_test(tests, the_server_waits_longer_than_usual);
	tcase_add_test(tests, a_bound_that_is_not_understood);
	tcase_add_test(tests, no_longer_than_it_may);
	tcase_add_test(tests, a_bound_that_is_none);
	tcase_add_test(tests, a_server_that_cannot_wait);
	tcase_add_test(tests, a_server_that_does_not_wait);
	tcase_add_test(tests, a_split_vote);
	tcase_add_test(tests, all_servers_before_a_pause);
	tcase_add_test(tests, whoever_answered_is_asked_again);
	tcase_add_test(tests, a_busy_server_is_left_in_peace);
	tcase_add_test(tests, no_wait);
	tcase_add_test(tests, the_last_try_is_at_the_end);
	tcase_add_test(tests, no_use_in_waiting);
	tcase_add_test(tests, a_server_that_is_not_trusted);
	tcase_add_test(tests, a_bound_of_nearly_nothing);
	tcase_add_test(tests, any_answers);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
