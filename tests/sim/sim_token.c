/* SPDX-License-Identifier: MIT */
/* Tokens of attempts: a number for each, as 40 digits in the store. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/base.h"
#include "sim_world.h"
#include "store_internal.h"

uint8_t sim_token(unsigned op, unsigned attempt)
{
	assert(attempt >= 1 && attempt <= 4);
	return (uint8_t)(1 + op * 4 + attempt - 1);
}

uint8_t sim_token_read(const char *bytes)
{
	char digits[RANDOM_TOKEN_LEN + 1] = "", kept[SHA1_HEX_LEN];
	memcpy(digits, bytes + RANDOM_TOKEN_LEN - 2, 2);
	uint8_t token = (uint8_t)strtoul(digits, NULL, 16);
	if (strspn(bytes, "0") >= RANDOM_TOKEN_LEN - 2)
		return token;
	for (token = 1; token < SIM_KEPT_TOKEN; token++) {
		snprintf(digits, sizeof digits, "%040x", token);
		store_sha1hex(digits, RANDOM_TOKEN_LEN, kept);
		if (memcmp(bytes, kept, sizeof kept) == 0)
			return token | SIM_KEPT_TOKEN;
	}
	assert(false);
	return 0;
}
