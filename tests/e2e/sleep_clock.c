/* SPDX-License-Identifier: MIT */
/* The clocks of a machine that has slept for a day, as a library for LD_PRELOAD: while the file named by SLEPT_FILE is
 * there, CLOCK_BOOTTIME is a day ahead. CLOCK_MONOTONIC, by which libcurl ends a request, does not count a sleep. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, ret_now);
	const char *slept = getenv("SLEPT_FILE");

	if (!failed && clock == CLOCK_BOOTTIME && slept && access(slept, F_OK) == 0)
		ret_now->tv_sec += 86400;
	return failed;
}
