/* The core in the queue: CANCEL in each state of a waiter, as after a disconnect; and operations that do not wait. See
 * test_redlock_wait_end.c. */
#include "redlock_wait_cases.h"
#include "suite.h"

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
