/* The life of a lease: the transitions, and that no order of events lets the command live past the deadline. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cli/run/renewal.h"

#define SECOND UINT64_C(1000000)
#define T0 (1000 * SECOND)

/* ttl 30 s, kill-after 5 s, margin 0.5 s, validity 29.7 s: deadline 29.7, kill 29.2, terminate 24.2, renew 9.9 */
static const struct renewal_config config = {.ttl_us = 30 * SECOND,
					     .kill_after_us = 5 * SECOND,
					     .timeout_us = 5 * SECOND,
					     .servers = 2};

enum { VALIDITY = 29700000, RENEW = 9900000, TERMINATE = 24200000, KILL = 29200000 };

static struct renewal held(void)
{
	struct renewal renewal;
	renewal_init(&renewal, &config, 0, T0, VALIDITY);
	return renewal;
}

static struct renewal asking(void)
{
	struct renewal renewal = held();
	ck_assert_int_eq(renewal_time(&renewal, T0 + RENEW), RENEWAL_ASK);
	return renewal;
}

START_TEST(extends_at_a_third)
{
	struct renewal renewal = held();
	ck_assert_uint_eq(renewal_next_us(&renewal, T0), T0 + RENEW);
	ck_assert_int_eq(renewal_time(&renewal, T0 + RENEW - 1), RENEWAL_NOTHING);
	ck_assert_int_eq(renewal_time(&renewal, T0 + RENEW), RENEWAL_ASK);
	ck_assert_int_eq(renewal_time(&renewal, T0 + RENEW + 1), RENEWAL_NOTHING);
	ck_assert_uint_eq(renewal_next_us(&renewal, T0 + RENEW), T0 + TERMINATE);
}
END_TEST

START_TEST(extension_counts_from_before_it_was_sent)
{
	struct renewal renewal = asking();
	renewal_extended(&renewal, T0 + RENEW, VALIDITY);
	ck_assert_uint_eq(renewal.deadline_us, T0 + RENEW + VALIDITY);
	ck_assert_uint_eq(renewal_next_us(&renewal, T0 + 12 * SECOND), T0 + 2 * RENEW);
}
END_TEST

START_TEST(extension_never_shortens)
{
	struct renewal renewal = asking();
	renewal_extended(&renewal, T0 + RENEW, SECOND);
	ck_assert_uint_eq(renewal.deadline_us, T0 + VALIDITY);
	ck_assert_int_eq(renewal_time(&renewal, T0 + RENEW + SECOND / 3 + 1), RENEWAL_ASK);
}
END_TEST

START_TEST(next_server_at_once_then_a_pause)
{
	struct renewal renewal = asking();
	ck_assert_int_eq(renewal_failed(&renewal, 0, T0 + 10 * SECOND), RENEWAL_ASK);
	ck_assert_uint_eq(renewal.server, 1);
	ck_assert_int_eq(renewal_failed(&renewal, UINT32_MAX, T0 + 11 * SECOND), RENEWAL_NOTHING);
	ck_assert_uint_eq(renewal.server, 0);
	ck_assert_uint_eq(renewal_next_us(&renewal, T0 + 11 * SECOND), T0 + 12 * SECOND);
	ck_assert_int_eq(renewal_time(&renewal, T0 + 12 * SECOND), RENEWAL_ASK);
	renewal_extended(&renewal, T0 + 12 * SECOND, VALIDITY);
	ck_assert_uint_eq(renewal.failures, 0);
}
END_TEST

START_TEST(ends_in_time)
{
	struct renewal renewal = asking();
	ck_assert_int_eq(renewal_time(&renewal, T0 + TERMINATE - 1), RENEWAL_NOTHING);
	ck_assert_int_eq(renewal_time(&renewal, T0 + TERMINATE), RENEWAL_TERMINATE);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_UNREACHABLE);
	ck_assert_int_eq(renewal_time(&renewal, T0 + KILL - 1), RENEWAL_NOTHING);
	ck_assert_uint_eq(renewal_next_us(&renewal, T0 + TERMINATE), T0 + KILL);
	ck_assert_int_eq(renewal_time(&renewal, T0 + KILL), RENEWAL_KILL);
	ck_assert_int_eq(renewal_time(&renewal, T0 + KILL + 1), RENEWAL_KILL);
}
END_TEST

START_TEST(a_failure_at_the_end_does_not_ask_again)
{
	struct renewal renewal = asking();
	ck_assert_int_eq(renewal_failed(&renewal, 0, T0 + TERMINATE), RENEWAL_TERMINATE);
}
END_TEST

START_TEST(late_answer_does_not_revive)
{
	struct renewal renewal = asking();
	ck_assert_int_eq(renewal_time(&renewal, T0 + TERMINATE), RENEWAL_TERMINATE);
	renewal_extended(&renewal, T0 + TERMINATE, VALIDITY);
	ck_assert_uint_eq(renewal.deadline_us, T0 + VALIDITY);
	ck_assert_int_eq(renewal_failed(&renewal, 0, T0 + TERMINATE), RENEWAL_NOTHING);
	ck_assert_int_eq(renewal_lost(&renewal, T0 + TERMINATE), RENEWAL_NOTHING);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_UNREACHABLE);
	ck_assert_int_eq(renewal_time(&renewal, T0 + KILL), RENEWAL_KILL);
}
END_TEST

