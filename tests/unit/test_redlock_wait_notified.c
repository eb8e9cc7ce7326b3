/* The core in the queue: notifications of this waiter, and of other processes. See test_redlock_wait.c. */
#include "redlock_wait_cases.h"
#include "suite.h"

/* ---- notified ---- */

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
