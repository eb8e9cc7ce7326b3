/* Services of the event loop for leases and masters: timers, and connections to Redis. No other folder below
 * server/daemon knows libuv and hiredis. The simulator (tests/sim) is linked with another implementation: in virtual
 * time, with masters in memory.
 *
 * All on one worker's thread. No function of this header calls back from within, except where it says so. */
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
/* Once, after `delay_ms`; instead of what was started before. 0: in the next round of the loop. */
void transport_timer_start(struct transport_timer *timer, uint64_t delay_ms);
void transport_timer_stop(struct transport_timer *timer);
/* Stops it. Its memory is freed by the loop. */
void transport_timer_free(struct transport_timer *timer);

/* ---- connections ---- */

struct transport_connection;
enum { TRANSPORT_REASON_MAX = 256 };

/* LOST: by the network or the server. REFUSED: the server answered SUBSCRIBE with an error, which is the reason.
 * PROTOCOL: it sent what is no reply, too large a reply, or one that nobody asked for. */
enum transport_end { TRANSPORT_LOST, TRANSPORT_REFUSED, TRANSPORT_PROTOCOL };

struct transport_events {
	/* Its name has been looked up, and it begins to connect. Not called where there is no name; may be NULL. */
	void (*resolved)(void *arg);
	/* It can send from now on. */
	void (*connected)(void *arg);
	/* The answer to the oldest command that has none; NULL: the connection ended first. So each command has exactly
	 * one, in their order. After transport_subscribe(): also its confirmation, and each message. */
	void (*answered)(void *arg, const redisReply *reply);
	/* It has ended by itself, or could not be made; every command was answered with NULL before. The connection
	 * is freed afterwards. Not called after transport_close(). */
	void (*ended)(void *arg, const char *reason, enum transport_end how);
};

struct transport_word {
	const char *bytes;
	size_t len;
};

/* Begins to connect, with TLS where the address asks for it. `attempt` counts from 0 and chooses among the addresses of
 * a name. `beside`: an open connection to the same server, to whose peer it connects; NULL: none. Copies nothing:
 * address, events and arg outlive the connection. */
struct transport_connection *transport_connect(struct uv_loop_s *loop, const struct address *address, unsigned attempt,
					       const struct transport_connection *beside,
					       const struct transport_events *events, void *arg);
/* The addresses of its name; 0: not a name, or not known yet. */
unsigned transport_address_count(const struct transport_connection *connection);
/* Its name is being looked up, which may take long. */
bool transport_is_resolving(const struct transport_connection *connection);
/* Every command is answered with NULL, from within this call or, where that is a callback of this very
 * connection, right after it. */
void transport_close(struct transport_connection *connection);

/* Appends a command, which leaves with transport_flush(). Copies the arguments. */
void transport_send(struct transport_connection *connection, size_t count, const struct transport_word arguments[]);
/* SUBSCRIBE. Nothing but AUTH may have been sent before. */
void transport_subscribe(struct transport_connection *connection, const char *channel);
/* Does nothing from within a callback of this very connection. */
void transport_flush(struct transport_connection *connection);
/* Bytes have arrived that were not read yet: a missing answer may be among them. */
bool transport_has_unread(const struct transport_connection *connection);
/* Connected, and still in the handshake of TLS. */
bool transport_is_in_tls_handshake(const struct transport_connection *connection);

/* ---- TLS to masters ---- */

/* True if a master is rediss://. */
bool transport_tls_is_used(const struct options *options);
/* Reads the files that the options name, for connections that begin from now on, of any thread. False: a message that
 * names the option and the file, also where files are named and no master is rediss://; what was read before stays in
 * use. Blocking: for the main thread. */
bool transport_tls_load(const struct options *options, char *message, size_t message_size)
	__attribute__((warn_unused_result));
void transport_tls_unload(void);

/* When a certificate is valid, in seconds since 1970; expiry_s is 0: there is none. */
struct transport_tls_dates {
	int64_t activation_s, expiry_s;
};
/* Expiry of the authority of --masters-ca that ends first, and of the certificate of --masters-cert, as they were read
 * last. Main thread. */
void transport_tls_dates(struct transport_tls_dates *ret_authority, struct transport_tls_dates *ret_own);

#endif
