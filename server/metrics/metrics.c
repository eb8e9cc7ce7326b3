/* Counters and histograms of the lease side: where they lie, and how the figures of several workers become one. How
 * they are shown is in metrics_render.c, the process in metrics_process.c.
 *
 * Each worker has one `struct metrics`, made before the workers start and never freed; that worker alone writes it,
 * with relaxed atomics and so without locked instructions. metrics_render() may run on any thread: it adds up all
 * workers' figures. It may see one figure a moment older than another, but each on its own is right, and the _count of
 * a histogram always equals its +Inf bucket.
 *
 * What is shown over several workers: counters and histograms are sums; a master is up when every worker may use it
 * (the minimum); its warnings are the most that any worker has. The requests by route and status belong to api/. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "metrics_counters.h"
#include "metrics_internal.h"
#include "server/redlock/guard/guard.h"

/* Upper bounds of the buckets. */
static const uint64_t metrics_bounds_us[METRICS_BUCKETS] = {
	100, 200, 300, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000};
static const uint64_t metrics_long_bounds_us[METRICS_BUCKETS] = {
	1000,     10000,    50000,    100000,   500000,    1000000,    2000000,    5000000,
	10000000, 20000000, 30000000, 60000000, 300000000, 1800000000, 7200000000, 86400000000};

static const char *const metrics_errors[MASTER_ERROR_COUNT] = {
	[MASTER_ERROR_TIMEOUT] = "timeout",   [MASTER_ERROR_LOST] = "lost",
	[MASTER_ERROR_DOWN] = "down",         [MASTER_ERROR_LOADING] = "loading",
	[MASTER_ERROR_READONLY] = "readonly", [MASTER_ERROR_OOM] = "oom",
	[MASTER_ERROR_AUTH] = "auth",         [MASTER_ERROR_CLUSTER] = "cluster",
	[MASTER_ERROR_BUSY] = "busy",         [MASTER_ERROR_CLOCK] = "clock",
	[MASTER_ERROR_LATE] = "late",         [MASTER_ERROR_QUARANTINED] = "quarantined",
	[MASTER_ERROR_COMMAND] = "command",   [MASTER_ERROR_OTHER] = "other"};

static const char *const metrics_commands[MASTER_COMMAND_COUNT] = {
	"AUTH", "SELECT",  "INFO",   "CLIENT ID", "SCRIPT LOAD", "EVAL", "EVALSHA", "TIME",     "GET",
	"SET",  "DEL",     "EXISTS", "PTTL",      "PEXPIRE",     "SCAN", "HGET",    "HMGET",    "HSET",
	"HDEL", "HINCRBY", "ZADD",   "ZCARD",     "ZRANGE",      "ZREM", "PUBLISH", "SUBSCRIBE"};

static_assert((int)QUARANTINE_RECOVERY == (int)GUARD_OTHER_CLUSTER + 1, "the guard's reasons come first");

const char *quarantine_reason_name(enum quarantine_reason reason)
{
	static const char *const names[] = {"fence-recovery", "replica",          "version",          "redis-cluster",
					    "duplicate",      "maxmemory-policy", "replicas-attached"};

	assert(reason < QUARANTINE_REASON_COUNT);
	return reason < QUARANTINE_RECOVERY ? guard_reason_name((enum guard_reason)reason)
					    : names[reason - QUARANTINE_RECOVERY];
}

/* Written by metrics_init() only. The labels are escaped once, there. */
static struct {
	size_t workers, masters;
	struct metrics *of[METRICS_WORKERS_MAX];
	char labels[METRICS_MASTERS_MAX][2 * STATUS_ADDRESS_MAX + sizeof("master=\"\"")];
} metrics_all;

/* Written by the main thread alone. */
static struct {
	_Atomic uint64_t successful, time_us, failures;
} metrics_reloads;

const char *master_error_name(enum master_error error)
{
	assert(error < MASTER_ERROR_COUNT);
	return metrics_errors[error];
}

const char *master_command_name(enum master_command_kind command)
{
	assert(command < MASTER_COMMAND_COUNT);
	return metrics_commands[command];
}

