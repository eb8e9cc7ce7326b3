/* SPDX-License-Identifier: MIT */
/* TLS of one connection. See http_internal.h.
 *
 * libmicrohttpd does the handshake and the encryption with GnuTLS. But in epoll mode it treats a handshake that waits
 * for its client as ready, and tries again in each round. So the read function of GnuTLS is ours: it suspends the
 * connection if there is nothing to read.
 *
 * libmicrohttpd frees the session before it reports the end, so close_notify must be sent earlier: after the last
 * answer, and not at all to a client that sends rubbish after its handshake (the 0.9 series closes then at once). HTTP
 * itself marks the end of an answer; close_notify is a courtesy. Worker's thread. */
#include <assert.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http_internal.h"

enum {
	MESSAGE_MAX = 16 * 1024,         /* bytes of one message of the client's handshake */
	HANDSHAKE_MAX = 3 * MESSAGE_MAX, /* of all: two hellos and certificates */
	RECORD_HEAD = 5,
	RECORD_ALERT = 21,
	RECORD_DATA = 23,
	ALERT_13_MAX = 2 + 1 + 16 /* alert, type of content, tag */
};

/* ---- handshake ---- */

void tls_link_wake(struct connection *connection)
{
	if (!connection->link.waits)
		return;
	connection->link.waits = false;
	suspend_end(connection);
}

void tls_link_answer_plain(struct api *api, int fd, unsigned status, const char *detail)
{
	char text[1024];
	size_t len = api->config.service->write_raw(status, detail, "none", text, sizeof text);
	assert(fd >= 0);
	(void)!send(fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	http_metrics_request(api->config.metrics, HTTP_ROUTE_NONE, HTTP_OTHER, status);
}

/* Ends the handshake, with an alert: libmicrohttpd sends none. */
static void refuse(struct connection *connection, gnutls_alert_description_t alert, const char *reason)
{
	struct tls_link *link = &connection->link;
	assert(link->state != TLS_LINK_UP);
	if (link->refused)
		return;
	link->refused = reason;
	(void)gnutls_alert_send(link->session, GNUTLS_AL_FATAL, alert);
	connection->linger = true;
}

/* GnuTLS bounds only messages that are complete. */
static bool is_too_long(struct connection *connection, size_t got)
{
	struct tls_link *link = &connection->link;
	link->received += got;
	if (link->received <= HANDSHAKE_MAX)
		return false;
	refuse(connection, GNUTLS_A_DECODE_ERROR, "handshake over 48 KiB");
	return true;
}

/* gnutls_pull_func: within libmicrohttpd, which takes EAGAIN for "later" and would ask again at once. */
static ssize_t pull(gnutls_transport_ptr_t arg, void *bytes, size_t size)
{
	struct connection *connection = arg;
	struct tls_link *link = &connection->link;
	ssize_t got = recv(connection->fd, bytes, size, MSG_DONTWAIT);
	if (link->state == TLS_LINK_UP)
		return got;
	if (got > 0 && link->state == TLS_LINK_SILENT)
		link->state = TLS_LINK_HANDSHAKE;
	if (got > 0 && is_too_long(connection, (size_t)got)) {
		errno = ECONNABORTED;
		return -1;
	}
	if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
		return got;
	if (connection->api->context.ending) {
		errno = ECONNABORTED; /* nothing may be suspended any more */
		return -1;
	}
	link->waits = true;
	suspend_begin(connection, true, true);
	errno = EAGAIN;
	return -1;
}

/* gnutls_pull_timeout_func: GnuTLS wants it to fit `pull`. */
static int pull_timeout(gnutls_transport_ptr_t arg, unsigned ms)
{
	struct pollfd look = {.fd = ((const struct connection *)arg)->fd, .events = POLLIN};
	return poll(&look, 1, ms == GNUTLS_INDEFINITE_TIMEOUT ? -1 : (int)ms);
}

/* Called before GnuTLS reads a message of the client. NULL: no reason to refuse it. */
static const char *reason_to_refuse(gnutls_session_t session, unsigned type, size_t len)
{
	if (len > MESSAGE_MAX)
		return "message over 16 KiB";
	/* GnuTLS would decompress it, to 16 MiB, although it has not offered to. */
	if (type == GNUTLS_HANDSHAKE_COMPRESSED_CERTIFICATE_PKT)
		return "compressed certificate";
	return type == GNUTLS_HANDSHAKE_CERTIFICATE_VERIFY ? tls_bounds_examine_peer(session) : NULL;
}

/* gnutls_handshake_hook_func, before and after each message, ours and the client's: GnuTLS has only one such function.
 * After both messages "finished" the link is up: TLS 1.3 ends with the client's, TLS 1.2 with ours, unless it
 * resumes. */
static int on_tls_message(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
			  const gnutls_datum_t *message)
{
	struct connection *connection = gnutls_transport_get_ptr(session);
	struct tls_link *link = &connection->link;
	if (when == GNUTLS_HOOK_POST && type == GNUTLS_HANDSHAKE_FINISHED)
		link->state = link->state == TLS_LINK_HANDSHAKE ? TLS_LINK_HALF_FINISHED : TLS_LINK_UP;
	if (when != GNUTLS_HOOK_PRE || !incoming)
		return 0;
	const char *reason = reason_to_refuse(session, type, message->size);
	if (!reason)
		return 0;
	if (link->state != TLS_LINK_UP) /* a client may also send messages later, for new keys */
		refuse(connection,
		       type == GNUTLS_HANDSHAKE_CERTIFICATE_VERIFY ? GNUTLS_A_UNSUPPORTED_CERTIFICATE
								   : GNUTLS_A_DECODE_ERROR,
		       reason);
	return GNUTLS_E_HANDSHAKE_TOO_LARGE;
}

void tls_link_init(struct connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection->mhd,
								       MHD_CONNECTION_INFO_GNUTLS_SESSION);
	struct tls_link *link = &connection->link;
	*link = (struct tls_link){.session = NULL};
	if (!info)
		return;
	gnutls_session_t session = info->tls_session;
	assert(session && connection->api->tls);
	link->session = session;
	link->tls = tls_ref(connection->api->tls);
	gnutls_transport_set_ptr2(session, connection, (gnutls_transport_ptr_t)(intptr_t)connection->fd);
	gnutls_transport_set_pull_function(session, pull);
	gnutls_transport_set_pull_timeout_function(session, pull_timeout);
	gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_ANY, GNUTLS_HOOK_BOTH, on_tls_message);
	tls_attach(link->tls, session);
}

