/* What GET /stats shows of this process, all its workers: the last ten minutes, the resources that are acquired most,
 * and those that are waited for.
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
#include "server/leases/leases.h"
#include "stats_hot.h"
#include "stats_series.h"

enum { STATS_TOP = 20 }; /* the longest lists of resources */

struct stats_worker;

/* Once, after metrics_init() and before any worker starts; the time of being up begins here. `now_us`, here and below:
 * clock.h. Ends the program where memory is short. */
void stats_init(size_t masters, uint64_t now_us);

/* The table of worker i; the one of the worker with these counters. They live until the program ends. */
struct stats_worker *stats_worker(size_t i);
struct stats_worker *stats_worker_of(const struct metrics *metrics);

/* A call for a lease is answered, to a client. That worker's thread. */
void stats_note_answer(struct stats_worker *worker, const struct lease_request *request, enum lease_status status);

/* The lines of the worker are these now (at most STATS_TOP, those with most waiters). That worker's thread. */
void stats_note_queues(struct stats_worker *worker, const struct stats_resource lines[], size_t count);

/* For how many µs nothing is to be done; 0: stats_tick() is due. Adds a point if one is due. One thread, the main
 * one. */
uint64_t stats_pause_us(uint64_t now_us);
void stats_tick(uint64_t now_us);

uint64_t stats_uptime_ms(uint64_t now_us);

/* Copies the points, the oldest first. Returns how many. Any thread. */
size_t stats_read_series(struct stats_point ret_points[STATS_POINTS]);

/* Says of a resource whether it may be in the list that is asked for. */
typedef bool stats_filter_fn(void *arg, const char *resource, size_t len);

/* The STATS_TOP with most acquisitions, or most waiters, of those that the filter lets through; the largest first.
 * Returns false where memory is short. Any thread. */
bool stats_read_hottest(stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP],
			size_t *ret_count);
bool stats_read_waiting(stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP],
			size_t *ret_count);

#endif
