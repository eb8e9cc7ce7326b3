/* Acquires a lease: asks, waits, fails over. For the commands acquire and run. */
#ifndef ACQUIRE_H
#define ACQUIRE_H

#include "answer.h"
#include "health_check.h"

enum acquire_order {
	ACQUIRE_GO_ON,
	ACQUIRE_HOLD, /* send no request until the order changes */
	ACQUIRE_STOP
};

struct acquire {
	struct client *client;
	const struct arguments *arguments;
	size_t server;                                   /* to ask first; afterwards the one that granted */
	uint64_t least_us;                               /* a lease with less validity left is released */
	struct curl_waitfd *extra;                       /* NULL: no orders */
	enum acquire_order (*read_order)(void *context); /* called when `extra` is ready */
	/* called once if the request has to wait; may be NULL */
	void (*on_wait)(void *context, const struct answer *answer);
	void *context;

	bool wait_reported; /* private from here: on_wait() was called */
	struct health_check check;
};

enum acquire_result { ACQUIRE_GRANTED, ACQUIRE_REFUSED, ACQUIRE_STOPPED };

/* ACQUIRE_GRANTED: the lease, and the time from which its validity counts safely. ACQUIRE_REFUSED: ret_answer says why
 * (answer_fini() it). ACQUIRE_STOPPED: by order; no lease is held, and no queue entry. */
enum acquire_result acquire_lease(struct acquire *acquire, struct lease *ret_lease, uint64_t *ret_sent_us,
				  struct answer *ret_answer);

/* Releases a lease that is not wanted. Tries for about a second. */
void acquire_release(struct acquire *acquire, const struct lease *lease);

/* The exit status for an answer. */
int acquire_status(const struct arguments *arguments, const struct answer *answer);

#endif
