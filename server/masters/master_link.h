/* The link to one master: a connection that is opened again whenever it ends (master_link.c), above the transport.
 *
 * It does not know commands, votes or the guard. It reports what happens to its owner through callbacks and calls
 * nothing above it. On the worker's thread. */
#ifndef MASTER_LINK_H
#define MASTER_LINK_H

#include "masters.h"
#include "server/transport/transport.h"

enum {
	MASTER_HANDSHAKE_MS = 1000, /* from connect to the last answer of the handshake */
	MASTER_BACKOFF_MIN_MS = 50,
	MASTER_BACKOFF_MAX_MS = 1000
};

/*   down ─► connecting ─► handshake ─► up          down: it waits until it tries again
 *    ▲          │             │         │          closed: for good, from any
 *    └──────────┴─────────────┴─────────┘ */
enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_HANDSHAKE, LINK_UP, LINK_CLOSED };

struct master;

/* What a link reports to its owner. */
struct master_link_events {
	/* Connected, LINK_HANDSHAKE: send what comes first. */
	void (*connected)(struct master *owner);
	/* The oldest command has its answer; NULL: lost. */
	void (*answered)(struct master *owner, const redisReply *reply);
	/* The time given to master_link_set_timer() is over, and the link is up. */
	void (*ticked)(struct master *owner);
	/* The link has just become LINK_DOWN, and has no connection any more; `was`: its state before; `by_peer`: the
	 * connection ended by itself. Its pending callbacks follow if it was not. */
	void (*failed)(struct master *owner, enum link_state was, const char *reason, bool by_peer);
};

struct master_link {
	struct uv_loop_s *loop;
	const struct address *address;
	const struct master_link_events *events;
	struct master *owner;
	enum link_state state;
	struct transport_connection *connection; /* connecting, handshake, up; else NULL */
	struct transport_timer *timer;           /* by the state: back-off, deadline of the handshake, the owner's */
	uint32_t attempts;                       /* to connect, since the last success */
	bool tried;                              /* it was up, or failed at each of its addresses */
};

/* Begins to connect in the next round of the loop; loop, address, events and owner are set. */
void master_link_start(struct master_link *link);
/* The handshake has succeeded. */
void master_link_set_up(struct master_link *link);
/* Closes the connection and tries again later. Does nothing where it is down already. */
void master_link_fail(struct master_link *link, const char *reason);
/* Closes it for good; its pending callbacks are called. */
void master_link_close(struct master_link *link);
/* LINK_UP: calls `ticked`; before: the link fails then. */
void master_link_set_timer(struct master_link *link, uint64_t delay_ms);

#endif
