/* SPDX-License-Identifier: MIT */
/* The counters of the resources that are acquired most: the space-saving algorithm of Metwally, Agrawal and El Abbadi
 * ("Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005). A resource without a counter takes
 * over the smallest one. The previous count stays in it as a possible error, so that frequent resources keep their
 * counters and rare ones replace each other. Each turn drops the oldest part of a counter.
 *
 * Every acquisition is counted here. So a search reads 256 bytes of hashes and, without a match, 256 bytes of totals,
 * in loops that the compiler can vectorise. A name is compared or copied only once. */
#include <assert.h>
#include <string.h>

#include "metrics.h"

/* The counter of a resource, or STATS_HOT_COUNTERS. */
static size_t find_counter(const struct stats_hot *hot, uint32_t hash, const char *resource, size_t len)
{
	for (size_t i = 0; i < STATS_HOT_COUNTERS; i++)
		if (hot->hashes[i] == hash && hot->totals[i] > 0 && hot->counters[i].len == len &&
		    memcmp(hot->counters[i].name, resource, len) == 0)
			return i;
	return STATS_HOT_COUNTERS;
}

static size_t find_smallest(const struct stats_hot *hot)
{
	uint32_t least = UINT32_MAX;
	size_t i = 0;
	for (size_t c = 0; c < STATS_HOT_COUNTERS; c++)
		least = hot->totals[c] < least ? hot->totals[c] : least;
	while (hot->totals[i] != least)
		i++;
	assert(i < STATS_HOT_COUNTERS);
	return i;
}

/* Gives the smallest counter, or a free one, to another resource. */
static size_t take_over(struct stats_hot *hot, uint32_t hash, const char *resource, size_t len)
{
	size_t i = find_smallest(hot);
	struct stats_hot_counter *counter = &hot->counters[i];
	for (size_t p = 0; p < STATS_HOT_PARTS; p++) {
		counter->errors[p] += counter->acquires[p];
		counter->acquires[p] = counter->refused[p] = 0;
	}
	hot->hashes[i] = hash;
	counter->len = (uint16_t)len;
	memcpy(counter->name, resource, len);
	return i;
}

void stats_hot_count(struct stats_hot *hot, const char *resource, size_t len, bool refused)
{
	assert(len >= 1 && len <= STATS_RESOURCE_MAX && hot->part < STATS_HOT_PARTS);
	uint32_t hash = (uint32_t)hash_fnv1a(resource, len);
	size_t i = find_counter(hot, hash, resource, len);
	if (i == STATS_HOT_COUNTERS)
		i = take_over(hot, hash, resource, len);
	hot->counters[i].acquires[hot->part]++;
	hot->counters[i].refused[hot->part] += refused;
	hot->totals[i]++;
}

void stats_hot_turn(struct stats_hot *hot)
{
	unsigned oldest = hot->part = (hot->part + 1) % STATS_HOT_PARTS;
	for (size_t i = 0; i < STATS_HOT_COUNTERS; i++) {
		struct stats_hot_counter *counter = &hot->counters[i];
		assert(hot->totals[i] >= counter->acquires[oldest] + counter->errors[oldest]);
		hot->totals[i] -= counter->acquires[oldest] + counter->errors[oldest];
		counter->acquires[oldest] = counter->refused[oldest] = counter->errors[oldest] = 0;
	}
}

size_t stats_hot_read(const struct stats_hot *hot, struct stats_resource ret_list[STATS_HOT_COUNTERS])
{
	size_t count = 0;
	for (size_t i = 0; i < STATS_HOT_COUNTERS; i++) {
		const struct stats_hot_counter *counter = &hot->counters[i];
		struct stats_resource *one = &ret_list[count];
		*one = (struct stats_resource){.len = counter->len};
		for (size_t p = 0; p < STATS_HOT_PARTS; p++) {
			one->count += counter->acquires[p];
			one->refused += counter->refused[p];
		}
		memcpy(one->name, counter->name, counter->len);
		count += one->count > 0;
	}
	return count;
}
