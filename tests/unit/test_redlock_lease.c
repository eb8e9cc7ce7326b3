/* The core, rule by rule: extend, release and inspect, cancels, and what the caller must not do. See test_redlock.c. */
#include <signal.h>

#include "redlock_cases.h"
#include "suite.h"

/* ---- extend ---- */

TEST(test_extend_too_late_is_no_lease)
{
	struct redlock_params params = params_of(REDLOCK_EXTEND, 3, 1);
	struct driver driver;

	params.master_timeout_us = 2 * TTL;
	driver_init(&driver, &params, 1);
	driver_start(&driver, T);
	ck_assert_uint_eq(redlock_deadline_us(&driver.op), T + TTL - DRIFT);
	driver_vote(&driver, T, 0, GRANTED);
	driver_vote(&driver, T + TTL - DRIFT, 1, GRANTED);
	decided(&driver, REDLOCK_NO_QUORUM, 0);
}

/* A majority that has extended twice gives the key back where it was gone in between. */
TEST(test_extend_repairs_what_is_gone)
{
	struct driver driver = started(REDLOCK_EXTEND, 5, 7);

	driver_vote(&driver, T, 0, GONE);
	driver_vote(&driver, T, 1, GRANTED);
	driver_vote(&driver, T, 2, GRANTED);
	quiet(&driver);
	driver_vote(&driver, T + 1, 3, GRANTED);
	decided(&driver, REDLOCK_OK, 1 << 1 | 1 << 2 | 1 << 3);
	ck_assert_int_eq(driver.out.script, REDLOCK_SCRIPT_EXTEND);
	ck_assert_uint_eq(driver.out.round, 1);
	driver_vote(&driver, T + 2, 1, GRANTED);
	driver_vote(&driver, T + 2, 4, GONE); /* after the second extension was sent: the next one may repair it */
	quiet(&driver);
	driver_vote(&driver, T + 2, 2, GRANTED);
	quiet(&driver);
	driver_vote(&driver, T + 3, 3, GRANTED);
	ck_assert(driver.out.repair);
	ck_assert_uint_eq(driver.out.to, 1);
	ck_assert_uint_eq(driver.out.repair_until_us, T + 1 + driver.params.master_timeout_us);
	ck_assert_uint_eq(driver.out.repair_ttl_us, TTL - DRIFT - driver.params.master_timeout_us - 1);
	ck_assert(!driver.finished);
	driver_vote(&driver, T + 4, 0, GRANTED);
	quiet(&driver);
	ck_assert(driver.finished);
}

/* Not without a second majority, and not after its time. */
TEST(test_extend_repairs_nothing_in_doubt)
{
	for (unsigned late = 0; late < 2; late++) {
		struct driver driver = started(REDLOCK_EXTEND, 3, 7);

		driver_vote(&driver, T, 0, GRANTED);
		driver_vote(&driver, T, 1, GRANTED);
		driver_vote(&driver, T + 5, 2, GONE);
		ck_assert_int_eq(driver.out.script, REDLOCK_SCRIPT_EXTEND);
		driver_vote(&driver, T + 6, 0, GRANTED);
		quiet(&driver);
		driver_vote(&driver, T + 5 + (late ? driver.params.master_timeout_us : 2), 1, late ? GRANTED : GONE);
		quiet(&driver);
		ck_assert(driver.finished);
	}
}

TEST(test_extend_against_another_holder)
{
	struct driver driver = started(REDLOCK_EXTEND, 3, 1);

	driver_held(&driver, T, 0, A, 9000);
	quiet(&driver);
	driver_held(&driver, T, 2, B, 9000);
	decided(&driver, REDLOCK_NOT_OWNER, 0);
	ck_assert(driver.result.has_holder);
	driver = started(REDLOCK_EXTEND, 3, 1);
	driver_held(&driver, T, 0, A, 9000);
	driver_vote(&driver, T, 1, GONE);
	driver_vote(&driver, T, 2, FAILED); /* it may hold A's majority */
	decided(&driver, REDLOCK_NOT_OWNER, 0);
	driver = started(REDLOCK_EXTEND, 3, 1);
	driver_held(&driver, T, 0, A, 9000);
	driver_vote(&driver, T, 1, GONE);
	driver_vote(&driver, T, 2, GRANTED);
	decided(&driver, REDLOCK_EXPIRED, 0);
}

TEST(test_extend_that_may_have_a_majority_is_not_called_expired)
{
	struct driver driver = started(REDLOCK_EXTEND, 3, 1);

	driver_vote(&driver, T, 0, GRANTED);
	driver_vote(&driver, T, 1, GONE);
	quiet(&driver);
	driver_timer(&driver, T + TIMEOUT);
	decided(&driver, REDLOCK_NO_QUORUM, 0);
	votes(&driver, 1, 1, 1, 0);
	ck_assert_uint_eq(driver.result.retry_after_us, PAUSE_MAX);
}

