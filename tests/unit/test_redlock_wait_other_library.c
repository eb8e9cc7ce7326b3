/* SPDX-License-Identifier: MIT */
/* The core in the queue behind a holder of another library: its release notifies nobody, so the first waiter of a
 * process, and no other, looks again at short intervals. For a holder of redlockd's see test_redlock_wait.c. */
#include "redlock_wait_cases.h"
#include "suite.h"

enum { LOOK = 250000, LONG = 60000000 };

static void held_by_other_library(struct driver *driver, uint64_t now_us, unsigned master, uint64_t holder,
				  uint64_t remaining_us)
{
	driver_reply(driver, &(struct redlock_event){.now_us = now_us,
						     .master = (uint8_t)master,
						     .vote = REDLOCK_VOTE_HELD,
						     .holder = holder,
						     .remaining_us = remaining_us,
						     .other_library = true});
}

/* All three masters name a holder of another library, as in refuse(). */
static void refuse_for_other_library(struct driver *driver, uint64_t now_us, uint64_t remaining_us)
{
	held_by_other_library(driver, now_us, 0, A, remaining_us);
	held_by_other_library(driver, now_us, 1, A, remaining_us);
	gave_back(driver, 4);
	held_by_other_library(driver, now_us, 2, A, remaining_us);
	held_by_other_library(driver, now_us, 2, A, remaining_us);
	quiet(driver);
}

TEST(test_a_key_of_another_library_beside_a_holder_of_ours)
{
	struct driver driver = waiter(3, false);

	/* A holder of redlockd's has a majority: its release notifies. */
	held_by_other_library(&driver, T, 0, B, LONG);
	driver_held(&driver, T, 1, A, LONG);
	driver_held(&driver, T, 2, A, LONG);
	ck_assert_uint_gt(redlock_deadline_us(&driver.op), T + LOOK);
	/* It has no majority: its release may not be enough. */
	driver = waiter(3, false);
	held_by_other_library(&driver, T, 0, B, LONG);
	driver_held(&driver, T, 1, A, LONG);
	driver_vote(&driver, T, 2, FAILED);
	sleeps_until(&driver, T + LOOK);
}

/* In a wait of a day, the longest that can be configured, the attempts do not run out. */
TEST(test_looks_last_for_the_longest_wait)
{
	struct redlock_params params = waiting_params(1);
	uint64_t now_us = T;

	params.wait_us = UINT64_C(86400) * 1000000;
	struct driver driver = waiter_of(&params, false);
	for (;;) {
		held_by_other_library(&driver, now_us, 0, A, REDLOCK_NEVER);
		MUST(driver.op.state == REDLOCK_WAITING, "it sleeps");
		now_us = redlock_deadline_us(&driver.op);
		driver_timer(&driver, now_us);
		if (driver.op.state == REDLOCK_LEAVING)
			break;
	}
	ck_assert_uint_eq(now_us, T + params.wait_us);
	ck_assert_uint_lt(driver.tries, UINT16_MAX / 2 + 10);
}

TEST(test_the_first_looks_again_until_it_is_free)
{
	static const uint64_t remaining[] = {LONG, REDLOCK_NEVER};

	for (unsigned i = 0; i < 2; i++) {
		struct driver driver = waiter(3, false);
		uint64_t now_us = T;

		for (unsigned attempt = 1; attempt < 6; attempt++) {
			refuse_for_other_library(&driver, now_us, remaining[i]);
			sleeps_until(&driver, now_us + LOOK);
			now_us += LOOK;
			driver_timer(&driver, now_us - 1);
			quiet(&driver);
			driver_timer(&driver, now_us);
			attempts(&driver, attempt + 1);
		}
		driver_vote(&driver, now_us, 0, GRANTED);
		driver_vote(&driver, now_us, 1, GRANTED);
		decided(&driver, REDLOCK_OK, 0);
	}
}

TEST(test_an_end_that_comes_sooner_is_awaited)
{
	struct driver driver = waiter(3, false);

	refuse_for_other_library(&driver, T, LEFT);
	sleeps_until(&driver, T + LEFT + ROUNDED);
}
