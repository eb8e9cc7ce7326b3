/* SPDX-License-Identifier: MIT */
/* Figures of redlockd about itself: counters, gauges and histograms, their page for Prometheus, and GET /stats.
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

#include "server/base/base.h"
#include "server/redlock/guard/guard.h"
#include "server/redlock/redlock.h"

/* ---- exposition.c: histograms, and a page of metrics in the text format of Prometheus, version 0.0.4 ---- */

/* Appends HELP and TYPE of a metric, before its samples. `type`: "counter", "gauge" or "histogram"; a counter's name
 * ends with _total. `help` is without quotes, backslashes and line breaks. */
void exposition_head(struct text *page, const char *name, const char *type, const char *help);
/* The same with the one sample of a metric without labels: a number, or a time in microseconds. */
void exposition_number(struct text *page, const char *name, const char *type, const char *help, uint64_t value);
void exposition_time(struct text *page, const char *name, const char *type, const char *help, uint64_t us);
/* Microseconds as seconds, exactly and without trailing zeros: 300 is 0.0003. */
void exposition_seconds(struct text *page, uint64_t us);
/* A label, `name="value"`, with the three escapes of a value. */
void exposition_label(struct text *page, const char *name, const char *value);

/* Times in fixed buckets. One thread writes each, any thread may read. */
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

/* ---- stats_hot.c: the resources that were acquired most in about the last minute ----
 *
 * The figure of a resource is its count since it got a counter, so it is never too high. Of n acquisitions without a
 * turn in between, it misses at most n ÷ 64, and each resource with more than these is listed. With at most 64
 * resources it is exact. No clock, no heap, no locks. */

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

/* Counts one acquisition of `resource` (1 … STATS_RESOURCE_MAX bytes). */
void stats_hot_count(struct stats_hot *hot, const char *resource, size_t len, bool refused);
/* Call it every STATS_HOT_PART_MS: begins the next part. */
void stats_hot_turn(struct stats_hot *hot);
/* Lists the resources that have a counter, in no order. Returns how many. */
size_t stats_hot_read(const struct stats_hot *hot, struct stats_resource ret_list[STATS_HOT_COUNTERS]);

/* ---- metrics.c, metrics_process.c ---- */

enum { METRICS_WORKERS_MAX = 64 };

/* Operations: by enum redlock_kind, and forced releases. */
enum { METRICS_FORCE = REDLOCK_INSPECT + 1, METRICS_OPERATIONS };
/* Outcomes: by enum redlock_outcome, and one more; REDLOCK_CANCELLED counts those rejected by a drain. */
enum { METRICS_TOO_MANY = REDLOCK_CANCELLED + 1, METRICS_OUTCOMES };

/* Why a command to a master failed. LOST: the connection ended with the command under way. DOWN: not sent, since there
 * is no connection. CLOCK: our clock is far ahead of its own, or its clock jumped. LATE: the command came after its
 * deadline. QUARANTINED: the master was quarantined meanwhile, so its answer does not count. COMMAND: the master does
 * not know it. PROTOCOL: the answer is no reply of Redis to this command, or is too large. */
#define MASTER_ERRORS(X)                                                                                         \
	X(TIMEOUT, "timeout"), X(LOST, "lost"), X(DOWN, "down"), X(LOADING, "loading"), X(READONLY, "readonly"), \
		X(OOM, "oom"), X(AUTH, "auth"), X(CLUSTER, "cluster"), X(BUSY, "busy"), X(CLOCK, "clock"),       \
		X(LATE, "late"), X(QUARANTINED, "quarantined"), X(COMMAND, "command"), X(PROTOCOL, "protocol"),  \
		X(OTHER, "other")
#define MASTER_ERROR_OF(kind, name) MASTER_ERROR_##kind
enum master_error { MASTER_ERRORS(MASTER_ERROR_OF), MASTER_ERROR_COUNT };
const char *master_error_name(enum master_error error);

/* Commands that a master must be able to carry out. */
#define MASTER_COMMANDS(X)                                                                                             \
	X(AUTH, "AUTH"), X(SELECT, "SELECT"), X(INFO, "INFO"), X(CLIENT_ID, "CLIENT ID"),                              \
		X(SCRIPT_LOAD, "SCRIPT LOAD"), X(EVAL, "EVAL"), X(EVALSHA, "EVALSHA"), X(TIME, "TIME"),                \
		X(GETRANGE, "GETRANGE"), X(SET, "SET"), X(DEL, "DEL"), X(EXISTS, "EXISTS"), X(PTTL, "PTTL"),           \
		X(PEXPIRE, "PEXPIRE"), X(PEXPIREAT, "PEXPIREAT"), X(SCAN, "SCAN"), X(HGET, "HGET"), X(HMGET, "HMGET"), \
		X(HSET, "HSET"), X(HDEL, "HDEL"), X(HINCRBY, "HINCRBY"), X(ZADD, "ZADD"), X(ZCARD, "ZCARD"),           \
		X(ZCOUNT, "ZCOUNT"), X(ZRANGE, "ZRANGE"), X(ZRANGEBYSCORE, "ZRANGEBYSCORE"), X(ZRANK, "ZRANK"),        \
		X(ZREM, "ZREM"), X(ZREMRANGEBYRANK, "ZREMRANGEBYRANK"), X(ZSCORE, "ZSCORE"), X(PUBLISH, "PUBLISH"),    \
		X(SUBSCRIBE, "SUBSCRIBE")
