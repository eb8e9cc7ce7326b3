/* SPDX-License-Identifier: MIT */
/* Percentiles from the buckets of a histogram, for the points of GET /stats. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/metrics/metrics.h"
#include "suite.h"

static struct histogram histogram;

static void set_up(void)
{
	memset(&histogram, 0, sizeof(histogram));
}

static void read_buckets(uint64_t ret_buckets[METRICS_BUCKETS + 1])
{
	for (size_t b = 0; b <= METRICS_BUCKETS; b++)
		ret_buckets[b] = histogram.buckets[b];
}

TEST(nothing_measured_has_no_percentile)
{
	uint64_t before[METRICS_BUCKETS + 1];

	histogram_observe(&histogram, 700);
	read_buckets(before);
	ck_assert_uint_eq(stats_percentile_us(before, before, 0.5), STATS_NONE);
}

/* Only values between the two readings count; within a bucket they are taken to lie evenly. */
TEST(percentiles_are_of_the_difference)
{
	uint64_t before[METRICS_BUCKETS + 1], now[METRICS_BUCKETS + 1];

	for (int i = 0; i < 1000; i++)
		histogram_observe(&histogram, 4000000);
	read_buckets(before);
	for (int i = 0; i < 10; i++)
		histogram_observe(&histogram, 750); /* in 500 … 1000 */
	read_buckets(now);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.5), 750);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.99), 995);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0), 500);
	ck_assert_uint_eq(stats_percentile_us(before, now, 1), 1000);
	for (int i = 0; i < 10; i++)
		histogram_observe(&histogram, 90); /* below the first bound: 0 … 100 */
	read_buckets(now);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.25), 50);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.5), 100);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.75), 750);
}

/* A value above the last bound counts as that bound. */
TEST(above_the_last_bound)
{
	uint64_t before[METRICS_BUCKETS + 1] = {0}, now[METRICS_BUCKETS + 1];

	histogram_observe(&histogram, 3600000000);
	read_buckets(now);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.5), 5000000);
	for (int i = 0; i < 99; i++)
		histogram_observe(&histogram, 1500);
	read_buckets(now);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.99), 2000);
	ck_assert_uint_eq(stats_percentile_us(before, now, 0.991), 5000000);
}

FIXTURE(set_up, NULL)
