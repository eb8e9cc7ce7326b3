/* SPDX-License-Identifier: MIT */
/* A clock that can be moved, for one redis-server or driver of a client, as a library for LD_PRELOAD.
 *
 * The time of day (gettimeofday, time, clock_gettime of CLOCK_REALTIME and its coarse sister) is off by as many
 * microseconds as the first eight bytes of the file REDIS_CLOCK_FILE (an environment variable) say: a number with a
 * sign, as the machine keeps it. The file is mapped, so whoever writes there moves the clock of the running process
 * (redis_clock.py does). With REDIS_CLOCK_FROZEN in the environment the number is the time itself, in microseconds
 * since 1970: it stands still between two writes. Monotonic clocks are left alone: an operator who sets a clock, or NTP
 * that steps it, does not move those either.
 *
 * Redis asks gettimeofday and time; its allocator asks clock_gettime, from within malloc and before any constructor has
 * run. So nothing here allocates, locks or waits (libfaketime does, and hangs a redis-server with jemalloc), and as
 * long as the file is not mapped the offset is 0. Its users: tests/e2e, tests/faults, tests/clients and tests/sim. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *mapped_offset_us;
static int is_frozen;

/* Maps the file. A clock that was asked for and cannot be moved would make tests pass that test nothing: so no file, no
 * program. */
static __attribute__((constructor)) void map_offset(void)
{
	static const char message[] = "redis_clock: cannot map REDIS_CLOCK_FILE\n";
	const char *path = getenv("REDIS_CLOCK_FILE");
	if (!path)
		return;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *mapped_offset_us, PROT_READ, MAP_SHARED, file, 0);
	if (found == MAP_FAILED) {
		(void)!write(STDERR_FILENO, message, sizeof message - 1);
		_exit(127);
	}
	close(file);
	is_frozen = getenv("REDIS_CLOCK_FROZEN") != NULL;
	__atomic_store_n(&mapped_offset_us, (const int64_t *)found, __ATOMIC_RELEASE);
}

static int64_t offset_us(void)
{
	const int64_t *offset = __atomic_load_n(&mapped_offset_us, __ATOMIC_ACQUIRE);
	return offset ? __atomic_load_n(offset, __ATOMIC_RELAXED) : 0;
}

/* The kernel's own answer, past the functions that are replaced here. */
static int machine_time(clockid_t clock, struct timespec *ret_now)
{
	return (int)syscall(SYS_clock_gettime, clock, ret_now);
}

/* The wrong time of day in microseconds: tests are not run in 1970, so it is above 0. */
static int64_t wrong_time_us(void)
{
	struct timespec now = {0, 0};
	if (is_frozen)
		return offset_us();
	(void)machine_time(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + offset_us();
}

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	int failed = machine_time(clock, ret_now);
	if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return failed;
	int64_t sum_us = wrong_time_us();
	ret_now->tv_sec = (time_t)(sum_us / 1000000);
	ret_now->tv_nsec = (long)(sum_us % 1000000) * 1000 + ret_now->tv_nsec % 1000;
	return 0;
}

int gettimeofday(struct timeval *restrict ret_now, void *restrict zone)
{
	int64_t now_us = wrong_time_us();
	(void)zone; /* obsolete, nobody gives one */
	ret_now->tv_sec = (time_t)(now_us / 1000000);
	ret_now->tv_usec = (suseconds_t)(now_us % 1000000);
	return 0;
}

time_t time(time_t *ret_now)
{
	time_t now = (time_t)(wrong_time_us() / 1000000);
	if (ret_now)
		*ret_now = now;
	return now;
}
