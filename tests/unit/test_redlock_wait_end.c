/* SPDX-License-Identifier: MIT */
/* The core in the queue: how a wait ends, and that no entry is left.
 *
 * A stale entry delays all waiters behind it. So the waiter removes its entry wherever it may be: on a grant, on the
 * masters that did not grant it; and at the end of the wait. The driver demands that no operation is finished while an
 * entry is left. test_redlock_wait.c has the attempts; the simulators cancel and grant in every state. */
#include "redlock_wait_cases.h"
#include "suite.h"

/* ---- the wait is over ---- */

TEST(test_end_tells_who_holds_it_now)
{
	struct driver driver = leaving();

	driver_held(&driver, T + WAIT + 10, 2, B, 5000);
	quiet(&driver);
	driver_held(&driver, T + WAIT + 20, 0, B, 5000);
	decided(&driver, REDLOCK_LOCKED, 0);
	ck_assert(driver.result.has_holder);
	ck_assert_uint_eq(driver.result.holder, B);
	ck_assert_uint_eq(driver.result.retry_after_us, 5000);
	votes(&driver, 0, 2, 0, 0);
	ck_assert(!driver.finished);
	driver_vote(&driver, T + WAIT + 30, 1, FAILED);
	ck_assert(driver.finished);
}

/* It was held when the wait began: the answer stays LOCKED, although it is free now. */
TEST(test_end_with_the_lock_free_is_locked_by_nobody)
{
	struct driver driver = leaving();

	for (unsigned i = 0; i < 3; i++) {
		ck_assert(!driver.done);
		driver_vote(&driver, T + WAIT + i, i, GONE);
	}
	decided(&driver, REDLOCK_LOCKED, 0);
	ck_assert(!driver.result.has_holder);
	votes(&driver, 0, 3, 0, 0);
	ck_assert(driver.finished);
}

/* Notified at the last moment: the attempt is made, and decides if it wins. */
TEST(test_end_waits_for_the_attempt_under_way)
{
	for (unsigned wins = 0; wins < 2; wins++) {
		struct driver driver = refused_waiter(true);

		driver_notified(&driver, T + WAIT - 100, 0);
		driver_notified(&driver, T + WAIT - 100, 1);
		attempts(&driver, 2);
		ck_assert_uint_eq(driver.out.wait_left_us, 100);
		driver_timer(&driver, T + WAIT);
		quiet(&driver);
		if (wins) {
			driver_vote(&driver, T + WAIT + 10, 0, GRANTED);
			driver_vote(&driver, T + WAIT + 10, 1, GRANTED);
			decided(&driver, REDLOCK_OK, 0);
			continue;
		}
		driver_held(&driver, T + WAIT + 10, 0, A, LEFT);
		driver_held(&driver, T + WAIT + 10, 1, A, LEFT);
		gave_back(&driver, 4);
		ck_assert_uint_eq(driver.out.wait_left_us, 1); /* never none: the script would take that for leaving */
		ck_assert_uint_le(redlock_deadline_us(&driver.op), T + WAIT + 10);
		driver_timer(&driver, T + WAIT + 10);
		left(&driver, 7);
		ck_assert_int_eq(driver.op.state, REDLOCK_LEAVING);
	}
}

/* The wait ends when the numbers of attempts are used up. */
TEST(test_attempts_are_bounded)
{
	struct redlock_params params = waiting_params(1);
	struct driver driver;

	params.wait_us = UINT64_C(1) << 60;
	driver = waiter_of(&params, false);
	for (uint64_t now_us = T; driver.op.state != REDLOCK_LEAVING; now_us++) {
		driver_held(&driver, now_us, 0, A, LEFT);
		driver_notified(&driver, now_us, 0);
		MUST(driver.tries < UINT16_MAX || driver.op.state != REDLOCK_WAITING, "stuck");
	}
	ck_assert_uint_eq(driver.tries, UINT16_MAX);
	driver_held(&driver, driver.now_us, 0, A, LEFT);
	decided(&driver, REDLOCK_LOCKED, 0);
	ck_assert(driver.finished);
}

/* A hung master owes two replies for each attempt of a waiter that the others keep notifying. The count has room for
 * all of them, and the last one finishes the operation. */
TEST(test_a_hung_master_owes_answers_without_end)
{
	struct redlock_params params = waiting_params(3);
	struct redlock_event event = {.kind = REDLOCK_START, .now_us = T, .fence = DRIVER_GUESS};
	struct redlock_output out;
	struct redlock op;
	uint32_t owed = 0;

	redlock_init(&op, &params, 42);
	redlock_step(&op, &event, &out);
	for (bool leaving = false; !out.done; leaving = op.state == REDLOCK_LEAVING) {
		for (uint8_t i = 0; i < 2; i++) {
			event = (struct redlock_event){.kind = REDLOCK_REPLY,
						       .now_us = T,
						       .master = i,
						       .attempt = op.attempt,
						       .round = leaving,
						       .script = leaving ? REDLOCK_SCRIPT_RELEASE
									 : REDLOCK_SCRIPT_ACQUIRE,
						       .vote = REDLOCK_VOTE_HELD,
						       .holder = A,
						       .remaining_us = LEFT};
			owed += out.to >> 2 & 1;
			redlock_step(&op, &event, &out);
		}
		owed += out.to >> 2 & 1;
		out.to = 0;
		for (uint8_t i = 0; i < 2 && !out.done; i++) {
			event = (struct redlock_event){
				.kind = REDLOCK_NOTIFIED, .now_us = T, .master = i, .fence = DRIVER_GUESS};
			redlock_step(&op, &event, &out);
		}
	}
	ck_assert_uint_eq(op.attempt, UINT16_MAX);
	ck_assert_uint_eq(owed, 2 * UINT16_MAX + 1);
	event = (struct redlock_event){.kind = REDLOCK_REPLY, .now_us = T, .master = 2, .attempt = 1};
	event.script = REDLOCK_SCRIPT_ACQUIRE;
	event.vote = REDLOCK_VOTE_FAILED;
	for (; owed > 0; owed--) {
		MUST(!out.finished, "finished with %u answers owed", owed);
		redlock_step(&op, &event, &out);
	}
	ck_assert(out.finished);
}
