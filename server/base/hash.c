/* FNV-1a. See base.h. */
#include <assert.h>

#include "base.h"

uint64_t hash_fnv1a(const void *bytes, size_t len)
{
	assert(bytes || len == 0);
	const unsigned char *at = bytes;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
	return hash;
}
