/* Random numbers and tokens. Bytes are read 4 KiB at a time, for each thread, and wiped as they are used. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base.h"

enum { RANDOM_RESERVE_SIZE = 4096 };

static _Thread_local unsigned char random_reserve[RANDOM_RESERVE_SIZE];
static _Thread_local size_t random_reserve_left;

static void random_fill_reserve(void)
{
	assert(random_reserve_left < RANDOM_RESERVE_SIZE);
	size_t have = 0;
	while (have < RANDOM_RESERVE_SIZE) {
		ssize_t n = getrandom(random_reserve + have, RANDOM_RESERVE_SIZE - have, 0);
		if (n < 0 && errno != EINTR) {
			perror("redlockd: getrandom");
			abort();
		}
		if (n > 0)
			have += (size_t)n;
	}
	random_reserve_left = RANDOM_RESERVE_SIZE;
}

void random_bytes(unsigned char *ret, size_t len)
{
	assert(len > 0 && len <= RANDOM_RESERVE_SIZE);
	if (random_reserve_left < len)
		random_fill_reserve();
	unsigned char *from = random_reserve + random_reserve_left - len;
	memcpy(ret, from, len);
	memset(from, 0, len);
	random_reserve_left -= len;
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
