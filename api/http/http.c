/* SPDX-License-Identifier: MIT */
/* The HTTP side of one worker: new connections, the run loop and the end. See http.h.
 *
 * A daemon has no thread, no listening socket and no timeouts of its own; api_run() runs it. Plain HTTP and TLS have
 * daemons of their own, because libmicrohttpd allows only one of the two in each. Many connections get more daemons
 * (daemon_pool.c).
 *
 * MHD_USE_TURBO keeps the library from shutting a socket down before it reports the end, so that a last answer can
 * still be sent. With it, the library also reads a new connection at once instead of asking epoll first. */
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <unistd.h>

#include "http_internal.h"

enum {
	FLOOD_CONNECTIONS = 1000,
	TRIM_AFTER_US = 500000,
	LAST_ANSWERS_US = 200000,
	DISCONNECTS_MAX = 64 /* in one call: if thousands leave at once, the masters' answers are read in between */
};

struct api *api_new(const struct api_config *config)
{
	struct api *api = memory_zeroed(1, sizeof *api);
	assert(config->service && config->max_connections > 0);
	assert(config->options->request_timeout_ms > 0 && config->options->idle_timeout_ms > 0);
	api->config = *config;
	api->context.config = &api->config;
	api->context.state = memory_zeroed(1, config->service->state_size);
	api->service_us = UINT64_MAX;
	for (enum connection_phase phase = 0; phase < CONNECTION_PHASE_COUNT; phase++)
		TAILQ_INIT(&api->lists[phase]);
	metrics_set(&config->metrics->http_connections_limit, config->max_connections);
	api->tls = config->tls ? tls_ref(config->tls) : NULL;
	api->disconnect_fd = epoll_create1(EPOLL_CLOEXEC);
	if (api->disconnect_fd >= 0 && daemon_pool_init(api, config->tls) && deferred_init(api))
		return api;
	free(api->context.state); /* the program ends */
	free(api);
	return NULL;
}

/* The phases with a request. Answering connections come first, because a stream that is woken becomes one of them. */
static const enum connection_phase busy_phases[] = {CONNECTION_ANSWERING, CONNECTION_WORKING, CONNECTION_RECEIVING};
enum { BUSY_PHASES = sizeof busy_phases / sizeof *busy_phases };

static void review_requests(struct api *api)
{
	struct connection *connection, *next;
	for (size_t i = 0; i < BUSY_PHASES; i++)
		for (connection = TAILQ_FIRST(&api->lists[busy_phases[i]]); connection; connection = next) {
			next = TAILQ_NEXT(connection, entry);
			if (connection->request.state != REQUEST_NONE)
				api->config.service->review(&connection->request);
		}
}

void api_set_keys(struct api *api, struct keys *keys)
{
	struct keys *before = api->context.keys;
	assert(!api->context.ending);
	api->context.keys = keys ? keys_ref(keys) : NULL;
	if (before)
		review_requests(api);
	keys_unref(before);
}

void api_set_tls(struct api *api, struct tls *tls)
{
	struct tls *before = api->tls;
	assert(before && tls); /* --tls-cert is there from the start or never */
	api->tls = tls_ref(tls);
	if (tls_asks(tls) && !tls_same_authorities(tls, before))
		review_requests(api);
	tls_unref(before);
}

int api_fd(const struct api *api)
{
	return api->daemon_pool.epoll_fd;
}

int api_disconnect_fd(const struct api *api)
{
	return api->disconnect_fd;
}

