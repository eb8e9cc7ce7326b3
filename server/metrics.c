/* Counters and histograms of the lease side, and their rendering as Prometheus text (format 0.0.4).
 *
 * Each worker has one `struct metrics`, made before the workers start and never freed; that worker alone writes it,
 * with relaxed atomics and so without locked instructions. metrics_render() may run on any thread: it adds up all
 * workers' figures. It may see one figure a moment older than another, but each on its own is right, and the
 * _count of a histogram always equals its +Inf bucket.
 *
 * What is shown over several workers: counters and histograms are sums; a master is up when every worker may use it
 * (the minimum); its warnings are the most that any worker has. The requests by route and status belong to api/. */
#include "metrics.h"

#include "log.h"
#include "redlock/guard.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Upper bounds of the buckets. */
static const uint64_t metrics_bounds_us[METRICS_BUCKETS] = {100,   200,   300,	  500,	  1000,	  2000,	   5000,    10000,
							    20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000};
static const uint64_t metrics_long_bounds_us[METRICS_BUCKETS] = {
	1000,	 10000,	   50000,    100000,   500000,	  1000000,   2000000,	 5000000,
	10000000, 20000000, 30000000, 60000000, 300000000, 1800000000, 7200000000, 86400000000};

static const char *const metrics_waits[METRICS_WAITS] = {"granted", "timeout", "gone"};

static const char *const metrics_ops[LEASE_CALLS] = {
	[LEASE_ACQUIRE] = "acquire", [LEASE_EXTEND] = "extend", [LEASE_RELEASE] = "release", [LEASE_INSPECT] = "inspect", [LEASE_FORCE] = "force"};

static const char *const metrics_outcomes[LEASE_STATUS_COUNT] = {
	[LEASE_OK] = "ok",		     [LEASE_LOCKED] = "locked",		[LEASE_NOT_OWNER] = "not-owner", [LEASE_EXPIRED] = "lease-expired",
	[LEASE_NO_QUORUM] = "no-quorum", [LEASE_SPLIT_VOTE] = "split-vote", [LEASE_DRAINING] = "draining",
	[LEASE_TOO_MANY] = "too-many-requests"};

static const char *const metrics_errors[MASTER_ERROR_COUNT] = {
	[MASTER_ERROR_TIMEOUT] = "timeout",   [MASTER_ERROR_LOST] = "lost", [MASTER_ERROR_DOWN] = "down", [MASTER_ERROR_LOADING] = "loading",
	[MASTER_ERROR_READONLY] = "readonly", [MASTER_ERROR_OOM] = "oom",   [MASTER_ERROR_AUTH] = "auth", [MASTER_ERROR_CLUSTER] = "cluster",
	[MASTER_ERROR_BUSY] = "busy",	      [MASTER_ERROR_CLOCK] = "clock", [MASTER_ERROR_LATE] = "late", [MASTER_ERROR_BARRED] = "barred",
	[MASTER_ERROR_OTHER] = "other"};

static_assert((int)BAR_RESYNC == (int)GUARD_OTHER_CLUSTER + 1, "the guard's reasons come first");

const char *bar_reason_name(enum bar_reason reason)
{
	static const char *const names[] = {"resync", "replica", "version", "redis-cluster", "duplicate", "maxmemory-policy", "replicas-attached"};

	assert(reason < BAR_REASON_COUNT);
	return reason < BAR_RESYNC ? guard_reason_name((enum guard_reason)reason) : names[reason - BAR_RESYNC];
}

/* Written by metrics_init() only. The labels are escaped once, there. */
static struct {
	size_t workers, masters;
	double boot_s; /* when the machine started, in seconds since 1970 */
	struct metrics *of[METRICS_WORKERS_MAX];
	char labels[METRICS_MASTERS_MAX][2 * STATUS_ADDRESS_MAX + sizeof("master=\"\"")];
} metrics_all;

const char *master_error_name(enum master_error error)
{
	assert(error < MASTER_ERROR_COUNT);
	return metrics_errors[error];
}

