/* The core in the queue: CANCEL in each state of a waiter, as after a disconnect; and operations that do not wait. See
 * test_redlock_wait_end.c. */
#include "redlock_wait_cases.h"
#include "suite.h"

/* ---- cancelled ---- */

/* Also on a master that this attempt did not reach, where an earlier one left the entry. */
TEST(test_cancel_of_a_later_attempt)
{
	struct driver driver = refused_waiter(false);

	driver_notified(&driver, T, 0);
	driver_notified(&driver, T, 1);
	driver_vote(&driver, T + 1, 2, UNSENT);
	driver_cancel(&driver, T + 2);
	decided(&driver, REDLOCK_CANCELLED, 7);
	released(&driver, 7);
	driver_finish(&driver, GONE);
}

TEST(test_cancel_in_a_pause)
{
	struct driver driver = waiter(3, true);

	driver_vote(&driver, T, 0, GRANTED);
	driver_held(&driver, T, 1, A, LEFT);
	driver_held(&driver, T, 2, B, LEFT);
	gave_back(&driver, 1);
	driver_cancel(&driver, T + 5);
	decided(&driver, REDLOCK_CANCELLED, 7);
	left(&driver, 7);
	driver_finish(&driver, GONE);
}

TEST(test_cancel_at_the_end)
{
	struct driver driver = leaving();

	driver_held(&driver, T + WAIT, 0, A, LEFT);
	driver_cancel(&driver, T + WAIT + 1);
	decided(&driver, REDLOCK_CANCELLED, 0);
	driver_finish(&driver, GONE);
}

/* ---- who does not wait ---- */

TEST(test_anothers_turn_does_not_hinder_a_majority)
{
	struct driver driver = started(REDLOCK_ACQUIRE, 3, 1);

	driver_queued(&driver, T, 1, ALIVE);
	driver_vote(&driver, T, 0, GRANTED);
	quiet(&driver);
	driver_vote(&driver, T, 2, GRANTED);
	decided(&driver, REDLOCK_OK, 0);
	ck_assert(driver.finished);
}

TEST(test_inspection_counts_those_that_a_majority_knows_of)
{
	static const uint32_t here[] = {7, 2, 4, 9, 0};
	struct driver driver = started(REDLOCK_INSPECT, 5, 1);
	struct redlock_event reply = {.now_us = T, .vote = GONE};

	for (uint8_t i = 0; i < 5; i++) {
		if (driver.done)
			break;
		reply.master = i;
		reply.waiters = here[i];
		driver_reply(&driver, &reply);
	}
	ck_assert_int_eq(driver.result.outcome, REDLOCK_OK);
	ck_assert_uint_eq(driver.result.waiters, 2); /* three answered: 7, 2, 4 */
	driver_finish(&driver, GONE);
}
