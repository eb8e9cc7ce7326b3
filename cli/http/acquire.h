/* Getting a lease: asks, waits, fails over. For the commands acquire and run. */
#ifndef ACQUIRE_H
#define ACQUIRE_H

#include "answer.h"
#include "health_check.h"

enum acquire_order {
	ACQUIRE_GO_ON,
	ACQUIRE_HOLD, /* ask nobody until told to go on */
	ACQUIRE_STOP
};

struct acquire {
	struct client *client;
	const struct arguments *arguments;
	size_t server;                                   /* whom to ask first; whoever granted it */
	uint64_t least_us;                               /* a lease of which less is left when it comes is given back */
	struct curl_waitfd *extra;                       /* NULL: nobody can tell us anything */
	enum acquire_order (*read_order)(void *context); /* called when `extra` is ready */
	/* called once, when it turns out to take time; NULL: nobody wants to know */
	void (*on_wait)(void *context, const struct answer *answer);
	void *context;

	bool wait_reported; /* from here on its own: it has called on_wait() */
	struct health_check check;
};

enum acquire_result { ACQUIRE_GRANTED, ACQUIRE_REFUSED, ACQUIRE_STOPPED };

/* ACQUIRE_GRANTED: the lease, and the moment from which its validity may safely be reckoned. ACQUIRE_REFUSED:
 * ret_answer says why (answer_fini() it). ACQUIRE_STOPPED: told so; nothing is held, and no place in a line. */
enum acquire_result acquire_lease(struct acquire *acquire, struct lease *ret_lease, uint64_t *ret_sent_us,
				  struct answer *ret_answer);

/* Gives back a lease that is not wanted, as well as that goes within about a second. */
void acquire_release(struct acquire *acquire, const struct lease *lease);

/* The exit status for an answer that was no success. */
int acquire_status(const struct arguments *arguments, const struct answer *answer);

#endif
