/* See siphash.h. The names are those of the paper. */
#include "siphash.h"

#include <assert.h>

enum { WORD = 8, ROUNDS = 2, FINAL_ROUNDS = 4 };

static uint64_t siphash_rotate(uint64_t value, unsigned bits)
{
	assert(bits > 0 && bits < 64);
	return value << bits | value >> (64 - bits);
}

static void siphash_mix(uint64_t v[4], unsigned rounds)
{
	for (; rounds > 0; rounds--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = siphash_rotate(v[1], 13) ^ v[0];
		v[3] = siphash_rotate(v[3], 16) ^ v[2];
		v[0] = siphash_rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = siphash_rotate(v[1], 17) ^ v[2];
		v[3] = siphash_rotate(v[3], 21) ^ v[0];
		v[2] = siphash_rotate(v[2], 32);
	}
}

/* Up to eight bytes, the first one lowest. */
static uint64_t siphash_load(const unsigned char *bytes, size_t len)
{
	assert(len <= WORD);
	uint64_t word = 0;
	for (size_t i = 0; i < len; i++)
		word |= (uint64_t)bytes[i] << 8 * i;
	return word;
}

static void siphash_absorb(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	siphash_mix(v, ROUNDS);
	v[0] ^= word;
}

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t len)
{
	assert(key && (bytes || len == 0));
	const unsigned char *at = bytes;
	uint64_t v[4] = {
		key->low ^ UINT64_C(0x736f6d6570736575),
		key->high ^ UINT64_C(0x646f72616e646f6d),
		key->low ^ UINT64_C(0x6c7967656e657261),
		key->high ^ UINT64_C(0x7465646279746573),
	};
	size_t left = len;
	for (; left >= WORD; left -= WORD, at += WORD)
		siphash_absorb(v, siphash_load(at, WORD));
	siphash_absorb(v, siphash_load(at, left) | (uint64_t)len << 56);
	v[2] ^= 0xff;
	siphash_mix(v, FINAL_ROUNDS);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
