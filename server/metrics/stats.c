/* The figures of GET /stats: see stats.h.
 *
 *   metrics of all workers ──► stats_tick(), each 2 s ──► series (its lock) ──┐
 *   answers of a worker ──► stats_note_answer() ──► its table (its lock) ─────┼──► any worker that is asked
 *   queues of a worker ──► stats_note_queues() ──► its table (its lock) ──────┘
 *
 * A worker's lock is taken for each acquisition, and by others only to copy the table: it is hardly ever contended. Two
 * locks are never held at once. The reader merges and sorts its own copy. */
#include "stats.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { TICKS_PER_TURN = STATS_HOT_PART_MS / STATS_INTERVAL_MS };
#define INTERVAL_US (STATS_INTERVAL_MS * UINT64_C(1000))

struct stats_worker {
	_Atomic uint64_t lost; /* extensions and releases of a lost lease; written by this worker alone */
	pthread_mutex_t lock;  /* of what follows */
	struct stats_hot hot;
	size_t queue_count;
	struct stats_resource queues[STATS_TOP];
};

static struct {
	size_t workers, masters;
	uint64_t began_us;
	struct stats_worker *of;
	/* of the thread that ticks */
	uint64_t next_us;
	unsigned ticks;
	pthread_mutex_t lock; /* of the series */
	struct stats_series series;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

void stats_init(size_t masters, uint64_t now_us)
{
	assert(!all.of && metrics_workers() > 0 && masters <= METRICS_MASTERS_MAX);
	all.workers = metrics_workers();
	all.masters = masters;
	all.began_us = now_us;
	all.next_us = now_us + INTERVAL_US;
	all.of = calloc(all.workers, sizeof *all.of);
	if (!all.of)
		abort(); /* at start, before anything is promised to anybody */
	for (size_t w = 0; w < all.workers; w++)
		pthread_mutex_init(&all.of[w].lock, NULL);
}

struct stats_worker *stats_worker(size_t i)
{
	assert(i < all.workers);
	return &all.of[i];
}

struct stats_worker *stats_worker_of(const struct metrics *metrics)
{
	size_t i = 0;
	while (metrics_worker(i) != metrics)
		i++;
	return stats_worker(i);
}

uint64_t stats_uptime_ms(uint64_t now_us)
{
	assert(all.of && now_us >= all.began_us);
	return (now_us - all.began_us) / 1000;
}

/* ---- counting ---- */

void stats_note_answer(struct stats_worker *worker, unsigned operation, unsigned outcome, const char *resource,
		       size_t len)
{
	bool by_token = operation == REDLOCK_EXTEND || operation == REDLOCK_RELEASE;
	assert(operation < METRICS_OPERATIONS && outcome < METRICS_OUTCOMES);
	if (operation == REDLOCK_ACQUIRE) {
		pthread_mutex_lock(&worker->lock);
		stats_hot_count(&worker->hot, resource, len, outcome == REDLOCK_LOCKED || outcome == METRICS_TOO_MANY);
		pthread_mutex_unlock(&worker->lock);
	} else if (by_token && (outcome == REDLOCK_NOT_OWNER || outcome == REDLOCK_EXPIRED)) {
		metrics_add(&worker->lost, 1);
	}
}

void stats_note_queues(struct stats_worker *worker, const struct stats_resource queues[], size_t count)
{
	assert(count <= STATS_TOP);
	pthread_mutex_lock(&worker->lock);
	memcpy(worker->queues, queues, count * sizeof *queues);
	worker->queue_count = count;
	pthread_mutex_unlock(&worker->lock);
}

/* ---- the series ---- */

static uint64_t sum_outcomes(size_t operation, size_t outcome)
{
	assert(operation < METRICS_OPERATIONS && outcome < METRICS_OUTCOMES);
	return metrics_sum_at(offsetof(struct metrics, outcomes) +
			      (operation * METRICS_OUTCOMES + outcome) * sizeof(uint64_t));
}

static void sum_buckets(size_t histogram, uint64_t ret_buckets[METRICS_BUCKETS + 1])
{
	assert(histogram + sizeof(struct histogram) <= sizeof(struct metrics));
	for (size_t b = 0; b <= METRICS_BUCKETS; b++)
		ret_buckets[b] = metrics_sum_at(histogram + offsetof(struct histogram, buckets) + b * sizeof(uint64_t));
}

/* Leases that ended before their holder released them, as far as the holder was told. */
static uint64_t sum_lost(void)
{
	uint64_t sum = 0;
	for (size_t w = 0; w < all.workers; w++)
		sum += metrics_load(&all.of[w].lost);
	for (size_t outcome = 0; outcome < METRICS_OUTCOMES; outcome++)
		sum += metrics_sum_at(offsetof(struct metrics, holds_lost) + outcome * sizeof(uint64_t));
	return sum;
}

/* A master votes if every worker may use it. */
static bool is_voting(size_t master)
{
	bool voting = true;
	assert(master < all.masters);
	for (size_t w = 0; w < all.workers; w++)
		voting = voting && metrics_load(&metrics_worker(w)->masters[master].up) != 0;
	return voting;
}

static void read_sums(struct stats_sums *ret_sums)
{
	*ret_sums = (struct stats_sums){.waiters = (uint32_t)metrics_waiters()};
	ret_sums->counts[STATS_GRANTED] = sum_outcomes(REDLOCK_ACQUIRE, REDLOCK_OK);
	ret_sums->counts[STATS_LOCKED] = sum_outcomes(REDLOCK_ACQUIRE, REDLOCK_LOCKED);
	ret_sums->counts[STATS_SPLIT_VOTE] = sum_outcomes(REDLOCK_ACQUIRE, REDLOCK_SPLIT);
	ret_sums->counts[STATS_NO_QUORUM] = sum_outcomes(REDLOCK_ACQUIRE, REDLOCK_NO_QUORUM);
	ret_sums->counts[STATS_OTHER] = sum_outcomes(REDLOCK_ACQUIRE, REDLOCK_CANCELLED) +
					sum_outcomes(REDLOCK_ACQUIRE, METRICS_TOO_MANY);
	ret_sums->counts[STATS_EXTENDED] = sum_outcomes(REDLOCK_EXTEND, REDLOCK_OK);
	/* forced ones are among them */
	ret_sums->counts[STATS_RELEASED] = sum_outcomes(REDLOCK_RELEASE, REDLOCK_OK);
	ret_sums->counts[STATS_LOST] = sum_lost();
	sum_buckets(offsetof(struct metrics, latency) + REDLOCK_ACQUIRE * sizeof(struct histogram), ret_sums->acquire);
	for (size_t m = 0; m < all.masters; m++) {
		sum_buckets(offsetof(struct metrics, masters[m].rtt), ret_sums->rtt[m]);
		ret_sums->voting[m] = is_voting(m);
	}
}

uint64_t stats_pause_us(uint64_t now_us)
{
	assert(all.of);
	return all.next_us > now_us ? all.next_us - now_us : 0;
}

static void turn_tables(void)
{
	for (size_t w = 0; w < all.workers; w++) {
		pthread_mutex_lock(&all.of[w].lock);
		stats_hot_turn(&all.of[w].hot);
		pthread_mutex_unlock(&all.of[w].lock);
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
	stats_series_add(&all.series, &sums);
	pthread_mutex_unlock(&all.lock);
	if (++all.ticks % TICKS_PER_TURN == 0)
		turn_tables();
}

/* ---- reading ---- */

size_t stats_read_series(struct stats_point ret_points[STATS_POINTS])
{
	pthread_mutex_lock(&all.lock);
	size_t count = stats_series_copy(&all.series, ret_points);
	pthread_mutex_unlock(&all.lock);
	return count;
}

static int compare_names(const void *a, const void *b)
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
	return one->count != other->count ? (one->count < other->count ? 1 : -1) : compare_names(a, b);
}

/* Makes one of those that several workers have. Returns how many are left. */
static size_t merge(struct stats_resource list[], size_t count)
{
	size_t kept = 0;
	qsort(list, count, sizeof *list, compare_names);
	for (size_t i = 0; i < count; i++) {
		struct stats_resource *last = kept > 0 ? &list[kept - 1] : NULL;
		if (!last || compare_names(last, &list[i]) != 0) {
			list[kept++] = list[i];
			continue;
		}
		last->count += list[i].count;
		last->refused += list[i].refused;
		last->oldest_us = list[i].oldest_us < last->oldest_us ? list[i].oldest_us : last->oldest_us;
	}
	return kept;
}

static size_t copy_hottest(struct stats_worker *worker, struct stats_resource *ret_list)
{
	return stats_hot_read(&worker->hot, ret_list);
}

static size_t copy_queues(struct stats_worker *worker, struct stats_resource *ret_list)
{
	assert(worker->queue_count <= STATS_TOP);
	memcpy(ret_list, worker->queues, worker->queue_count * sizeof *ret_list);
	return worker->queue_count;
}

static size_t keep_allowed(stats_filter_fn *filter, void *arg, struct stats_resource list[], size_t count)
{
	size_t kept = 0;
	for (size_t i = 0; i < count; i++)
		if (filter(arg, list[i].name, list[i].len))
			list[kept++] = list[i];
	return kept;
}

/* `most`: of one worker. */
static bool read_top(size_t (*copy)(struct stats_worker *worker, struct stats_resource *ret_list), size_t most,
		     stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP], size_t *ret_count)
{
	struct stats_resource *list = calloc(all.workers * most, sizeof *list);
	size_t count = 0;
	if (!list)
		return false;
	for (size_t w = 0; w < all.workers; w++) {
		pthread_mutex_lock(&all.of[w].lock);
		size_t more = copy(&all.of[w], list + count);
		assert(more <= most);
		pthread_mutex_unlock(&all.of[w].lock);
		count += keep_allowed(filter, arg, list + count, more);
	}
	count = merge(list, count);
	qsort(list, count, sizeof *list, compare_counts);
	*ret_count = count < STATS_TOP ? count : STATS_TOP;
	memcpy(ret_list, list, *ret_count * sizeof *list);
	free(list);
	return true;
}

bool stats_read_hottest(stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP],
			size_t *ret_count)
{
	return read_top(copy_hottest, STATS_HOT_COUNTERS, filter, arg, ret_list, ret_count);
}

bool stats_read_waiting(stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP],
			size_t *ret_count)
{
	return read_top(copy_queues, STATS_TOP, filter, arg, ret_list, ret_count);
}
