/* The clocks of the kernel. */
#include <assert.h>
#include <time.h>

#include "base.h"

static uint64_t clock_read_us(clockid_t clock)
{
	struct timespec now;
	int failed = clock_gettime(clock, &now);
	assert(!failed);
	return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

uint64_t clock_now_us(void)
{
	return clock_read_us(CLOCK_BOOTTIME);
}

uint64_t clock_wall_us(void)
{
	return clock_read_us(CLOCK_REALTIME);
}
