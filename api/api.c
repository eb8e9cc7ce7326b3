/* The HTTP side of one worker: the libmicrohttpd daemon, its callbacks, the run loop and the end. See api.h.
 *
 * The daemon has no thread, no listening socket and no timeouts of its own; it is driven by api_run(). It gives every
 * connection a `struct connection` of ours (the socket context) and every request the `struct request` in it. Decoding of
 * paths, checks of framing, deadlines and the bound on connections are ours: see headers.c, path.c, connection.c.
 *
 * MHD_USE_TURBO keeps the library from shutting a socket down before it tells us of the end, so that a last word can
 * still be said; and it reads a new connection at once instead of asking epoll first. */
#include "api.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../server/log.h"
#include "internal.h"

enum {
	POOL_BYTES = 32 * 1024, /* of each connection: first line, headers and answer headers must fit */
	SPARE_CONNECTIONS = 64, /* the library counts ended ones until its next run; our own bound comes first */
	RUN_ROUNDS_MAX = 100    /* of one api_run(); what is left then is done in the next */
};

uint64_t api_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool api_is_draining(const struct api *api)
{
	return api->draining || lease_draining(api->config.leases);
}

/* The library's own messages: mostly of clients that went away. They hold no headers and no bodies. */
static void on_library_message(void *arg, const char *format, va_list arguments)
{
	char message[256];

	(void)arg;
	if (!log_wants(LOG_DEBUG))
		return;
	int len = vsnprintf(message, sizeof(message), format, arguments);
	if (len < 0)
		return;
	message[strcspn(message, "\n")] = '\0';
	log_begin(LOG_DEBUG, "http-library");
	log_text("message", message);
	log_end();
}

/* What we decode, we decode from the raw target. */
static size_t on_unescape(void *arg, struct MHD_Connection *mhd, char *text)
{
	(void)arg;
	(void)mhd;
	return strlen(text);
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info != NULL ? info->socket_context : NULL;
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		struct api *api = arg;
		api->accepted -= api->accepted > 0;
		*context = connection_new(api, mhd);
	} else if (*context != NULL) {
		connection_free(*context);
		*context = NULL;
	}
}

/* The first line has been read; `target` is what stood in it, before the library takes it to pieces. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *mhd)
{
	struct connection *connection = connection_of(mhd);

	(void)arg;
	if (connection == NULL)
		return NULL;
	request_begin(&connection->request, target != NULL ? target : "");
	return &connection->request;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mhd, const char *url, const char *method, const char *version, const char *data,
				  size_t *data_len, void **context)
{
	(void)arg;
	(void)mhd;
	if (*context == NULL)
		return MHD_NO; /* there was no memory for the connection */
	return request_step(*context, url, method, version, data, data_len);
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode how)
{
	(void)arg;
	(void)mhd;
	if (*context != NULL)
		request_end(*context, how);
	*context = NULL;
}

void api_setup(size_t workers)
{
	http_metrics_setup(workers);
}

static struct MHD_Daemon *daemon_start(struct api *api)
{
	const unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG | MHD_USE_TURBO;
	/* The strictness of the 0.9 series closes connections without an answer; that of 1.0 answers 400. */
	const int strict = strncmp(MHD_get_version(), "0.", 2) == 0 ? 0 : 1;

	return MHD_start_daemon(flags, 0, NULL, NULL, on_request, api, MHD_OPTION_EXTERNAL_LOGGER, on_library_message, api,
				MHD_OPTION_NOTIFY_CONNECTION, on_connection, api, MHD_OPTION_NOTIFY_COMPLETED, on_completed, api,
				MHD_OPTION_URI_LOG_CALLBACK, on_target, api, MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, api,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_LIMIT,
				(unsigned)(api->config.max_connections + SPARE_CONNECTIONS), MHD_OPTION_CONNECTION_TIMEOUT, 0u,
				MHD_OPTION_STRICT_FOR_CLIENT, strict, MHD_OPTION_END);
}

struct api *api_new(const struct api_config *config)
{
	struct api *api = calloc(1, sizeof(*api));

