/* The resources that were acquired most in about the last minute, in memory of a fixed size: the space-saving algorithm
 * of Metwally, Agrawal and El Abbadi ("Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005).
 * Pure: no clock, no heap, no locks.
 *
 * A resource without a counter takes over the smallest one. The previous count stays in it as a possible error, so that
 * frequent resources keep their counters and rare ones replace each other. Each counter has six parts of ten seconds,
 * of which a turn drops the oldest.
 *
 * The figure of a resource is its count since it has the counter: never too high; without a turn in between at most
 * n ÷ 64 of n acquisitions too low, and each resource with more than these is listed. With at most 64 resources it is
 * exact. */
#ifndef STATS_HOT_H
#define STATS_HOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	STATS_RESOURCE_MAX = 256, /* bytes of a name */
	STATS_OWNER_MAX = 128,    /* bytes of an owner */
	STATS_FIRST = 8,          /* waiters of a resource that are listed */
	STATS_TOP = 20            /* the longest list of resources */
};
enum { STATS_HOT_COUNTERS = 64, STATS_HOT_PARTS = 6, STATS_HOT_PART_MS = 10000 };

/* Begins as all zeros. */
struct stats_hot {
	unsigned part;                       /* the one that is being filled */
	uint32_t hashes[STATS_HOT_COUNTERS]; /* of their names, for the search */
	uint32_t totals[STATS_HOT_COUNTERS]; /* of a counter's parts, with its errors; 0: it is free */
	struct stats_hot_counter {
		uint16_t len;
		char name[STATS_RESOURCE_MAX];
		uint32_t acquires[STATS_HOT_PARTS], refused[STATS_HOT_PARTS];
		uint32_t errors[STATS_HOT_PARTS]; /* acquisitions of previous resources */
	} counters[STATS_HOT_COUNTERS];
};

/* A request that waits. */
struct stats_waiter {
	uint64_t began_us;
	uint16_t owner_len;          /* 0: it gave none */
	char owner[STATS_OWNER_MAX]; /* not terminated */
};

/* One resource in a list. Each list fills in some members. */
struct stats_resource {
	uint16_t len;
	char name[STATS_RESOURCE_MAX]; /* not terminated */
	uint32_t count;                /* acquisitions, or waiters */
	uint32_t refused;              /* how many of the acquisitions were */
	uint64_t oldest_us;            /* when the first of the waiters arrived */
	size_t first_count;
	struct stats_waiter first[STATS_FIRST]; /* of the waiters, in the order of their arrival */
};

/* One acquisition of `resource` (1 … STATS_RESOURCE_MAX bytes) more. */
void stats_hot_count(struct stats_hot *hot, const char *resource, size_t len, bool refused);

/* Ten seconds are over. */
void stats_hot_turn(struct stats_hot *hot);

/* Lists those that have a counter, in no order. Returns how many. */
size_t stats_hot_read(const struct stats_hot *hot, struct stats_resource ret_list[STATS_HOT_COUNTERS]);

#endif
