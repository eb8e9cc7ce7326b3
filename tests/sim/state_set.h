/* SPDX-License-Identifier: MIT */
/* A set of 64-bit fingerprints: open addressing, grows by doubling. 0 is not a fingerprint. */
#ifndef STATE_SET_H
#define STATE_SET_H

#include <stdbool.h>
#include <stdint.h>

struct state_set {
	uint64_t *slots;
	uint64_t size; /* a power of two */
	uint64_t count;
};

void state_set_init(struct state_set *set);
void state_set_fini(struct state_set *set);
/* True if it was not in the set yet. Ends the program without memory for it. */
bool state_set_add(struct state_set *set, uint64_t fingerprint);

#endif
