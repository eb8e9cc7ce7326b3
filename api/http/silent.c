/* Connections that have not spoken. See http_internal.h.
 *
 * libmicrohttpd gives each connection memory for its headers as soon as it has it. So it gets one with its first bytes,
 * or its end; until then a connection costs little. Worker's thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_internal.h"

enum { SPEAKERS_MAX = 64 /* in one call: the others are ready in the next one, too */ };

struct silent {
	TAILQ_ENTRY(silent) entry;
	uint64_t deadline_us;
	struct arrival arrival;
};

bool silent_init(struct api *api)
{
	struct epoll_event watch = {.events = EPOLLIN, .data.ptr = NULL}; /* no daemon's */
	TAILQ_INIT(&api->silents);
	api->silent_fd = epoll_create1(EPOLL_CLOEXEC);
	if (api->silent_fd < 0)
		return false;
	if (epoll_ctl(api->daemon_pool.epoll_fd, EPOLL_CTL_ADD, api->silent_fd, &watch) == 0)
		return true;
	close(api->silent_fd);
	return false;
}

/* It is in no list and not watched any more; its socket is another's. */
static void silent_free(struct api *api, struct silent *silent)
{
	assert(api->silent_count > 0);
	TAILQ_REMOVE(&api->silents, silent, entry);
	api->silent_count--;
	api_count_connections(api);
	free(silent);
}

static void silent_end(struct api *api, struct silent *silent)
{
	close(silent->arrival.fd);
	peer_leave(silent->arrival.peer, clock_now_us());
	silent_free(api, silent);
}

bool silent_begin(struct api *api, const struct arrival *arrival)
{
	char byte;
	if (recv(arrival->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
		return false; /* it has spoken, or has ended */
	struct silent *silent = memory_alloc(sizeof *silent);
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.ptr = silent};
	*silent = (struct silent){
		.arrival = *arrival,
		.deadline_us = clock_now_us() + (uint64_t)api->config.options->request_timeout_ms * 1000,
	};
	if (epoll_ctl(api->silent_fd, EPOLL_CTL_ADD, arrival->fd, &event) != 0) {
		free(silent);
		return false;
	}
	TAILQ_INSERT_TAIL(&api->silents, silent, entry);
	api->silent_count++;
	api_count_connections(api);
	return true;
}

void silent_check(struct api *api, uint64_t now_us, silent_speaks_fn *speaks)
{
	struct epoll_event events[SPEAKERS_MAX];
	struct silent *silent;
	int count = api->silent_count > 0 ? epoll_wait(api->silent_fd, events, SPEAKERS_MAX, 0) : 0;
	for (int i = 0; i < count; i++) {
		silent = events[i].data.ptr;
		struct arrival arrival = silent->arrival;
		int failed = epoll_ctl(api->silent_fd, EPOLL_CTL_DEL, arrival.fd, NULL);
		assert(!failed);
		silent_free(api, silent);
		speaks(api, &arrival);
	}
	while ((silent = TAILQ_FIRST(&api->silents)) != NULL && silent->deadline_us <= now_us) {
		metrics_add(&api->config.metrics->http_counters[HTTP_TIMEOUT_REQUEST], 1);
		silent_end(api, silent);
	}
}

uint64_t silent_next_deadline_us(const struct api *api)
{
	const struct silent *oldest = TAILQ_FIRST(&api->silents);
	return oldest ? oldest->deadline_us : UINT64_MAX;
}

void silent_end_all(struct api *api)
{
	struct silent *silent;
	while ((silent = TAILQ_FIRST(&api->silents)) != NULL)
		silent_end(api, silent);
	close(api->silent_fd);
}
