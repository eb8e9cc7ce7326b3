/* TLS of one connection: its handshake, its client's certificate, and what must go past libmicrohttpd.
 *
 * libmicrohttpd does the handshake and the encryption with GnuTLS. It has no eye for a handshake that waits for its
 * client, though: in epoll mode it calls such a connection ready and tries again, round after round, with all of the
 * processor until the client says something. So the function by which GnuTLS reads is ours: it suspends the connection
 * where there is nothing to read, and gone.c, which watches such descriptors, wakes it.
 *
 * All on the worker's thread. */
#ifndef TLS_LINK_H
#define TLS_LINK_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "tls.h"

struct connection;

struct tls_link {
	/* libmicrohttpd's; NULL: plain HTTP, or the connection is about to be freed */
	struct gnutls_session_int *session;
	/* a reference: what it began with, or what has brought other authorities since; NULL: plain HTTP */
	struct tls *tls;
	const struct tls_peer *peer; /* NULL: not looked at yet, or not asked for */
	bool begun;                  /* bytes have come */
	/* our last message of the handshake has been sent, the client's has come: it is over after both */
	bool told, heard;
	bool waits;       /* suspended in the handshake, and watched */
	bool spoke_plain; /* the client does not speak TLS, and was told */
};

/* Begins it, before the handshake; a plain connection gets an empty one. Where memory is short the handshake will
 * fail. */
void tls_link_init(struct connection *connection);

/* The session is gone already. Counts a handshake that failed; says so to the client if nothing was ever sent. */
void tls_link_fini(struct connection *connection, bool nothing_was_sent);

/* True if the handshake is over. */
bool tls_link_is_up(const struct tls_link *link);

/* Goes on with a handshake that waits; else it does nothing. Not from within a call of the library. */
void tls_link_wake(struct connection *connection);

/* A request is there, or goes on after a reload: looks at the client's certificate, unless it has been looked at with
 * the present authorities. */
void tls_link_identify(struct connection *connection);

/* Sends as much as fits into the socket, past libmicrohttpd; nothing may be sent after it but tls_link_bye(). */
void tls_link_send(struct tls_link *link, const char *bytes, size_t len);

/* Tells the client that nothing more will come (close_notify), so that it can tell an end from a cut. Only once all has
 * been sent. */
void tls_link_bye(struct tls_link *link);

/* True if what lies unread in the socket begins with the same from the client. It may be followed by nothing for long:
 * some clients wait for ours. */
bool tls_link_hears_bye(const struct connection *connection);

#endif