uint64_t metrics_load(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- histograms ---- */

static const uint64_t *metrics_bounds_of(const struct histogram *histogram)
{
	return histogram->is_long ? metrics_long_bounds_us : metrics_bounds_us;
}

uint64_t metrics_bound_us(size_t i)
{
	assert(i <= METRICS_BUCKETS);
	return i < METRICS_BUCKETS ? metrics_bounds_us[i] : UINT64_MAX;
}

void histogram_observe(struct histogram *histogram, uint64_t us)
{
	const uint64_t *bounds_us = metrics_bounds_of(histogram);
	size_t i = 0;

	while (i < METRICS_BUCKETS && us > bounds_us[i])
		i++;
	metrics_add(&histogram->buckets[i], 1);
	metrics_add(&histogram->sum_us, us);
}

void metrics_seconds(char seconds[32], uint64_t us)
{
	int len = snprintf(seconds, 32, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);

	assert(len > 7 && len < 32);
	while (seconds[len - 1] == '0')
		seconds[--len] = '\0';
	if (seconds[len - 1] == '.')
		seconds[len - 1] = '\0';
}

/* A bound as it is shown: "0.5", "1.0", "+Inf". Whole seconds with their ".0", as OpenMetrics wants it: a series must
 * not change its name with the format. */
static void metrics_le(char le[32], const uint64_t bounds_us[], size_t i)
{
	if (i == METRICS_BUCKETS) {
		snprintf(le, 32, "+Inf");
		return;
	}
	metrics_seconds(le, bounds_us[i]);
	if (strchr(le, '.') == NULL)
		memcpy(le + strlen(le), ".0", sizeof(".0"));
}

void histogram_render(struct text *text, const char *name, const char *labels, const struct histogram *histograms[],
		      size_t count)
{
	const char *comma = labels[0] == '\0' ? "" : ",";
	const char *open = labels[0] == '\0' ? "" : "{", *close = labels[0] == '\0' ? "" : "}";
	uint64_t total = 0, sum_us = 0;
	char seconds[32];

	for (size_t i = 0; i <= METRICS_BUCKETS; i++) {
		for (size_t h = 0; h < count; h++)
			total += metrics_load(&histograms[h]->buckets[i]);
		metrics_le(seconds, metrics_bounds_of(histograms[0]), i);
		text_printf(text, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", name, labels, comma, seconds, total);
	}
	for (size_t h = 0; h < count; h++)
		sum_us += metrics_load(&histograms[h]->sum_us);
	metrics_seconds(seconds, sum_us);
	text_printf(text, "%s_sum%s%s%s %s\n%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, seconds, name,
		    open, labels, close, total);
}

/* ---- the workers' figures ---- */

void metrics_escape(char *escaped, size_t size, const char *value)
{
	size_t len = 0;

	for (; *value != '\0' && len + 3 <= size; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			escaped[len++] = '\\';
		escaped[len++] = *value == '\n' ? 'n' : *value;
	}
	assert(len < size);
	escaped[len] = '\0';
}

void metrics_init(size_t workers, size_t masters, const char *const addresses[])
{
	assert(metrics_all.workers == 0);
	assert(workers >= 1 && workers <= METRICS_WORKERS_MAX && masters <= METRICS_MASTERS_MAX);
	for (size_t w = 0; w < workers; w++) {
		/* Lines of the cache are not shared between workers. */
		size_t size = (sizeof(struct metrics) + 63) / 64 * 64;
		struct metrics *metrics = aligned_alloc(64, size);
		if (metrics == NULL)
			abort(); /* a few KiB at the start: nothing will work */
		memset(metrics, 0, size);
		metrics->held.is_long = true;
		for (size_t i = 0; i < METRICS_WAITS; i++)
			metrics->wait[i].is_long = true;
		metrics_all.of[w] = metrics;
	}
	for (size_t m = 0; m < masters; m++) {
		char escaped[2 * STATUS_ADDRESS_MAX];
		metrics_escape(escaped, sizeof(escaped), addresses[m]);
		snprintf(metrics_all.labels[m], sizeof(metrics_all.labels[m]), "master=\"%s\"", escaped);
	}
	metrics_process_init();
	metrics_all.workers = workers;
	metrics_all.masters = masters;
}

struct metrics *metrics_worker(size_t i)
{
	assert(i < metrics_all.workers);
	return metrics_all.of[i];
}

size_t metrics_workers(void)
{
	return metrics_all.workers;
}

static const _Atomic uint64_t *metrics_at(size_t worker, size_t offset)
{
	assert(offset % sizeof(uint64_t) == 0 && offset < sizeof(struct metrics));
	return (const _Atomic uint64_t *)(const void *)((const char *)metrics_all.of[worker] + offset);
}

uint64_t metrics_sum_at(size_t offset)
{
	uint64_t sum = 0;

	for (size_t w = 0; w < metrics_all.workers; w++)
		sum += metrics_load(metrics_at(w, offset));
	return sum;
}

uint64_t metrics_most_at(size_t offset)
{
	uint64_t most = 0;

	for (size_t w = 0; w < metrics_all.workers; w++) {
		uint64_t value = metrics_load(metrics_at(w, offset));
		most = value > most ? value : most;
	}
	return most;
}

uint64_t metrics_waiters(void)
{
	return metrics_sum_at(offsetof(struct metrics, waiters));
}

size_t metrics_voting(void)
{
	size_t least = metrics_all.masters;

	for (size_t w = 0; w < metrics_all.workers; w++) {
		size_t voting = 0;
		for (size_t m = 0; m < metrics_all.masters; m++)
			voting += metrics_load(&metrics_all.of[w]->masters[m].up) != 0;
		least = voting < least ? voting : least;
	}
	return least;
}

size_t metrics_masters(void)
{
	return metrics_all.masters;
}

const char *metrics_master_label(size_t m)
{
	assert(m < metrics_all.masters);
	return metrics_all.labels[m];
}

/* ---- keys and epochs ---- */

void metrics_note_reload(bool successful)
{
	struct timespec now;

	metrics_set(&metrics_reloads.successful, successful);
	if (!successful) {
		metrics_add(&metrics_reloads.failures, 1);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	metrics_set(&metrics_reloads.time_us, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}

void metrics_reload(struct metrics_reload *ret_reload)
{
	*ret_reload = (struct metrics_reload){.successful = metrics_load(&metrics_reloads.successful) != 0,
					      .time_us = metrics_load(&metrics_reloads.time_us),
					      .failures = metrics_load(&metrics_reloads.failures)};
}
