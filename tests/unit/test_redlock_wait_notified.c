/* The core in the queue: notifications of this waiter, and of other processes. See test_redlock_wait.c. */
#include "redlock_wait_cases.h"
#include "suite.h"

/* ---- notified ---- */

TEST(test_majority_of_notifications_is_an_attempt_at_once)
{
	for (unsigned behind = 0; behind < 2; behind++) {
		struct driver driver = refused_waiter(behind);

		driver_notified(&driver, T + 100, 2);
		quiet(&driver);
		driver_notified(&driver, T + 200, 0);
		attempts(&driver, 2);
		driver_vote(&driver, T + 300, 0, GRANTED);
		driver_vote(&driver, T + 300, 2, GRANTED);
		decided(&driver, REDLOCK_OK, 0);
	}
}

TEST_EACH(test_notifications_are_counted_by_the_configured_masters, 1, REDLOCK_MASTERS_MAX + 1)
{
	unsigned masters = (unsigned)_i, majority = masters / 2 + 1;
	struct driver driver = waiter(masters, true);

	for (unsigned i = 0; i < majority; i++)
		driver_held(&driver, T, i, A, LEFT);
	for (unsigned i = 0; i < majority; i++) {
		ck_assert_int_eq(driver.op.state, REDLOCK_WAITING);
		driver_notified(&driver, T + i, i);
	}
	attempts(&driver, 2);
}

/* A notification of one master alone causes an attempt, but not at once: only there the lock may be free. */
TEST(test_a_single_notification_is_an_attempt_after_a_while)
{
	for (unsigned behind = 0; behind < 2; behind++) {
		struct driver driver = refused_waiter(behind);

		driver_notified(&driver, T + 100, 1);
		quiet(&driver);
		sleeps_until(&driver, T + 100 + TIMEOUT);
		driver_notified(&driver, T + 300, 1); /* the same master again: no majority, and the deadline stays */
		quiet(&driver);
		sleeps_until(&driver, T + 100 + TIMEOUT);
		driver_timer(&driver, T + 100 + TIMEOUT);
		attempts(&driver, 2);
	}
}

TEST(test_a_single_notification_makes_no_waiter_wait_longer)
{
	struct driver driver = refused_waiter(false);

	driver_notified(&driver, T + LEFT, 1);
	sleeps_until(&driver, T + LEFT + ROUNDED);
}

/* The master may have refused it before it notified it. */
TEST(test_notifications_while_it_votes_are_not_lost)
{
	struct driver driver = waiter(3, true);

	driver_held(&driver, T, 0, A, LEFT);
	driver_notified(&driver, T + 10, 0);
	driver_notified(&driver, T + 20, 1);
	quiet(&driver);
	driver_held(&driver, T + 30, 1, A, LEFT);
	gave_back(&driver, 4);
	sleeps_until(&driver, T + 30);
	driver_timer(&driver, T + 30);
	attempts(&driver, 2);
	driver = waiter(3, true);
	driver_held(&driver, T, 0, A, LEFT);
	driver_notified(&driver, T + 10, 0);
	driver_held(&driver, T + 30, 1, A, LEFT);
	sleeps_until(&driver, T + 30 + TIMEOUT);
}

TEST(test_notifications_while_it_raises_are_not_lost)
{
	struct driver driver = waiter(3, true);
	struct redlock_event grant = {.now_us = T, .vote = GRANTED, .ttl_us = TTL, .fence = DRIVER_GUESS};

	driver_reply(&driver, &grant);
	grant.master = 1;
	driver_reply(&driver, &grant);
	ck_assert_int_eq(driver.out.script, REDLOCK_SCRIPT_RAISE);
	driver_notified(&driver, T + 10, 0);
	driver_notified(&driver, T + 10, 2);
	quiet(&driver);
	driver_vote(&driver, T + 20, 0, GONE);
	driver_vote(&driver, T + 20, 1, GONE);
	sleeps_until(&driver, T + 20);
}

/* An attempt uses up the notifications that came before it. */
TEST(test_older_notifications_do_not_count_for_the_next_attempt)
{
	struct driver driver = refused_waiter(false);

	driver_notified(&driver, T + 10, 0);
	driver_notified(&driver, T + 10, 1);
	attempts(&driver, 2);
	refuse(&driver, T + 50);
	sleeps_until(&driver, T + 50 + LEFT + ROUNDED);
	driver_notified(&driver, T + 60, 0);
	sleeps_until(&driver, T + 60 + TIMEOUT);
}

/* Exactly a majority names the holder. The third master is free, and notifies after each release there. */
TEST(test_a_master_without_the_holder_has_nothing_to_say)
{
	struct driver driver = refused_waiter(false);
	uint64_t before_us = redlock_deadline_us(&driver.op);

	driver_notified(&driver, T + 10, 2);
	quiet(&driver);
	sleeps_until(&driver, before_us);
	driver_notified(&driver, T + 20, 1); /* with one that named the holder it is a majority */
	attempts(&driver, 2);
}

