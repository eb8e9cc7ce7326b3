/* The row of points behind GET /stats: differences, the ring, and percentiles from buckets. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/metrics/stats_series.h"

static struct stats_series series;
static struct stats_sums sums;
static struct stats_point points[STATS_POINTS];
static struct histogram histogram;

static void set_up(void)
{
	memset(&series, 0, sizeof(series));
	memset(&sums, 0, sizeof(sums));
	memset(&histogram, 0, sizeof(histogram));
}

/* ---- percentiles ---- */

static void read_buckets(uint64_t ret_buckets[METRICS_BUCKETS + 1])
{
	for (size_t b = 0; b <= METRICS_BUCKETS; b++)
		ret_buckets[b] = histogram.buckets[b];
}

START_TEST(nothing_measured_has_no_percentile)
{
	uint64_t before[METRICS_BUCKETS + 1];

	histogram_observe(&histogram, 700);
	read_buckets(before);
	ck_assert_uint_eq(stats_percentile_us(before, before, 0.5), STATS_NONE);
}
END_TEST

/* Only what came in between counts, and within a bucket the values are taken to lie evenly. */
START_TEST(percentiles_are_of_the_difference)
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
END_TEST

/* Of a value above the last bound nothing more is known. */
START_TEST(above_the_last_bound)
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
END_TEST

/* Against the values themselves: never further off than the bucket is wide. */
START_TEST(never_off_by_more_than_a_bucket)
{
	uint64_t before[METRICS_BUCKETS + 1] = {0}, now[METRICS_BUCKETS + 1];
	static const double shares[] = {0.01, 0.25, 0.5, 0.9, 0.99, 1};
	uint32_t values[1000], random = 12345;

	for (size_t i = 0; i < 1000; i++) {
		random = random * 1664525 + 1013904223;
		values[i] = 60 + (random >> 8) % (1U << (random >> 8) % 20);
		histogram_observe(&histogram, values[i]);
	}
	read_buckets(now);
	for (size_t s = 0; s < sizeof(shares) / sizeof(shares[0]); s++) {
		uint32_t got = stats_percentile_us(before, now, shares[s]);
		size_t below = 0, at = 0;
		uint64_t low = 0;
		while (histogram_bound_us(at) < got)
			low = histogram_bound_us(at++);
		for (size_t i = 0; i < 1000; i++)
			below += values[i] <= low;
		ck_assert_uint_le(below, (size_t)(shares[s] * 1000 + 0.5));
		for (size_t i = below = 0; i < 1000; i++)
			below += values[i] <= histogram_bound_us(at);
		ck_assert_uint_ge(below, (size_t)(shares[s] * 1000 + 0.5));
	}
}
END_TEST

/* ---- points ---- */

START_TEST(a_point_is_what_came_since_the_last)
{
	sums.counts[STATS_GRANTED] = 5;
	sums.counts[STATS_LOST] = 2;
	sums.waiters = 7;
	sums.voting[1] = true;
	sums.acquire[4] = 5;
	sums.rtt[2][3] = 4;
	stats_series_add(&series, &sums);
	sums.counts[STATS_GRANTED] = 8;
	sums.waiters = 0;
	sums.voting[1] = false;
	stats_series_add(&series, &sums);
	ck_assert_uint_eq(stats_series_copy(&series, points), 2);
	ck_assert_uint_eq(points[0].counts[STATS_GRANTED], 5); /* the first one counts from the start */
	ck_assert_uint_eq(points[0].counts[STATS_LOST], 2);
	ck_assert_uint_eq(points[0].waiters, 7);
	ck_assert_uint_eq(points[0].p50_us, 750);
	ck_assert_uint_eq(points[0].p99_us, 995);
	ck_assert_uint_eq(points[0].rtt_us[2], 400);
	ck_assert_uint_eq(points[0].rtt_us[1], STATS_NONE);
	ck_assert(points[0].voting[1] && !points[0].voting[0]);
	ck_assert_uint_eq(points[1].counts[STATS_GRANTED], 3);
	ck_assert_uint_eq(points[1].counts[STATS_LOST], 0);
	ck_assert_uint_eq(points[1].waiters, 0);
	ck_assert_uint_eq(points[1].p50_us, STATS_NONE);
	ck_assert_uint_eq(points[1].rtt_us[2], STATS_NONE);
	ck_assert(!points[1].voting[1]);
}
END_TEST

/* A count that a point has no room for is the largest that it has room for, and not "none". */
START_TEST(a_huge_count)
{
	sums.counts[STATS_GRANTED] = UINT64_C(1) << 40;
	stats_series_add(&series, &sums);
	stats_series_copy(&series, points);
	ck_assert_uint_eq(points[0].counts[STATS_GRANTED], STATS_NONE - 1);
}
END_TEST

/* At every length, from empty to long past full: the newest 300, the oldest first. */
START_TEST(the_ring_keeps_the_newest)
{
	ck_assert_uint_eq(stats_series_copy(&series, points), 0);
	for (uint32_t n = 1; n <= 3 * STATS_POINTS + 1; n++) {
		sums.counts[STATS_GRANTED] += n; /* point n counts n */
		stats_series_add(&series, &sums);
		size_t count = stats_series_copy(&series, points);
		ck_assert_uint_eq(count, n < STATS_POINTS ? n : STATS_POINTS);
		for (size_t i = 0; i < count; i++)
			ck_assert_uint_eq(points[i].counts[STATS_GRANTED], n - count + 1 + i);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stats_series");
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_add_test(all, nothing_measured_has_no_percentile);
	tcase_add_test(all, percentiles_are_of_the_difference);
	tcase_add_test(all, above_the_last_bound);
	tcase_add_test(all, never_off_by_more_than_a_bucket);
	tcase_add_test(all, a_point_is_what_came_since_the_last);
	tcase_add_test(all, a_huge_count);
	tcase_add_test(all, the_ring_keeps_the_newest);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
