/* SPDX-License-Identifier: MIT */
/* The figures of GET /stats, over several workers and at times that the test sets: sums, the two lists, and their
 * filter. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "server/metrics/metrics.h"
#include "suite.h"

enum { WORKERS = 4, MASTERS = 15 };
#define START_US UINT64_C(1000000000)
#define INTERVAL_US (STATS_INTERVAL_MS * UINT64_C(1000))

static struct stats_point points[STATS_POINTS];
static struct stats_resource list[STATS_TOP];
static size_t listed;

/* Each test is a process of its own. */
static void set_up(void)
{
	static const char *const addresses[MASTERS] = {"1", "2",  "3",  "4",  "5",  "6",  "7", "8",
						       "9", "10", "11", "12", "13", "14", "15"};

	metrics_init(WORKERS, MASTERS, addresses);
	stats_init(START_US);
}

static void answer(size_t worker, unsigned operation, const char *resource, unsigned outcome)
{
	stats_count_answer(metrics_worker(worker), operation, outcome, resource, strlen(resource));
}

static bool all_pass(void *arg, const char *resource, size_t len)
{
	(void)arg;
	(void)resource;
	return len > 0;
}

static bool begins_with(void *arg, const char *resource, size_t len)
{
	const char *prefix = arg;

	return len >= strlen(prefix) && memcmp(resource, prefix, strlen(prefix)) == 0;
}

static void assert_entry(size_t i, const char *name, uint32_t count)
{
	ck_assert_uint_lt(i, listed);
	ck_assert_msg(list[i].len == strlen(name) && memcmp(list[i].name, name, list[i].len) == 0, "%.*s",
		      (int)list[i].len, list[i].name);
	ck_assert_uint_eq(list[i].count, count);
}

static struct stats_resource queue_of(const char *name, uint32_t count, uint64_t oldest_us)
{
	struct stats_resource queue = {.len = (uint16_t)strlen(name), .count = count, .oldest_us = oldest_us};

	memcpy(queue.name, name, queue.len);
	for (; queue.first_count < count && queue.first_count < STATS_FIRST; queue.first_count++)
		queue.first[queue.first_count].began_us = oldest_us + 100 * queue.first_count;
	return queue;
}

/* ---- the series ---- */

TEST(counters_of_all_workers_are_summed)
{
	for (size_t w = 0; w < WORKERS; w++) {
		struct metrics *metrics = metrics_worker(w);
		metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_OK], 1);
		metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_LOCKED], 2);
		metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_SPLIT], 3);
		metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_NO_QUORUM], 4);
		metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_CANCELLED], 5);
		metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][METRICS_TOO_MANY], 6);
		metrics_add(&metrics->outcomes[REDLOCK_EXTEND][REDLOCK_OK], 7);
		metrics_add(&metrics->outcomes[REDLOCK_RELEASE][REDLOCK_OK], 8);
		metrics_add(&metrics->outcomes[METRICS_FORCE][REDLOCK_OK], 9);
		metrics_add(&metrics->outcomes[REDLOCK_INSPECT][REDLOCK_OK], 1000);
		/* not counted: only answers to clients are, by stats_count_answer() */
		metrics_add(&metrics->outcomes[REDLOCK_EXTEND][REDLOCK_NOT_OWNER], 1000);
		metrics_add(&metrics->holds_lost[REDLOCK_NO_QUORUM], 10);
		metrics_add(&metrics->holds_lost[REDLOCK_EXPIRED], 20);
		metrics_set(&metrics->waiters, 11);
		histogram_observe(&metrics->latency[REDLOCK_ACQUIRE], 700);
		histogram_observe(&metrics->latency[REDLOCK_EXTEND], 7);
		answer(w, REDLOCK_EXTEND, "a", REDLOCK_NOT_OWNER);
		answer(w, REDLOCK_RELEASE, "a", REDLOCK_EXPIRED);
		answer(w, REDLOCK_EXTEND, "a", REDLOCK_NO_QUORUM);
		answer(w, METRICS_FORCE, "a", REDLOCK_EXPIRED);
		answer(w, REDLOCK_INSPECT, "a", REDLOCK_OK);
	}
	stats_tick(START_US + INTERVAL_US);
	ck_assert_uint_eq(stats_read_series(points), 1);
	static const uint32_t wanted[STATS_COUNTS] = {
		[STATS_GRANTED] = 4, [STATS_LOCKED] = 8,    [STATS_SPLIT_VOTE] = 12, [STATS_NO_QUORUM] = 16,
		[STATS_OTHER] = 44,  [STATS_EXTENDED] = 28, [STATS_RELEASED] = 32,   [STATS_LOST] = 128};
	for (size_t c = 0; c < STATS_COUNTS; c++)
		ck_assert_msg(points[0].counts[c] == wanted[c], "%zu: %u", c, points[0].counts[c]);
	ck_assert_uint_eq(points[0].waiters, 44);
	ck_assert_uint_eq(points[0].p50_us, 750);
	listed = stats_read_top(false, all_pass, NULL, list);
	ck_assert_uint_eq(listed, 0); /* none of these was an acquisition */
}

