/* Counters, gauges and histograms of the lease side. Each worker has one `struct metrics` that it alone writes (relaxed
 * atomics); metrics_render() adds up all workers', from any thread, as Prometheus text or OpenMetrics. docs/metrics.md
 * says what each one means. */
#ifndef METRICS_COUNTERS_H
#define METRICS_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/base.h"
#include "server/leases/leases.h"
#include "server/masters/master_status.h"

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
	MASTER_ERROR_CLOCK,       /* refused: our clock is far ahead of its own; or its clock jumped */
	MASTER_ERROR_LATE,        /* refused: the command came after its deadline */
	MASTER_ERROR_QUARANTINED, /* quarantined since it was asked: its word does not count */
	MASTER_ERROR_COMMAND,     /* it does not know a command */
	MASTER_ERROR_OTHER,
	MASTER_ERROR_COUNT
};
const char *master_error_name(enum master_error error);

/* What a master must be able to carry out. The names are in metrics.c. */
enum master_command_kind {
	MASTER_COMMAND_AUTH,
	MASTER_COMMAND_SELECT,
	MASTER_COMMAND_INFO,
	MASTER_COMMAND_CLIENT_ID,
	MASTER_COMMAND_SCRIPT_LOAD,
	MASTER_COMMAND_EVAL,
	MASTER_COMMAND_EVALSHA,
	MASTER_COMMAND_TIME,
	MASTER_COMMAND_GET,
	MASTER_COMMAND_SET,
	MASTER_COMMAND_DEL,
	MASTER_COMMAND_EXISTS,
	MASTER_COMMAND_PTTL,
	MASTER_COMMAND_PEXPIRE,
	MASTER_COMMAND_SCAN,
	MASTER_COMMAND_HGET,
	MASTER_COMMAND_HMGET,
	MASTER_COMMAND_HSET,
	MASTER_COMMAND_HDEL,
	MASTER_COMMAND_HINCRBY,
	MASTER_COMMAND_ZADD,
	MASTER_COMMAND_ZCARD,
	MASTER_COMMAND_ZRANGE,
	MASTER_COMMAND_ZREM,
	MASTER_COMMAND_PUBLISH,
	MASTER_COMMAND_SUBSCRIBE,
	MASTER_COMMAND_COUNT
};
const char *master_command_name(enum master_command_kind command);

/* Why a master may not vote. The first ones are those of enum guard_reason, in its order; the names are in
 * metrics.c. */
enum quarantine_reason {
	QUARANTINE_NONE,
	QUARANTINE_RECOVERY = 9, /* the wait is over, fences of others are missing */
	QUARANTINE_REPLICA,
	QUARANTINE_VERSION,
	QUARANTINE_REDIS_CLUSTER,
	QUARANTINE_DUPLICATE,
	QUARANTINE_MAXMEMORY_POLICY,
	QUARANTINE_REPLICAS_ATTACHED,
	QUARANTINE_REASON_COUNT
};
const char *quarantine_reason_name(enum quarantine_reason reason);

struct histogram {
	bool is_long;                                  /* buckets from 1 ms to a day instead of 100 µs to 5 s */
	_Atomic uint64_t buckets[METRICS_BUCKETS + 1]; /* not cumulative; the last is +Inf */
	_Atomic uint64_t sum_us;
};
void histogram_observe(struct histogram *histogram, uint64_t us);
/* Appends the _bucket, _sum and _count lines (seconds) of one histogram; `labels` as in `op="acquire"`, or "". */
void histogram_render(struct text *text, const char *name, const char *labels, const struct histogram *histograms[],
		      size_t count);

/* Prometheus text 0.0.4, or OpenMetrics 1.0: the same samples, but in OpenMetrics a family of counters is named without
 * _total, and the end is marked. */
enum exposition_format { EXPOSITION_PROMETHEUS, EXPOSITION_OPENMETRICS };

/* A page of metrics that is being written. `text` belongs to whoever made it; if it failed, the page is not whole. */
struct exposition {
	struct text text;
	enum exposition_format format;
};
/* Appends HELP and TYPE of a metric, ahead of its samples. `type`: "counter", "gauge" or "histogram"; a counter's name
 * ends with _total. `help` is without quotes, backslashes and line breaks. */
