/* SPDX-License-Identifier: MIT */
/* The figures of GET /stats.
 *
 *   metrics of all workers ──► stats_tick(), each 2 s ──► series (its lock) ──┐
 *   answers of a worker ──► stats_count_answer() ──► its table (its lock) ─────┼──► any worker that is asked
 *   queues of a worker ──► stats_set_queues() ──► its table (its lock) ──────┘
 *
 * Counters only grow, so a point is the difference of two readings; the first one counts from the start. A percentile
 * comes from the differences of the buckets of a histogram: no value of a single request is kept.
 *
 * A lock is held only while counting or copying, and never two at once. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "metrics.h"

enum { TICKS_PER_TURN = STATS_HOT_PART_MS / STATS_INTERVAL_MS };
#define INTERVAL_US (STATS_INTERVAL_MS * UINT64_C(1000))

/* Counts since the start, over all workers. */
struct stats_sums {
	uint64_t counts[STATS_COUNTS];
	/* how long acquisitions took, by bucket, not cumulative */
	uint64_t acquire[METRICS_BUCKETS + 1];
	uint64_t rtt[REDLOCK_MASTERS_MAX][METRICS_BUCKETS + 1]; /* the same of commands to each master */
};

static struct {
	uint64_t began_us; /* written by stats_init() only */
	/* only the thread that ticks may read these, also in an assert */
	uint64_t next_us;
	unsigned ticks;
	struct stats_sums last;
	pthread_mutex_t lock; /* of the rest */
	size_t count, next;   /* number of points; index of the next one */
	struct stats_point points[STATS_POINTS];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

void stats_init(uint64_t now_us)
{
	assert(all.next_us == 0 && metrics_workers() > 0);
	all.began_us = now_us;
	all.next_us = now_us + INTERVAL_US;
}

uint64_t stats_uptime_ms(uint64_t now_us)
{
	assert(metrics_workers() > 0 && now_us >= all.began_us);
	return (now_us - all.began_us) / 1000;
}

/* ---- counting ---- */

void stats_count_answer(struct metrics *metrics, unsigned operation, unsigned outcome, const char *resource, size_t len)
{
	bool by_token = operation == REDLOCK_EXTEND || operation == REDLOCK_RELEASE;
	assert(operation < METRICS_OPERATIONS && outcome < METRICS_OUTCOMES);
	if (operation == REDLOCK_ACQUIRE) {
		pthread_mutex_lock(&metrics->stats.lock);
		stats_hot_count(&metrics->stats.hot, resource, len,
				outcome == REDLOCK_LOCKED || outcome == METRICS_TOO_MANY);
		pthread_mutex_unlock(&metrics->stats.lock);
	} else if (by_token && (outcome == REDLOCK_NOT_OWNER || outcome == REDLOCK_EXPIRED)) {
		metrics_add(&metrics->lost, 1);
	}
}

void stats_set_queues(struct metrics *metrics, const struct stats_resource queues[], size_t count)
{
	assert(count <= STATS_TOP);
	pthread_mutex_lock(&metrics->stats.lock);
	memcpy(metrics->stats.queues, queues, count * sizeof *queues);
	metrics->stats.queue_count = count;
	pthread_mutex_unlock(&metrics->stats.lock);
}

/* ---- the series ---- */

static void sum_buckets(size_t histogram, uint64_t ret_buckets[METRICS_BUCKETS + 1])
{
	assert(histogram + sizeof(struct histogram) <= sizeof(struct metrics));
	for (size_t b = 0; b <= METRICS_BUCKETS; b++)
		ret_buckets[b] = metrics_figure(histogram + offsetof(struct histogram, buckets) + b * sizeof(uint64_t),
						METRICS_SUM);
}

/* Leases that ended before their holder released them, as far as the holder got an answer. */
static uint64_t sum_lost(void)
{
	uint64_t sum = metrics_figure(offsetof(struct metrics, lost), METRICS_SUM);
	for (size_t outcome = 0; outcome < METRICS_OUTCOMES; outcome++)
		sum += metrics_figure(offsetof(struct metrics, holds_lost) + outcome * sizeof(uint64_t), METRICS_SUM);
	return sum;
}

static void read_sums(struct stats_sums *ret_sums)
{
	ret_sums->counts[STATS_GRANTED] = metrics_outcomes(REDLOCK_ACQUIRE, REDLOCK_OK);
	ret_sums->counts[STATS_LOCKED] = metrics_outcomes(REDLOCK_ACQUIRE, REDLOCK_LOCKED);
	ret_sums->counts[STATS_SPLIT_VOTE] = metrics_outcomes(REDLOCK_ACQUIRE, REDLOCK_SPLIT);
	ret_sums->counts[STATS_NO_QUORUM] = metrics_outcomes(REDLOCK_ACQUIRE, REDLOCK_NO_QUORUM);
	ret_sums->counts[STATS_OTHER] = metrics_outcomes(REDLOCK_ACQUIRE, REDLOCK_CANCELLED) +
					metrics_outcomes(REDLOCK_ACQUIRE, METRICS_TOO_MANY);
	ret_sums->counts[STATS_EXTENDED] = metrics_outcomes(REDLOCK_EXTEND, REDLOCK_OK);
	/* forced ones are among them */
	ret_sums->counts[STATS_RELEASED] = metrics_outcomes(REDLOCK_RELEASE, REDLOCK_OK);
	ret_sums->counts[STATS_LOST] = sum_lost();
	sum_buckets(offsetof(struct metrics, latency) + REDLOCK_ACQUIRE * sizeof(struct histogram), ret_sums->acquire);
	for (size_t m = 0; m < REDLOCK_MASTERS_MAX; m++)
		sum_buckets(offsetof(struct metrics, masters[m].rtt), ret_sums->rtt[m]);
}

static uint32_t clip(uint64_t value)
{
	return value < STATS_NONE ? (uint32_t)value : STATS_NONE - 1;
}

uint32_t stats_percentile_us(const uint64_t before[METRICS_BUCKETS + 1], const uint64_t now[METRICS_BUCKETS + 1],
			     double share)
{
	uint64_t total = 0, below = 0;
	size_t i = 0;
	assert(share >= 0 && share <= 1);
	for (size_t b = 0; b <= METRICS_BUCKETS; b++) {
		assert(now[b] >= before[b]);
		total += now[b] - before[b];
	}
	if (total == 0)
		return STATS_NONE;
	double rank = share * (double)total;
	while (i < METRICS_BUCKETS && (now[i] == before[i] || (double)(below + now[i] - before[i]) < rank)) {
		below += now[i] - before[i];
		i++;
	}
	uint64_t low_us = i > 0 ? histogram_bound_us(i - 1) : 0;
	if (i == METRICS_BUCKETS)
		return clip(low_us);
	double part = (rank - (double)below) / (double)(now[i] - before[i]);
	return clip(low_us + (uint64_t)(part * (double)(histogram_bound_us(i) - low_us)));
}

/* Replaces the oldest point if there is no room. */
static void add_point(const struct stats_sums *sums)
{
	const struct stats_sums *last = &all.last;
	struct stats_point *point = &all.points[all.next];
	for (size_t c = 0; c < STATS_COUNTS; c++) {
		assert(sums->counts[c] >= last->counts[c]);
		point->counts[c] = clip(sums->counts[c] - last->counts[c]);
	}
	point->p50_us = stats_percentile_us(last->acquire, sums->acquire, 0.5);
	point->p99_us = stats_percentile_us(last->acquire, sums->acquire, 0.99);
	point->waiters = (uint32_t)metrics_waiters();
	for (size_t m = 0; m < REDLOCK_MASTERS_MAX; m++) {
		point->rtt_us[m] = stats_percentile_us(last->rtt[m], sums->rtt[m], 0.5);
		/* a master votes if every worker may use it */
		point->voting[m] = metrics_figure(offsetof(struct metrics, masters[m].up), METRICS_MIN) != 0;
	}
	all.last = *sums;
	all.next = (all.next + 1) % STATS_POINTS;
	if (all.count < STATS_POINTS)
		all.count++;
}

uint64_t stats_pause_us(uint64_t now_us)
{
	assert(all.next_us > 0);
	return all.next_us > now_us ? all.next_us - now_us : 0;
}

static void turn_tables(void)
{
	for (size_t w = 0; w < metrics_workers(); w++) {
		struct metrics *metrics = metrics_worker(w);
		pthread_mutex_lock(&metrics->stats.lock);
		stats_hot_turn(&metrics->stats.hot);
		pthread_mutex_unlock(&metrics->stats.lock);
	}
}

void stats_tick(uint64_t now_us)
{
	struct stats_sums sums;
	if (stats_pause_us(now_us) > 0)
		return;
	/* The grid stays, so that late ticks do not add up; intervals that passed while the machine slept are
	 * skipped. */
	all.next_us += INTERVAL_US;
	if (all.next_us <= now_us)
		all.next_us = now_us + INTERVAL_US;
	read_sums(&sums);
	pthread_mutex_lock(&all.lock);
	add_point(&sums);
	pthread_mutex_unlock(&all.lock);
	if (++all.ticks % TICKS_PER_TURN == 0)
		turn_tables();
}

/* ---- reading ---- */

size_t stats_read_series(struct stats_point ret_points[STATS_POINTS])
{
	pthread_mutex_lock(&all.lock);
	assert(all.count <= STATS_POINTS && all.next < STATS_POINTS);
	size_t count = all.count, oldest = count < STATS_POINTS ? 0 : all.next;
	size_t first = count - oldest; /* those up to the end of the ring */
	memcpy(ret_points, all.points + oldest, first * sizeof *ret_points);
	memcpy(ret_points + first, all.points, oldest * sizeof *ret_points);
	pthread_mutex_unlock(&all.lock);
	return count;
}

static int compare_resource_names(const void *a, const void *b)
{
	const struct stats_resource *one = a, *other = b;
	size_t shorter = one->len < other->len ? one->len : other->len;
	int order = memcmp(one->name, other->name, shorter);
	return order != 0 ? order : (int)one->len - (int)other->len;
}

/* The largest first; equal ones by name, so that they do not change places from one time to the next. */
static int compare_counts(const void *a, const void *b)
{
	const struct stats_resource *one = a, *other = b;
	return one->count != other->count ? (one->count < other->count ? 1 : -1) : compare_resource_names(a, b);
}

/* Puts the waiters of `other`, another worker's queue of the same resource, among those of `one`. */
static void merge_first(struct stats_resource *one, const struct stats_resource *other)
{
	assert(one->first_count <= STATS_FIRST && other->first_count <= STATS_FIRST);
	for (size_t i = 0; i < other->first_count; i++) {
		size_t at = one->first_count < STATS_FIRST ? one->first_count++ : STATS_FIRST;
		for (; at > 0 && one->first[at - 1].began_us > other->first[i].began_us; at--)
			if (at < STATS_FIRST)
				one->first[at] = one->first[at - 1];
		if (at < STATS_FIRST)
			one->first[at] = other->first[i];
	}
}

/* Merges the entries of a resource from several workers. Returns how many are left. */
static size_t merge(struct stats_resource list[], size_t count)
{
	size_t kept = 0;
	qsort(list, count, sizeof *list, compare_resource_names);
	for (size_t i = 0; i < count; i++) {
		struct stats_resource *last = kept > 0 ? &list[kept - 1] : NULL;
		if (!last || compare_resource_names(last, &list[i]) != 0) {
			list[kept++] = list[i];
			continue;
		}
		last->count += list[i].count;
		last->refused += list[i].refused;
		last->oldest_us = list[i].oldest_us < last->oldest_us ? list[i].oldest_us : last->oldest_us;
		merge_first(last, &list[i]);
	}
	return kept;
}

static size_t keep_allowed(stats_filter_fn *filter, void *arg, struct stats_resource list[], size_t count)
{
	size_t kept = 0;
	for (size_t i = 0; i < count; i++)
		if (filter(arg, list[i].name, list[i].len))
			list[kept++] = list[i];
	return kept;
}

size_t stats_read_top(bool waiting, stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP])
{
	struct stats_resource *list = memory_zeroed(metrics_workers() * STATS_HOT_COUNTERS, sizeof *list);
	size_t count = 0;
	for (size_t w = 0; w < metrics_workers(); w++) {
		struct metrics *metrics = metrics_worker(w);
		pthread_mutex_lock(&metrics->stats.lock);
		size_t more = waiting ? metrics->stats.queue_count : stats_hot_read(&metrics->stats.hot, list + count);
		assert(more <= (waiting ? STATS_TOP : STATS_HOT_COUNTERS));
		if (waiting)
			memcpy(list + count, metrics->stats.queues, more * sizeof *list);
		pthread_mutex_unlock(&metrics->stats.lock);
		count += keep_allowed(filter, arg, list + count, more);
	}
	count = merge(list, count);
	qsort(list, count, sizeof *list, compare_counts);
	count = count < STATS_TOP ? count : STATS_TOP;
	memcpy(ret_list, list, count * sizeof *list);
	free(list);
	return count;
}
