/* SPDX-License-Identifier: MIT */
/* Services of the event loop for leases and masters: timers, and connections to Redis. No other folder below
 * server/daemon knows libuv and hiredis. The simulator (tests/sim) is linked with another implementation: in virtual
 * time, with masters in memory.
 *
 * All on one worker's thread. No function of this header calls back before it returns, unless its comment says so. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include <hiredis/hiredis.h> /* redisReply alone: the answer of a master */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"

struct uv_loop_s; /* the loop of the worker; the simulator has its own */

/* ---- timers ---- */

struct transport_timer;
typedef void transport_timer_fn(void *arg);

struct transport_timer *transport_timer_new(struct uv_loop_s *loop, transport_timer_fn *fire, void *arg);
/* Fires once, after `delay_ms`, and replaces an earlier start. 0: in the next round of the loop. */
void transport_timer_start(struct transport_timer *timer, uint64_t delay_ms);
void transport_timer_stop(struct transport_timer *timer);
/* Stops the timer; the loop frees its memory. */
void transport_timer_free(struct transport_timer *timer);

/* ---- connections ---- */

struct transport_connection;
enum { TRANSPORT_REASON_MAX = 256 };

/* LOST: by the network or the server. REFUSED: the server answered SUBSCRIBE with an error, which is the reason.
 * PROTOCOL: the server sent no valid reply, too large a reply, or one to no command. */
enum transport_end { TRANSPORT_LOST, TRANSPORT_REFUSED, TRANSPORT_PROTOCOL };

struct transport_events {
	/* The name has been looked up, and connecting begins. Not called if there is no name; may be NULL. */
	void (*resolved)(void *arg);
	/* The connection can send from now on. */
	void (*connected)(void *arg);
	/* The answer to the oldest unanswered command; NULL: the connection ended first. Each command gets exactly one,
	 * in order. After transport_subscribe(): also its confirmation, and each message. */
	void (*answered)(void *arg, const redisReply *reply);
	/* The connection has ended by itself, or could not be made; every command was answered with NULL before. The
	 * connection is freed afterwards. Not called after transport_close(). */
	void (*ended)(void *arg, const char *reason, enum transport_end how);
};

struct transport_word {
	const char *bytes;
	size_t len;
};

/* Begins to connect, with TLS if the address requires it. `attempt` counts from 0 and chooses among the addresses of a
 * name. `beside`: an open connection to the same server, to whose peer it connects; NULL: none. Copies nothing:
 * address, events and arg outlive the connection. */
struct transport_connection *transport_connect(struct uv_loop_s *loop, const struct address *address, unsigned attempt,
					       const struct transport_connection *beside,
					       const struct transport_events *events, void *arg);
/* How many addresses its name has; 0: not a name, or not known yet. */
unsigned transport_address_count(const struct transport_connection *connection);
/* True while its name is being looked up, which may take long. */
bool transport_is_resolving(const struct transport_connection *connection);
/* Every command is answered with NULL, within this call or, if that is made in a callback of this connection, right
 * after it. */
void transport_close(struct transport_connection *connection);

/* Appends a command, which leaves with transport_flush(). Copies the arguments. */
void transport_send(struct transport_connection *connection, size_t count, const struct transport_word arguments[]);
/* SUBSCRIBE. Nothing but AUTH may have been sent before. */
void transport_subscribe(struct transport_connection *connection, const char *channel);
/* Does nothing in a callback of this connection. */
void transport_flush(struct transport_connection *connection);
/* True if bytes have arrived that were not read yet: a missing answer may be among them. */
bool transport_has_unread(const struct transport_connection *connection);
/* True if connected, and still in the handshake of TLS. */
bool transport_is_in_tls_handshake(const struct transport_connection *connection);

/* ---- TLS to masters ---- */

/* True if a master is rediss://. */
bool transport_tls_is_used(const struct options *options);
/* Reads the files that the options name, for connections of any thread that begin from now on. False: a message that
 * names the option and the file, also if files are named and no master is rediss://; the old ones stay in use.
 * Blocking: for the main thread. */
bool transport_tls_load(const struct options *options, char *message, size_t message_size)
	__attribute__((warn_unused_result));
void transport_tls_unload(void);

/* When a certificate is valid, in seconds since 1970; expiry_s is 0: there is none. */
struct transport_tls_dates {
	int64_t activation_s, expiry_s;
};
/* The dates of the first authority of --masters-ca to expire, and of the certificate of --masters-cert, as read last.
 * Main thread. */
void transport_tls_dates(struct transport_tls_dates *ret_authority, struct transport_tls_dates *ret_own);

#endif