	assert(config->leases != NULL && config->max_connections > 0 && config->request_timeout_ms > 0 && config->idle_timeout_ms > 0);
	if (api == NULL)
		return NULL;
	api->config = *config;
	api->metrics = http_metrics_worker(config->worker);
	if (!gone_init(api)) {
		free(api);
		return NULL;
	}
	api->daemon = daemon_start(api);
	if (api->daemon == NULL) {
		int error = errno != 0 ? errno : ENOMEM;
		gone_fini(api);
		free(api);
		errno = error;
		return NULL;
	}
	return api;
}

int api_fd(const struct api *api)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(api->daemon, MHD_DAEMON_INFO_EPOLL_FD);

	assert(info != NULL);
	return info->epoll_fd;
}

int api_gone_fd(const struct api *api)
{
	return api->gone_fd;
}

void api_notice_gone(struct api *api)
{
	gone_check(api);
}

void api_accept(struct api *api, int fd, const struct sockaddr *address, socklen_t address_len)
{
	if (api->connections + api->accepted >= api->config.max_connections) {
		connection_refuse(api, fd);
		return;
	}
	api->accepted++;
	if (MHD_add_connection(api->daemon, fd, address, address_len) == MHD_YES)
		return;
	/* It has closed the socket. */
	api->accepted -= api->accepted > 0;
	http_metrics_refused(api->metrics);
	log_begin(LOG_WARN, "connection-refused");
	log_text("reason", strerror(errno));
	log_end();
}

static bool more_to_do(const struct api *api)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms = 1;

	return MHD_get_timeout(api->daemon, &timeout_ms) == MHD_YES && timeout_ms == 0;
}

void api_run(struct api *api)
{
	uint64_t now_us = api_now_us();

	connection_check_deadlines(api, now_us);
	/* Once is not enough: what is resumed in one round is answered in the next. */
	for (int i = 0; i < RUN_ROUNDS_MAX; i++) {
		MHD_run(api->daemon);
		if (!more_to_do(api))
			break;
	}
	api->accepted = 0;
	if (api->lingering_count > 0)
		connection_sweep_lingering(api, now_us, false);
}

int api_timeout_ms(const struct api *api)
{
	uint64_t next_us = connection_next_deadline_us(api), now_us;

	if (more_to_do(api))
		return 0;
	if (next_us == UINT64_MAX)
		return -1;
	now_us = api_now_us();
	if (next_us <= now_us)
		return 0;
	uint64_t wait_ms = (next_us - now_us + 999) / 1000; /* rounded up: earlier would be in vain */
	return wait_ms < INT32_MAX ? (int)wait_ms : INT32_MAX;
}

void api_drain(struct api *api)
{
	api->draining = true;
	connection_end_idle(api);
}

size_t api_busy(const struct api *api)
{
	size_t busy = api->lists[CONNECTION_WORKING].count + api->lists[CONNECTION_ANSWERING].count;

	/* A connection that was only accepted is waiting for its client, not for us. */
	for (const struct connection *connection = api->lists[CONNECTION_RECEIVING].head; connection != NULL; connection = connection->next)
		busy += connection->request.state != REQUEST_NONE;
	return busy;
}

void api_free(struct api *api)
{
	struct connection *connection, *next;

	api->draining = api->ending = true;
	for (connection = api->lists[CONNECTION_ANSWERING].head; connection != NULL; connection = connection->next)
		if (connection->request.stream != NULL)
			request_abort(&connection->request);
	for (connection = api->lists[CONNECTION_WORKING].head; connection != NULL; connection = next) {
		next = connection->next;
		request_abort(&connection->request);
	}
	api_run(api);
	api->stopping = true;
	MHD_stop_daemon(api->daemon);
	assert(api->connections == 0);
	connection_sweep_lingering(api, api_now_us(), true);
	gone_fini(api);
	free(api);
}

/* True if the version a.b.c of the library at hand is before the given one. */
static bool library_before(unsigned major, unsigned minor, unsigned patch)
{
	unsigned a = 0, b = 0, c = 0;

	if (sscanf(MHD_get_version(), "%u.%u.%u", &a, &b, &c) != 3)
		return true;
	return a != major ? a < major : b != minor ? b < minor : c < patch;
}

const char *api_library_note(void)
{
	if (library_before(1, 0, 3))
		return "takes requests with contradictory framing (redlockd checks that itself: 400 and close) and can pass over a ready "
		       "connection while it suspends another (redlockd runs it until nothing is ready)";
	if (library_before(1, 0, 5))
		return "takes requests with contradictory framing (redlockd checks that itself: 400 and close)";
	return NULL;
}
