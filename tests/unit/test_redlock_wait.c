/* SPDX-License-Identifier: MIT */
/* The core in the queue: when a waiter tries again, and when it does not.
 *
 * An attempt follows at once the notifications of a majority, after a pause those of fewer masters, the end of the
 * holder's time for the first waiter of a process alone, and the turn of another process if no more news of it comes.
 * test_redlock_wait_end.c has the end of a wait. The driver checks each entry that is taken and removed. */
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
	driver_step(&driver, &(struct redlock_event){.kind = REDLOCK_LOOK, .now_us = T + 2});
	sleeps_until(&driver, end_us);
	driver_notified(&driver, T + 3, 0);
	driver_notified(&driver, T + 4, 1);
	attempts(&driver, 2);
}

/* LOOK is for one attempt: one behind others then sleeps as before. */
TEST(test_a_look_makes_nobody_the_first)
{
	struct driver driver = refused_waiter(true);

	driver_step(&driver, &(struct redlock_event){.kind = REDLOCK_LOOK, .now_us = T + 100});
	sleeps_until(&driver, T + 100);
	driver_timer(&driver, T + 100);
	attempts(&driver, 2);
	refuse(&driver, T + 200);
	sleeps_until(&driver, T + WAIT);
}

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

TEST(test_inspection_counts_those_that_a_majority_may_know_of)
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
	ck_assert_uint_eq(driver.result.waiters, 7); /* three answered: 7, 2, 4; the others may know of 7, too */
	driver_finish(&driver, GONE);
}

/* ---- slots: the one that was asked for is held, and another one is free ---- */

static void driver_elsewhere(struct driver *driver, uint64_t now_us, unsigned master, uint64_t holder)
{
	driver_reply(driver, &(struct redlock_event){.now_us = now_us,
						     .master = (uint8_t)master,
						     .vote = REDLOCK_VOTE_HELD,
						     .holder = holder,
						     .remaining_us = LEFT,
						     .elsewhere = true});
}

/* The one that is silent may have granted, or may have another slot free. */
TEST(test_one_master_with_another_slot_is_enough)
{
	struct driver driver = waiter(3, false);

	driver_elsewhere(&driver, T, 0, A);
	driver_vote(&driver, T, 1, GRANTED);
	driver_timer(&driver, T + TIMEOUT);
	gave_back(&driver, 6);
	sleeps_until(&driver, T + TIMEOUT);
}

TEST(test_hops_end_in_a_pause)
{
	struct driver driver = waiter(1, false);

	for (unsigned attempt = 1; attempt <= REDLOCK_HOPS_MAX; attempt++) {
		driver_elsewhere(&driver, T, 0, A);
		sleeps_until(&driver, T);
		driver_timer(&driver, T);
		attempts(&driver, attempt + 1);
	}
	driver_elsewhere(&driver, T, 0, A);
	ck_assert(driver.op.paused);
	ck_assert_uint_ge(redlock_deadline_us(&driver.op), T + driver.params.retry_min_us);
}
