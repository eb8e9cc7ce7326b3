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

#include "metrics_counters.h"
#include "stats_hot.h"
#include "stats_series.h"

enum { STATS_TOP = 20 }; /* the longest list of resources */

struct stats_worker;

/* Once, after metrics_init() and before any worker starts; the time of being up begins here. `now_us`, here and below:
 * clock.h. Ends the program where memory is short. */
void stats_init(size_t masters, uint64_t now_us);

/* The table of worker i; the one of the worker with these counters. They live until the program ends. */
struct stats_worker *stats_worker(size_t i);
struct stats_worker *stats_worker_of(const struct metrics *metrics);

/* A client's request for a lease is answered: the operation and outcome as in `struct metrics`. That worker's
 * thread. */
void stats_note_answer(struct stats_worker *worker, unsigned operation, unsigned outcome, const char *resource,
		       size_t len);

/* The queues of the worker are these now (at most STATS_TOP, those with most waiters). That worker's thread. */
void stats_note_queues(struct stats_worker *worker, const struct stats_resource queues[], size_t count);

/* How many µs until stats_tick() has something to do; 0: now. stats_tick() adds a point if it is time for one. The main
 * thread alone. */
uint64_t stats_pause_us(uint64_t now_us);
void stats_tick(uint64_t now_us);

uint64_t stats_uptime_ms(uint64_t now_us);

/* Copies the points, the oldest first. Returns how many. Any thread. */
size_t stats_read_series(struct stats_point ret_points[STATS_POINTS]);

/* True if a resource may be in the list that is asked for. */
typedef bool stats_filter_fn(void *arg, const char *resource, size_t len);

/* The STATS_TOP with most acquisitions, or most waiters, of those that the filter lets through; the largest first.
 * Returns false where memory is short. Any thread. */
bool stats_read_hottest(stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP],
			size_t *ret_count);
bool stats_read_waiting(stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP],
			size_t *ret_count);

#endif
