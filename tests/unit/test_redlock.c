/* SPDX-License-Identifier: MIT */
/* The core, rule by rule: each test is named after its rule.
 *
 * The rules are those of docs/contributing/architecture.md, and the mistakes of other Redlock implementations.
 * test_redlock_vectors.c compares the core with the oracle in all cases; test_redlock_lease.c has extend, release and
 * inspect. Times are microseconds; operations start at T. */
#include "redlock_cases.h"
#include "suite.h"

/* The last step lost the attempt: a release to these masters, and a pause. */
static void lost(const struct driver *driver, unsigned release)
{
	ck_assert(!driver->out.done);
	ck_assert_int_eq(driver->out.script, REDLOCK_SCRIPT_RELEASE);
	ck_assert_uint_eq(driver->out.to, release);
	ck_assert_uint_ge(redlock_deadline_us(&driver->op), driver->now_us + PAUSE_MIN);
	ck_assert_uint_le(redlock_deadline_us(&driver->op), driver->now_us + PAUSE_MAX);
}

/* Three masters, three holders: a lost vote. */
static void split(struct driver *driver, uint64_t now_us)
{
	driver_vote(driver, now_us, 0, GRANTED);
	quiet(driver);
	driver_held(driver, now_us, 1, A, 20000);
	quiet(driver);
	driver_held(driver, now_us, 2, B, 10000);
}

/* ---- attempts, pauses, releases ---- */

TEST(test_pauses_are_random_and_bounded)
{
	uint64_t shortest = UINT64_MAX, longest = 0, previous = 0, same = 0;

	for (uint64_t seed = 0; seed < 2000; seed++) {
		struct redlock_params params = params_of(REDLOCK_ACQUIRE, 3, 2);
		uint64_t pauses[2];

		for (unsigned twice = 0; twice < 2; twice++) {
			struct driver driver;

			driver_init(&driver, &params, seed);
			driver_start(&driver, T);
			split(&driver, T);
			lost(&driver, 7);
			pauses[twice] = redlock_deadline_us(&driver.op) - T;
		}
		ck_assert_uint_eq(pauses[0], pauses[1]);
		same += pauses[0] == previous;
		previous = pauses[0];
		shortest = previous < shortest ? previous : shortest;
		longest = previous > longest ? previous : longest;
	}
	ck_assert_uint_lt(same, 10);
	ck_assert_uint_lt(shortest, PAUSE_MIN + 100);
	ck_assert_uint_gt(longest, PAUSE_MAX - 100);
}

TEST(test_pauses_differ_from_try_to_try)
{
	struct driver driver = started(REDLOCK_ACQUIRE, 3, 3);
	uint64_t first, second;

	split(&driver, T);
	first = redlock_deadline_us(&driver.op) - T;
	driver_timer(&driver, T + first);
	for (unsigned i = 0; i < 3; i++)
		driver_vote(&driver, T + first, i, GRANTED);
	split(&driver, T + first);
	second = redlock_deadline_us(&driver.op) - driver.now_us;
	ck_assert_uint_ne(first, second);
	for (unsigned seed = 0; seed < 5; seed++) { /* no room for chance */
		struct redlock_params params = params_of(REDLOCK_ACQUIRE, 3, 2);

		params.retry_min_us = params.retry_max_us = 4000;
		driver_init(&driver, &params, seed);
		driver_start(&driver, T);
		split(&driver, T);
		ck_assert_uint_eq(redlock_deadline_us(&driver.op), T + 4000);
	}
}
