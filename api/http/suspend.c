/* SPDX-License-Identifier: MIT */
/* Suspended connections, and their clients that leave.
 *
 * libmicrohttpd does not look at suspended connections, so one epoll instance per api watches them. A client that has
 * closed only its side for writing counts as disconnected, too: it looks like one that has ended. So does a client that
 * has sent close_notify over TLS, unless an earlier request hides it. A client whose host has lost power or network
 * sends nothing, so the kernel probes it (TCP keepalive).
 *
 * One-shot: an event is acted upon once. An event of one batch cannot name a connection that is freed meanwhile: events
 * only resume connections, and the library frees them in its next run. Worker's thread. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "http_internal.h"

/* EPOLLHUP and EPOLLERR are always reported. */
static int suspend_control(struct connection *connection, int operation, uint32_t events)
{
	struct epoll_event event = {.events = events | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = connection};
	return epoll_ctl(connection->api->disconnect_fd, operation, connection->fd, &event);
}

void suspend_probe(struct connection *connection, unsigned vanished_ms)
{
	const int on = vanished_ms > 0, idle_s = 2, interval_s = 1;
	if (connection->mhd_daemon->kind == DAEMON_UNIX || connection->vanished_ms == vanished_ms)
		return;
	connection->vanished_ms = vanished_ms;
	/* A failure only costs the detection. The timeout replaces a number of probes. It also applies to
	 * unacknowledged bytes, during which there are no probes. */
	setsockopt(connection->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanished_ms, sizeof vanished_ms);
	setsockopt(connection->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	if (!on)
		return;
	setsockopt(connection->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(connection->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
}

void suspend_begin(struct connection *connection, bool watch, bool input)
{
	assert(!connection->watched);
	MHD_suspend_connection(connection->mhd);
	if (!watch)
		return;
	if (connection->vanished_ms == 0)
		suspend_probe(connection, REPLY_VANISHED_MS);
	connection->watched = suspend_control(connection, EPOLL_CTL_ADD, input ? EPOLLIN : 0) == 0;
	if (connection->watched || !log_allows("client-not-watched", 0))
		return;
	log_begin(LOG_WARN, "client-not-watched");
	log_text("id", connection->request.id);
	log_text("reason", strerror(errno));
	log_end();
}

void suspend_watch_end(struct connection *connection)
{
	assert(connection->watched);
	int failed = suspend_control(connection, EPOLL_CTL_MOD, 0);
	assert(!failed); /* it was watched a moment ago */
}

void suspend_end(struct connection *connection)
{
	if (connection->watched) {
		int failed = suspend_control(connection, EPOLL_CTL_DEL, 0);
		assert(!failed); /* else the descriptor was closed, and another connection may have its number */
	}
	connection->watched = false;
	MHD_resume_connection(connection->mhd);
	connection->mhd_daemon->runnable = true;
}