/* Counters only grow: a point has what came since the last one, the first one all. */
TEST(a_point_is_what_came_since_the_last)
{
	struct metrics *metrics = metrics_worker(0);

	for (size_t w = 0; w < WORKERS; w++)
		metrics_set(&metrics_worker(w)->masters[1].up, 1);
	for (int i = 0; i < 5; i++) {
		metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_OK], 1);
		histogram_observe(&metrics->latency[REDLOCK_ACQUIRE], 700);
		histogram_observe(&metrics->masters[2].rtt, 400);
	}
	metrics_set(&metrics->waiters, 7);
	stats_tick(START_US + INTERVAL_US);
	metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_OK], 3);
	metrics_set(&metrics->waiters, 0);
	metrics_set(&metrics->masters[1].up, 0);
	stats_tick(START_US + 2 * INTERVAL_US);
	/* a count that a point has no room for is the largest that it has room for, and not "none" */
	metrics_add(&metrics->outcomes[REDLOCK_ACQUIRE][REDLOCK_OK], UINT64_C(1) << 40);
	stats_tick(START_US + 3 * INTERVAL_US);
	ck_assert_uint_eq(stats_read_series(points), 3);
	ck_assert_uint_eq(points[0].counts[STATS_GRANTED], 5);
	ck_assert_uint_eq(points[0].waiters, 7);
	ck_assert_uint_eq(points[0].p50_us, 750);
	ck_assert_uint_eq(points[0].p99_us, 995);
	ck_assert_uint_eq(points[0].rtt_us[2], 400);
	ck_assert_uint_eq(points[0].rtt_us[1], STATS_NONE);
	ck_assert(points[0].voting[1] && !points[0].voting[0]);
	ck_assert_uint_eq(points[1].counts[STATS_GRANTED], 3);
	ck_assert_uint_eq(points[1].waiters, 0);
	ck_assert_uint_eq(points[1].p50_us, STATS_NONE);
	ck_assert_uint_eq(points[1].rtt_us[2], STATS_NONE);
	ck_assert(!points[1].voting[1]);
	ck_assert_uint_eq(points[2].counts[STATS_GRANTED], STATS_NONE - 1);
}

TEST(a_master_votes_if_every_worker_says_so)
{
	for (size_t w = 0; w < WORKERS; w++)
		for (size_t m = 0; m < MASTERS; m++)
			metrics_set(&metrics_worker(w)->masters[m].up, m < 14 || w != 2);
	histogram_observe(&metrics_worker(3)->masters[14].rtt, 150);
	stats_tick(START_US + INTERVAL_US);
	stats_read_series(points);
	for (size_t m = 0; m < MASTERS; m++) {
		ck_assert_int_eq(points[0].voting[m], m < 14);
		ck_assert_uint_eq(points[0].rtt_us[m], m < 14 ? STATS_NONE : 150);
	}
}

/* A late tick does not delay the next one. After a long sleep there is one tick, not hundreds. */
TEST(ticks_keep_their_grid)
{
	uint64_t due_us = START_US + INTERVAL_US;

	ck_assert_uint_eq(stats_pause_us(START_US), INTERVAL_US);
	stats_tick(due_us - 1);
	ck_assert_uint_eq(stats_read_series(points), 0);
	ck_assert_uint_eq(stats_pause_us(due_us - 1), 1);
	ck_assert_uint_eq(stats_pause_us(due_us), 0);
	stats_tick(due_us + 300000);
	ck_assert_uint_eq(stats_read_series(points), 1);
	ck_assert_uint_eq(stats_pause_us(due_us + 300000), INTERVAL_US - 300000);
	stats_tick(due_us + 300001);
	ck_assert_uint_eq(stats_read_series(points), 1);
	stats_tick(due_us + 1000 * INTERVAL_US);
	ck_assert_uint_eq(stats_read_series(points), 2);
	ck_assert_uint_eq(stats_pause_us(due_us + 1000 * INTERVAL_US), INTERVAL_US);
	ck_assert_uint_eq(stats_uptime_ms(START_US + 1234567), 1234);
}

/* ---- resources ---- */

TEST(hottest_of_all_workers)
{
	char name[16];

	for (size_t w = 0; w < WORKERS; w++) {
		for (unsigned i = 0; i < 10; i++)
			answer(w, REDLOCK_ACQUIRE, "everywhere",
			       i < 3   ? REDLOCK_OK
			       : i < 5 ? REDLOCK_LOCKED
			       : i < 6 ? METRICS_TOO_MANY
				       : REDLOCK_NO_QUORUM);
		for (unsigned i = 0; i < 12 + w; i++) {
			snprintf(name, sizeof(name), "of/%zu", w);
			answer(w, REDLOCK_ACQUIRE, name, REDLOCK_OK);
		}
		for (unsigned i = 0; i < 10; i++) {
			snprintf(name, sizeof(name), "once/%zu%u", w, i);
			answer(w, REDLOCK_ACQUIRE, name, REDLOCK_OK);
		}
	}
	listed = stats_read_top(false, all_pass, NULL, list);
	ck_assert_uint_eq(listed, STATS_TOP);
	assert_entry(0, "everywhere", 40);
	ck_assert_uint_eq(list[0].refused, 12);
	assert_entry(1, "of/3", 15);
	assert_entry(4, "of/0", 12);
	assert_entry(5, "once/00", 1); /* equal ones by name */
	assert_entry(19, "once/14", 1);
}

