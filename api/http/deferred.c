/* SPDX-License-Identifier: MIT */
/* Deferred connections: accepted without a complete first line so far, or idle for long. See http_internal.h.
 *
 * libmicrohttpd allocates memory for the headers of each connection that is added. So a connection is added when its
 * first line (first_line.c; over TLS the first bytes) or its end has arrived. TCP_DEFER_ACCEPT is no replacement: such
 * connections do not count in the limits and metrics, and Unix sockets do not have it. Worker's thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_internal.h"

struct deferred {
	TAILQ_ENTRY(deferred) entry;
	struct arrival arrival;
};

bool deferred_init(struct api *api)
{
	struct epoll_event watch = {.events = EPOLLIN, .data.ptr = NULL}; /* no daemon's */
	TAILQ_INIT(&api->silent);
	TAILQ_INIT(&api->parked);
	api->deferred_fd = epoll_create1(EPOLL_CLOEXEC);
	if (api->deferred_fd < 0)
		return false;
	if (epoll_ctl(api->daemon_pool.epoll_fd, EPOLL_CTL_ADD, api->deferred_fd, &watch) == 0)
		return true;
	close(api->deferred_fd);
	return false;
}

static struct deferred_list *list_of(struct api *api, const struct arrival *arrival)
{
	return arrival->requests > 0 ? &api->parked : &api->silent;
}

/* The socket is closed already, or belongs to the caller. */
static void deferred_free(struct api *api, struct deferred *deferred)
{
	assert(api->deferred_count > 0);
	TAILQ_REMOVE(list_of(api, &deferred->arrival), deferred, entry);
	api->deferred_count--;
	api_count_connections(api);
	free(deferred);
}

static void deferred_end(struct api *api, struct deferred *deferred)
{
	close(deferred->arrival.fd);
	peer_leave(deferred->arrival.peer, clock_now_us());
	deferred_free(api, deferred);
}

bool deferred_begin(struct api *api, const struct arrival *arrival)
{
	struct deferred *deferred = memory_alloc(sizeof *deferred);
	/* a first line may come in many pieces; each is an event */
	uint32_t often = arrival->requests > 0 ? EPOLLONESHOT : EPOLLET;
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | often, .data.ptr = deferred};
	*deferred = (struct deferred){.arrival = *arrival};
	if (epoll_ctl(api->deferred_fd, EPOLL_CTL_ADD, arrival->fd, &event) != 0) {
		free(deferred);
		return false;
	}
	TAILQ_INSERT_TAIL(list_of(api, arrival), deferred, entry);
	api->deferred_count++;
	api_count_connections(api);
	return true;
}

/* Removes the connection; its socket belongs to the caller. */
static void deferred_take(struct api *api, struct deferred *deferred, struct arrival *ret_arrival)
{
	*ret_arrival = deferred->arrival;
	int failed = epoll_ctl(api->deferred_fd, EPOLL_CTL_DEL, ret_arrival->fd, NULL);
	assert(!failed);
	deferred_free(api, deferred);
}

/* False: the connection is still deferred. */
static bool deferred_is_ready(struct deferred *deferred, bool ended)
{
	enum first_line line = first_line_look(&deferred->arrival);
	if (line < FIRST_LINE_GOOD && !ended)
		return false;
	deferred->arrival.line = MAX(line, FIRST_LINE_GOOD);
	return true;
}

static void deferred_end_overdue(struct api *api, struct deferred_list *list, enum http_counter timeout,
				 uint64_t now_us)
{
	struct deferred *deferred;
	while ((deferred = TAILQ_FIRST(list)) != NULL && deferred->arrival.until_us <= now_us) {
		metrics_add(&api->config.metrics->http_counters[timeout], 1);
		deferred_end(api, deferred);
	}
}

void deferred_poll(struct api *api, struct deferred_events *ret_events)
{
	ret_events->at = 0;
	ret_events->count = api->deferred_count > 0
				    ? epoll_wait(api->deferred_fd, ret_events->list, DEFERRED_EVENTS_MAX, 0)
				    : 0;
}

bool deferred_take_ready(struct api *api, struct deferred_events *events, struct arrival *ret_arrival)
{
	while (events->at < events->count) {
		const struct epoll_event *event = &events->list[events->at++];
		bool ended = (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
		if (!deferred_is_ready(event->data.ptr, ended))
			continue;
		deferred_take(api, event->data.ptr, ret_arrival);
		return true;
	}
	return false;
}

void deferred_end_late(struct api *api, uint64_t now_us)
{
	deferred_end_overdue(api, &api->silent, HTTP_TIMEOUT_REQUEST, now_us);
	deferred_end_overdue(api, &api->parked, HTTP_TIMEOUT_IDLE, now_us);
}

uint64_t deferred_next_deadline_us(const struct api *api)
{
	const struct deferred *silent = TAILQ_FIRST(&api->silent), *parked = TAILQ_FIRST(&api->parked);
	return MIN(silent ? silent->arrival.until_us : UINT64_MAX, parked ? parked->arrival.until_us : UINT64_MAX);
}

bool deferred_end_parked(struct api *api, struct arrival *ret_arrival)
{
	struct deferred *deferred;
	char byte;
	while ((deferred = TAILQ_FIRST(&api->parked)) != NULL) {
		if (recv(deferred->arrival.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
			deferred->arrival.line = FIRST_LINE_GOOD;
			deferred_take(api, deferred, ret_arrival);
			return true;
		}
		deferred_end(api, deferred);
	}
	return false;
}

void deferred_end_all(struct api *api)
{
	struct deferred *deferred;
	while ((deferred = TAILQ_FIRST(&api->silent)) != NULL || (deferred = TAILQ_FIRST(&api->parked)) != NULL)
		deferred_end(api, deferred);
	close(api->deferred_fd);
}
