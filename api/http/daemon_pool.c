/* SPDX-License-Identifier: MIT */
/* The libmicrohttpd daemons of one worker, and their callbacks. See http_internal.h. Worker's thread. */
#include <assert.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <unistd.h>

#include "http_internal.h"

enum {
	RUN_ROUNDS_MAX = 100, /* of one daemon; the rest is done in the next run */
	/* the longest run, since the masters' answers are not read meanwhile */
	RUN_US_MAX = 2000,
	/* of each connection: first line, headers (8 KiB, cookies twice and 64 bytes for each) and answer headers must
	 * fit; all of it is cleared after a request */
	POOL_BYTES = 26 * 1024,
	SPARE_CONNECTIONS = 64 /* the library counts ended ones until its next run; our own bound applies first */
};

/* ---- a daemon and its callbacks ---- */

/* TLS 1.3 and 1.2; every key exchange with forward secrecy, every cipher authenticated. Our order has precedence over
 * the client's. X25519 is the first group, because most clients send its key at once; with another one first, they
 * would need a further round trip. There are no finite fields: 8,192 bits cost 0.2 s. */
static char tls_priorities[] =
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:"
	"-GROUP-ALL:+GROUP-X25519:+GROUP-EC-ALL:"
	"-CIPHER-ALL:+AES-256-GCM:+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:+AEAD:%SERVER_PRECEDENCE";

/* The messages of the library, mostly about clients that left. They have no headers and no bodies. */
static void on_library_message(void *arg, const char *format, va_list arguments)
{
	static const char own_answer[] = "Error processing request"; /* written before the answer is made */
	char message[256];
	if (strncmp(format, own_answer, sizeof own_answer - 1) == 0)
		request_forestall(arg);
	if (!log_wants(LOG_DEBUG) || vsnprintf(message, sizeof message, format, arguments) < 0)
		return;
	message[strcspn(message, "\n")] = '\0';
	log_begin(LOG_DEBUG, "http-library");
	log_text("message", message);
	log_end();
}

/* The library must not decode: headers.c and the service use the raw target. */
static size_t on_unescape(void *arg, struct MHD_Connection *mhd, char *text)
{
	(void)arg, (void)mhd;
	return strlen(text);
}

static void on_connection(void *arg, struct MHD_Connection *mhd, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		struct mhd_daemon *mhd_daemon = arg;
		*context = connection_new(mhd_daemon, mhd, mhd_daemon->api->arriving);
		mhd_daemon->api->arriving = NULL;
		return;
	}
	struct connection *connection = *context;
	connection->link.session = NULL; /* the library has freed it */
	/* after some errors the library does not call on_completed() */
	request_end(&connection->request, MHD_REQUEST_TERMINATED_WITH_ERROR);
	connection_free(connection);
	*context = NULL;
}

/* Hides the query from the library, which would put each parameter into the connection's pool. When the pool is full,
 * the 0.9 series parks the connection, or ends it without on_completed(). `target` lies in the library's read buffer,
 * and both series parse it only after this call: from the question mark, which must stay, up to the next NUL. A NUL
 * before the question mark hides the query from this function, but not from the 0.9 series. Then the end of the
 * connection ends its request, without harm. */
static void cut_query(const char *target)
{
	char *query = strchr(target, '?');
	if (query && query[1] != '\0')
		query[1] = '\0';
}

/* The first line has been read; the library has not parsed `target` yet. The request keeps a copy. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct connection *connection = info->socket_context;
	(void)arg;
	tls_link_identify(connection);
	request_begin(&connection->request, target ? target : "");
	if (target)
		cut_query(target);
	return &connection->request;
}

static void on_completed(void *arg, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode how)
{
	(void)arg, (void)mhd;
	if (*context)
		request_end(*context, how);
	*context = NULL;
}

/* gnutls_certificate_retrieve_function2: the library requires a certificate when it starts, but ours are set for each
 * connection (tls_attach). */
