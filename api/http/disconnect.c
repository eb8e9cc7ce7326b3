/* Clients that leave while their connection is suspended. See gone.h.
 *
 * One-shot: an event is acted upon once, and until the connection is taken out the same news must not come again.
 * Events of one batch cannot name a connection that is freed meanwhile: request_leave() only resumes it, and it is
 * freed in the next run of the library. */
#include "disconnect.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "http_internal.h"
#include "server/base/base.h"

enum { EVENTS_MAX = 64 }; /* in one call: where thousands leave at once, the masters' answers must be read in between */

bool gone_init(struct api *api)
{
	api->gone_fd = epoll_create1(EPOLL_CLOEXEC);
	return api->gone_fd >= 0;
}

void gone_fini(struct api *api)
{
	close(api->gone_fd);
	api->gone_fd = -1;
}

/* EPOLLHUP and EPOLLERR are always reported. */
static void watch(struct connection *connection, uint32_t events)
{
	struct epoll_event event = {.events = events | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = connection};

	assert(!connection->watched);
	connection->watched = epoll_ctl(connection->api->gone_fd, EPOLL_CTL_ADD, connection->fd, &event) == 0;
	if (connection->watched)
		return;
	log_begin(LOG_WARN, "client-not-watched");
	log_text("id", connection->request.id);
	log_text("reason", strerror(errno));
	log_end();
}

void gone_watch(struct connection *connection)
{
	assert(connection->phase == CONNECTION_WORKING);
	watch(connection, connection->link.tls != NULL ? EPOLLIN : 0);
}

void gone_watch_input(struct connection *connection)
{
	assert(connection->link.waits);
	watch(connection, EPOLLIN);
}

void gone_unwatch(struct connection *connection)
{
	if (!connection->watched)
		return;
	connection->watched = false;
	if (epoll_ctl(connection->api->gone_fd, EPOLL_CTL_DEL, connection->fd, NULL) != 0)
		assert(false); /* the descriptor was closed behind our back: another connection's may have its number */
}

/* True if the client has left; a next request that came over TLS is no goodbye, and is not looked at again. */
static bool has_left(struct connection *connection, uint32_t events)
{
	struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = connection};

	if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 || tls_link_hears_bye(connection))
		return true;
	if (epoll_ctl(connection->api->gone_fd, EPOLL_CTL_MOD, connection->fd, &event) != 0)
		assert(false); /* it was watched a moment ago */
	return false;
}

void gone_check(struct api *api)
{
	struct epoll_event events[EVENTS_MAX];
	int count = epoll_wait(api->gone_fd, events, EVENTS_MAX, 0);

	for (int i = 0; i < count; i++) {
		struct connection *connection = events[i].data.ptr;
		assert(connection->watched);
		if (connection->link.waits)
			tls_link_wake(connection);
		else if (has_left(connection, events[i].events))
			request_leave(&connection->request);
	}
}
