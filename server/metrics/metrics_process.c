/* The build and the process in the metrics: versions, processor time, memory, threads and descriptors, under the names
 * that Prometheus' own clients use. /proc is read anew for each page. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics_internal.h"
#include "server/base/base.h"

static void metrics_render_build(struct exposition *page)
{
	size_t count;
	const struct build_library *libraries = build_libraries(&count);
	char escaped[128];
	assert(strlen(build_version) < sizeof escaped / 2 && strlen(build_commit) < sizeof escaped / 2);
	exposition_head(page, "redlockd_build_info", "gauge",
			"Always 1; the labels name the program and its libraries.");
	exposition_escape(escaped, sizeof escaped, build_version);
	text_printf(&page->text, "redlockd_build_info{version=\"%s\"", escaped);
	exposition_escape(escaped, sizeof escaped, build_commit);
	text_printf(&page->text, ",commit=\"%s\"", escaped);
	for (size_t i = 0; i < count; i++) {
		assert(strlen(libraries[i].version) < sizeof escaped / 2);
		exposition_escape(escaped, sizeof escaped, libraries[i].version);
		text_printf(&page->text, ",%s=\"%s\"", libraries[i].name, escaped);
	}
	text_printf(&page->text, "} 1\n");
	exposition_head(page, "redlockd_log_dropped_total", "counter",
			"Lines of the log dropped because its reader did not keep up.");
	text_printf(&page->text, "redlockd_log_dropped_total %" PRIu64 "\n", log_dropped());
}

/* Reads the start of a file of /proc into `bytes`, terminated. Allocates nothing. */
static bool metrics_read_proc(const char *path, char *bytes, size_t size)
{
	assert(size > 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t len = read(fd, bytes, size - 1);
	bytes[len > 0 ? len : 0] = '\0';
	close(fd);
	return len > 0;
}

static void metrics_render_process_stat(struct exposition *page)
{
	char stat[1024];
	unsigned long user_ticks, system_ticks, virtual_bytes;
	unsigned long long start_ticks;
	long threads, resident_pages;
	/* The second field is the name in parentheses and may hold anything, so count from the last ')'. */
	if (!metrics_read_proc("/proc/self/stat", stat, sizeof stat) || !strrchr(stat, ')'))
		return;
	if (sscanf(strrchr(stat, ')') + 1,
		   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %ld %*d %llu %lu %ld",
		   &user_ticks, &system_ticks, &threads, &start_ticks, &virtual_bytes, &resident_pages) != 6)
		return;
	double ticks = (double)sysconf(_SC_CLK_TCK);
	exposition_head(page, "process_cpu_seconds_total", "counter",
			"Total user and system CPU time spent in seconds.");
	text_printf(&page->text, "process_cpu_seconds_total %.2f\n", (double)(user_ticks + system_ticks) / ticks);
	exposition_head(page, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
	text_printf(&page->text, "process_resident_memory_bytes %ld\n", resident_pages * sysconf(_SC_PAGESIZE));
	exposition_head(page, "process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.");
	text_printf(&page->text, "process_virtual_memory_bytes %lu\n", virtual_bytes);
	exposition_head(page, "process_threads", "gauge", "Number of threads of the process.");
	text_printf(&page->text, "process_threads %ld\n", threads);
	exposition_head(page, "process_start_time_seconds", "gauge",
			"Start time of the process since unix epoch in seconds.");
	text_printf(&page->text, "process_start_time_seconds %.2f\n", metrics_boot_s() + (double)start_ticks / ticks);
}

/* How many descriptors are open. Newer kernels tell the number as the size of the folder; else they are counted. */
static size_t metrics_open_fds(struct exposition *page)
{
	struct stat status;
	size_t count = 0;
	if (stat("/proc/self/fd", &status) == 0 && status.st_size > 0)
		return (size_t)status.st_size;
	DIR *folder = opendir("/proc/self/fd");
	if (!folder) {
		page->text.failed = page->text.failed || errno == ENOMEM;
		return 0;
	}
	while (readdir(folder))
		count++;
	closedir(folder);
	return count > 3 ? count - 3 : 0; /* without ".", ".." and the folder's own */
}

static void metrics_render_fds(struct exposition *page)
{
	struct rlimit limit;
	exposition_head(page, "process_open_fds", "gauge", "Number of open file descriptors.");
	text_printf(&page->text, "process_open_fds %zu\n", metrics_open_fds(page));
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	exposition_head(page, "process_max_fds", "gauge", "Maximum number of open file descriptors.");
	text_printf(&page->text, "process_max_fds %" PRIu64 "\n", (uint64_t)limit.rlim_cur);
}

void metrics_render_process(struct exposition *page)
{
	metrics_render_build(page);
	metrics_render_process_stat(page);
	metrics_render_fds(page);
}
