/* SPDX-License-Identifier: MIT */
/* Rates: bursts, the long run, and when to retry; with a simulated clock, and with threads. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "api/auth/auth.h"
#include "suite.h"

enum { S = 1000000, THREADS = 4 };

static const uint64_t start_us = UINT64_C(123456) * S;
static uint32_t retry_ms;

static uint32_t take_all(struct rate *rate, uint32_t per_second, uint64_t now_us)
{
	uint32_t count = 0;

	while (rate_take(rate, per_second, now_us, &retry_ms))
		count++;
	return count;
}

TEST(one_second_of_events_comes_at_once)
{
	static const uint32_t bounds[] = {1, 2, 3, 7, 100, 999, 1000, 30011, 300007};

	for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
		struct rate rate = {0};
		ck_assert_uint_eq(take_all(&rate, bounds[i], start_us), bounds[i]);
		ck_assert_uint_eq(take_all(&rate, bounds[i], start_us), 0);
		/* Shares are rounded up to whole ns: those of one second may be a little longer than it. */
		ck_assert_uint_ge(take_all(&rate, bounds[i], start_us + S), bounds[i] - 1 - bounds[i] / 1000);
		ck_assert_uint_eq(take_all(&rate, bounds[i], start_us + 10 * S), bounds[i]);
	}
}

TEST(no_bound_takes_nothing)
{
	struct rate rate = {0};

	for (int i = 0; i < 1000; i++)
		ck_assert(rate_take(&rate, 0, start_us, &retry_ms));
	ck_assert(rate_is_idle(&rate, 0));
}

/* For any pattern: in any stretch of time at most rate × time + one burst; a client that keeps asking gets nearly all
 * of it. */
TEST(the_long_run_is_bounded)
{
	static const uint32_t bounds[] = {1, 3, 10, 333, 4000};
	unsigned seed = 1;

	for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
		for (uint64_t longest_us = 100; longest_us <= 10 * S; longest_us *= 10) {
			struct rate rate = {0};
			uint64_t taken = 0, now_us = start_us, asked = 0;
			while (asked < 20000) {
				now_us += (uint64_t)rand_r(&seed) % longest_us;
				for (int n = rand_r(&seed) % 20; n >= 0; n--, asked++)
					taken += rate_take(&rate, bounds[i], now_us, &retry_ms);
				ck_assert_uint_le(taken, (now_us - start_us) * bounds[i] / S + bounds[i]);
			}
			/* it asked all the time, for far more than the bound */
			if (longest_us <= 10000 && asked * S > (now_us - start_us) * bounds[i] * 4)
				ck_assert_uint_ge(taken, (now_us - start_us) * bounds[i] / S * 9 / 10);
		}
}

TEST(retry_is_when_one_can_be_taken)
{
	static const uint32_t bounds[] = {1, 3, 100, 999, 5000};

	for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
		struct rate rate = {0};
		take_all(&rate, bounds[i], start_us);
		uint32_t ms = retry_ms;
		ck_assert_uint_ge(ms, 1);
		ck_assert_uint_le(ms, 1000 / bounds[i] + 1);
		ck_assert(!rate_take(&rate, bounds[i], start_us + (ms - 1) * UINT64_C(1000), &retry_ms));
		ck_assert(rate_take(&rate, bounds[i], start_us + ms * UINT64_C(1000), &retry_ms));
	}
}

/* The event itself has taken one. */
TEST(many_are_taken_or_none)
{
	struct rate rate = {0};

	ck_assert(rate_take(&rate, 10, start_us, &retry_ms));
	ck_assert(rate_take_more(&rate, 10, 9, start_us, &retry_ms));
	ck_assert(!rate_take(&rate, 10, start_us, &retry_ms));
	ck_assert(rate_take(&rate, 10, start_us + S / 2, &retry_ms));
	ck_assert(!rate_take_more(&rate, 10, 9, start_us + S / 2, &retry_ms));
	uint64_t again_us = start_us + S / 2 + retry_ms * UINT64_C(1000);
	for (int i = 0; i < 100; i++) { /* a refused event takes nothing */
		ck_assert(rate_take(&rate, 10, again_us - 1000, &retry_ms));
		ck_assert(!rate_take_more(&rate, 10, 9, again_us - 1000, &retry_ms));
		ck_assert_uint_eq(retry_ms, 1);
	}
	ck_assert(rate_take(&rate, 10, again_us, &retry_ms));
	ck_assert(rate_take_more(&rate, 10, 9, again_us, &retry_ms));
	ck_assert(rate_take_more(&rate, 0, 9, start_us, &retry_ms));
	ck_assert(rate_take_more(&rate, 10, 0, start_us, &retry_ms));
}

