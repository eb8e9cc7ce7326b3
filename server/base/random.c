/* See random.h. Bytes are drawn from the kernel 4 KiB at a time, per thread, and wiped as they are used. */
#include "random.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { RESERVE_SIZE = 4096 };

static _Thread_local unsigned char reserve[RESERVE_SIZE];
static _Thread_local size_t reserve_left;

static void fill_reserve(void)
{
	size_t have = 0;
	while (have < RESERVE_SIZE) {
		ssize_t n = getrandom(reserve + have, RESERVE_SIZE - have, 0);
		if (n < 0 && errno != EINTR) {
			perror("redlockd: getrandom");
			abort();
		}
		if (n > 0)
			have += (size_t)n;
	}
	reserve_left = RESERVE_SIZE;
}

static void take_bytes(unsigned char *ret, size_t len)
{
	assert(len <= RESERVE_SIZE);
	if (reserve_left < len)
		fill_reserve();
	unsigned char *from = reserve + reserve_left - len;
	memcpy(ret, from, len);
	memset(from, 0, len);
	reserve_left -= len;
}

void token_draw(char ret_token[TOKEN_LEN])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char bytes[TOKEN_LEN / 2];
	take_bytes(bytes, sizeof bytes);
	for (size_t i = 0; i < sizeof bytes; i++) {
		ret_token[2 * i] = digits[bytes[i] >> 4];
		ret_token[2 * i + 1] = digits[bytes[i] & 15];
	}
}

uint64_t token_random(void)
{
	uint64_t value;
	take_bytes((unsigned char *)&value, sizeof value);
	return value;
}
