/* SPDX-License-Identifier: MIT */
/* See state_set.h. The fingerprints are hashes already: their low bits are the position. */
#include "state_set.h"

#include <assert.h>
#include <stdlib.h>

#include "server/base/base.h"

enum { FIRST_SIZE = 1 << 8 };

static void init(struct state_set *set, uint64_t size)
{
	set->size = size;
	set->count = 0;
	set->slots = memory_zeroed(size, sizeof *set->slots);
	set->numbers = memory_zeroed(size, sizeof *set->numbers);
}

void state_set_init(struct state_set *set)
{
	init(set, FIRST_SIZE);
}

void state_set_fini(struct state_set *set)
{
	free(set->slots);
	free(set->numbers);
}

static void grow(struct state_set *set)
{
	struct state_set larger;
	init(&larger, set->size * 2);
	for (uint64_t i = 0; i < set->size; i++)
		if (set->slots[i] != 0)
			*state_set_number(&larger, set->slots[i]) = set->numbers[i];
	state_set_fini(set);
	*set = larger;
}

uint32_t *state_set_number(struct state_set *set, uint64_t fingerprint)
{
	assert(fingerprint != 0);
	if (set->count >= set->size / 4 * 3)
		grow(set);
	uint64_t at = fingerprint & (set->size - 1);
	while (set->slots[at] != 0 && set->slots[at] != fingerprint)
		at = (at + 1) & (set->size - 1);
	set->count += set->slots[at] == 0;
	set->slots[at] = fingerprint;
	return &set->numbers[at];
}

bool state_set_add(struct state_set *set, uint64_t fingerprint)
{
	uint64_t count = set->count;
	state_set_number(set, fingerprint);
	return set->count > count;
}
