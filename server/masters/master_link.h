/* The connection to one master: master_io.c (hiredis in the libuv loop) and master_link.c (resolve, connect, back-off).
 *
 * Neither file knows of commands, votes or the guard. Both report what happens to their owner through callbacks and
 * call nothing above them. All on the worker's thread. */
#ifndef MASTER_LINK_H
#define MASTER_LINK_H

#include <hiredis/async.h>
#include <uv.h>

#include "masters.h"

enum {
	MASTER_HANDSHAKE_MS = 1000, /* from connect to the last answer of the handshake */
	MASTER_BACKOFF_MIN_MS = 50,
	MASTER_BACKOFF_MAX_MS = 1000,
	MASTER_ELEMENTS_MAX = 100000, /* of a reply */
	/* Data that the peer's kernel does not acknowledge for so long: the path has gone, not just the process
	 * stopped. */
	MASTER_TCP_TIMEOUT_MS = 5000
};

/* The descriptor of one connection in the loop. It outlives the connection until libuv has let go of it. */
struct master_io {
	uv_poll_t poll;
	redisAsyncContext *context; /* NULL: the connection has ended */
	struct ssl_st *ssl;         /* NULL: not over TLS */
	/* Called once, when hiredis has called all pending callbacks and is about to free the context. NULL: not asked
	 * for, and writes leave as the loop finds the socket writable instead of with master_io_flush(). */
	void (*ended)(void *arg, const char *reason);
	void *arg;
	const char *hint; /* follows the reason where the peer just closes the connection; NULL: nothing */
	int events;
	bool want_write; /* there is something to write at the end of this round */
	bool flushing;
};

/* Puts a connection to `address` into the loop until hiredis frees its context, and begins TLS on it where the address
 * asks for it. NULL: ret_reason says why not; the context is still the caller's. */
struct master_io *master_io_attach(uv_loop_t *loop, redisAsyncContext *context, const struct master_address *address,
				   char ret_reason[STATUS_REASON_MAX]);
/* Writes what was appended since the last call. Does nothing from within a callback of this very connection, where a
 * failed write would free it under the callback: what is left leaves at the end of the round. */
void master_io_flush(struct master_io *io);
/* The next step of hiredis, at the end of the round at the latest, drops the connection. */
void master_io_end_for_memory(struct master_io *io);
/* Bytes have arrived that were not read yet. */
bool master_io_has_unread(const struct master_io *io);
bool master_io_is_in_tls_handshake(const struct master_io *io);
/* Socket options with which a dead path is found within seconds. */
void master_io_set_options(int fd, bool is_unix);

/* down ─► resolving ─► connecting ─► handshake ─► up ─► down … */
enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_HANDSHAKE, LINK_UP, LINK_CLOSED };

/* What a link reports to its owner. */
struct master_link_events {
	/* Connected, LINK_HANDSHAKE: send what comes first. Called by hiredis; the link must not be ended from here. */
	void (*connected)(void *arg);
	/* The time given to master_link_set_timer() is over, and the link is up. */
	void (*ticked)(void *arg);
	/* The link has just become LINK_DOWN; `was`: its state before; `by_peer`: the connection ended by itself. Its
	 * pending callbacks follow if it was not. */
	void (*failed)(void *arg, enum link_state was, const char *reason, bool by_peer);
	/* The connection is gone, and all its callbacks have been called. */
	void (*ended)(void *arg);
};

struct master_link {
	uv_loop_t *loop;
	const struct master_address *address;
	const struct master_link_events *events;
	void *arg;
	enum link_state state;
	struct master_io *io; /* connecting, handshake, up */
	uv_timer_t timer;     /* by the state: back-off, deadline of the handshake, the owner's */
	uv_getaddrinfo_t resolve;
	uint32_t attempts;  /* to connect, since the last success */
	uint32_t addresses; /* of its name, when it was last resolved; 0: not a name */
	bool tried;         /* it was up, or failed at each of its addresses */
	bool closing;       /* the service ends */
};

/* Begins to connect in the next round of the loop; loop, address, events and arg are set. */
void master_link_start(struct master_link *link);
/* The handshake has succeeded. */
void master_link_set_up(struct master_link *link);
/* Closes the connection and tries again later. Does nothing where it is down already. */
void master_link_fail(struct master_link *link, const char *reason);
/* Closes it for good; run the loop until it is empty. */
void master_link_close(struct master_link *link);
void master_link_flush(struct master_link *link);
/* LINK_UP: calls `ticked`; before: the link fails then. */
void master_link_set_timer(struct master_link *link, uint64_t delay_ms);

#endif
