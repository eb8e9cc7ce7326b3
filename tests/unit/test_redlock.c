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

/* ---- majority ---- */

TEST_EACH(test_majority_of_configured_masters, 1, REDLOCK_MASTERS_MAX + 1)
{
	static const unsigned majorities[] = {0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8};
	unsigned masters = (unsigned)_i, majority = majorities[_i];
	struct driver driver = started(REDLOCK_ACQUIRE, masters, 1);

	ck_assert_uint_eq(redlock_majority((uint8_t)masters), majority);
	for (unsigned i = 0; i + 1 < majority; i++) {
		driver_vote(&driver, T + i, i, GRANTED);
		quiet(&driver);
	}
	driver_vote(&driver, T + 100, majority - 1, GRANTED);
	decided(&driver, REDLOCK_OK, 0);
	votes(&driver, majority, 0, 0, 0);
	driver_finish(&driver, UNSENT);
}

/* ---- validity ---- */

TEST(test_lease_is_never_handed_out_expired)
{
	for (unsigned late = 0; late < 2; late++) {
		struct redlock_params params = params_of(REDLOCK_ACQUIRE, 3, 5);
		struct driver driver;

		params.master_timeout_us = 10 * TTL;
		driver_init(&driver, &params, 1);
		driver_start(&driver, T);
		ck_assert_uint_eq(redlock_deadline_us(&driver.op), T + TTL - DRIFT);
		driver_vote(&driver, T, 0, GRANTED);
		driver_vote(&driver, T + TTL - DRIFT - 1 + late, 1, GRANTED); /* ahead of the timer */
		decided(&driver, late ? REDLOCK_NO_QUORUM : REDLOCK_OK, late ? 7 : 0);
		ck_assert(late || driver.result.validity_us == 1);
		votes(&driver, 2, 0, 0, 0);
	}
}

/* A grant carries the ttl that its master gave, in an acquire as in an extension. */
TEST_EACH(test_validity_counts_the_shortest_ttl, 0, 4)
{
	struct redlock_event event = {.now_us = T + 100, .vote = GRANTED, .ttl_us = DRIFT + 101 + (unsigned)_i};
	struct driver driver = started(REDLOCK_ACQUIRE, 3, 1);

	driver_reply(&driver, &event);
	driver_vote(&driver, T + 102, 1, GRANTED);
	decided(&driver, _i > 1 ? REDLOCK_OK : REDLOCK_NO_QUORUM, _i > 1 ? 0 : 7);
	ck_assert(_i <= 1 || driver.result.validity_us == (uint64_t)_i - 1);
}

/* ---- attempts, pauses, releases ---- */

/* The driver demands a new number and a release of the old one for each try. */
TEST(test_every_try_has_its_own_token)
{
	struct driver driver = started(REDLOCK_ACQUIRE, 3, 4);

	for (unsigned try = 1; try <= 4; try++) {
		ck_assert_uint_eq(driver.tries, try);
		ck_assert_uint_eq(driver.out.attempt, try);
		for (unsigned i = 0; i < 3 && try > 1; i++)
			driver_vote(&driver, driver.now_us, i, GRANTED);
		split(&driver, driver.now_us);
		ck_assert_uint_eq(driver.out.attempt, try);
		if (try < 4) {
			lost(&driver, 7);
			driver_timer(&driver, redlock_deadline_us(&driver.op));
		}
	}
	decided(&driver, REDLOCK_SPLIT, 7);
	ck_assert_uint_eq(driver.result.retry_after_us, PAUSE_MAX);
	driver_finish(&driver, GONE);
}

TEST(test_nothing_is_released_where_nothing_was_sent)
{
	struct driver driver = started(REDLOCK_ACQUIRE, 3, 3);

	driver_vote(&driver, T, 0, UNSENT);
	quiet(&driver);
	driver_vote(&driver, T, 1, QUARANTINED);
	decided(&driver, REDLOCK_NO_QUORUM, 4); /* one may have granted it, which can no longer decide */
	votes(&driver, 0, 0, 1, 1);
	driver_finish(&driver, UNSENT);
}

TEST(test_retry_after_counts_what_is_missing)
{
	struct driver driver = started(REDLOCK_ACQUIRE, 5, 1);

	driver_vote(&driver, T, 0, GRANTED);
	driver_held(&driver, T, 1, A, REDLOCK_NEVER);
	driver_held(&driver, T, 2, A, 1000);
	driver_held(&driver, T, 3, A, 2000);
	decided(&driver, REDLOCK_LOCKED, 0x1f);
	ck_assert_uint_eq(driver.result.retry_after_us, 2000);
	driver = started(REDLOCK_ACQUIRE, 1, 1);
	driver_held(&driver, T, 0, A, REDLOCK_NEVER);
	ck_assert_uint_eq(driver.result.retry_after_us, TTL);
}

/* Two of five masters are down and two callers contend: a split vote, in every order of the three replies. */
TEST(test_contention_is_not_called_no_quorum)
{
	struct driver driver = started(REDLOCK_ACQUIRE, 5, 2);

	driver_vote(&driver, T, 3, UNSENT);
	driver_vote(&driver, T, 4, UNSENT);
	driver_vote(&driver, T, 0, GRANTED);
	driver_held(&driver, T, 1, A, 9000);
	quiet(&driver);
	driver_held(&driver, T, 2, B, 9000);
	lost(&driver, 7);
}

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
