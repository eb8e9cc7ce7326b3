/* Figures of redlockd about itself: counters, gauges and histograms, their page for Prometheus, and (stats.h) GET
 * /stats. The one header of this folder for the others.
 *
 * Each worker has one `struct metrics` that it alone writes, with relaxed atomics; any thread may read. The labels come
 * from closed lists: the core's kinds and outcomes, the guard's reasons, and the enums below.
 * docs/reference/metrics.md describes each metric. */
#ifndef METRICS_H
#define METRICS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exposition.h"
#include "histogram.h"
#include "server/redlock/guard/guard.h"
#include "server/redlock/redlock.h"
#include "stats.h"

enum { METRICS_WORKERS_MAX = 64 };

/* Operations: by enum redlock_kind, and forced releases. */
enum { METRICS_FORCE = REDLOCK_INSPECT + 1, METRICS_OPERATIONS };
/* Outcomes: by enum redlock_outcome, where REDLOCK_CANCELLED counts those rejected by a drain, and one more. */
enum { METRICS_TOO_MANY = REDLOCK_CANCELLED + 1, METRICS_OUTCOMES };

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
	MASTER_ERROR_QUARANTINED, /* quarantined since it was asked: its answer does not count */
	MASTER_ERROR_COMMAND,     /* a command that it does not know */
	MASTER_ERROR_OTHER,
	MASTER_ERROR_COUNT
};
const char *master_error_name(enum master_error error);

/* Commands that a master must be able to carry out. The names are in metrics.c. */
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

/* Why a master may not vote. The first ones are those of enum guard_reason; the names of the others are in
 * metrics.c. */
enum quarantine_reason {
	QUARANTINE_NONE,
	QUARANTINE_RECOVERY = GUARD_OTHER_CLUSTER + 1, /* the wait is over, fences of others are missing */
	QUARANTINE_REPLICA,
	QUARANTINE_VERSION,
	QUARANTINE_REDIS_CLUSTER,
	QUARANTINE_DUPLICATE,
	QUARANTINE_MAXMEMORY_POLICY,
	QUARANTINE_REPLICAS_ATTACHED,
	QUARANTINE_REASON_COUNT
};
const char *quarantine_reason_name(enum quarantine_reason reason);

/* How a wait (wait_ms) ended. The names are in metrics.c. */
enum metrics_wait { METRICS_WAIT_GRANTED, METRICS_WAIT_TIMEOUT, METRICS_WAIT_CANCELLED, METRICS_WAITS };

/* What is counted of HTTP besides requests. The names are in metrics.c. */
enum http_counter {
	/* connections not taken: too many in all, too many of their address, or libmicrohttpd did not take them */
	HTTP_REFUSED_ALL,
	HTTP_REFUSED_ADDRESS,
	HTTP_REFUSED_ERROR,
	/* requests answered 429, by the bound that they met; not: the queue of a lock is full */
	HTTP_LIMIT_ADDRESS_RATE,
	HTTP_LIMIT_KEY_RATE,
	HTTP_LIMIT_KEY_WAITING,
	/* connections ended at a deadline, by what they were late with */
	HTTP_TIMEOUT_REQUEST,
	HTTP_TIMEOUT_ANSWER,
	HTTP_TIMEOUT_IDLE,
	HTTP_COUNTERS
};
enum { METRICS_HTTP_ROUTES = 18, METRICS_HTTP_METHODS = 6, METRICS_HTTP_STATUSES = 18 };

struct metrics {
	_Atomic uint64_t outcomes[METRICS_OPERATIONS][METRICS_OUTCOMES];
	struct histogram latency[METRICS_OPERATIONS];
	_Atomic uint64_t split_retries;                /* tries after a split vote */
	_Atomic uint64_t fence_rounds;                 /* rounds of RAISE: a guess for a fence was too low */
	_Atomic uint64_t abandoned;                    /* grants whose client disconnected before it got the answer */
	_Atomic uint64_t in_flight;                    /* operations under way, a gauge */
	_Atomic uint64_t holds;                        /* leases held by a connection (hold), a gauge */
	_Atomic uint64_t holds_lost[METRICS_OUTCOMES]; /* by why: NOT_OWNER, EXPIRED, NO_QUORUM */
	_Atomic uint64_t lost;                         /* extensions and releases of a lost lease */
	/* operations held back until fewer wait for masters, a gauge */
	_Atomic uint64_t queued;
	_Atomic uint64_t draining;      /* 0 or 1: the worker takes no new leases */
	_Atomic uint64_t waiters;       /* requests that wait in the queues of this worker, a gauge */
	_Atomic uint64_t waiters_limit; /* how many may wait in all queues of the process */
	/* when the request that has waited longest came (clock.h); 0: none waits */
	_Atomic uint64_t waiting_since_us;
	struct histogram wait[METRICS_WAITS];
	struct histogram handover; /* from the first notification to the grant */
	struct histogram held;     /* how long leases were held, at their release */
	_Atomic uint64_t http_requests[METRICS_HTTP_ROUTES][METRICS_HTTP_METHODS][METRICS_HTTP_STATUSES];
	_Atomic uint64_t http_counters[HTTP_COUNTERS];
	_Atomic uint64_t http_connections;       /* open ones, a gauge */
	_Atomic uint64_t http_connections_limit; /* how many may be */
	_Atomic uint64_t tls_handshakes_failed;
	struct {
		pthread_mutex_t lock; /* of all in here */
		struct stats_hot hot;
		size_t queue_count;
		struct stats_resource queues[STATS_TOP];
	} stats; /* stats.c */
	struct metrics_master {
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
	} masters[REDLOCK_MASTERS_MAX];
};

/* Adds to a counter that only this thread writes. */
static inline void metrics_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* A figure, from any thread. */
static inline uint64_t metrics_load(const _Atomic uint64_t *figure)
{
	return atomic_load_explicit(figure, memory_order_relaxed);
}

/* Sets a gauge that only this thread writes. */
static inline void metrics_set(_Atomic uint64_t *gauge, uint64_t value)
{
	atomic_store_explicit(gauge, value, memory_order_relaxed);
}

/* Makes the metrics of `workers` workers; `addresses` (without passwords, `masters` of them) are copied. Once, at the
 * start. */
void metrics_init(size_t workers, size_t masters, const char *const addresses[]);
/* Those of worker i. Lives until the program ends. */
struct metrics *metrics_worker(size_t i);

/* The following functions may be called from any thread. */

/* The number of workers; 0 before metrics_init(). */
size_t metrics_workers(void);
/* One figure of all workers: their sum, or the largest or smallest that any of them has. `offset` is that of a counter
 * or gauge (a uint64_t) in `struct metrics`. */
enum metrics_fold { METRICS_SUM, METRICS_MOST, METRICS_LEAST };
uint64_t metrics_figure(size_t offset, enum metrics_fold fold);
/* Operations that ended so, over all workers. */
uint64_t metrics_outcomes(size_t operation, size_t outcome);
/* Requests that wait, over all workers. */
uint64_t metrics_waiters(void);
/* How many masters may vote, as seen by the worker that sees the fewest. */
size_t metrics_voting(void);
/* Certificates and keys were read: all well, or those read before stay in use. The main thread alone; may come before
 * metrics_init(). */
void metrics_note_reload(bool successful);
/* Appends all but requests: leases, masters, connections, build and process, which began at `began_us` (since 1970). */
void metrics_render(struct text *page);
void metrics_render_process(struct text *page, uint64_t began_us);

#endif