/* ---- release ---- */

/* A release does not need a ttl that a lease could have. */
TEST_EACH(test_release_waits_for_the_whole_master_timeout, 0, 2)
{
	struct redlock_params params = params_of(_i ? REDLOCK_RELEASE : REDLOCK_INSPECT, 3, 0);
	struct driver driver;

	params.ttl_us = 0;
	driver_init(&driver, &params, 1);
	driver_start(&driver, T);
	ck_assert_uint_eq(redlock_deadline_us(&driver.op), T + TIMEOUT);
	driver_timer(&driver, T + TIMEOUT);
	decided(&driver, REDLOCK_NO_QUORUM, 0);
	driver_finish(&driver, FAILED);
}

/* ---- inspect ---- */

TEST(test_inspect_tells_how_long_it_is_held)
{
	struct driver driver = started(REDLOCK_INSPECT, 5, 1);

	driver_held(&driver, T, 0, A, 1000);
	driver_held(&driver, T, 1, B, 99000);
	driver_held(&driver, T, 2, A, 7000);
	quiet(&driver);
	driver_held(&driver, T, 3, A, REDLOCK_NEVER);
	decided(&driver, REDLOCK_OK, 0);
	ck_assert(driver.result.held && driver.result.has_holder);
	ck_assert_uint_eq(driver.result.holder, A);
	ck_assert_uint_eq(driver.result.remaining_us, 7000); /* then two are free, and the silent one may be */
	votes(&driver, 3, 1, 0, 0);
	driver = started(REDLOCK_INSPECT, 1, 1);
	driver_held(&driver, T, 0, B, REDLOCK_NEVER);
	ck_assert_uint_eq(driver.result.remaining_us, REDLOCK_NEVER);
}

/* The silent master decides whether it is free, so the inspection waits for it until its deadline. */
TEST(test_inspect_waits_for_the_one_that_tells)
{
	static const enum redlock_vote last[] = {GONE, FAILED};

	for (unsigned i = 0; i < 2; i++) {
		struct driver driver = started(REDLOCK_INSPECT, 5, 1);

		driver_held(&driver, T, 0, A, 1000);
		driver_vote(&driver, T, 1, GONE);
		driver_vote(&driver, T, 2, GONE);
		driver_vote(&driver, T, 3, FAILED);
		quiet(&driver);
		driver_vote(&driver, T, 4, last[i]);
		decided(&driver, REDLOCK_OK, 0);
		ck_assert(driver.result.held == (last[i] == FAILED));
	}
}

TEST_EACH(test_cancel_after_the_answer_does_nothing, REDLOCK_ACQUIRE, REDLOCK_INSPECT + 1)
{
	struct driver driver = started((enum redlock_kind)_i, 1, 1);

	driver_vote(&driver, T, 0, _i == REDLOCK_INSPECT ? GONE : GRANTED);
	decided(&driver, REDLOCK_OK, 0);
	ck_assert(driver.finished);
	driver_cancel(&driver, T);
	quiet(&driver);
}

/* ---- programmer errors ---- */

TEST_SIGNAL(test_bad_parameters_are_asserted, 0, 5, SIGABRT)
{
	struct redlock_params params = params_of(REDLOCK_ACQUIRE, 3, 1);
	struct redlock op;

	switch (_i) {
	case 0: params.masters = 0; break;
	case 1: params.masters = REDLOCK_MASTERS_MAX + 1; break;
	case 2: params.tries = 0; break;
	case 3: params.ttl_us = 0; break;
	case 4: params.retry_min_us = params.retry_max_us + 1; break;
	}
	redlock_init(&op, &params, 1);
}

TEST_SIGNAL(test_replies_that_were_not_asked_for_are_asserted, 0, 2, SIGABRT)
{
	struct redlock_event event = {.kind = REDLOCK_REPLY, .now_us = T, .attempt = 1, .vote = REDLOCK_VOTE_GRANTED};
	struct driver driver = started(REDLOCK_ACQUIRE, 1, 1);

	event.script = REDLOCK_SCRIPT_ACQUIRE;
	event.master = (uint8_t)_i;
	if (_i == 0)
		driver_vote(&driver, T, 0, GRANTED);
	redlock_step(&driver.op, &event, &driver.out);
}

/* An expired lease stays expired: an extension sends only EXTEND, once. */
TEST(test_extend_does_not_revive_an_expired_lease)
{
	struct driver driver = started(REDLOCK_EXTEND, 3, 5);

	ck_assert_int_eq(driver.out.script, REDLOCK_SCRIPT_EXTEND);
	driver_vote(&driver, T, 0, GONE);
	quiet(&driver);
	driver_vote(&driver, T, 2, GONE);
	decided(&driver, REDLOCK_EXPIRED, 0);
	votes(&driver, 0, 2, 0, 0);
	driver_vote(&driver, T, 1, GRANTED);
	quiet(&driver);
	ck_assert(driver.finished);
}
