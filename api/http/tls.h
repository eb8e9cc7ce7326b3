/* Certificates: ours, which clients see over HTTPS, and theirs.
 *
 * A loaded `struct tls` never changes: a reload makes another one, and every connection keeps a reference to the one
 * with which it began. All of this may be called from any thread. How a connection uses it: tls_link.c. */
#ifndef TLS_H
#define TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "api/auth/auth.h"

enum { TLS_FILE_MAX = 1 << 20 /* bytes of each file */, TLS_WARN_DAYS = 14 };

struct tls;
struct gnutls_session_int; /* gnutls_session_t is a pointer to it */

/* Reads --tls-cert (the certificate, and those that sign it), --tls-key and --tls-client-ca ("": clients are asked for
 * no certificate), all PEM. Returns one reference, the caller's; or NULL and a message of one line that names option
 * and file and says what is wrong. Blocking: for the start and SIGHUP. */
struct tls *tls_load(const char *cert, const char *key, const char *client_ca, char *message, size_t size)
	__attribute__((warn_unused_result));

/* One reference more or less; with the last one it is freed. tls_unref(NULL) does nothing. */
struct tls *tls_ref(struct tls *tls);
void tls_unref(struct tls *tls);

/* True if clients are asked for a certificate. */
bool tls_asks(const struct tls *tls);

/* True if both trust the same authorities of clients. */
bool tls_same_authorities(const struct tls *tls, const struct tls *other);

/* True if the certificate is for this name or address. */
bool tls_is_for(const struct tls *tls, const char *host);

/* From now on it is in use: sets the metric of its expiry, and warns in the log if it has expired or soon will. */
void tls_announce(const struct tls *tls);

/* Gives it to a session whose handshake has not begun, or is over: then only its authorities matter. The session must
 * end before the reference does. */
void tls_attach(const struct tls *tls, struct gnutls_session_int *session);

/* Examines the certificate of a client, after the handshake. `before` is what that gave the last time (NULL: this is
 * the first time): it is the result again, with its names as and where they are, examined by the authorities that the
 * session has been given since. Never NULL. */
const struct tls_peer *tls_peer_examine(struct gnutls_session_int *session, const struct tls_peer *before);
void tls_peer_free(const struct tls_peer *peer);

/* The names in a certificate (DER): its DNS and URI alternative names; its common name only where it has no alternative
 * name of any kind. Those with other bytes than visible ASCII, and those for which there is no room, are left out.
 * False if it is no certificate. For tls_peer_examine() and its tests. */
bool tls_peer_read_names(const void *der, size_t len, struct tls_peer *peer) __attribute__((warn_unused_result));

#endif