static uint64_t metrics_load(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- histograms ---- */

static const uint64_t *metrics_bounds_of(const struct histogram *histogram)
{
	return histogram->is_long ? metrics_long_bounds_us : metrics_bounds_us;
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

/* Microseconds as seconds, exactly and without idle zeros: 300 is 0.0003. */
static void metrics_seconds(char seconds[32], uint64_t us)
{
	int len = snprintf(seconds, 32, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);

	assert(len > 7 && len < 32);
	while (seconds[len - 1] == '0')
		seconds[--len] = '\0';
	if (seconds[len - 1] == '.')
		seconds[len - 1] = '\0';
}

void histogram_render(struct text *text, const char *name, const char *labels, const struct histogram *histograms[], size_t count)
{
	const char *comma = labels[0] == '\0' ? "" : ",";
	const char *open = labels[0] == '\0' ? "" : "{", *close = labels[0] == '\0' ? "" : "}";
	uint64_t total = 0, sum_us = 0;
	char seconds[32];

	for (size_t i = 0; i <= METRICS_BUCKETS; i++) {
		for (size_t h = 0; h < count; h++)
			total += metrics_load(&histograms[h]->buckets[i]);
		if (i < METRICS_BUCKETS)
			metrics_seconds(seconds, metrics_bounds_of(histograms[0])[i]);
		else
			snprintf(seconds, sizeof(seconds), "+Inf");
		text_printf(text, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", name, labels, comma, seconds, total);
	}
	for (size_t h = 0; h < count; h++)
		sum_us += metrics_load(&histograms[h]->sum_us);
	metrics_seconds(seconds, sum_us);
	text_printf(text, "%s_sum%s%s%s %s\n%s_count%s%s%s %" PRIu64 "\n", name, open, labels, close, seconds, name, open, labels, close, total);
}

/* ---- the workers' figures ---- */

/* A label value with the three escapes that the format has. */
static void metrics_escape(char *escaped, size_t size, const char *value)
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

/* When the machine started, as the wall clock says now: the kernel tells a process's start as time since then. */
static double metrics_boot_time(void)
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
	metrics_all.boot_s = metrics_boot_time();
	metrics_all.workers = workers;
	metrics_all.masters = masters;
}

struct metrics *metrics_worker(size_t i)
{
	assert(i < metrics_all.workers);
	return metrics_all.of[i];
}

/* The figure at a place of `struct metrics`, over all workers. */
static uint64_t metrics_sum(size_t offset)
{
	uint64_t sum = 0;

	assert(offset % sizeof(uint64_t) == 0 && offset < sizeof(struct metrics));
	for (size_t w = 0; w < metrics_all.workers; w++)
		sum += metrics_load((const _Atomic uint64_t *)(const void *)((const char *)metrics_all.of[w] + offset));
	return sum;
}

static void metrics_head(struct text *text, const char *name, const char *type, const char *help)
{
	text_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A counter or gauge without labels, summed over the workers. */
static void metrics_render_sum(struct text *text, const char *name, const char *type, const char *help, size_t offset)
{
	metrics_head(text, name, type, help);
	text_printf(text, "%s %" PRIu64 "\n", name, metrics_sum(offset));
}

uint64_t metrics_waiters(void)
{
	return metrics_sum(offsetof(struct metrics, waiters));
}

static void metrics_render_holds(struct text *text)
{
	metrics_render_sum(text, "redlockd_holds", "gauge", "Leases held by an open connection (hold).", offsetof(struct metrics, holds));
}

/* The histogram at a place of `struct metrics`, over all workers. */
static void metrics_render_histogram(struct text *text, const char *name, const char *labels, size_t offset)
{
	const struct histogram *histograms[METRICS_WORKERS_MAX];

	for (size_t w = 0; w < metrics_all.workers; w++)
		histograms[w] = (const struct histogram *)(const void *)((const char *)metrics_all.of[w] + offset);
	histogram_render(text, name, labels, histograms, metrics_all.workers);
}

static void metrics_render_waits(struct text *text)
{
	char labels[64];

	metrics_render_sum(text, "redlockd_waiters", "gauge", "Requests that wait for a lock (wait_ms).", offsetof(struct metrics, waiters));
	metrics_head(text, "redlockd_wait_seconds", "histogram", "How long requests waited that did not get the lock at once, by how the wait ended.");
	for (size_t i = 0; i < METRICS_WAITS; i++) {
		snprintf(labels, sizeof(labels), "result=\"%s\"", metrics_waits[i]);
		metrics_render_histogram(text, "redlockd_wait_seconds", labels, offsetof(struct metrics, wait) + i * sizeof(struct histogram));
	}
	metrics_head(text, "redlockd_handover_seconds", "histogram", "Time from a master's first call to a waiter to its grant.");
	metrics_render_histogram(text, "redlockd_handover_seconds", "", offsetof(struct metrics, handover));
	metrics_head(text, "redlockd_hold_seconds", "histogram", "How long released leases had been held, by the clock of a master; unknown with --max-hold-ms 0.");
	metrics_render_histogram(text, "redlockd_hold_seconds", "", offsetof(struct metrics, held));
}

static void metrics_render_leases(struct text *text)
{
	const struct histogram *latencies[METRICS_WORKERS_MAX];
	char labels[64];

	metrics_head(text, "redlockd_lease_requests_total", "counter", "Calls for a lease, by operation and outcome.");
	for (size_t op = 0; op < LEASE_CALLS; op++)
		for (size_t outcome = 0; outcome < LEASE_STATUS_COUNT; outcome++)
			text_printf(text, "redlockd_lease_requests_total{op=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", metrics_ops[op], metrics_outcomes[outcome],
				    metrics_sum(offsetof(struct metrics, outcomes) + (op * LEASE_STATUS_COUNT + outcome) * sizeof(uint64_t)));

	metrics_head(text, "redlockd_lease_duration_seconds", "histogram", "Time from a call for a lease to its answer.");
	for (size_t op = 0; op < LEASE_CALLS; op++) {
		for (size_t w = 0; w < metrics_all.workers; w++)
			latencies[w] = &metrics_all.of[w]->latency[op];
		snprintf(labels, sizeof(labels), "op=\"%s\"", metrics_ops[op]);
		histogram_render(text, "redlockd_lease_duration_seconds", labels, latencies, metrics_all.workers);
	}
	metrics_render_sum(text, "redlockd_split_retries_total", "counter", "Tries made again after a split vote.", offsetof(struct metrics, split_retries));
	metrics_render_sum(text, "redlockd_fence_second_rounds_total", "counter", "Rounds of RAISE: the guess for a fence was too low.", offsetof(struct metrics, fence_rounds));
	metrics_render_sum(text, "redlockd_leases_given_back_total", "counter", "Leases released because their client was gone.",
			   offsetof(struct metrics, given_back));
	metrics_render_sum(text, "redlockd_operations_in_flight", "gauge", "Operations under way.", offsetof(struct metrics, in_flight));
}

/* ---- masters ---- */

static void metrics_render_up(struct text *text)
{
	metrics_head(text, "redlockd_master_up", "gauge", "1 while every worker has the master's vote, else 0.");
	for (size_t m = 0; m < metrics_all.masters; m++) {
		uint64_t up = 1;
		for (size_t w = 0; w < metrics_all.workers; w++)
			if (metrics_load(&metrics_all.of[w]->masters[m].up) == 0)
				up = 0;
		text_printf(text, "redlockd_master_up{%s} %" PRIu64 "\n", metrics_all.labels[m], up);
	}
}

static void metrics_render_warnings(struct text *text)
{
	metrics_head(text, "redlockd_master_warnings", "gauge", "Settings of the master that endanger locks, as listed under /masters.");
	for (size_t m = 0; m < metrics_all.masters; m++) {
		uint64_t most = 0;
		for (size_t w = 0; w < metrics_all.workers; w++) {
			uint64_t warnings = metrics_load(&metrics_all.of[w]->masters[m].warnings);
			most = warnings > most ? warnings : most;
		}
		text_printf(text, "redlockd_master_warnings{%s} %" PRIu64 "\n", metrics_all.labels[m], most);
	}
}

static void metrics_render_rtt(struct text *text)
{
	const struct histogram *rtts[METRICS_WORKERS_MAX];

	metrics_head(text, "redlockd_master_rtt_seconds", "histogram", "Time from a command to the master until its reply.");
	for (size_t m = 0; m < metrics_all.masters; m++) {
		for (size_t w = 0; w < metrics_all.workers; w++)
			rtts[w] = &metrics_all.of[w]->masters[m].rtt;
		histogram_render(text, "redlockd_master_rtt_seconds", metrics_all.labels[m], rtts, metrics_all.workers);
	}
}

static void metrics_render_masters(struct text *text)
{
	metrics_render_up(text);
	metrics_render_rtt(text);
	metrics_head(text, "redlockd_master_errors_total", "counter", "Commands to the master that failed, by reason.");
	for (size_t m = 0; m < metrics_all.masters; m++)
		for (size_t e = 0; e < MASTER_ERROR_COUNT; e++)
			text_printf(text, "redlockd_master_errors_total{%s,reason=\"%s\"} %" PRIu64 "\n", metrics_all.labels[m], metrics_errors[e],
				    metrics_sum(offsetof(struct metrics, masters[m].errors[e])));
	metrics_head(text, "redlockd_master_reconnects_total", "counter", "Connections to the master that had to be made again.");
	for (size_t m = 0; m < metrics_all.masters; m++)
		text_printf(text, "redlockd_master_reconnects_total{%s} %" PRIu64 "\n", metrics_all.labels[m],
			    metrics_sum(offsetof(struct metrics, masters[m].reconnects)));
	metrics_render_warnings(text);
}

/* ---- the restart guard ---- */

/* A gauge of each master: the largest that any worker has. */
static uint64_t metrics_most(size_t offset)
{
	uint64_t most = 0;

	for (size_t w = 0; w < metrics_all.workers; w++) {
		uint64_t value = metrics_load((const _Atomic uint64_t *)(const void *)((const char *)metrics_all.of[w] + offset));
		most = value > most ? value : most;
	}
	return most;
}

static void metrics_render_bars(struct text *text)
{
	metrics_head(text, "redlockd_master_barred", "gauge", "1 while the master may not vote though it answers, by reason.");
	for (size_t m = 0; m < metrics_all.masters; m++)
		for (enum bar_reason reason = BAR_NONE + 1; reason < BAR_REASON_COUNT; reason++)
			text_printf(text, "redlockd_master_barred{%s,reason=\"%s\"} %d\n", metrics_all.labels[m], bar_reason_name(reason),
				    metrics_most(offsetof(struct metrics, masters[m].barred)) == reason);
	metrics_head(text, "redlockd_master_bars_total", "counter", "How often the master was barred, by reason.");
	for (size_t m = 0; m < metrics_all.masters; m++)
		for (enum bar_reason reason = BAR_NONE + 1; reason < BAR_REASON_COUNT; reason++)
			text_printf(text, "redlockd_master_bars_total{%s,reason=\"%s\"} %" PRIu64 "\n", metrics_all.labels[m], bar_reason_name(reason),
				    metrics_sum(offsetof(struct metrics, masters[m].bars[reason])));
}

static void metrics_render_clocks(struct text *text)
{
	metrics_head(text, "redlockd_master_clock_jumps_total", "counter", "Jumps of the master's clock, as its answers showed them.");
	for (size_t m = 0; m < metrics_all.masters; m++)
		for (size_t direction = 0; direction < 2; direction++)
			text_printf(text, "redlockd_master_clock_jumps_total{%s,direction=\"%s\"} %" PRIu64 "\n", metrics_all.labels[m],
				    direction == 0 ? "forward" : "back", metrics_sum(offsetof(struct metrics, masters[m].clock_jumps[direction])));
	metrics_head(text, "redlockd_late_commands_total", "counter", "Commands that the master refused because their deadline was over.");
	for (size_t m = 0; m < metrics_all.masters; m++)
		text_printf(text, "redlockd_late_commands_total{%s} %" PRIu64 "\n", metrics_all.labels[m], metrics_sum(offsetof(struct metrics, masters[m].late)));
	metrics_head(text, "redlockd_fence_floor_clocked", "gauge", "1 for a day after the order of the master's fences had to rest on clocks.");
	for (size_t m = 0; m < metrics_all.masters; m++)
		text_printf(text, "redlockd_fence_floor_clocked{%s} %" PRIu64 "\n", metrics_all.labels[m],
			    metrics_most(offsetof(struct metrics, masters[m].clocked)));
}

/* ---- the build and the process ---- */

static void metrics_render_build(struct text *text)
{
	size_t count;
	const struct build_library *libraries = build_libraries(&count);
	char escaped[128];

	metrics_head(text, "redlockd_build_info", "gauge", "Always 1; the labels name the program and its libraries.");
	metrics_escape(escaped, sizeof(escaped), build_version);
	text_printf(text, "redlockd_build_info{version=\"%s\"", escaped);
	metrics_escape(escaped, sizeof(escaped), build_commit);
	text_printf(text, ",commit=\"%s\"", escaped);
	for (size_t i = 0; i < count; i++) {
		metrics_escape(escaped, sizeof(escaped), libraries[i].version);
		text_printf(text, ",%s=\"%s\"", libraries[i].name, escaped);
	}
	text_printf(text, "} 1\n");
	metrics_head(text, "redlockd_log_dropped_total", "counter", "Lines of the log dropped because its reader did not keep up.");
	text_printf(text, "redlockd_log_dropped_total %" PRIu64 "\n", log_dropped());
}

/* Reads the start of a file of /proc into `bytes`, terminated. Takes no memory: what is shown must not depend on it. */
static bool metrics_read_proc(const char *path, char *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t len = read(fd, bytes, size - 1);
	bytes[len > 0 ? len : 0] = '\0';
	close(fd);
	return len > 0;
}

static void metrics_render_process_stat(struct text *text)
{
	char stat[1024];
	unsigned long user_ticks, system_ticks, virtual_bytes;
	unsigned long long start_ticks;
	long threads, resident_pages;

	/* The second field is the name in parentheses and may hold anything, so count from the last ')'. */
	if (!metrics_read_proc("/proc/self/stat", stat, sizeof(stat)) || strrchr(stat, ')') == NULL)
		return;
	if (sscanf(strrchr(stat, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %ld %*d %llu %lu %ld", &user_ticks,
		   &system_ticks, &threads, &start_ticks, &virtual_bytes, &resident_pages) != 6)
		return;
	double ticks = (double)sysconf(_SC_CLK_TCK);
	metrics_head(text, "process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.");
	text_printf(text, "process_cpu_seconds_total %.2f\n", (double)(user_ticks + system_ticks) / ticks);
	metrics_head(text, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
	text_printf(text, "process_resident_memory_bytes %ld\n", resident_pages * sysconf(_SC_PAGESIZE));
	metrics_head(text, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.");
	text_printf(text, "process_virtual_memory_bytes %lu\n", virtual_bytes);
	metrics_head(text, "process_threads", "gauge", "Number of threads of the process.");
	text_printf(text, "process_threads %ld\n", threads);
	metrics_head(text, "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.");
	text_printf(text, "process_start_time_seconds %.2f\n", metrics_all.boot_s + (double)start_ticks / ticks);
}

/* How many descriptors are open. Newer kernels say so at once; else they are counted. */
static size_t metrics_open_fds(struct text *text)
{
	struct stat status;
	size_t count = 0;

	if (stat("/proc/self/fd", &status) == 0 && status.st_size > 0)
		return (size_t)status.st_size;
	DIR *folder = opendir("/proc/self/fd");
	if (folder == NULL) {
		text->failed = text->failed || errno == ENOMEM;
		return 0;
	}
	while (readdir(folder) != NULL)
		count++;
	closedir(folder);
	return count > 3 ? count - 3 : 0; /* without ".", ".." and the folder's own */
}

static void metrics_render_fds(struct text *text)
{
	struct rlimit limit;

	metrics_head(text, "process_open_fds", "gauge", "Number of open file descriptors.");
	text_printf(text, "process_open_fds %zu\n", metrics_open_fds(text));
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	metrics_head(text, "process_max_fds", "gauge", "Maximum number of open file descriptors.");
	text_printf(text, "process_max_fds %" PRIu64 "\n", (uint64_t)limit.rlim_cur);
}

void metrics_render(struct text *text)
{
	assert(metrics_all.workers > 0);
	metrics_render_leases(text);
	metrics_render_waits(text);
	metrics_render_holds(text);
	metrics_render_masters(text);
	metrics_render_bars(text);
	metrics_render_clocks(text);
	metrics_render_build(text);
	metrics_render_process_stat(text);
	metrics_render_fds(text);
}