/* The holder has a majority elsewhere, and each attempt makes this master notify: notifications and attempts would
 * cause each other for ever. */
TEST(test_a_notification_from_where_the_holder_is_not_is_no_news)
{
	struct driver driver = waiter(3, false);

	driver_vote(&driver, T, 2, GRANTED);
	driver_held(&driver, T, 0, A, LEFT);
	driver_held(&driver, T, 1, A, LEFT);
	gave_back(&driver, 4);
	driver_notified(&driver, T + 100, 2);
	sleeps_until(&driver, T + LEFT + ROUNDED);
	driver_step(&driver, &(struct redlock_event){.kind = REDLOCK_PASSED, .now_us = T + 150, .master = 2});
	sleeps_until(&driver, T + LEFT + ROUNDED);
	driver_notified(&driver, T + 200, 0); /* with that one it is a majority */
	attempts(&driver, 2);
}

TEST(test_a_notification_from_where_the_holder_is_counts_after_others)
{
	struct driver driver = waiter(5, true);

	for (unsigned i = 0; i < 3; i++)
		driver_held(&driver, T, i, A, LEFT);
	ck_assert_int_eq(driver.op.state, REDLOCK_WAITING);
	driver_notified(&driver, T + 100, 4);
	sleeps_until(&driver, T + WAIT);
	driver_notified(&driver, T + 200, 1);
	sleeps_until(&driver, T + 200 + TIMEOUT);
	driver_notified(&driver, T + 300, 2);
	attempts(&driver, 2);
}

/* No holder has a majority: each master that did not grant may be the one that decides. */
TEST(test_without_a_majority_each_notification_counts_but_of_those_that_granted)
{
	struct driver driver = waiter(3, true);

	driver_vote(&driver, T, 0, GRANTED);
	driver_vote(&driver, T, 2, FAILED);
	driver_held(&driver, T, 1, A, LEFT);
	sleeps_until(&driver, T + WAIT);
	driver_notified(&driver, T + 50, 0);
	sleeps_until(&driver, T + WAIT);
	driver_notified(&driver, T + 100, 2);
	attempts(&driver, 2); /* with that one it is a majority */
	driver = waiter(3, true);
	driver_vote(&driver, T, 0, GRANTED);
	driver_vote(&driver, T, 2, FAILED);
	driver_held(&driver, T, 1, A, LEFT);
	driver_notified(&driver, T + 100, 2);
	sleeps_until(&driver, T + 100 + TIMEOUT);
}

/* ---- passed by ---- */

TEST(test_another_process_is_given_its_time)
{
	struct driver driver = refused_waiter(false);

	driver_passed(&driver, T + 500);
	quiet(&driver);
	sleeps_until(&driver, T + 500 + ALIVE);
	ck_assert_uint_eq(driver.op.free_us, T + 500 + ALIVE);
	driver_passed(&driver, T + 900000); /* and the next one */
	sleeps_until(&driver, T + 900000 + ALIVE);
	driver_timer(&driver, T + 900000 + ALIVE);
	attempts(&driver, 2);
	driver_passed(&driver, T + 900000 + ALIVE); /* the votes tell the outcome */
	refuse(&driver, T + 900000 + ALIVE);
	sleeps_until(&driver, T + 900000 + ALIVE + LEFT + ROUNDED);
}

/* The news may be about a lock of the same name in another cluster that shares a server's channels. */
TEST(test_being_passed_by_has_an_end)
{
	struct redlock_params params = waiting_params(3);
	uint64_t first_us = T + 500;
	struct driver driver;

	params.wait_us = 3 * (uint64_t)WAIT;
	driver = waiter_of(&params, false);
	refuse(&driver, T);
	for (unsigned again = 0; again < 2; again++) {
		uint64_t end_us = first_us + REDLOCK_PASSED_MAX_US;

		for (uint64_t now_us = first_us; now_us < end_us; now_us += ALIVE / 2) {
			driver_passed(&driver, now_us);
			sleeps_until(&driver, now_us + ALIVE < end_us ? now_us + ALIVE : end_us);
		}
		driver_timer(&driver, end_us);
		attempts(&driver, again + 2);
		refuse(&driver, end_us);
		sleeps_until(&driver, end_us + LEFT + ROUNDED);
		first_us = end_us + 700; /* it counts anew from the attempt on */
	}
}

TEST(test_a_waiter_that_was_notified_does_not_stand_back)
{
	struct driver driver = refused_waiter(false);

	driver_notified(&driver, T + 100, 1);
	driver_passed(&driver, T + 200);
	sleeps_until(&driver, T + 100 + TIMEOUT);
}

TEST(test_passed_wakes_none_of_those_behind)
{
	struct driver driver = refused_waiter(true);

	driver_passed(&driver, T + 500);
	sleeps_until(&driver, T + WAIT);
}
