/* SipHash-2-4 (Aumasson, Bernstein): a keyed hash for tables whose keys come from clients. Without the secret key
 * nobody can choose keys that collide. Pure; any thread. Each process has a key of its own, so replicas do not agree on
 * it. */
#ifndef SIPHASH_H
#define SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
	uint64_t low, high;
};

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t len);

#endif