/* A part of ten seconds is five ticks; after a minute all parts are new. */
TEST(hottest_are_of_the_last_minute)
{
	uint64_t now_us = START_US;

	answer(1, REDLOCK_ACQUIRE, "a", REDLOCK_OK);
	for (unsigned tick = 1; tick < 30; tick++) {
		stats_tick(now_us += INTERVAL_US);
		listed = stats_read_top(false, all_pass, NULL, list);
		ck_assert_uint_eq(listed, 1);
	}
	stats_tick(now_us += INTERVAL_US);
	listed = stats_read_top(false, all_pass, NULL, list);
	ck_assert_uint_eq(listed, 0);
}

TEST(queues_of_all_workers)
{
	struct stats_resource first[] = {queue_of("a", 5, 700), queue_of("b", 3, 100)},
			      second[] = {queue_of("b", 6, 50), queue_of("c", 1, 20)};
	static const uint64_t merged[STATS_FIRST] = {50, 100, 150, 200, 250, 300, 350, 450};
	static char a[] = "a";

	stats_set_queues(metrics_worker(0), first, 2);
	stats_set_queues(metrics_worker(2), second, 2);
	listed = stats_read_top(true, all_pass, NULL, list);
	ck_assert_uint_eq(listed, 3);
	assert_entry(0, "b", 9);
	ck_assert_uint_eq(list[0].oldest_us, 50);
	ck_assert_uint_eq(list[0].first_count, STATS_FIRST);
	for (size_t i = 0; i < STATS_FIRST; i++)
		ck_assert_uint_eq(list[0].first[i].began_us, merged[i]);
	assert_entry(1, "a", 5);
	ck_assert_uint_eq(list[1].oldest_us, 700);
	assert_entry(2, "c", 1);
	listed = stats_read_top(true, begins_with, a, list);
	ck_assert_uint_eq(listed, 1);
	stats_set_queues(metrics_worker(0), first, 0);
	stats_set_queues(metrics_worker(2), second, 1);
	listed = stats_read_top(true, all_pass, NULL, list);
	ck_assert_uint_eq(listed, 1);
	assert_entry(0, "b", 6);
	ck_assert_uint_eq(list[0].first_count, 6);
}

/* ---- threads ---- */

enum { THREAD_ROUNDS = 20000 };

static void *run_worker(void *arg)
{
	size_t worker = (size_t)(uintptr_t)arg;
	struct stats_resource queue = queue_of("line", 1, 1);

	for (unsigned i = 0; i < THREAD_ROUNDS; i++) {
		answer(worker, REDLOCK_ACQUIRE, "shared", i % 2 == 0 ? REDLOCK_OK : REDLOCK_LOCKED);
		answer(worker, REDLOCK_EXTEND, "shared", REDLOCK_EXPIRED);
		if (i % 16 == 0)
			stats_set_queues(metrics_worker(worker), &queue, i % 32 == 0);
	}
	return NULL;
}

/* Workers count while the main thread ticks and reads: no data race (ThreadSanitizer), and no lost count. */
TEST(all_threads_at_once)
{
	pthread_t threads[WORKERS];
	uint32_t lost = 0;
	uint64_t now_us = START_US;

	for (size_t w = 0; w < WORKERS; w++)
		ck_assert_int_eq(pthread_create(&threads[w], NULL, run_worker, (void *)(uintptr_t)w), 0);
	for (unsigned i = 0; i < 20; i++) { /* less than a minute */
		stats_tick(now_us += INTERVAL_US);
		stats_read_series(points);
		listed = stats_read_top(false, all_pass, NULL, list);
		listed = stats_read_top(true, all_pass, NULL, list);
	}
	for (size_t w = 0; w < WORKERS; w++)
		pthread_join(threads[w], NULL);
	stats_tick(now_us + INTERVAL_US);
	size_t count = stats_read_series(points);
	for (size_t i = 0; i < count; i++)
		lost += points[i].counts[STATS_LOST];
	ck_assert_uint_eq(lost, WORKERS * THREAD_ROUNDS);
	listed = stats_read_top(false, all_pass, NULL, list);
	assert_entry(0, "shared", WORKERS * THREAD_ROUNDS);
	ck_assert_uint_eq(list[0].refused, WORKERS * THREAD_ROUNDS / 2);
}

FIXTURE(set_up, NULL)