START_TEST(lost_ends_at_once)
{
	struct renewal renewal = asking();
	ck_assert_int_eq(renewal_lost(&renewal, T0 + 10 * SECOND), RENEWAL_TERMINATE);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_LOST);
	ck_assert_uint_eq(renewal_next_us(&renewal, T0 + 10 * SECOND), T0 + 15 * SECOND);
	renewal = asking();
	ck_assert_int_eq(renewal_lost(&renewal, T0 + 28 * SECOND), RENEWAL_TERMINATE);
	ck_assert_uint_eq(renewal_next_us(&renewal, T0 + 28 * SECOND), T0 + KILL);
}
END_TEST

START_TEST(machine_slept)
{
	struct renewal renewal = held();
	ck_assert_int_eq(renewal_time(&renewal, T0 + 3600 * SECOND), RENEWAL_KILL);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_LATE);
	renewal = held();
	ck_assert_int_eq(renewal_time(&renewal, T0 + TERMINATE + 1), RENEWAL_TERMINATE);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_LATE);
}
END_TEST

START_TEST(longest_hold)
{
	struct renewal renewal = asking();
	uint64_t now = T0 + RENEW;
	/* the server gives what is left until T0 + 29.7 and no more */
	for (int i = 0; renewal.state == RENEWAL_ASKING && i < 100; i++) {
		renewal_extended(&renewal, now, T0 + VALIDITY - now);
		now = renewal_next_us(&renewal, now);
		if (renewal_time(&renewal, now) == RENEWAL_TERMINATE)
			break;
	}
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_BOUND);
	ck_assert_uint_eq(now, T0 + TERMINATE);
}
END_TEST

START_TEST(told_to_end)
{
	struct renewal renewal = held();
	ck_assert_int_eq(renewal_end(&renewal, T0 + SECOND), RENEWAL_TERMINATE);
	ck_assert_int_eq(renewal_end(&renewal, T0 + SECOND), RENEWAL_NOTHING);
	ck_assert_int_eq(renewal.why, RENEWAL_WHY_REQUESTED);
	ck_assert_int_eq(renewal_time(&renewal, T0 + 6 * SECOND), RENEWAL_KILL);
}
END_TEST

START_TEST(every_server_gets_a_turn)
{
	struct renewal renewal = asking();
	/* 14.3 s are left until SIGTERM: a third of that is below --timeout */
	ck_assert_uint_eq(renewal_timeout_us(&renewal, T0 + RENEW), (TERMINATE - RENEW) / 3);
	ck_assert_uint_eq(renewal_timeout_us(&renewal, T0), 5 * SECOND);
	ck_assert_uint_eq(renewal_timeout_us(&renewal, T0 + VALIDITY), 50000);
}
END_TEST

/* Random events in random order, with a world that only grants what a server may: whatever happens, KILL is said before
 * the deadline if the state machine is called when it asked to be, and always at the first call after its time. */
START_TEST(never_past_the_deadline)
{
	srand((unsigned)_i + 1);
	struct renewal_config any = {.ttl_us = (uint64_t)(200 + rand() % 30000) * 1000,
				     .timeout_us = SECOND,
				     .servers = 1 + (size_t)rand() % 3};
	struct renewal renewal;
	uint64_t now = T0;

	any.kill_after_us = any.ttl_us / 2 * (uint64_t)(rand() % 101) / 100;
	renewal_init(&renewal, &any, 0, now, any.ttl_us * 98 / 100);
	for (int i = 0; i < 300; i++) {
		uint64_t next = renewal_next_us(&renewal, now), asked = now;
		enum renewal_action action;
		ck_assert(renewal.state == RENEWAL_KILLING || next <= renewal_kill_us(&renewal));
		bool in_time = rand() % 8 != 0 || renewal.state != RENEWAL_ASKING;
		now = in_time && next > now ? next : now + (uint64_t)rand() % 1000;
		action = renewal_time(&renewal, now);
		if (now >= renewal_kill_us(&renewal))
			ck_assert_int_eq(action, RENEWAL_KILL);
		if (renewal.state == RENEWAL_ASKING && rand() % 3 != 0) {
			if (rand() % 3 == 0)
				renewal_failed(&renewal, (uint32_t)rand(), now);
			else
				renewal_extended(&renewal, asked, 1 + (uint64_t)rand() % any.ttl_us);
		}
		if (renewal.state == RENEWAL_ENDING)
			ck_assert_uint_le(renewal.kill_us, renewal_kill_us(&renewal));
		ck_assert_uint_lt(renewal_kill_us(&renewal), renewal.deadline_us);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_renewal");
	TCase *tests = tcase_create("cli_renewal");
	tcase_add_test(tests, extends_at_a_third);
	tcase_add_test(tests, extension_counts_from_before_it_was_sent);
	tcase_add_test(tests, extension_never_shortens);
	tcase_add_test(tests, next_server_at_once_then_a_pause);
	tcase_add_test(tests, ends_in_time);
	tcase_add_test(tests, a_failure_at_the_end_does_not_ask_again);
	tcase_add_test(tests, late_answer_does_not_revive);
	tcase_add_test(tests, lost_ends_at_once);
	tcase_add_test(tests, machine_slept);
	tcase_add_test(tests, longest_hold);
	tcase_add_test(tests, told_to_end);
	tcase_add_test(tests, every_server_gets_a_turn);
	tcase_add_loop_test(tests, never_past_the_deadline, 0, 300);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