void api_check_disconnects(struct api *api)
{
	struct epoll_event events[DISCONNECTS_MAX];
	int count = epoll_wait(api->disconnect_fd, events, DISCONNECTS_MAX, 0);
	for (int i = 0; i < count; i++) {
		struct connection *connection = events[i].data.ptr;
		if (!connection->watched)
			continue; /* resumed by an event before this one */
		if (connection->link.waits)
			tls_link_wake(connection);
		else if ((events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0 || tls_link_hears_bye(connection))
			api->config.service->leave(&connection->request);
		else /* a next request over TLS is no close_notify, and is read later */
			suspend_watch_end(connection);
	}
}

/* Adds a connection to libmicrohttpd, unless its first line is rejected. Owns its socket. */
static void start_connection(struct api *api, const struct arrival *arrival)
{
	assert(arrival->line >= FIRST_LINE_GOOD);
	if (arrival->line != FIRST_LINE_GOOD) {
		connection_reject_line(api, arrival->fd, arrival->line);
		peer_leave(arrival->peer, clock_now_us());
		return;
	}
	struct mhd_daemon *mhd_daemon = daemon_pool_choose(api, arrival->kind);
	assert((mhd_daemon->kind == DAEMON_TLS) == (arrival->kind == DAEMON_TLS) && !api->arriving);
	mhd_daemon->runnable = true;
	api->arriving = arrival;
	bool added = MHD_add_connection(mhd_daemon->daemon, arrival->fd, (const struct sockaddr *)&arrival->address,
					arrival->address_len) == MHD_YES;
	if (added && api->arriving)
		MHD_run(mhd_daemon->daemon); /* the 1.0 series starts the connection here */
	if (!api->arriving)
		return;
	/* The library has closed the socket. */
	api->arriving = NULL;
	peer_leave(arrival->peer, clock_now_us());
	metrics_add(&api->config.metrics->http_counters[HTTP_REFUSED_ERROR], 1);
	if (!log_allows("connection-refused", 0))
		return;
	log_begin(LOG_WARN, "connection-refused");
	log_text("reason", strerror(errno));
	log_end();
}

void api_accept(struct api *api, int fd, const struct sockaddr *address, socklen_t address_len, bool tls)
{
	const struct options *options = api->config.options;
	struct arrival arrival = {.fd = fd,
				  .kind = tls                             ? DAEMON_TLS
					  : address->sa_family == AF_UNIX ? DAEMON_UNIX
									  : DAEMON_TCP,
				  .until_us = clock_now_us() + (uint64_t)options->request_timeout_ms * 1000,
				  .address_len = address_len};
	assert((!tls || api->tls) && address_len <= sizeof arrival.address);
	if (api->connections + api->deferred_count >= api->config.max_connections) {
		connection_reject(api, fd, tls, HTTP_REFUSED_ALL);
		return;
	}
	if (!peer_arrive(address, address_len, api->config.options->max_connections_per_address, clock_now_us(),
			 &arrival.peer)) {
		connection_reject(api, fd, tls, HTTP_REFUSED_ADDRESS);
		return;
	}
	memcpy(&arrival.address, address, address_len);
	arrival.line = first_line_look(&arrival);
	if (arrival.line <= FIRST_LINE_PARTIAL && deferred_begin(api, &arrival))
		return;
	arrival.line = MAX(arrival.line, FIRST_LINE_GOOD);
	start_connection(api, &arrival);
}

/* Gives memory back to the kernel after a flood of connections. The allocator alone would keep it, and more with every
 * flood, because of fragmentation. This takes some ms, so it is done only after many connections, when nearly all have
 * ended, and some time later: the library frees them after it has reported their end. */
static void give_memory_back(struct api *api, uint64_t now_us)
{
	if (api->connections_peak < FLOOD_CONNECTIONS || api->connections > api->connections_peak / 8) {
		api->trim_us = 0;
	} else if (api->trim_us == 0) {
		api->trim_us = now_us + TRIM_AFTER_US;
	} else if (now_us >= api->trim_us) {
		api->trim_us = 0;
		api->connections_peak = api->connections;
		malloc_trim(0);
	}
}

/* Starts the deferred connections that are ready. */
static void start_deferred(struct api *api)
{
	struct deferred_events events;
	struct arrival arrival;
	deferred_poll(api, &events);
	while (deferred_take_ready(api, &events, &arrival))
		start_connection(api, &arrival);
}

void api_run(struct api *api)
{
	uint64_t now_us = clock_now_us();
	assert(!api->stopping);
	connection_check_deadlines(api, now_us);
	start_deferred(api);
	deferred_end_late(api, now_us);
	daemon_pool_run(api, now_us);
	api->service_us = api->config.service->run(&api->context);
	if (api->lingering_count > 0)
		connection_sweep_lingering(api, now_us, false);
	give_memory_back(api, now_us);
}

int api_timeout_ms(const struct api *api)
{
	uint64_t next_us = MIN(connection_next_deadline_us(api), deferred_next_deadline_us(api)), now_us;
	uint64_t wait_ms = daemon_pool_wait_ms(api);
	next_us = MIN(next_us, api->service_us);
	if (api->trim_us != 0)
		next_us = MIN(next_us, api->trim_us);
	if (wait_ms > 0 && next_us != UINT64_MAX) {
		now_us = clock_now_us();
		/* rounded up: earlier would be too early */
		wait_ms = MIN(wait_ms, next_us > now_us ? (next_us - now_us + 999) / 1000 : 0);
	}
	if (wait_ms == UINT64_MAX)
		return -1;
	return (int)MIN(wait_ms, INT32_MAX);
}

void api_drain(struct api *api)
{
	struct arrival arrival;
	assert(!api->context.ending);
	api->context.draining = true;
	connection_end_idle(api);
	while (deferred_end_parked(api, &arrival))
		start_connection(api, &arrival);
}

size_t api_busy(const struct api *api)
{
	const struct connection *connection;
	size_t busy = 0;
	/* A connection that was only accepted is waiting for its client, not for us. */
	for (size_t i = 0; i < BUSY_PHASES; i++)
		TAILQ_FOREACH (connection, &api->lists[busy_phases[i]], entry)
			busy += connection->request.state != REQUEST_NONE;
	return busy;
}

void api_free(struct api *api)
{
	uint64_t until_us = clock_now_us() + LAST_ANSWERS_US;
	struct connection *connection, *next;
	api->context.draining = api->context.ending = true;
	deferred_end_all(api);
	TAILQ_FOREACH (connection, &api->lists[CONNECTION_ANSWERING], entry)
		if (connection->request.reply.read)
			api->config.service->abort(&connection->request);
	for (connection = TAILQ_FIRST(&api->lists[CONNECTION_WORKING]); connection; connection = next) {
		next = TAILQ_NEXT(connection, entry);
		api->config.service->abort(&connection->request);
	}
	TAILQ_FOREACH (connection, &api->lists[CONNECTION_RECEIVING], entry)
		tls_link_wake(connection); /* its handshake fails now */
	do /* one call ends after a few ms even if more is ready; the last answers must be written */
		api_run(api);
	while (daemon_pool_wait_ms(api) == 0 && clock_now_us() < until_us);
	api->stopping = true;
	daemon_pool_stop(api);
	assert(api->connections == 0);
	connection_sweep_lingering(api, clock_now_us(), true);
	close(api->disconnect_fd);
	api->config.service->close(&api->context);
	free(api->context.state);
	keys_unref(api->context.keys);
	tls_unref(api->tls);
	free(api);
}

const char *api_library_defects(void)
{
#define FRAMING                                                                                                  \
	"This version of libmicrohttpd takes requests with contradictory framing (redlockd checks that itself: " \
	"400 and close)"
	if (strverscmp(MHD_get_version(), "1.0.3") < 0)
		return FRAMING " and can pass over a ready connection while it suspends another (redlockd runs it "
			       "until nothing is ready).";
	return strverscmp(MHD_get_version(), "1.0.5") < 0 ? FRAMING "." : NULL;
}
