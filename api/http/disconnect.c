/* Notices that the client of a suspended connection has left.
 *
 * libmicrohttpd does not look at suspended connections. A client that leaves while it waits for a lock, or while it
 * holds one by its connection, would be noticed only with the next byte that is written to it. So one epoll instance
 * per api watches such descriptors, besides the library's own. A client that has closed only its side for writing
 * counts as disconnected, too: nothing tells it from one that ended. So does one that has sent close_notify over TLS.
 * What it sent before (a next request) does not hide the end, but it hides the close_notify.
 *
 * A connection is watched until it goes on in any way: connection_enter() and connection_free() stop it, so that no
 * descriptor is still watched when the library closes it.
 *
 * One-shot: an event is acted upon once, and must not come again before the connection is taken out. An event of one
 * batch cannot name a connection that is freed meanwhile: reports only resume connections, and the library frees them
 * in its next run. Worker's thread. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "http_internal.h"
#include "server/base/base.h"

/* EPOLLHUP and EPOLLERR are always reported. */
static int disconnect_control(struct connection *connection, int operation, bool input)
{
	struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = connection};

	if (input)
		event.events |= EPOLLIN;
	return epoll_ctl(connection->api->disconnect_fd, operation, connection->fd, &event);
}

void disconnect_watch(struct connection *connection, bool input)
{
	assert(!connection->watched);
	connection->watched = disconnect_control(connection, EPOLL_CTL_ADD, input) == 0;
	if (connection->watched)
		return;
	log_begin(LOG_WARN, "client-not-watched");
	log_text("id", connection->request.id);
	log_text("reason", strerror(errno));
	log_end();
}

void disconnect_unwatch(struct connection *connection)
{
	if (!connection->watched)
		return;
	connection->watched = false;
	int failed = disconnect_control(connection, EPOLL_CTL_DEL, false);
	assert(!failed); /* else the descriptor was closed meanwhile: another connection may have its number */
}

void disconnect_watch_end(struct connection *connection)
{
	assert(connection->watched);
	int failed = disconnect_control(connection, EPOLL_CTL_MOD, false);
	assert(!failed); /* it was watched a moment ago */
}
