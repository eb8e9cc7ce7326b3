/* The rules of a held lease, event by event: when it is renewed, what is told, and when it counts as lost. */
#include <check.h>
#include <stdlib.h>

#include "server/leases/hold_plan.h"

#define MS UINT64_C(1000)

enum { TTL_MS = 3000, DRIFT_MS = 32, VALIDITY_MS = TTL_MS - DRIFT_MS };

static const uint64_t began = 1000000 * MS;
static struct hold_plan plan;
static enum lease_status code;

/* Granted at `began`; all times below are in ms after it. */
static void grant(void)
{
	hold_plan_init(&plan, began, began + VALIDITY_MS * MS, TTL_MS * MS);
	code = LEASE_OK;
}

static uint64_t at(uint64_t ms)
{
	return began + ms * MS;
}

static enum hold_action tick(uint64_t ms)
{
	return hold_plan_timer(&plan, at(ms), &code);
}

static enum hold_action answer_ttl(uint64_t ms, enum lease_status status, uint32_t ttl_ms)
{
	struct lease_answer answer = {.status = status, .ttl_ms = ttl_ms, .drift_ms = DRIFT_MS};

	return hold_plan_answered(&plan, at(ms), &answer, &code);
}

static enum hold_action answer(uint64_t ms, enum lease_status status)
{
	return answer_ttl(ms, status, TTL_MS);
}

#define DUE(ms) ck_assert_uint_eq(hold_plan_timer_us(&plan), at(ms))
#define OVER()                                                            \
	do {                                                              \
		ck_assert_uint_eq(hold_plan_timer_us(&plan), HOLD_NEVER); \
		ck_assert_int_eq(tick(1000000), HOLD_DO_NOTHING);         \
		hold_plan_drain(&plan, at(1000000), false);               \
		ck_assert_uint_eq(hold_plan_timer_us(&plan), HOLD_NEVER); \
	} while (0)
#define LOST(deed, why)                                 \
	do {                                            \
		ck_assert_int_eq(deed, HOLD_TELL_LOST); \
		ck_assert_int_eq(code, why);            \
		OVER();                                 \
	} while (0)

START_TEST(each_third)
{
	grant();
	DUE(1000);
	ck_assert_int_eq(tick(999), HOLD_DO_NOTHING);
	for (uint64_t sent = 1000; sent < 100000; sent += 1000) {
		ck_assert_int_eq(tick(sent), HOLD_DO_RENEW);
		ck_assert_int_eq(tick(sent + 1), HOLD_DO_NOTHING); /* one at a time */
		ck_assert_int_eq(answer(sent + 5, LEASE_OK), HOLD_TELL_RENEWED);
		/* from when it was asked for, not from the answer */
		ck_assert_uint_eq(plan.until_us, at(sent + VALIDITY_MS));
		DUE(sent + 1000);
	}
}
END_TEST

START_TEST(late_timer)
{
	grant();
	ck_assert_int_eq(tick(1700), HOLD_DO_RENEW);
	ck_assert_int_eq(answer(1710, LEASE_OK), HOLD_TELL_RENEWED);
	ck_assert_uint_eq(plan.until_us, at(1700 + VALIDITY_MS));
	DUE(2700);
}
END_TEST

START_TEST(slow_answer)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	DUE(VALIDITY_MS - 1);
	ck_assert_int_eq(answer(2500, LEASE_OK), HOLD_TELL_RENEWED);
	DUE(2000); /* at once */
	ck_assert_int_eq(tick(2500), HOLD_DO_RENEW);
}
END_TEST

START_TEST(another_holder)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	LOST(answer(1001, LEASE_NOT_OWNER), LEASE_NOT_OWNER);
}
END_TEST

START_TEST(key_gone)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	LOST(answer(1001, LEASE_EXPIRED), LEASE_EXPIRED);
}
END_TEST

