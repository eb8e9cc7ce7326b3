/* SPDX-License-Identifier: MIT */
/* The build and the process in the metrics: versions, processor time, memory, threads and descriptors, under the names
 * that Prometheus' own clients use. /proc is read again for each page. */
#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics.h"

static void metrics_render_build(struct text *page)
{
	size_t count;
	const struct build_library *libraries = build_libraries(&count);
	exposition_head(page, "redlockd_build_info", "gauge",
			"Always 1; the labels name the program and its libraries.");
	text_printf(page, "redlockd_build_info{");
	exposition_label(page, "version", build_version);
	text_append(page, ",", 1);
	exposition_label(page, "commit", build_commit);
	for (size_t i = 0; i < count; i++) {
		text_append(page, ",", 1);
		exposition_label(page, libraries[i].name, libraries[i].version);
	}
	text_printf(page, "} 1\n");
	exposition_number(page, "redlockd_log_dropped_total", "counter",
			  "Lines of the log dropped because its reader did not keep up.", log_dropped());
}

static uint64_t metrics_time_us(const struct timeval *time)
{
	assert(time->tv_sec >= 0);
	return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

static void metrics_render_usage(struct text *page)
{
	struct rusage usage;
	struct stat tasks;
	if (getrusage(RUSAGE_SELF, &usage) == 0)
		exposition_time(page, "process_cpu_seconds_total", "counter",
				"Total user and system CPU time spent in seconds.",
				metrics_time_us(&usage.ru_utime) + metrics_time_us(&usage.ru_stime));
	if (stat("/proc/self/task", &tasks) == 0) /* a folder for each thread, and two links */
		exposition_number(page, "process_threads", "gauge", "Number of threads of the process.",
				  tasks.st_nlink - 2);
}

static void metrics_render_memory(struct text *page)
{
	const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t virtual_pages, resident_pages;
	FILE *file = fopen("/proc/self/statm", "re");
	if (!file)
		return;
	if (fscanf(file, "%" SCNu64 " %" SCNu64, &virtual_pages, &resident_pages) == 2) {
		exposition_number(page, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.",
				  resident_pages * page_bytes);
		exposition_number(page, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
				  virtual_pages * page_bytes);
	}
	fclose(file);
}

static size_t metrics_open_fds(void)
{
	size_t count = 0;
	DIR *folder = opendir("/proc/self/fd");
	if (!folder)
		return 0;
	while (readdir(folder))
		count++;
	closedir(folder);
	return count > 3 ? count - 3 : 0; /* without ".", ".." and the folder's own */
}

void metrics_render_process(struct text *page, uint64_t began_us)
{
	struct rlimit limit;
	metrics_render_build(page);
	exposition_time(page, "process_start_time_seconds", "gauge",
			"Start time of the process since unix epoch in seconds.", began_us);
	metrics_render_usage(page);
	metrics_render_memory(page);
	exposition_number(page, "process_open_fds", "gauge", "Number of open file descriptors.", metrics_open_fds());
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		exposition_number(page, "process_max_fds", "gauge", "Maximum number of open file descriptors.",
				  limit.rlim_cur);
}
