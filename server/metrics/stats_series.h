/* The last ten minutes as a row of points, one every two seconds: what was counted in each, and percentiles of how long
 * it took. Pure: no clock, no heap, no locks. See stats.h for who fills it. */
#ifndef STATS_SERIES_H
#define STATS_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics_counters.h"

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

/* Counts since the start, over all workers; the last two members are present values. */
struct stats_sums {
	uint64_t counts[STATS_COUNTS];
	/* how long acquisitions took, by bucket, not cumulative */
	uint64_t acquire[METRICS_BUCKETS + 1];
	uint64_t rtt[METRICS_MASTERS_MAX][METRICS_BUCKETS + 1]; /* the same of commands to each master */
	uint32_t waiters;
	bool voting[METRICS_MASTERS_MAX];
};

/* One interval. */
struct stats_point {
	uint32_t counts[STATS_COUNTS];
	uint32_t p50_us, p99_us;              /* of acquisitions; STATS_NONE: there were none */
	uint32_t waiters;                     /* at its end */
	uint32_t rtt_us[METRICS_MASTERS_MAX]; /* the median; STATS_NONE: no answer */
	bool voting[METRICS_MASTERS_MAX];     /* at its end */
};

/* Begins as all zeros. */
struct stats_series {
	size_t count, next; /* points that are there; where the next one goes */
	struct stats_sums last;
	struct stats_point points[STATS_POINTS];
};

/* The time below which `share` (0 … 1) of the values lie that were counted between two readings of a histogram's
 * buckets; STATS_NONE if there were none. Interpolated within the bucket as if its values lay evenly in it, so it is as
 * good as the bucket is narrow; above the last bound it is that bound. */
uint32_t stats_percentile_us(const uint64_t before[METRICS_BUCKETS + 1], const uint64_t now[METRICS_BUCKETS + 1],
			     double share);

/* One more interval is over, and these are the sums at its end. The oldest point goes where all are taken. */
void stats_series_add(struct stats_series *series, const struct stats_sums *sums);

/* Copies all points, the oldest first. Returns how many. */
size_t stats_series_copy(const struct stats_series *series, struct stats_point ret_points[STATS_POINTS]);

#endif
