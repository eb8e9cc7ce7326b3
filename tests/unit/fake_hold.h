/* SPDX-License-Identifier: MIT */
/* Held leases for tests of the HTTP side: what happens to them is what a test says. */
#ifndef FAKE_HOLD_H
#define FAKE_HOLD_H

#include "server/leases/leases.h"

enum { FAKE_HOLDS_MAX = 64 };

struct hold {
	struct holds *holds;
	bool used;
	struct lease_request request;
	struct lease_answer answer;
	hold_event_fn *on_event;
	void *arg;
};

/* All members may be read and set by a test. */
struct holds {
	struct hold items[FAKE_HOLDS_MAX];
	uint32_t validity_ms; /* what is left of each */
	uint32_t waiters;     /* of each */
	bool is_wanted;       /* hold_take_wanted() */
	unsigned made, released, left;
};

void fake_holds_init(struct holds *holds);

/* The event happens to all that are held. */
void fake_holds_tell(struct holds *holds, enum hold_event event, enum lease_status code);

size_t fake_holds_count(const struct holds *holds);

#endif
