/* The counters of all workers: where they are, and how they become one figure. metrics_render.c shows them.
 *
 * Each worker has one `struct metrics`, made before the workers start and never freed. That worker alone writes it,
 * with relaxed atomics and so without locked instructions. A reader may see one figure a moment older than another one,
 * but each on its own is right.
 *
 * Over several workers counters and histograms are sums; a master is up if every worker may use it (the minimum); its
 * warnings are the most that any worker has. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "metrics_internal.h"

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
	char *labels[METRICS_MASTERS_MAX];
	double boot_s;
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

/* ---- the workers' figures ---- */

static void *allocate(size_t size)
{
	void *bytes = aligned_alloc(64, (size + 63) / 64 * 64); /* workers share no lines of the cache */
	if (!bytes)
		abort(); /* a few KiB at the start: nothing will work */
	return bytes;
}

static struct metrics *worker_new(void)
{
	struct metrics *metrics = allocate(sizeof *metrics);
	memset(metrics, 0, sizeof *metrics);
	metrics->held.is_long = true;
	for (size_t i = 0; i < METRICS_WAITS; i++)
		metrics->wait[i].is_long = true;
	return metrics;
}

static char *label_new(const char *address)
{
	static const char start[] = "master=\"";
	assert(address && address[0] != '\0');
	size_t size = 2 * strlen(address) + sizeof start + 1;
	char *label = allocate(size);
	memcpy(label, start, sizeof start);
	exposition_escape(label + sizeof start - 1, size - sizeof start, address);
	strcat(label, "\"");
	return label;
}

/* The kernel tells a process's start as time since the start of the machine. */
static double read_boot_s(void)
{
	struct timespec wall, boot;
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	return (double)(wall.tv_sec - boot.tv_sec) + (double)(wall.tv_nsec - boot.tv_nsec) / 1e9;
}

void metrics_init(size_t workers, size_t masters, const char *const addresses[])
{
	assert(metrics_all.workers == 0);
	assert(workers >= 1 && workers <= METRICS_WORKERS_MAX && masters <= METRICS_MASTERS_MAX);
	for (size_t w = 0; w < workers; w++)
		metrics_all.of[w] = worker_new();
	for (size_t m = 0; m < masters; m++)
		metrics_all.labels[m] = label_new(addresses[m]);
	metrics_all.boot_s = read_boot_s();
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
	assert(worker < metrics_all.workers);
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
	assert(metrics_all.workers > 0);
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

double metrics_boot_s(void)
{
	assert(metrics_all.workers > 0);
	return metrics_all.boot_s;
}

/* ---- certificates and keys ---- */

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
