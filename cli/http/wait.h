/* How a lock is waited for: whom to ask next, and when. Pure: told the time and the answers, says what to do.
 *
 * The server does the waiting (wait_ms), in the order in which the requests came; what is done here is to ask it again
 * when it may not wait that long in one go, to go to another one when it is gone, and to ask from the outside those
 * that cannot wait. */
#ifndef WAIT_H
#define WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answer.h"
#include "cli/base/cli_base.h"

struct wait {
	uint64_t end_us;             /* until then it is waited for */
	bool none;                   /* --no-wait */
	size_t servers, server;      /* how many there are; whom to ask */
	uint64_t asked_us, asked_ms; /* the last request: when, and how long the server was to keep it */
	struct {
		uint64_t not_before_us; /* it did not help, and is left in peace until then */
		uint64_t max_ms;        /* it keeps a request no longer than this, as far as is known */
		bool bound_known;       /* ... because it has said so */
	} at[SERVERS_MAX];
};

struct wait_step {
	enum { WAIT_ASK, WAIT_PAUSE, WAIT_GIVE_UP } what;
	uint64_t until_us; /* WAIT_PAUSE: then wait_ask() */
	uint64_t wait_ms;  /* WAIT_ASK: how long the server may keep the request; 0: it is to answer at once */
};

void wait_init(struct wait *wait, size_t servers, size_t server, uint64_t wait_ms, uint64_t now_us);

/* The first request, and the one after a pause. */
struct wait_step wait_ask(struct wait *wait, uint64_t now_us);

/* What to do after an answer that was no lease. */
struct wait_step wait_next(struct wait *wait, const struct answer *answer, uint32_t random, uint64_t now_us);

#endif
