/* SPDX-License-Identifier: MIT */
/* A wrong clock for one process, as a library for LD_PRELOAD: CLOCK_REALTIME is CLOCK_SHIM_OFFSET_MS (an environment
 * variable, may be negative) away from the machine's. All other clocks are as they are. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long offset_ms(void)
{
	const char *text = getenv("CLOCK_SHIM_OFFSET_MS");
	return text ? atoll(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, ret_now);
	if (failed || clock != CLOCK_REALTIME)
		return failed;
	long long ms = offset_ms();
	ret_now->tv_sec += (time_t)(ms / 1000);
	ret_now->tv_nsec += (long)(ms % 1000) * 1000000;
	if (ret_now->tv_nsec < 0) {
		ret_now->tv_nsec += 1000000000;
		ret_now->tv_sec--;
	} else if (ret_now->tv_nsec >= 1000000000) {
		ret_now->tv_nsec -= 1000000000;
		ret_now->tv_sec++;
	}
	return 0;
}
