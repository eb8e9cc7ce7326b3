/* The core and slots: what follows if the slot that was asked for is held and another one is free. */
#include "redlock_wait_cases.h"
#include "suite.h"

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
