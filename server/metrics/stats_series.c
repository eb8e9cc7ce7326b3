/* The points of `series` of GET /stats: see stats_series.h. Their owner is stats.c, which locks them.
 *
 * Counters only grow, so a point is the difference of two readings; the first one counts from the start. A percentile
 * comes from the differences of the buckets of a histogram: no value of a single request is kept. */
#include "stats_series.h"

#include <assert.h>
#include <string.h>

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

void stats_series_add(struct stats_series *series, const struct stats_sums *sums)
{
	const struct stats_sums *last = &series->last;
	struct stats_point *point = &series->points[series->next];
	for (size_t c = 0; c < STATS_COUNTS; c++) {
		assert(sums->counts[c] >= last->counts[c]);
		point->counts[c] = clip(sums->counts[c] - last->counts[c]);
	}
	point->p50_us = stats_percentile_us(last->acquire, sums->acquire, 0.5);
	point->p99_us = stats_percentile_us(last->acquire, sums->acquire, 0.99);
	point->waiters = sums->waiters;
	for (size_t m = 0; m < METRICS_MASTERS_MAX; m++)
		point->rtt_us[m] = stats_percentile_us(last->rtt[m], sums->rtt[m], 0.5);
	memcpy(point->voting, sums->voting, sizeof point->voting);
	series->last = *sums;
	series->next = (series->next + 1) % STATS_POINTS;
	if (series->count < STATS_POINTS)
		series->count++;
}

size_t stats_series_copy(const struct stats_series *series, struct stats_point ret_points[STATS_POINTS])
{
	assert(series->count <= STATS_POINTS && series->next < STATS_POINTS);
	size_t oldest = series->count < STATS_POINTS ? 0 : series->next;
	size_t first = series->count - oldest; /* those up to the end of the ring */

	memcpy(ret_points, series->points + oldest, first * sizeof *ret_points);
	memcpy(ret_points + first, series->points, oldest * sizeof *ret_points);
	return series->count;
}
