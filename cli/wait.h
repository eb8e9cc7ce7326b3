/* How a lock is waited for: whom to ask next, and when. Pure: told the time and the answers, says what to do.
 *
 * This is the one place to change when the server waits by itself: see wait_next(). */
#ifndef CLI_WAIT_H
#define CLI_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answer.h"

struct wait {
	uint64_t end_us; /* until then it is waited for */
	bool none;       /* --no-wait */
	size_t servers, server, unavailable; /* how many there are; whom to ask; how many in a row did not help */
};

struct wait_step {
	enum { WAIT_ASK, WAIT_PAUSE, WAIT_GIVE_UP } what;
	uint64_t until_us; /* WAIT_PAUSE: then ask */
	uint64_t wait_ms;  /* WAIT_ASK: how long the server may keep the request; 0: it is to answer at once */
};

void wait_init(struct wait *wait, size_t servers, size_t server, uint64_t wait_ms, uint64_t now_us);

/* What to do after an answer that was no lease. */
struct wait_step wait_next(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us);

/* The first request, and the one after a pause. */
struct wait_step wait_ask(const struct wait *wait, uint64_t now_us);

#endif
