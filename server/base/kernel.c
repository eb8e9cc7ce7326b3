/* SPDX-License-Identifier: MIT */
/* The clocks and the random numbers of the kernel. The simulator has its own. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* Random bytes are fetched as many at a time as getentropy() gives, and wiped as they are used. */
static _Thread_local unsigned char random_reserve[RANDOM_BYTES_MAX];
static _Thread_local size_t random_reserve_left;

void random_bytes(unsigned char *ret, size_t len)
{
	assert(len > 0 && len <= RANDOM_BYTES_MAX);
	if (random_reserve_left < len) {
		if (getentropy(random_reserve, RANDOM_BYTES_MAX) != 0) {
			perror("redlockd: getentropy");
			abort();
		}
		random_reserve_left = RANDOM_BYTES_MAX;
	}
	random_reserve_left -= len;
	memcpy(ret, random_reserve + random_reserve_left, len);
	memset(random_reserve + random_reserve_left, 0, len);
}

void random_token(char ret_token[RANDOM_TOKEN_LEN])
{
	unsigned char bytes[RANDOM_TOKEN_LEN / 2];
	random_bytes(bytes, sizeof bytes);
	hex_write(bytes, sizeof bytes, ret_token);
}

uint64_t random_number(void)
{
	uint64_t value;
	random_bytes((unsigned char *)&value, sizeof value);
	return value;
}
