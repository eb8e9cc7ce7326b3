/* SPDX-License-Identifier: MIT */
/* A set of 64-bit fingerprints, each with a number: open addressing, grows by doubling. 0 is not a fingerprint. */
#ifndef STATE_SET_H
#define STATE_SET_H

#include <stdbool.h>
#include <stdint.h>

struct state_set {
	uint64_t *slots;
	uint32_t *numbers;
	uint64_t size; /* a power of two */
	uint64_t count;
};

void state_set_init(struct state_set *set);
void state_set_fini(struct state_set *set);
/* The number of a fingerprint, which is added with 0 if it was not in the set yet. Valid until the next call. Ends the
 * program without memory for it. */
uint32_t *state_set_number(struct state_set *set, uint64_t fingerprint);
/* True if it was not in the set yet. */
bool state_set_add(struct state_set *set, uint64_t fingerprint);

#endif
