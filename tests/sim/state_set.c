/* SPDX-License-Identifier: MIT */
/* See state_set.h. The fingerprints are hashes already: their low bits are the position. */
#include "state_set.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_SIZE = 1 << 8 };

static uint64_t *slots_new(uint64_t size)
{
	uint64_t *slots = calloc(size, sizeof *slots);
	if (!slots) {
		fprintf(stderr, "no memory for a set of %llu states\n", (unsigned long long)size);
		exit(2);
	}
	return slots;
}

void state_set_init(struct state_set *set)
{
	set->size = FIRST_SIZE;
	set->count = 0;
	set->slots = slots_new(set->size);
}

void state_set_fini(struct state_set *set)
{
	free(set->slots);
	set->slots = NULL;
}

static uint64_t *find(const struct state_set *set, uint64_t fingerprint)
{
	uint64_t at = fingerprint & (set->size - 1);
	while (set->slots[at] != 0 && set->slots[at] != fingerprint)
		at = (at + 1) & (set->size - 1);
	return &set->slots[at];
}

static void grow(struct state_set *set)
{
	struct state_set larger = {slots_new(set->size * 2), set->size * 2, set->count};
	for (uint64_t i = 0; i < set->size; i++)
		if (set->slots[i] != 0)
			*find(&larger, set->slots[i]) = set->slots[i];
	free(set->slots);
	*set = larger;
}

bool state_set_add(struct state_set *set, uint64_t fingerprint)
{
	assert(fingerprint != 0);
	if (set->count >= set->size / 4 * 3)
		grow(set);
	uint64_t *slot = find(set, fingerprint);
	if (*slot == fingerprint)
		return false;
	*slot = fingerprint;
	set->count++;
	return true;
}
