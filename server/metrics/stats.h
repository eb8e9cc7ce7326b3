/* The figures of GET /stats, over all workers: the last ten minutes, the resources that are acquired most, and those
 * with most waiters.
 *
 * The main thread adds a point every two seconds; each worker counts into a table of its own; any thread may read.
 * Every lock is held for as long as it takes to count or to copy, and no longer. The memory is taken at the start and
 * never grows. */
#ifndef STATS_H
#define STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"
#include "server/redlock/redlock.h"
#include "stats_hot.h"

struct metrics;

enum { STATS_POINTS = 300, STATS_INTERVAL_MS = 2000 };

/* A time that is unknown, since nothing was measured. */
#define STATS_NONE UINT32_MAX

enum stats_count {
	STATS_GRANTED, /* answers to POST /locks … */
	STATS_LOCKED,
	STATS_SPLIT_VOTE,
	STATS_NO_QUORUM,
	STATS_OTHER, /* … any other: draining, too many wait */
	STATS_EXTENDED,
	STATS_RELEASED,
	STATS_LOST,
	STATS_COUNTS
};

/* One interval. */
struct stats_point {
	uint32_t counts[STATS_COUNTS];
	uint32_t p50_us, p99_us;              /* of acquisitions; STATS_NONE: there were none */
	uint32_t waiters;                     /* at its end */
	uint32_t rtt_us[REDLOCK_MASTERS_MAX]; /* the median; STATS_NONE: no answer */
	bool voting[REDLOCK_MASTERS_MAX];     /* at its end */
};

/* Once, after metrics_init() and before any worker starts; the time of being up begins here. `now_us`, here and below:
 * clock.h. */
void stats_init(uint64_t now_us);

/* A client's request for a lease is answered: the operation and outcome as in `struct metrics`. That worker's
 * thread. */
void stats_note_answer(struct metrics *metrics, unsigned operation, unsigned outcome, const char *resource, size_t len);

/* The queues of the worker are these now (at most STATS_TOP, those with most waiters). That worker's thread. */
void stats_note_queues(struct metrics *metrics, const struct stats_resource queues[], size_t count);

/* How many µs until stats_tick() has something to do; 0: now. stats_tick() adds a point if it is time for one. The main
 * thread alone. */
uint64_t stats_pause_us(uint64_t now_us);
void stats_tick(uint64_t now_us);

uint64_t stats_uptime_ms(uint64_t now_us);

/* Copies the points of the last ten minutes, the oldest first. Returns how many. Any thread. */
size_t stats_read_series(struct stats_point ret_points[STATS_POINTS]);

/* True if a resource may be in the list that is asked for. */
typedef bool stats_filter_fn(void *arg, const char *resource, size_t len);

/* The STATS_TOP with most acquisitions, or most waiters, of those that the filter lets through; the largest first.
 * Return how many. Any thread. */
typedef size_t stats_read_fn(stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP]);
stats_read_fn stats_read_hottest, stats_read_waiting;

/* The time below which `share` (0 … 1) of the values lie that were counted between two readings of a histogram's
 * buckets; STATS_NONE if there were none. Interpolated within the bucket as if its values lay evenly in it, so it is as
 * good as the bucket is narrow; above the last bound it is that bound. */
uint32_t stats_percentile_us(const uint64_t before[METRICS_BUCKETS + 1], const uint64_t now[METRICS_BUCKETS + 1],
			     double share);

#endif