static int no_certificate(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
			  const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **ret_certs,
			  unsigned *ret_cert_count, gnutls_privkey_t *ret_key)
{
	(void)session, (void)authorities, (void)authority_count, (void)algorithms, (void)algorithm_count;
	(void)ret_certs, (void)ret_cert_count, (void)ret_key;
	return -1;
}

/* NULL on failure. */
static struct MHD_Daemon *mhd_daemon_start(struct mhd_daemon *mhd_daemon)
{
	const struct api *api = mhd_daemon->api;
	const bool tls = mhd_daemon->kind == DAEMON_TLS;
	const unsigned timeout_s = mhd_daemon->kind == DAEMON_TCP ? connection_park_after_s(api) : 0;
	assert(!tls || api->tls);
	struct MHD_OptionItem tls_options[] = {{MHD_OPTION_HTTPS_PRIORITIES, 0, tls_priorities},
					       {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)no_certificate},
					       {MHD_OPTION_END, 0, NULL}};
	const unsigned flags = (tls ? MHD_USE_TLS : 0) | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
			       MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG | MHD_USE_TURBO;
	/* In strict mode the 0.9 series closes connections without an answer; 1.0 answers 400. */
	const int strict = strncmp(MHD_get_version(), "0.", 2) == 0 ? 0 : 1;
	return MHD_start_daemon(flags, 0, NULL, NULL, request_step, NULL, MHD_OPTION_EXTERNAL_LOGGER,
				on_library_message, mhd_daemon, MHD_OPTION_NOTIFY_CONNECTION, on_connection, mhd_daemon,
				MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_URI_LOG_CALLBACK, on_target,
				NULL, MHD_OPTION_UNESCAPE_CALLBACK, on_unescape, NULL,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_LIMIT,
				(unsigned)(api->config.max_connections + SPARE_CONNECTIONS),
				MHD_OPTION_CONNECTION_TIMEOUT, timeout_s, MHD_OPTION_STRICT_FOR_CLIENT, strict,
				MHD_OPTION_ARRAY, tls ? tls_options : tls_options + 2, MHD_OPTION_END);
}

/* ---- the pool ---- */

/* Starts a daemon; NULL if that fails. */
static struct mhd_daemon *mhd_daemon_new(struct api *api, enum mhd_daemon_kind kind)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	if (daemon_pool->count == DAEMON_POOL_MAX)
		return NULL;
	struct mhd_daemon *mhd_daemon = &daemon_pool->list[daemon_pool->count];
	*mhd_daemon = (struct mhd_daemon){.api = api, .kind = kind};
	TAILQ_INIT(&mhd_daemon->heads);
	mhd_daemon->daemon = mhd_daemon_start(mhd_daemon);
	if (!mhd_daemon->daemon)
		return NULL;
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(mhd_daemon->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	struct epoll_event watch = {.events = EPOLLIN, .data.ptr = mhd_daemon};
	assert(info);
	if (epoll_ctl(daemon_pool->epoll_fd, EPOLL_CTL_ADD, info->epoll_fd, &watch) != 0) {
		MHD_stop_daemon(mhd_daemon->daemon);
		return NULL;
	}
	daemon_pool->count++;
	return mhd_daemon;
}

bool daemon_pool_init(struct api *api, bool tls)
{
	api->daemon_pool = (struct daemon_pool){.count = 0};
	api->daemon_pool.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (api->daemon_pool.epoll_fd < 0)
		return false;
	return mhd_daemon_new(api, DAEMON_TCP) && (!tls || mhd_daemon_new(api, DAEMON_TLS));
}

void daemon_pool_stop(struct api *api)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	while (daemon_pool->count > 0)
		MHD_stop_daemon(daemon_pool->list[--daemon_pool->count].daemon);
	assert(daemon_pool->epoll_fd >= 0);
	close(daemon_pool->epoll_fd);
}