void exposition_head(struct exposition *page, const char *name, const char *type, const char *help);
/* Appends what the format wants after the last metric. */
void exposition_end(struct exposition *page);
/* The Content-Type. Static memory. */
const char *exposition_type(enum exposition_format format);

/* How a wait (wait_ms) ended. The names are in metrics.c. */
enum metrics_wait { METRICS_WAIT_GRANTED, METRICS_WAIT_TIMEOUT, METRICS_WAIT_GONE, METRICS_WAITS };

struct metrics {
	_Atomic uint64_t outcomes[LEASE_OPERATIONS][LEASE_STATUS_COUNT]; /* by lease_call and lease_status */
	struct histogram latency[LEASE_OPERATIONS];                      /* by lease_call */
	_Atomic uint64_t split_retries;                                  /* tries after a split vote */
	_Atomic uint64_t fence_rounds; /* rounds of RAISE: a guess for a fence was too low */
	_Atomic uint64_t given_back;   /* leases whose client was gone */
	_Atomic uint64_t in_flight;    /* operations under way, a gauge */
	_Atomic uint64_t holds;        /* leases that are held by a connection (hold), a gauge */
	/* of them, those that ended as lost, by why: NOT_OWNER, EXPIRED, NO_QUORUM */
	_Atomic uint64_t holds_lost[LEASE_STATUS_COUNT];
	/* operations held back until fewer wait for masters, a gauge */
	_Atomic uint64_t queued;
	_Atomic uint64_t draining;      /* 0 or 1: the worker takes no new leases */
	_Atomic uint64_t waiters;       /* requests that wait in the lines of this worker, a gauge */
	_Atomic uint64_t waiters_limit; /* how many may wait in all lines of the process */
	/* when the one that has waited longest came (clock.h); 0: nobody waits */
	_Atomic uint64_t waiting_since_us;
	struct histogram wait[METRICS_WAITS];
	struct histogram handover; /* from a master's call to the grant */
	struct histogram held;     /* how long leases were held, at their release */
	struct {
		_Atomic uint64_t up; /* 0 or 1: may vote, as seen by this worker */
		_Atomic uint64_t errors[MASTER_ERROR_COUNT];
		_Atomic uint64_t reconnects;
		_Atomic uint64_t warnings;
		_Atomic uint64_t refused;     /* bits of enum master_command_kind */
		_Atomic uint64_t in_flight;   /* commands sent and not answered, a gauge */
		_Atomic uint64_t quarantined; /* enum quarantine_reason, as seen by this worker */
		/* when the quarantine is over by time alone (clock.h); 0: no quarantine, or time alone does not end
		 * it */
		_Atomic uint64_t quarantine_until_us;
		_Atomic uint64_t quarantines[QUARANTINE_REASON_COUNT];
		_Atomic uint64_t clock_jumps[2]; /* forward, back */
		_Atomic uint64_t late;           /* commands refused by the master */
		_Atomic uint64_t clocked;        /* 0 or 1: its floor rests on clocks */
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
/* Those of worker i. Lives until the program ends. */
struct metrics *metrics_worker(size_t i);

/* What follows may be called from any thread. `offset` is that of a counter or gauge (a uint64_t) in `struct
 * metrics`. */

/* How many workers metrics_init() was told of; 0 before it. */
size_t metrics_workers(void);
/* The figure summed over all workers; the largest that any of them has. */
uint64_t metrics_sum_at(size_t offset);
uint64_t metrics_most_at(size_t offset);
/* The upper bound of bucket i of a histogram that is not is_long; UINT64_MAX for the last one, METRICS_BUCKETS. */
uint64_t metrics_bound_us(size_t i);
/* Requests that wait, over all workers. */
uint64_t metrics_waiters(void);
/* How many masters may vote, as the worker sees it that sees the fewest. */
size_t metrics_voting(void);
/* Epochs and keys were read: all well, or what was read before stays in use. The main thread alone; may come before
 * metrics_init(). */
void metrics_note_reload(bool successful);
/* Appends all of it: leases, masters, build and process. */
void metrics_render(struct exposition *page);

#endif
