/* Counters and histograms of the lease side. Each worker has one `struct metrics` that it alone writes (relaxed atomics);
 * metrics_render() adds up all workers', from any thread, as Prometheus text. */
#ifndef METRICS_H
#define METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lease.h"
#include "status.h"
#include "text.h"

enum { METRICS_BUCKETS = 16, METRICS_MASTERS_MAX = 15, METRICS_WORKERS_MAX = 64 };

/* Why a command to a master failed. The names are in metrics.c. */
enum master_error {
	MASTER_ERROR_TIMEOUT,
	MASTER_ERROR_LOST, /* connection closed or reset with the command under way */
	MASTER_ERROR_DOWN, /* not sent: no connection */
	MASTER_ERROR_LOADING,
	MASTER_ERROR_READONLY,
	MASTER_ERROR_OOM,
	MASTER_ERROR_AUTH,
	MASTER_ERROR_CLUSTER,
	MASTER_ERROR_BUSY,
	MASTER_ERROR_CLOCK,  /* refused: our clock is far ahead of its own; or its clock jumped */
	MASTER_ERROR_LATE,   /* refused: the command came after its deadline */
	MASTER_ERROR_BARRED, /* barred since it was asked: its word does not count */
	MASTER_ERROR_OTHER,
	MASTER_ERROR_COUNT
};
const char *master_error_name(enum master_error error);

/* Why a master may not vote. The first ones are those of enum guard_reason, in its order; the names are in metrics.c. */
enum bar_reason {
	BAR_NONE,
	BAR_RESYNC = 9, /* the wait is over, fences of others are missing */
	BAR_REPLICA,
	BAR_VERSION,
	BAR_REDIS_CLUSTER,
	BAR_DUPLICATE,
	BAR_MAXMEMORY_POLICY,
	BAR_REPLICAS_ATTACHED,
	BAR_REASON_COUNT
};
const char *bar_reason_name(enum bar_reason reason);

struct histogram {
	bool is_long; /* buckets from 1 ms to a day instead of 100 µs to 5 s */
	_Atomic uint64_t buckets[METRICS_BUCKETS + 1]; /* not cumulative; the last is +Inf */
	_Atomic uint64_t sum_us;
};
void histogram_observe(struct histogram *histogram, uint64_t us);
/* Appends the _bucket, _sum and _count lines (seconds) of one histogram; `labels` as in `op="acquire"`, or "". */
void histogram_render(struct text *text, const char *name, const char *labels, const struct histogram *histograms[], size_t count);

/* How a wait (wait_ms) ended. The names are in metrics.c. */
enum metrics_wait { METRICS_WAIT_GRANTED, METRICS_WAIT_TIMEOUT, METRICS_WAIT_GONE, METRICS_WAITS };

struct metrics {
	_Atomic uint64_t outcomes[LEASE_CALLS][LEASE_STATUS_COUNT]; /* by lease_call and lease_status */
	struct histogram latency[LEASE_CALLS];            /* by lease_call */
	_Atomic uint64_t split_retries;                   /* tries after a split vote */
	_Atomic uint64_t fence_rounds;                    /* rounds of RAISE: a guess for a fence was too low */
	_Atomic uint64_t given_back;                      /* leases whose client was gone */
	_Atomic uint64_t in_flight;                       /* operations under way, a gauge */
	_Atomic uint64_t holds;                           /* leases that are held by a connection (hold), a gauge */
	_Atomic uint64_t waiters;                         /* requests that wait in the lines of this worker, a gauge */
	struct histogram wait[METRICS_WAITS];
	struct histogram handover;                        /* from a master's call to the grant */
	struct histogram held;                            /* how long leases were held, at their release */
	struct {
		_Atomic uint64_t up; /* 0 or 1: may vote, as seen by this worker */
		_Atomic uint64_t errors[MASTER_ERROR_COUNT];
		_Atomic uint64_t reconnects;
		_Atomic uint64_t warnings;
		_Atomic uint64_t barred;      /* enum bar_reason, as seen by this worker */
		_Atomic uint64_t bars[BAR_REASON_COUNT];
		_Atomic uint64_t clock_jumps[2]; /* forward, back */
		_Atomic uint64_t late;        /* commands refused by the master */
		_Atomic uint64_t clocked;     /* 0 or 1: its floor rests on clocks */
		struct histogram rtt;
	} masters[METRICS_MASTERS_MAX];
};

/* Adds one to a counter that only this thread writes. */
static inline void metrics_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* Sets a gauge that only this thread writes. */
static inline void metrics_set(_Atomic uint64_t *gauge, uint64_t value)
{
	atomic_store_explicit(gauge, value, memory_order_relaxed);
}

/* Makes the metrics of `workers` workers; `addresses` (shown ones, `masters` of them) are copied. Once, at start. */
void metrics_init(size_t workers, size_t masters, const char *const addresses[]);
/* Requests that wait, over all workers. */
uint64_t metrics_waiters(void);
/* Those of worker i. Lives until the program ends. */
struct metrics *metrics_worker(size_t i);
/* Appends all of it: leases, masters, build and process. */
void metrics_render(struct text *text);

#endif