struct mhd_daemon *daemon_pool_choose(struct api *api, enum mhd_daemon_kind kind)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	struct mhd_daemon *emptiest = NULL;
	assert(daemon_pool->count > 0);
	for (struct mhd_daemon *mhd_daemon = daemon_pool->list; mhd_daemon < daemon_pool->list + daemon_pool->count;
	     mhd_daemon++) {
		if (mhd_daemon->kind != kind)
			continue;
		if (mhd_daemon->connections < MHD_DAEMON_CONNECTIONS)
			return mhd_daemon;
		if (!emptiest || mhd_daemon->connections < emptiest->connections)
			emptiest = mhd_daemon;
	}
	struct mhd_daemon *made = mhd_daemon_new(api, kind);
	assert(made || emptiest || kind == DAEMON_UNIX);
	if (made)
		return made;
	return emptiest ? emptiest : daemon_pool->list; /* a TCP one, which ends idle Unix connections */
}

static uint64_t mhd_daemon_wait_ms(const struct mhd_daemon *mhd_daemon)
{
	MHD_UNSIGNED_LONG_LONG timeout_ms = 0;
	if (mhd_daemon->runnable)
		return 0;
	return MHD_get_timeout(mhd_daemon->daemon, &timeout_ms) == MHD_YES ? timeout_ms : UINT64_MAX;
}

uint64_t daemon_pool_wait_ms(const struct api *api)
{
	const struct daemon_pool *daemon_pool = &api->daemon_pool;
	uint64_t wait_ms = UINT64_MAX;
	for (size_t i = 0; i < daemon_pool->count && wait_ms > 0; i++)
		wait_ms = MIN(wait_ms, mhd_daemon_wait_ms(&daemon_pool->list[i]));
	return wait_ms;
}

/* Runs the daemon several rounds: a connection that is resumed in one is answered in the next. */
static void mhd_daemon_run(struct mhd_daemon *mhd_daemon, uint64_t now_us)
{
	assert(mhd_daemon->daemon);
	mhd_daemon->runnable = false;
	for (int i = 0; i < RUN_ROUNDS_MAX; i++) {
		MHD_run(mhd_daemon->daemon);
		if (mhd_daemon_wait_ms(mhd_daemon) > 0 || (i > 0 && clock_now_us() - now_us > RUN_US_MAX))
			break;
	}
}

/* Marks the daemons whose descriptors are readable; a single daemon is always run. */
static void daemon_pool_poll(struct daemon_pool *daemon_pool)
{
	struct epoll_event ready[DAEMON_POOL_MAX];
	if (daemon_pool->count == 1) {
		daemon_pool->list[0].runnable = true;
		return;
	}
	int count = epoll_wait(daemon_pool->epoll_fd, ready, DAEMON_POOL_MAX, 0);
	for (int i = 0; i < count; i++)
		if (ready[i].data.ptr) /* else deferred.c's */
			((struct mhd_daemon *)ready[i].data.ptr)->runnable = true;
}

static bool is_first_of_its_kind(const struct mhd_daemon *mhd_daemon)
{
	const struct mhd_daemon *first = mhd_daemon->api->daemon_pool.list;
	while (first->kind != mhd_daemon->kind)
		first++;
	return first == mhd_daemon;
}

/* Stops the empty daemons at the end of the list, except for the first of each kind. */
static void daemon_pool_trim(struct daemon_pool *daemon_pool)
{
	const struct mhd_daemon *last = &daemon_pool->list[daemon_pool->count - 1];
	for (; last->connections == 0 && !is_first_of_its_kind(last); last--) {
		MHD_stop_daemon(last->daemon);
		daemon_pool->count--;
	}
}

void daemon_pool_run(struct api *api, uint64_t now_us)
{
	struct daemon_pool *daemon_pool = &api->daemon_pool;
	daemon_pool_poll(daemon_pool);
	for (size_t i = 0; i < daemon_pool->count; i++)
		if (mhd_daemon_wait_ms(&daemon_pool->list[i]) == 0)
			mhd_daemon_run(&daemon_pool->list[i], now_us);
	if (api->connections < MHD_DAEMON_CONNECTIONS / 2)
		daemon_pool_trim(daemon_pool);
}