/* ---- without libmicrohttpd ---- */

void tls_link_bye(struct tls_link *link)
{
	if (link->session && link->state == TLS_LINK_UP)
		(void)gnutls_bye(link->session, GNUTLS_SHUT_WR);
}

void tls_link_answer(struct connection *connection, unsigned status, const char *detail, const char *request_id)
{
	struct tls_link *link = &connection->link;
	char text[1024];
	size_t len = connection->api->config.service->write_raw(status, detail, request_id, text, sizeof text);
	if (!link->tls)
		(void)!send(connection->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (link->session && link->state == TLS_LINK_UP)
		(void)gnutls_record_send(link->session, text, len);
	tls_link_bye(link);
	shutdown(connection->fd, SHUT_WR); /* nothing of the library comes after it */
	connection->linger = true;
}

bool tls_link_hears_bye(const struct connection *connection)
{
	const struct tls_link *link = &connection->link;
	unsigned char head[RECORD_HEAD];
	if (!link->session || recv(connection->fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT) != RECORD_HEAD)
		return false;
	if (head[0] == RECORD_ALERT)
		return true;
	/* TLS 1.3 hides the kind of a record, but not that it is too short for anything else. */
	return head[0] == RECORD_DATA && head[3] == 0 && head[4] <= ALERT_13_MAX &&
	       gnutls_protocol_get_version(link->session) == GNUTLS_TLS1_3;
}

static void count_failure(const struct connection *connection)
{
	assert(connection->link.state != TLS_LINK_UP);
	metrics_add(&connection->api->config.metrics->tls_handshakes_failed, 1);
	log_begin(LOG_DEBUG, "tls-handshake-failed");
	log_text("reason", connection->phase == CONNECTION_LATE ? "late" : connection->link.refused);
	log_end();
}

void tls_link_fini(struct connection *connection)
{
	struct tls_link *link = &connection->link;
	assert(!link->session); /* the library has freed it */
	if (!link->tls)
		return;
	if (link->state != TLS_LINK_UP && link->state != TLS_LINK_SILENT && !connection->api->stopping)
		count_failure(connection);
	free(link->peer);
	tls_unref(link->tls);
	*link = (struct tls_link){.session = NULL};
}

/* ---- the client's certificate ---- */

void tls_link_identify(struct connection *connection)
{
	struct tls_link *link = &connection->link;
	struct tls *tls = connection->api->tls;
	if (!link->session || !tls_asks(link->tls))
		return;
	assert(tls);
	bool same = tls_same_authorities(tls, link->tls);
	if (!same) {
		tls_attach(tls, link->session);
		tls_ref(tls);
		tls_unref(link->tls);
		link->tls = tls;
	}
	if (same && link->peer)
		return;
	if (!link->peer)
		link->peer = memory_zeroed(1, sizeof *link->peer);
	tls_peer_examine(link->session, link->peer);
}
