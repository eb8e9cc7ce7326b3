/* SPDX-License-Identifier: MIT */
/* Connections: phases with absolute deadlines, and three ways to end. See http_internal.h.
 *
 * libmicrohttpd's own timeout counts inactivity, so that one byte every ten seconds would keep a connection for ever.
 * Here each connection is in the list of its phase, oldest first; a check looks at the heads only. A late connection is
 * shut down; libmicrohttpd learns that from epoll and closes it later. Worker's thread. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <unistd.h>

#include "http_internal.h"

enum { TCP_STATE_CLOSE = 7 };    /* of the kernel; <linux/tcp.h> has no name for it */
enum { LOOK_AGAIN_S = 1000000 }; /* not the timeout of a daemon, and too long to matter */

/* Each look discards at most 1 MiB of a socket's input, so that it does not delay the loop. */
enum { LINGER_US = 1000000, LINGER_POLL_US = 20000, LINGER_READS = 16, LINGER_READ_BYTES = 65536 };

static uint64_t phase_limit_us(const struct api *api, enum connection_phase phase)
{
	assert(phase < CONNECTION_PHASE_COUNT);
	switch (phase) {
	case CONNECTION_RECEIVING:
	case CONNECTION_ANSWERING: return (uint64_t)api->config.options->request_timeout_ms * 1000;
	case CONNECTION_IDLE: return (uint64_t)api->config.options->idle_timeout_ms * 1000;
	default: return 0;
	}
}

/* The phases that may come before a phase; none comes after ENDING and LATE. */
static const unsigned phases_before[CONNECTION_PHASE_COUNT] = {
	[CONNECTION_RECEIVING] = 1u << CONNECTION_IDLE,    [CONNECTION_WORKING] = ~(1u << CONNECTION_IDLE),
	[CONNECTION_ANSWERING] = ~(1u << CONNECTION_IDLE), [CONNECTION_IDLE] = ~(1u << CONNECTION_IDLE),
	[CONNECTION_ENDING] = ~(1u << CONNECTION_WORKING), [CONNECTION_LATE] = ~(1u << CONNECTION_WORKING),
};

void connection_enter(struct connection *connection, enum connection_phase phase)
{
	uint64_t limit_us = phase_limit_us(connection->api, phase);
	if (connection_is_ending(connection))
		return; /* no phase follows these */
	assert((phases_before[phase] & 1u << connection->phase) != 0);
	assert(!connection->watched);
	connection->deadline_us = limit_us > 0 ? clock_now_us() + limit_us : UINT64_MAX;
	TAILQ_REMOVE(&connection->api->lists[connection->phase], connection, entry);
	connection->phase = phase;
	TAILQ_INSERT_TAIL(&connection->api->lists[phase], connection, entry);
}

void connection_suspend(struct connection *connection, bool watch)
{
	connection_enter(connection, CONNECTION_WORKING);
	suspend_begin(connection, watch, connection->link.tls); /* over TLS the client's close_notify is input */
}

/* The reach of a socket, by its own address. */
static enum http_reach reach_of(int fd)
{
	struct sockaddr_storage address = {0};
	socklen_t len = sizeof address;
	if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
		return HTTP_REACH_NETWORK;
	if (address.ss_family == AF_UNIX)
		return HTTP_REACH_UNIX;
	return loopback_is_address((struct sockaddr *)&address) ? HTTP_REACH_LOOPBACK : HTTP_REACH_NETWORK;
}

struct connection *connection_new(struct mhd_daemon *mhd_daemon, struct MHD_Connection *mhd,
				  const struct arrival *arrival)
{
	struct api *api = mhd_daemon->api;
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct connection *connection = memory_alloc(sizeof *connection + api->config.service->call_size);
	assert(info);
	*connection = (struct connection){
		.api = api,
		.mhd = mhd,
		.mhd_daemon = mhd_daemon,
		.fd = info->connect_fd,
		.phase = CONNECTION_RECEIVING,
		.deadline_us = clock_now_us() + phase_limit_us(api, CONNECTION_RECEIVING),
		.reach = reach_of(info->connect_fd),
		.peer = arrival->peer,
		.requests = arrival->requests,
		.read = arrival->read,
		.request = {.connection = connection, .call = connection->call},
	};
	mhd_daemon->connections++;
	tls_link_init(connection);
	TAILQ_INSERT_TAIL(&api->lists[CONNECTION_RECEIVING], connection, entry);
	api->connections++;
	if (api->connections > api->connections_peak)
		api->connections_peak = api->connections;
	api_count_connections(api);
	return connection;
}

bool connection_is_spent(const struct connection *connection)
{
	uint32_t max = connection->api->config.options->max_requests_per_connection;
	return max > 0 && connection->requests >= max;
}