/* Tried again and again while validity is left; lost at its end, not later and not much earlier. */
START_TEST(no_quorum)
{
	unsigned tries = 0;
	uint64_t ms = 0;

	grant();
	for (;;) {
		ms = (hold_plan_timer_us(&plan) - began) / MS;
		enum hold_action deed = tick(ms);
		if (deed == HOLD_TELL_LOST)
			break;
		ck_assert_int_eq(deed, HOLD_DO_RENEW);
		ck_assert_int_eq(answer(ms, LEASE_NO_QUORUM), HOLD_DO_NOTHING);
		tries++;
	}
	ck_assert_uint_eq(ms, VALIDITY_MS - 1);
	ck_assert_int_eq(code, LEASE_NO_QUORUM);
	ck_assert_uint_eq(tries, 7); /* at 1000, 1300, … 2800 */
	OVER();
}
END_TEST

START_TEST(quorum_comes_back)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer(1050, LEASE_NO_QUORUM), HOLD_DO_NOTHING);
	DUE(1350);
	ck_assert_uint_eq(plan.until_us, at(VALIDITY_MS)); /* what was promised before stands */
	ck_assert_int_eq(tick(1350), HOLD_DO_RENEW);
	ck_assert_int_eq(answer(1360, LEASE_OK), HOLD_TELL_RENEWED);
	DUE(2350);
	/* The end of this validity is no longer about the quorum. */
	LOST(tick(10000), LEASE_EXPIRED);
}
END_TEST

START_TEST(pause_is_bounded)
{
	hold_plan_init(&plan, began, at(60000), 60000 * MS);
	ck_assert_int_eq(tick(20000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer(20000, LEASE_NO_QUORUM), HOLD_DO_NOTHING);
	DUE(21000);
}
END_TEST

START_TEST(no_answer_until_the_end)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	LOST(tick(VALIDITY_MS - 1), LEASE_NO_QUORUM);
}
END_TEST

/* It comes when nothing is left of the validity, and extends nothing beyond now. */
START_TEST(answer_too_late)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	LOST(answer(1000 + VALIDITY_MS, LEASE_OK), LEASE_EXPIRED);
}
END_TEST

/* The process was stopped: nobody asked the masters, and what is over is over. */
START_TEST(slept_past_the_end)
{
	grant();
	LOST(tick(5000), LEASE_EXPIRED);
}
END_TEST

/* At --max-hold-ms, here 4000, the renewals get shorter. */
START_TEST(bound_of_its_age)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer_ttl(1000, LEASE_OK, 3000), HOLD_TELL_RENEWED);
	ck_assert_int_eq(tick(2000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer_ttl(2000, LEASE_OK, 2000), HOLD_TELL_RENEWED);
	ck_assert_int_eq(tick(3000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer_ttl(3000, LEASE_OK, 1000), HOLD_TELL_RENEWED);
	ck_assert_uint_eq(plan.until_us, at(4000 - DRIFT_MS));
	DUE(4000 - DRIFT_MS - 1);
	LOST(tick(4000 - DRIFT_MS - 1), LEASE_EXPIRED);
}
END_TEST

/* … and there it does not matter what the masters say in the end. */
START_TEST(bound_of_its_age_without_quorum)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer_ttl(1000, LEASE_OK, 2000), HOLD_TELL_RENEWED);
	ck_assert_int_eq(tick(2000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer(2000, LEASE_NO_QUORUM), HOLD_DO_NOTHING);
	LOST(tick(3000), LEASE_EXPIRED);
}
END_TEST

START_TEST(never_shorter)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	ck_assert_int_eq(answer_ttl(1000, LEASE_OK, 10), HOLD_TELL_RENEWED); /* shorter than its drift even */
	ck_assert_uint_eq(plan.until_us, at(VALIDITY_MS));
}
END_TEST

START_TEST(drain)
{
	grant();
	hold_plan_drain(&plan, at(500), false);
	DUE(500);
	ck_assert_int_eq(tick(500), HOLD_DO_RENEW);
	hold_plan_drain(&plan, at(501), false);
	ck_assert_int_eq(tick(501), HOLD_DO_NOTHING);
	ck_assert_int_eq(answer(510, LEASE_OK), HOLD_TELL_DRAINING);
	ck_assert_uint_eq(plan.until_us, at(500 + VALIDITY_MS));
	OVER();
}
END_TEST

START_TEST(drain_takes_the_renewal_under_way)
{
	grant();
	ck_assert_int_eq(tick(1000), HOLD_DO_RENEW);
	hold_plan_drain(&plan, at(1001), false);
	ck_assert_int_eq(tick(1001), HOLD_DO_NOTHING);
	ck_assert_int_eq(answer(1010, LEASE_OK), HOLD_TELL_DRAINING);
	OVER();
}
END_TEST