#define MASTER_COMMAND_OF(kind, name) MASTER_COMMAND_##kind
enum master_command_kind { MASTER_COMMANDS(MASTER_COMMAND_OF), MASTER_COMMAND_COUNT };
const char *master_command_name(enum master_command_kind command);

/* Why a master may not vote. The first ones are those of enum guard_reason. */
enum quarantine_reason {
	QUARANTINE_NONE,
	QUARANTINE_NOT_DURABLE = GUARD_NOT_DURABLE,
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

enum { METRICS_MODES = 3 }; /* of leases: enum lease_mode */

/* How a wait (wait_ms) ended. */
enum metrics_wait { METRICS_WAIT_GRANTED, METRICS_WAIT_TIMEOUT, METRICS_WAIT_CANCELLED, METRICS_WAITS };

/* Counters of HTTP besides requests. */
enum http_counter {
	/* connections not taken: too many in all, too many of their address, or libmicrohttpd did not take them */
	HTTP_REFUSED_ALL,
	HTTP_REFUSED_ADDRESS,
	HTTP_REFUSED_ERROR,
	/* requests answered 429, by the bound that they met; not: the queue of a lock is full */
	HTTP_LIMIT_ADDRESS_RATE,
	HTTP_LIMIT_KEY_RATE,
	HTTP_LIMIT_KEY_WAITING,
	HTTP_LIMIT_TOKENS,
	/* connections ended at a deadline, by what they were late with */
	HTTP_TIMEOUT_REQUEST,
	HTTP_TIMEOUT_ANSWER,
	HTTP_TIMEOUT_IDLE,
	HTTP_COUNTERS
};
enum { METRICS_TOKEN_REFUSALS = 13 /* as enum token_refusal of api/auth has them */ };
enum { METRICS_HTTP_ROUTES = 21, METRICS_HTTP_METHODS = 6, METRICS_HTTP_STATUSES = 18 };

struct metrics {
	_Atomic uint64_t outcomes[METRICS_OPERATIONS][METRICS_OUTCOMES];
	struct histogram latency[METRICS_OPERATIONS];
	_Atomic uint64_t split_retries;                /* tries after a split vote */
	_Atomic uint64_t repairs;                      /* leases that extensions set again on a master */
	_Atomic uint64_t leases_below_full;            /* extended with fewer votes than masters, a gauge */
	_Atomic uint64_t fence_rounds;                 /* rounds of RAISE: a guess for a fence was too low */
	_Atomic uint64_t granted[METRICS_MODES];       /* new leases */
	_Atomic uint64_t abandoned;                    /* grants whose client disconnected before it got the answer */
	_Atomic uint64_t in_flight;                    /* operations under way, a gauge */
	_Atomic uint64_t holds;                        /* leases held by a connection (hold), a gauge */
	_Atomic uint64_t holds_lost[METRICS_OUTCOMES]; /* by reason: NOT_OWNER, EXPIRED, NO_QUORUM */
	_Atomic uint64_t lost;                         /* extensions and releases of a lost lease */
	/* operations held back until fewer wait for masters, a gauge */
	_Atomic uint64_t queued;
	_Atomic uint64_t draining;      /* 0 or 1: the worker takes no new leases */
	_Atomic uint64_t waiters;       /* requests that wait in the queues of this worker, a gauge */
	_Atomic uint64_t watchers;      /* requests that watch a lock at this worker, a gauge */
	_Atomic uint64_t waiters_limit; /* how many may wait in all queues of the process */
	/* when the longest waiting request came (clock_now_us()); 0: none waits */
	_Atomic uint64_t waiting_since_us;
	struct histogram wait[METRICS_WAITS];
	struct histogram handover; /* from the first notification to the grant */
	struct histogram held;     /* how long leases were held, at their release */
	_Atomic uint64_t http_requests[METRICS_HTTP_ROUTES][METRICS_HTTP_METHODS][METRICS_HTTP_STATUSES];
	_Atomic uint64_t http_counters[HTTP_COUNTERS];
	_Atomic uint64_t token_refusals[METRICS_TOKEN_REFUSALS];
	_Atomic uint64_t http_connections;       /* open ones, a gauge */
	_Atomic uint64_t http_connections_limit; /* how many may be open */
	_Atomic uint64_t tls_handshakes_failed;
	struct {
		pthread_mutex_t lock; /* of all members of this struct */
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
		/* when the quarantine is over by time alone (clock_now_us()); 0: no quarantine, or time alone does not
		 * end it */
		_Atomic uint64_t quarantine_until_us;
		_Atomic uint64_t quarantines[QUARANTINE_REASON_COUNT];
		_Atomic uint64_t clock_jumps[2]; /* forward, back */
		_Atomic uint64_t late;           /* commands refused by the master */
		_Atomic uint64_t clocked;        /* 0 or 1: its floor rests on clocks */
		struct histogram rtt;
	} masters[REDLOCK_MASTERS_MAX];
};

/* Counters and gauges: written by one thread, read by any. */
static inline void metrics_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline uint64_t metrics_load(const _Atomic uint64_t *figure)
{
	return atomic_load_explicit(figure, memory_order_relaxed);
}

static inline void metrics_set(_Atomic uint64_t *gauge, uint64_t value)
{
	atomic_store_explicit(gauge, value, memory_order_relaxed);
}

/* Makes the metrics of `workers` workers; `addresses` (without passwords, `masters` of them) are copied. Call it once,
 * at the start. */
void metrics_init(size_t workers, size_t masters, const char *const addresses[]);
/* When the authorities of --masters-ca and the certificate of --masters-cert expire, in seconds since 1970; 0: there
 * are none. */
void metrics_set_masters_expiry(uint64_t authority_s, uint64_t own_s);
/* Gives the figures of master i this address from now on. Main thread. */
void metrics_set_address(size_t i, const char *address);
struct metrics *metrics_worker(size_t i);

/* The following functions may be called from any thread. */

/* 0 before metrics_init(). */
size_t metrics_workers(void);
/* One figure of all workers: their sum, or the largest or smallest that any of them has. `offset` is that of a counter
 * or gauge (a uint64_t) in `struct metrics`. */
enum metrics_fold { METRICS_SUM, METRICS_MAX, METRICS_MIN };
uint64_t metrics_figure(size_t offset, enum metrics_fold fold);
/* The sums over all workers. */
uint64_t metrics_outcomes(size_t operation, size_t outcome);
uint64_t metrics_waiters(void);
uint64_t metrics_watchers(void);
/* How many masters may vote, as seen by the worker that sees the fewest. */
size_t metrics_voting(void);
/* Counts a reading of certificates and keys: all were good, or the old ones stay in use. Only in the main thread; may
 * be called before metrics_init(). */
void metrics_count_reload(bool successful);
/* Appends all metrics but those of requests; metrics_render_process(): build and process, which began at `began_us`
 * (since 1970). */
void metrics_render(struct text *page);
void metrics_render_process(struct text *page, uint64_t began_us);

/* ---- stats.c: the figures of GET /stats, over all workers. The memory is taken at the start and never grows. ---- */

enum { STATS_POINTS = 300, STATS_INTERVAL_MS = 2000 };

/* In place of a time: nothing was measured. */
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

/* One interval. */
struct stats_point {
	uint32_t counts[STATS_COUNTS];
	uint32_t p50_us, p99_us;              /* of acquisitions; STATS_NONE: there were none */
	uint32_t waiters;                     /* at its end */
	uint32_t rtt_us[REDLOCK_MASTERS_MAX]; /* the median; STATS_NONE: no answer */
	bool voting[REDLOCK_MASTERS_MAX];     /* at its end */
};

/* Call it once, after metrics_init() and before any worker starts. The uptime begins here. `now_us`, here and below:
 * clock_now_us(). */
void stats_init(uint64_t now_us);

/* Counts the answer to a client's request for a lease; operation and outcome as in `struct metrics`. That worker's
 * thread. */
void stats_count_answer(struct metrics *metrics, unsigned operation, unsigned outcome, const char *resource,
			size_t len);

/* Sets the queues of the worker (at most STATS_TOP, those with most waiters). That worker's thread. */
void stats_set_queues(struct metrics *metrics, const struct stats_resource queues[], size_t count);

/* stats_tick() adds a point if it is time for one; stats_pause_us(): the time until then. Main thread. */
uint64_t stats_pause_us(uint64_t now_us);
void stats_tick(uint64_t now_us);

uint64_t stats_uptime_ms(uint64_t now_us);

/* Copies the points of the last ten minutes, the oldest first. Returns how many. */
size_t stats_read_series(struct stats_point ret_points[STATS_POINTS]);

/* True if the resource may be in the list. */
typedef bool stats_filter_fn(void *arg, const char *resource, size_t len);

/* Lists the STATS_TOP resources with most waiters, or else with most acquisitions, that pass the filter; the largest
 * first. Returns how many. */
size_t stats_read_top(bool waiting, stats_filter_fn *filter, void *arg, struct stats_resource ret_list[STATS_TOP]);

/* The time below which `share` (0 … 1) of the values lie that were counted between two readings of a histogram's
 * buckets; STATS_NONE if there were none. It is interpolated as if the values lay evenly in their bucket; above the
 * last bound it is that bound. */
uint32_t stats_percentile_us(const uint64_t before[METRICS_BUCKETS + 1], const uint64_t now[METRICS_BUCKETS + 1],
			     double share);

#endif
