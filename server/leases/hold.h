/* Leases that are held for somebody as long as he stays: renewed each third of their TTL, and released when he goes. No
 * HTTP in it.
 *
 * All on the worker's thread. Events come from the worker's loop, never from within a call of this header. */
#ifndef HOLD_H
#define HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "lease.h"

struct holds; /* all of one worker */
struct hold;

enum hold_event {
	HOLD_RENEWED,
	/* the last one; `code` says why: LEASE_EXPIRED, LEASE_NOT_OWNER or LEASE_NO_QUORUM. What may be left of the
	 * lease is released */
	HOLD_LOST,
	/* the last one: the service ends. The lease was renewed once more if that could be done, and is not renewed any
	 * more */
	HOLD_DRAINING
};

/* May drop the hold. `code` is LEASE_OK but for HOLD_LOST. */
typedef void hold_event_fn(void *arg, enum hold_event event, enum lease_status code);

/* Holds the lease that `answer` to `request` (an acquisition) has just granted. Copies both. NULL where memory is
 * short. */
struct hold *hold_new(struct holds *holds, const struct lease_request *request, const struct lease_answer *answer,
		      hold_event_fn *on_event, void *arg);

/* How long the lease is still valid. */
uint32_t hold_validity_ms(const struct hold *hold);

/* Ends it, at any time: no event comes any more. The lease is released at once if `release` (and it is not lost
 * already), else it runs out by itself. */
void hold_drop(struct hold *hold, bool release);

#endif
