/* SPDX-License-Identifier: MIT */
/* Gauges over several workers, reloads, and the two formats. test_metrics.c has the rest. */
#include <time.h>
#include <unistd.h>

#include "metrics_world.h"
#include "server/base/base.h"
#include "suite.h"

/* Two of three masters must vote in each worker, not the same two in all. The worker with the fewest counts. */
TEST(a_quorum_is_one_in_every_worker)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);

	assert_line("redlockd_masters 3");
	assert_line("redlockd_masters_needed 2");
	ck_assert_uint_eq(metrics_voting(), 0);
	assert_line("redlockd_quorum 0");
	for (size_t m = 0; m < 3; m++)
		metrics_set(&first->masters[m].up, 1);
	metrics_set(&second->masters[1].up, 1);
	assert_line("redlockd_masters_voting 1");
	assert_line("redlockd_quorum 0");
	metrics_set(&second->masters[2].up, 1);
	assert_line("redlockd_masters_voting 2");
	assert_line("redlockd_quorum 1");
	metrics_set(&first->masters[1].up, 0); /* each has two, though only one of them is the same */
	assert_line("redlockd_masters_voting 2");
	assert_line("redlockd_quorum 1");
}

TEST(quarantines_are_counted_down)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);
	const char *name = "redlockd_master_quarantine_remaining_seconds{master=\"redis://[::1]:7\"}";
	uint64_t now_us = clock_now_us();

	assert_line("redlockd_master_quarantine_remaining_seconds{master=\"redis://[::1]:7\"} 0");
	metrics_set(&first->masters[2].quarantine_until_us, now_us + 50000000);
	metrics_set(&second->masters[2].quarantine_until_us, now_us + 100000000); /* the one that ends last counts */
	double before = value_of(name);
	ck_assert_double_gt(before, 60);
	ck_assert_double_le(before, 100);
	usleep(1000);
	ck_assert_double_lt(value_of(name), before);
	metrics_set(&second->masters[2].quarantine_until_us, now_us - 1); /* over, but not yet noticed */
	metrics_set(&first->masters[2].quarantine_until_us, 0);
	assert_line("redlockd_master_quarantine_remaining_seconds{master=\"redis://[::1]:7\"} 0");
}

TEST(the_oldest_wait_is_the_oldest_of_all_workers)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);
	uint64_t now_us = clock_now_us();

	assert_line("redlockd_wait_oldest_seconds 0");
	metrics_set(&second->waiting_since_us, now_us - 5000000);
	ck_assert_double_ge(value_of("redlockd_wait_oldest_seconds"), 5);
	ck_assert_double_lt(value_of("redlockd_wait_oldest_seconds"), 65);
	metrics_set(&first->waiting_since_us, now_us - 70000000);
	ck_assert_double_ge(value_of("redlockd_wait_oldest_seconds"), 70);
	metrics_set(&first->waiting_since_us, 0);
	ck_assert_double_lt(value_of("redlockd_wait_oldest_seconds"), 65);
	/* as if read between two looks at the clock */
	metrics_set(&second->waiting_since_us, clock_now_us() + 1000000);
	assert_line("redlockd_wait_oldest_seconds 0");
}

TEST(what_is_under_way_is_summed_and_limits_are_not)
{
	struct metrics *first = metrics_worker(0), *second = metrics_worker(1);

	metrics_add(&first->masters[1].in_flight, 3);
	metrics_add(&second->masters[1].in_flight, 4);
	metrics_add(&second->masters[1].in_flight, (uint64_t)-1);
	metrics_add(&first->queued, 10);
	metrics_add(&second->queued, 1);
	metrics_set(&first->waiters_limit, 8000); /* of the process, not of a worker */
	metrics_set(&second->waiters_limit, 8000);
	metrics_add(&first->holds_lost[REDLOCK_NOT_OWNER], 1);
	metrics_add(&second->holds_lost[REDLOCK_NOT_OWNER], 1);
	metrics_add(&second->holds_lost[REDLOCK_EXPIRED], 5);
	assert_line("redlockd_master_commands_in_flight{master=\"unix:/tmp/a\\\"b\\\\c\\nd\"} 6");
	assert_line("redlockd_master_commands_in_flight{master=\"redis://[::1]:7\"} 0");
	assert_line("redlockd_operations_queued 11");
	assert_line("redlockd_waiters_limit 8000");
	assert_line("redlockd_holds_lost_total{code=\"not-owner\"} 2");
	assert_line("redlockd_holds_lost_total{code=\"lease-expired\"} 5");
	assert_line("redlockd_holds_lost_total{code=\"no-quorum\"} 0");
	assert_line("redlockd_draining 0");
	metrics_set(&second->draining, 1);
	assert_line("redlockd_draining 1");
}

TEST(reloads_are_remembered)
{
	double start = (double)time(NULL);

	metrics_count_reload(true);
	double read = value_of("redlockd_config_reload_timestamp_seconds");
	ck_assert_double_ge(read, start);
	ck_assert_double_le(read, (double)time(NULL) + 1);
	assert_line("redlockd_config_reload_successful 1");
	assert_line("redlockd_config_reload_failures_total 0");
	metrics_count_reload(false);
	metrics_count_reload(false);
	assert_line("redlockd_config_reload_successful 0");
	assert_line("redlockd_config_reload_failures_total 2");
	ck_assert_double_eq(value_of("redlockd_config_reload_timestamp_seconds"), read);
	metrics_count_reload(true);
	assert_line("redlockd_config_reload_successful 1");
	assert_line("redlockd_config_reload_failures_total 2");
	ck_assert_double_gt(value_of("redlockd_config_reload_timestamp_seconds"), read);
}

TEST(heads_name_the_metric)
{
	char *text = render();

	ck_assert_ptr_nonnull(strstr(text, "# HELP redlockd_split_retries_total Tries made again"));
	ck_assert_ptr_nonnull(
		strstr(text, "# TYPE redlockd_split_retries_total counter\nredlockd_split_retries_total 0\n"));
	ck_assert_ptr_nonnull(strstr(text, "# TYPE redlockd_quorum gauge\n"));
	free(text);
}

/* Percentiles use the bounds of the buckets that are shown. */
TEST(bounds_are_told)
{
	struct histogram histogram = {.is_long = false};

	for (size_t i = 0; i < METRICS_BUCKETS; i++) {
		histogram_observe(&histogram, histogram_bound_us(i));
		ck_assert_uint_eq(histogram.buckets[i], 1);
	}
	ck_assert_uint_eq(histogram_bound_us(METRICS_BUCKETS), UINT64_MAX);
	ck_assert_uint_eq(metrics_workers(), 2);
}
