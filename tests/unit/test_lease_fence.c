/* SPDX-License-Identifier: MIT */
/* Guesses for fences, with a time of day that the test sets. */
#include <check.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "server/leases/lease_internal.h"
#include "suite.h"

#define SECOND UINT64_C(1000000)
#define HOUR (3600 * SECOND)
#define START UINT64_C(1795215206922001) /* 2026 */

static uint64_t day_us;
static struct leases leases;

/* Replaces the C library's, for server/leases/lease_fence.c. Check measures its tests with the other clocks. */
int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	if (clock != CLOCK_REALTIME)
		return (int)syscall(SYS_clock_gettime, clock, ret_now);
	*ret_now = (struct timespec){.tv_sec = (time_t)(day_us / SECOND), .tv_nsec = (long)(day_us % SECOND * 1000)};
	return 0;
}

static void set_up(void)
{
	day_us = START;
	leases = (struct leases){.fence_clock = 0};
}

TEST(a_guess_is_the_time_of_day)
{
	ck_assert_uint_eq(lease_fence_guess(&leases), START);
	day_us += 7;
	ck_assert_uint_eq(lease_fence_guess(&leases), START + 7);
	ck_assert_uint_lt(START, REDLOCK_FENCE_LIMIT);
}

TEST(guesses_strictly_grow)
{
	uint64_t before = 0;
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t guess = lease_fence_guess(&leases);
		ck_assert_uint_gt(guess, before);
		before = guess;
		day_us += i % 3; /* several in one µs, too */
		if (i == 500)
			day_us -= 10 * SECOND; /* the clock is set back */
	}
}

TEST(a_number_seen_is_left_behind)
{
	lease_fence_learn(&leases, START + 5 * SECOND);
	ck_assert_uint_eq(lease_fence_guess(&leases), START + 5 * SECOND + 1);
	lease_fence_learn(&leases, START + SECOND); /* smaller: nothing new */
	ck_assert_uint_eq(lease_fence_guess(&leases), START + 5 * SECOND + 2);
	lease_fence_learn(&leases, 0);
	day_us += 6 * SECOND;
	ck_assert_uint_eq(lease_fence_guess(&leases), day_us);
}

/* Every master refuses a guess that is a day ahead of it. */
TEST(a_number_far_ahead_is_not_learned)
{
	lease_fence_learn(&leases, START + HOUR);
	lease_fence_learn(&leases, REDLOCK_FENCE_LIMIT - 1);
	lease_fence_learn(&leases, UINT64_MAX);
	ck_assert_uint_eq(lease_fence_guess(&leases), START);
	lease_fence_learn(&leases, START + HOUR - 1);
	ck_assert_uint_eq(lease_fence_guess(&leases), START + HOUR);
}

/* Guesses of a clock that was days ahead would be refused until that day comes. */
TEST(a_clock_that_was_far_ahead_is_followed_back)
{
	day_us = START + 48 * HOUR;
	ck_assert_uint_eq(lease_fence_guess(&leases), START + 48 * HOUR);
	day_us = START;
	ck_assert_uint_eq(lease_fence_guess(&leases), START);
	ck_assert_uint_eq(lease_fence_guess(&leases), START + 1);
}

/* An impossible time of day must not end the program: the core takes no larger number. */
TEST(guesses_stay_within_their_bounds)
{
	static const uint64_t odd[] = {REDLOCK_FENCE_LIMIT - 1, REDLOCK_FENCE_LIMIT, REDLOCK_FENCE_LIMIT + HOUR,
				       UINT64_MAX / 2};
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		day_us = odd[i];
		ck_assert_uint_eq(lease_fence_guess(&leases), REDLOCK_FENCE_LIMIT - 1);
		ck_assert_uint_eq(lease_fence_guess(&leases), REDLOCK_FENCE_LIMIT - 1);
	}
	day_us = START;
	ck_assert_uint_eq(lease_fence_guess(&leases), START);
	set_up();
	day_us = 0; /* 1970 */
	ck_assert_uint_eq(lease_fence_guess(&leases), 1);
}

FIXTURE(set_up, NULL)
