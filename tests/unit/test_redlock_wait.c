/* The core in the queue: when a waiter tries again, and when it does not.
 *
 * An attempt follows at once the notifications of a majority, after a pause those of fewer masters, the end of the
 * holder's time for the first waiter of a process alone, and the turn of another process if no more news of it comes.
 * test_redlock_wait_end.c has the end of a wait, test_redlock_wait_notified.c the notifications. The driver checks each
 * entry that is taken and removed. */
#include "redlock_wait_cases.h"
#include "suite.h"

/* ---- refused: into the queue ---- */

TEST(test_refused_waiter_stands_in_queue_and_sleeps)
{
	struct driver driver = waiter(3, false);

	ck_assert_int_eq(driver.out.entry, KEEP);
	ck_assert_uint_eq(driver.out.wait_left_us, WAIT);
	driver_held(&driver, T + 10, 0, A, LEFT);
	quiet(&driver);
	driver_held(&driver, T + 20, 2, A, LEFT);
	gave_back(&driver, 2); /* the silent one may have granted */
	ck_assert_uint_eq(driver.out.wait_left_us, WAIT - 20);
	sleeps_until(&driver, T + 20 + LEFT + ROUNDED);
	ck_assert_uint_eq(driver.op.free_us, T + 20 + LEFT + ROUNDED);
	driver_vote(&driver, T + 30, 1, GRANTED); /* its release is on the way */
	quiet(&driver);
	sleeps_until(&driver, T + 20 + LEFT + ROUNDED);
}

TEST(test_a_holder_without_an_end_is_tried_after_a_ttl)
{
	struct driver driver = waiter(1, false);

	driver_held(&driver, T, 0, A, REDLOCK_NEVER);
	sleeps_until(&driver, T + TTL + ROUNDED);
}

/* The process whose turn it is counts as alive for this long; after that the waiter tries. */
TEST(test_anothers_turn_is_awaited_while_it_lives)
{
	struct driver driver = waiter(3, false);

	driver_queued(&driver, T, 0, 700000);
	driver_queued(&driver, T, 1, 700000);
	sleeps_until(&driver, T + 700000 + ROUNDED);
	driver = waiter(3, false);
	driver_queued(&driver, T, 0, 900000);
	driver_queued(&driver, T, 2, 400000);
	ck_assert_uint_le(redlock_deadline_us(&driver.op), T + 900000 + ROUNDED);
	ck_assert_uint_ge(redlock_deadline_us(&driver.op), T + 400000 + ROUNDED);
}

/* ---- the first of a process ---- */

TEST(test_the_next_first_gets_the_fallback)
{
	struct driver driver = refused_waiter(true);

	driver_first(&driver, T + 100, 25000);
	quiet(&driver);
	sleeps_until(&driver, T + 100 + 25000);
	driver_timer(&driver, T + 100 + 25000);
	attempts(&driver, 2);
	refuse(&driver, T + 30000);
	sleeps_until(&driver, T + 30000 + LEFT + ROUNDED);
}

/* The waiter before it may not have known when the lock is free. */
TEST(test_first_of_one_who_knew_nothing_takes_no_knowledge_away)
{
	struct driver driver = refused_waiter(true);

	driver_first(&driver, T + 100, REDLOCK_NEVER);
	sleeps_until(&driver, T + LEFT + ROUNDED);
}

TEST(test_pause_ends_at_a_notification_and_not_when_passed)
{
	struct driver driver = waiter(3, false);
	uint64_t end_us;

	driver_vote(&driver, T, 0, GRANTED);
	driver_held(&driver, T, 1, A, LEFT);
	driver_held(&driver, T, 2, B, LEFT);
	end_us = redlock_deadline_us(&driver.op);
	driver_passed(&driver, T + 1);
	sleeps_until(&driver, end_us);
	driver_first(&driver, T + 2, LEFT);
	sleeps_until(&driver, end_us);
	driver_notified(&driver, T + 3, 0);
	driver_notified(&driver, T + 4, 1);
	attempts(&driver, 2);
}