/* More than a burst are taken when the rate is not used otherwise; the rate of a long time is the same. */
TEST(more_than_a_burst)
{
	struct rate rate = {0};

	ck_assert(rate_take(&rate, 10, start_us, &retry_ms));
	ck_assert(rate_take_more(&rate, 10, 255, start_us, &retry_ms));
	ck_assert(!rate_take(&rate, 10, start_us + 24 * S, &retry_ms));
	ck_assert_uint_eq(take_all(&rate, 10, start_us + 25 * S), 4);
	ck_assert(!rate_is_idle(&rate, start_us + 25 * S));
	ck_assert(!rate_take_more(&rate, 10, 255, start_us + 25 * S, &retry_ms));
	rate = (struct rate){0};
	ck_assert(rate_take(&rate, 1, start_us, &retry_ms));
	ck_assert(rate_take_more(&rate, 1, 2, start_us, &retry_ms));
	ck_assert(!rate_take(&rate, 1, start_us + 2 * S, &retry_ms));
	ck_assert(rate_take(&rate, 1, start_us + 3 * S, &retry_ms));
}

TEST(a_clock_that_is_behind_gets_no_more)
{
	struct rate rate = {0};

	ck_assert_uint_eq(take_all(&rate, 100, start_us), 100);
	ck_assert_uint_eq(take_all(&rate, 100, start_us - 50000), 0);
	ck_assert_uint_ge(retry_ms, 50);
	/* After half a second half a burst; nothing for a clock that is half a second behind. */
	ck_assert_uint_eq(take_all(&rate, 100, start_us), 0);
	ck_assert_uint_eq(take_all(&rate, 100, start_us + S / 2), 50);
}

TEST(extremes)
{
	struct rate rate = {0};
	const uint64_t late_us = UINT64_C(499) * 366 * 86400 * S;

	ck_assert_uint_eq(take_all(&rate, 5, 0), 5);
	ck_assert_uint_eq(take_all(&rate, 5, late_us), 5);
	ck_assert(!rate_take(&rate, 5, 0,
			     &retry_ms)); /* as far behind as possible: only the range of the result matters */
	ck_assert_uint_eq(retry_ms, UINT32_MAX);
	rate = (struct rate){0};
	for (int i = 0; i < 1000; i++)
		ck_assert(rate_take(&rate, UINT32_MAX, late_us, &retry_ms));
	ck_assert_uint_gt(rate.next_ns, late_us * 1000);
	ck_assert_uint_le(rate.next_ns, late_us * 1000 + UINT32_MAX);
}

TEST(rested_after_a_second)
{
	struct rate rate = {0};

	ck_assert(rate_is_idle(&rate, start_us));
	take_all(&rate, 7, start_us);
	ck_assert(!rate_is_idle(&rate, start_us + S - 1));
	ck_assert(rate_is_idle(&rate, start_us + S + 1));
}

/* A reload changes the bound: what was taken under the old one counts for a second at most. */
TEST(another_bound)
{
	struct rate rate = {0};

	take_all(&rate, 1, start_us);
	ck_assert_uint_eq(take_all(&rate, 1000, start_us), 0);
	ck_assert_uint_eq(take_all(&rate, 1000, start_us + S), 1000);
	ck_assert_uint_eq(take_all(&rate, 2, start_us + S), 0);
	ck_assert_uint_eq(take_all(&rate, 2, start_us + 2 * S), 2);
}

struct taker {
	struct rate *rate;
	uint32_t taken;
	pthread_t thread;
};

/* Each thread's clock runs over the same second, in steps of its own. */
static void *take_for_a_second(void *arg)
{
	struct taker *taker = arg;
	uint32_t ms;

	for (uint64_t at_us = 0; at_us < S; at_us += 5)
		taker->taken += rate_take(taker->rate, 20000, start_us + at_us, &ms);
	return NULL;
}

TEST(threads_share_one_bound)
{
	struct rate rate = {0};
	struct taker takers[THREADS] = {{0}};
	uint64_t taken = 0;

	for (int i = 0; i < THREADS; i++) {
		takers[i].rate = &rate;
		ck_assert_int_eq(pthread_create(&takers[i].thread, NULL, take_for_a_second, &takers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(takers[i].thread, NULL);
		taken += takers[i].taken;
	}
	/* No event is lost between two threads: those of the second and the burst. */
	ck_assert_uint_le(taken, 40000);
	ck_assert_uint_ge(taken, 39998);
}