bool connection_is_disconnected(const struct connection *connection)
{
	struct pollfd look = {.fd = connection->fd, .events = POLLRDHUP};
	/* An unread close_notify may precede the end. */
	return tls_link_hears_bye(connection) ||
	       (poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
}

bool connection_has_vanished(const struct connection *connection)
{
	struct tcp_info info = {.tcpi_state = 0};
	socklen_t len = sizeof info;
	/* The error of the socket would show it, too, but it may have been read already. */
	return getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       info.tcpi_state == TCP_STATE_CLOSE && (info.tcpi_probes > 0 || info.tcpi_retransmits > 0);
}

/* Discards the input; TCP does not even copy it. True while the socket is worth keeping. */
static bool linger_on(const struct lingering *lingering, uint64_t now_us)
{
	char waste[LINGER_READ_BYTES];
	ssize_t got = 1;
	if (lingering->until_us <= now_us)
		return false;
	for (int i = 0; i < LINGER_READS && got > 0; i++)
		got = recv(lingering->fd, waste, sizeof waste, MSG_DONTWAIT | MSG_TRUNC);
	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

void connection_sweep_lingering(struct api *api, uint64_t now_us, bool all)
{
	if (!all && now_us < api->lingering_look_us)
		return;
	api->lingering_look_us = now_us + LINGER_POLL_US;
	for (size_t i = api->lingering_count; i-- > 0;) {
		if (!all && linger_on(&api->lingering[i], now_us))
			continue;
		close(api->lingering[i].fd);
		api->lingering[i] = api->lingering[--api->lingering_count];
	}
}

/* Keeps the socket for a moment after its last answer. Takes it over. */
static void linger(struct api *api, int fd)
{
	uint64_t now_us = clock_now_us();
	struct lingering lingering = {fd, now_us + LINGER_US};
	assert(api->lingering_count <= LINGER_MAX);
	if (fd < 0)
		return;
	shutdown(fd, SHUT_WR);
	if (api->lingering_count == LINGER_MAX) { /* many of their clients may have closed */
		api->lingering_look_us = now_us;
		connection_sweep_lingering(api, now_us, false);
	}
	if (!linger_on(&lingering, now_us) || api->lingering_count == LINGER_MAX) {
		close(fd);
		return;
	}
	if (api->lingering_count == 0)
		api->lingering_look_us = now_us + LINGER_POLL_US;
	api->lingering[api->lingering_count++] = lingering;
}

/* ---- parked connections ---- */

unsigned connection_park_after_s(const struct api *api)
{
	const struct options *options = api->config.options;
	unsigned after_s = (options->request_timeout_ms + 999) / 1000 + 1;
	return after_s < options->idle_timeout_ms / 1000 ? after_s : 0;
}

/* True if libmicrohttpd has given the connection back without having read a part of a next request, which would be
 * lost: all bytes that the kernel has handed out belonged to requests that have ended. */
static bool connection_may_park(const struct connection *connection)
{
	const struct api *api = connection->api;
	uint64_t now_us = clock_now_us(), idle_us = phase_limit_us(api, CONNECTION_IDLE);
	struct tcp_info info = {.tcpi_state = 0};
	socklen_t len = sizeof info;
	int before = 0, unread = 0;
	if (connection->phase != CONNECTION_IDLE || connection->mhd_daemon->kind != DAEMON_TCP || connection->linger ||
	    now_us >= connection->deadline_us || api->context.draining || api->stopping)
		return false;
	/* the library counts from a few ms earlier, in whole seconds plus one */
	if (connection_park_after_s(api) == 0 ||
	    now_us + idle_us < connection->deadline_us + phase_limit_us(api, CONNECTION_RECEIVING))
		return false;
	/* Nobody reads meanwhile, but data can arrive in between, and both numbers must be of one moment. */
	do {
		if (ioctl(connection->fd, SIOCINQ, &before) != 0 ||
		    getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
		    ioctl(connection->fd, SIOCINQ, &unread) != 0)
			return false;
	} while (unread != before);
	return info.tcpi_bytes_received - (unsigned)unread == connection->read;
}

/* Keeps a duplicate of the socket, which libmicrohttpd is about to close. False: the connection ends. */
static bool connection_park(struct connection *connection)
{
	struct arrival arrival = {.fd = fcntl(connection->fd, F_DUPFD_CLOEXEC, 0),
				  .kind = DAEMON_TCP,
				  .peer = connection->peer,
				  .until_us = connection->deadline_us,
				  .requests = connection->requests,
				  .read = connection->read,
				  .address_len = sizeof arrival.address};
	if (arrival.fd < 0)
		return false;
	if (getpeername(arrival.fd, (struct sockaddr *)&arrival.address, &arrival.address_len) == 0 &&
	    deferred_begin(connection->api, &arrival))
		return true;
	close(arrival.fd);
	return false;
}

void connection_free(struct connection *connection)
{
	struct api *api = connection->api;
	assert(api->connections > 0 && connection->mhd_daemon->connections > 0);
	assert(connection->request.state == REQUEST_NONE && !connection->watched);
	bool rejected = connection->requests == 0 && !connection_is_ending(connection) &&
			!connection_is_disconnected(connection);
	/* The library has rejected its first line, perhaps with an answer. */
	connection->linger = connection->linger || rejected;
	tls_link_fini(connection);
	if (connection->linger && !api->stopping)
		linger(api, fcntl(connection->fd, F_DUPFD_CLOEXEC, 0));
	TAILQ_REMOVE(&api->lists[connection->phase], connection, entry);
	connection->mhd_daemon->connections--;
	if (!connection_may_park(connection) || !connection_park(connection))
		peer_leave(connection->peer, clock_now_us());
	free(connection);
	api->connections--;
	api_count_connections(api);
}

void connection_look_again(struct connection *connection)
{
	assert(connection->phase != CONNECTION_WORKING);
	MHD_set_connection_option(connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, LOOK_AGAIN_S);
	connection->mhd_daemon->runnable = true;
}

/* Shuts the connection down in any phase except WORKING; libmicrohttpd then ends it. */
static void connection_end(struct connection *connection, enum connection_phase phase)
{
	assert(phase >= CONNECTION_ENDING);
	tls_link_wake(connection);
	if (connection->request.state == REQUEST_NONE)
		tls_link_bye(&connection->link);
	connection_enter(connection, phase);
	shutdown(connection->fd, SHUT_RDWR);
	connection_look_again(connection);
}

static void end_overdue(struct api *api, enum connection_phase phase, enum http_counter timeout, uint64_t now_us)
{
	struct connection *connection;
	while ((connection = TAILQ_FIRST(&api->lists[phase])) != NULL && connection->deadline_us <= now_us) {
		metrics_add(&api->config.metrics->http_counters[timeout], 1);
		connection_end(connection, CONNECTION_LATE);
	}
}

void connection_check_deadlines(struct api *api, uint64_t now_us)
{
	end_overdue(api, CONNECTION_RECEIVING, HTTP_TIMEOUT_REQUEST, now_us);
	end_overdue(api, CONNECTION_ANSWERING, HTTP_TIMEOUT_ANSWER, now_us);
	end_overdue(api, CONNECTION_IDLE, HTTP_TIMEOUT_IDLE, now_us);
}

void connection_end_idle(struct api *api)
{
	struct connection *connection, *next;
	char byte;
	for (connection = TAILQ_FIRST(&api->lists[CONNECTION_IDLE]); connection; connection = next) {
		next = TAILQ_NEXT(connection, entry);
		/* A request that has arrived and waits to be read is still answered. */
		if (recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
			connection_end(connection, CONNECTION_ENDING);
	}
}

uint64_t connection_next_deadline_us(const struct api *api)
{
	uint64_t next_us = UINT64_MAX;
	for (enum connection_phase phase = 0; phase < CONNECTION_PHASE_COUNT; phase++) {
		const struct connection *head = TAILQ_FIRST(&api->lists[phase]);
		if (head && head->deadline_us < next_us)
			next_us = head->deadline_us;
	}
	if (api->lingering_count > 0 && api->lingering_look_us < next_us)
		next_us = api->lingering_look_us;
	return next_us;
}

void connection_reject(struct api *api, int fd, bool tls, enum http_counter why)
{
	const char *detail =
		why == HTTP_REFUSED_ADDRESS
			? "Too many connections are open from this address (--max-connections-per-address). Close some."
			: "Too many connections are open (--max-connections). Try again after Retry-After.";
	metrics_add(&api->config.metrics->http_counters[why], 1);
	if (tls) {
		close(fd); /* a handshake only to reject the client would cost too much */
		return;
	}
	tls_link_answer_plain(api, fd, 429, detail);
	linger(api, fd);
}

void connection_reject_line(struct api *api, int fd, enum first_line line)
{
	unsigned status = 400;
	const char *detail = "The request line is malformed. Send HTTP/1.1, and without TLS to this port.";
	assert(line > FIRST_LINE_GOOD);
	if (line == FIRST_LINE_TOO_LONG) {
		status = 414;
		detail = "The URL is longer than 2048 bytes. Send a shorter one.";
	} else if (line == FIRST_LINE_OTHER_VERSION) {
		status = 505;
		detail = "This version of HTTP is not supported. Send HTTP/1.1.";
	}
	tls_link_answer_plain(api, fd, status, detail);
	linger(api, fd);
}
