/* Histograms of times, in fixed buckets. One thread writes each, any thread may read. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/base.h"

enum { METRICS_BUCKETS = 16 };

struct histogram {
	bool is_long;                                  /* buckets from 1 ms to a day instead of 100 µs to 5 s */
	_Atomic uint64_t buckets[METRICS_BUCKETS + 1]; /* not cumulative; the last is +Inf */
	_Atomic uint64_t sum_us;
};

void histogram_observe(struct histogram *histogram, uint64_t us);

/* The upper bound of bucket i of a histogram that is not is_long; UINT64_MAX for the last one, METRICS_BUCKETS. */
uint64_t histogram_bound_us(size_t i);

/* Appends the _bucket, _sum and _count lines (seconds) of one histogram, the sum of `count` (at least 1) of one kind;
 * `labels` as in `op="acquire"`, or "". The _count always equals the +Inf bucket. */
void histogram_render(struct text *text, const char *name, const char *labels, const struct histogram *histograms[],
		      size_t count);

#endif