START_TEST(drain_without_quorum)
{
	grant();
	hold_plan_drain(&plan, at(500), false);
	ck_assert_int_eq(tick(500), HOLD_DO_RENEW);
	/* there is validity left to use elsewhere */
	ck_assert_int_eq(answer(510, LEASE_NO_QUORUM), HOLD_TELL_DRAINING);
	OVER();
}
END_TEST

START_TEST(drain_is_patient_to_a_point)
{
	grant();
	hold_plan_drain(&plan, at(500), false);
	ck_assert_int_eq(tick(500), HOLD_DO_RENEW);
	DUE(1000);
	ck_assert_int_eq(tick(999), HOLD_DO_NOTHING);
	ck_assert_int_eq(tick(1000), HOLD_TELL_DRAINING);
	OVER();
	/* Short leases: half of what is left. */
	grant();
	hold_plan_drain(&plan, at(VALIDITY_MS - 100), false);
	ck_assert_int_eq(tick(VALIDITY_MS - 100), HOLD_DO_RENEW);
	DUE(VALIDITY_MS - 50);
}
END_TEST

START_TEST(drain_finds_it_lost)
{
	grant();
	hold_plan_drain(&plan, at(500), false);
	ck_assert_int_eq(tick(500), HOLD_DO_RENEW);
	LOST(answer(501, LEASE_NOT_OWNER), LEASE_NOT_OWNER);
	grant();
	hold_plan_drain(&plan, at(VALIDITY_MS), false);
	LOST(tick(VALIDITY_MS), LEASE_EXPIRED);
}
END_TEST

START_TEST(drain_of_a_new_one)
{
	grant();
	hold_plan_drain(&plan, at(0), true);
	DUE(0);
	ck_assert_int_eq(tick(0), HOLD_TELL_DRAINING);
	OVER();
}
END_TEST

/* Too many renewals at once are put off; an end is not. */
START_TEST(postponed)
{
	grant();
	ck_assert(!hold_plan_renews(&plan, at(999)));
	ck_assert(hold_plan_renews(&plan, at(1000)));
	hold_plan_postpone(&plan, at(1010));
	DUE(1010);
	ck_assert(!hold_plan_renews(&plan, at(1009)));
	ck_assert_int_eq(tick(1009), HOLD_DO_NOTHING);
	hold_plan_postpone(&plan, at(5000));
	DUE(VALIDITY_MS - 1);
	ck_assert(!hold_plan_renews(&plan, at(6000)));
	LOST(tick(VALIDITY_MS - 1), LEASE_EXPIRED);
}
END_TEST

START_TEST(shortest_lease)
{
	hold_plan_init(&plan, began, at(1), 10 * MS); /* 1 ms of validity is none that can be told */
	DUE(0);
	LOST(tick(0), LEASE_EXPIRED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hold_plan");
	TCase *tests = tcase_create("hold_plan");
	SRunner *runner = srunner_create(suite);

	suite_add_tcase(suite, tests);
	tcase_add_test(tests, each_third);
	tcase_add_test(tests, late_timer);
	tcase_add_test(tests, slow_answer);
	tcase_add_test(tests, another_holder);
	tcase_add_test(tests, key_gone);
	tcase_add_test(tests, no_quorum);
	tcase_add_test(tests, quorum_comes_back);
	tcase_add_test(tests, pause_is_bounded);
	tcase_add_test(tests, no_answer_until_the_end);
	tcase_add_test(tests, answer_too_late);
	tcase_add_test(tests, slept_past_the_end);
	tcase_add_test(tests, bound_of_its_age);
	tcase_add_test(tests, bound_of_its_age_without_quorum);
	tcase_add_test(tests, never_shorter);
	tcase_add_test(tests, drain);
	tcase_add_test(tests, drain_takes_the_renewal_under_way);
	tcase_add_test(tests, drain_without_quorum);
	tcase_add_test(tests, drain_is_patient_to_a_point);
	tcase_add_test(tests, drain_finds_it_lost);
	tcase_add_test(tests, drain_of_a_new_one);
	tcase_add_test(tests, postponed);
	tcase_add_test(tests, shortest_lease);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
