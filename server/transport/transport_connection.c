/* SPDX-License-Identifier: MIT */
/* The connections to Redis of transport.h: looks up names, connects, sends commands and hands over answers.
 *
 *   transport_connect() ─► resolving (a name, off the loop) ─► connecting ─► open, answered ─► ended or closed
 *
 * Only the reply reader of hiredis is used: its connections end the process (assert) when a server sends an answer to
 * no command. A reply that is too large ends the connection (transport_internal.h has the bounds).
 *
 * All commands of a round leave in one write at its end (transport_flush). The connection waits for the writable event
 * only if the socket does not take everything. Over TLS a read may have to write first, and a write to read.
 *
 * A failure is stored in `reason`, and the connection ends at the end of the step of the loop. The memory is freed when
 * libuv has closed all its handles. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "server/base/base.h"
#include "transport_internal.h"

enum {
	READ_MAX = 16384, /* as much as a record of TLS holds */
	/* If the peer's kernel does not acknowledge data for this long, the path is broken, not only the process
	 * stopped. */
	TCP_TIMEOUT_MS = 5000
};

struct transport_connection {
	const struct address *address;
	const struct transport_events *events;
	void *arg;
	unsigned attempt, address_count;
	uv_loop_t *loop;
	uv_getaddrinfo_t resolve;
	uv_timer_t failure; /* reports what failed within transport_connect() */
	uv_poll_t poll;     /* of `fd` */
	unsigned used;      /* how many of these three libuv has not closed yet */
	int fd;             /* -1: there is none */
	int polled;         /* events of libuv */
	SSL *ssl;           /* NULL: not over TLS */
	struct transport_reader reader;
	enum { RESOLVING, CONNECTING, OPEN, ANSWERED /* data have arrived */, CLOSED /* transport_close() */ } state;
	bool busy;                         /* its callbacks are running, so it must not end */
	bool blocked;                      /* the last write was not complete */
	bool subscribes;                   /* transport_subscribe() was called */
	unsigned waiting;                  /* commands that were sent and not answered */
	struct transport_output output;    /* commands that have not left */
	enum transport_end how;            /* how it failed */
	char reason[TRANSPORT_REASON_MAX]; /* of the failure; "": there was none */
};

/* ---- the end ---- */

/* Only the first failure counts. Text of a server is made printable. */
static __attribute__((format(printf, 2, 3))) void fail(struct transport_connection *connection, const char *format, ...)
{
	va_list arguments;
	if (connection->reason[0])
		return;
	va_start(arguments, format);
	vsnprintf(connection->reason, sizeof connection->reason, format, arguments);
	va_end(arguments);
	assert(connection->reason[0]);
	for (char *c = connection->reason; *c; c++)
		*c = *c < ' ' || *c > '~' ? '?' : *c;
}

static void unref_connection(struct transport_connection *connection)
{
	assert(connection->used > 0);
	if (--connection->used > 0)
		return;
	SSL_free(connection->ssl);
	transport_reader_fini(&connection->reader);
	free(connection->output.bytes);
	free(connection);
}

static void on_handle_closed(uv_handle_t *handle)
{
	unref_connection(handle->data);
}

/* The oldest command has its answer; NULL: lost. */
static void answer(struct transport_connection *connection, const redisReply *reply)
{
	assert(connection->waiting > 0);
	connection->waiting--;
	connection->events->answered(connection->arg, reply);
}

static void end(struct transport_connection *connection)
{
	assert(connection->state == CLOSED || connection->reason[0]);
	connection->busy = true;
	while (connection->waiting > 0)
		answer(connection, NULL);
	if (connection->state != CLOSED)
		connection->events->ended(connection->arg, connection->reason, connection->how);
	if (connection->fd >= 0) {
		uv_close((uv_handle_t *)&connection->poll, on_handle_closed);
		close(connection->fd);
	}
	uv_close((uv_handle_t *)&connection->failure, on_handle_closed);
}

/* The connection is broken, with `error`, unless TLS has one. */
static void fail_broken(struct transport_connection *connection, const char *error)
{
	char explanation[TRANSPORT_REASON_MAX];
	bool silent = connection->state == OPEN && !connection->address->is_unix;
	if (connection->ssl) {
		transport_tls_explain(connection->ssl, error, explanation, sizeof explanation);
		fail(connection, "%s", explanation);
		return;
	}
	fail(connection, "connection: %.120s%s", error,
	     silent ? "; it was closed during the handshake: if the port speaks TLS, the address begins with rediss://"
		    : "");
}

/* ---- answers ---- */

static void fail_with_protocol(struct transport_connection *connection, const char *reason)
{
	assert(!connection->reason[0]);
	connection->how = TRANSPORT_PROTOCOL;
	fail(connection, "%s", reason);
}

/* Handles the confirmation and the messages of a subscription. */
static bool is_message(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
	       reply->element[0]->type == REDIS_REPLY_STRING;
}

static void hand_over(struct transport_connection *connection, const redisReply *reply)
{
	if (connection->waiting > 0) {
		connection->state = ANSWERED;
		answer(connection, reply);
	} else if (reply->type == REDIS_REPLY_ERROR) {
		connection->how = connection->subscribes ? TRANSPORT_REFUSED : TRANSPORT_LOST;
		fail(connection, connection->subscribes ? "%.250s" : "connection: %.120s",
		     reply->str[0] ? reply->str : "an error without words");
	} else if (connection->subscribes && is_message(reply)) {
		connection->events->answered(connection->arg, reply);
	} else {
		fail_with_protocol(connection, "protocol: an answer to no command");
	}
}

static void read_replies(struct transport_connection *connection)
{
	struct transport_reader *reader = &connection->reader;
	redisReply *reply = NULL;
	while (connection->state != CLOSED && !connection->reason[0] && (reply = transport_reader_next(reader))) {
		hand_over(connection, reply);
		freeReplyObject(reply);
	}
	if (reader->error[0])
		fail_with_protocol(connection, reader->error);
}

/* ---- reading and writing ---- */

static const char server_closed[] = "Server closed the connection";

static void step_read(struct transport_connection *connection)
{
	char bytes[READ_MAX];
	ssize_t count = connection->ssl ? transport_tls_read(connection->ssl, bytes, sizeof bytes)
					: recv(connection->fd, bytes, sizeof bytes, 0);
	if (count < 0 && errno == EAGAIN)
		return;
	if (count <= 0) {
		fail_broken(connection, count == 0 ? server_closed : strerror(errno));
		return;
	}
	transport_reader_feed(&connection->reader, bytes, (size_t)count);
	read_replies(connection);
}

/* If it fails, the next read finds the end after the answers that have come before it. */
static void step_write(struct transport_connection *connection)
{
	struct transport_output *output = &connection->output;
	size_t at = 0;
	ssize_t count = 1;
	while (at < output->len && count > 0) {
		const char *from = output->bytes + at;
		size_t len = output->len - at;
		count = connection->ssl ? transport_tls_write(connection->ssl, from, len)
					: send(connection->fd, from, len, MSG_NOSIGNAL);
		at += count > 0 ? (size_t)count : 0;
	}
	connection->blocked = count < 0 && errno == EAGAIN;
	if (count <= 0 && !connection->blocked) {
		if (connection->ssl) /* OpenSSL reports the reason only once; 0: closed during the handshake */
			fail_broken(connection, count == 0 ? server_closed : strerror(errno));
		shutdown(connection->fd, SHUT_RDWR);
		at = output->len;
	}
	output->len -= at;
	memmove(output->bytes, output->bytes + at, output->len);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct transport_connection *connection)
{
	bool writes = connection->ssl ? SSL_want_write(connection->ssl) : connection->blocked;
	int events = connection->state == CONNECTING ? UV_WRITABLE : UV_READABLE | (writes ? UV_WRITABLE : 0);
	if (connection->polled != events)
		uv_poll_start(&connection->poll, events, on_poll);
	connection->polled = events;
}

/* Socket options with which a dead path is found within seconds. */
static void set_options(int fd)
{
	int on = 1, timeout_ms = TCP_TIMEOUT_MS, idle_s = 2, interval_s = 1, probes = 3;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

static void step_connect(struct transport_connection *connection)
{
	int error = 0;
	socklen_t len = sizeof error;
	getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &len);
	if (error) {
		fail(connection, "connection: %.120s", strerror(error));
		return;
	}
	connection->state = OPEN;
	if (!connection->address->is_unix)
		set_options(connection->fd);
	connection->events->connected(connection->arg);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct transport_connection *connection = poll->data;
	(void)events; /* over TLS each step may wait for either */
	if (status < 0)
		connection->polled = 0; /* libuv has stopped watching; the step finds the error */
	assert(!connection->busy);
	connection->busy = true;
	if (connection->state == CONNECTING)
		step_connect(connection);
	else
		step_read(connection);
	if (connection->blocked && connection->state != CLOSED && !connection->reason[0])
		step_write(connection);
	connection->busy = false;
	if (connection->state == CLOSED || connection->reason[0])
		end(connection);
	else
		watch(connection);
}

/* ---- connecting ---- */

static void on_failure(uv_timer_t *timer)
{
	end(timer->data);
}

/* Call it at most once, and do nothing else with the connection. */
static void fail_later(struct transport_connection *connection, const char *what, const char *why)
{
	assert(connection->fd < 0);
	fail(connection, "%s: %.120s", what, why);
	uv_timer_start(&connection->failure, on_failure, 0, 0);
}

static void connect_to(struct transport_connection *connection, const struct sockaddr *to, socklen_t len)
{
	connection->state = CONNECTING;
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), failed;
	if (fd < 0 || (connect(fd, to, len) != 0 && errno != EINPROGRESS)) {
		fail_later(connection, "connection", strerror(errno));
	} else if (connection->address->tls &&
		   !(connection->ssl = transport_tls_begin(fd, connection->address, connection->reason,
							   sizeof connection->reason))) {
		fail_later(connection, "tls", connection->reason);
	} else if ((failed = uv_poll_init(connection->loop, &connection->poll, fd)) != 0) {
		fail_later(connection, "connection", uv_strerror(failed));
	} else {
		connection->fd = fd;
		connection->poll.data = connection;
		connection->used++;
		watch(connection);
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void choose_address(struct transport_connection *connection, const struct addrinfo *addresses)
{
	assert(addresses);
	for (const struct addrinfo *a = addresses; a; a = a->ai_next)
		connection->address_count++;
	/* another one each time, so that one dead address of a name does not block it */
	for (unsigned skip = connection->attempt % connection->address_count; skip > 0 && addresses->ai_next; skip--)
		addresses = addresses->ai_next;
	connect_to(connection, addresses->ai_addr, addresses->ai_addrlen);
	if (connection->events->resolved)
		connection->events->resolved(connection->arg);
}

static void on_addresses(uv_getaddrinfo_t *request, int status, struct addrinfo *addresses)
{
	struct transport_connection *connection = request->data;
	if (connection->state == CLOSED) {
		unref_connection(connection);
	} else {
		connection->used--;
		if (status == 0 && addresses)
			choose_address(connection, addresses);
		else
			fail_later(connection, "resolve", status < 0 ? uv_strerror(status) : "no address");
	}
	uv_freeaddrinfo(addresses);
}

static void resolve(struct transport_connection *connection)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	char port[TEXT_DECIMAL_MAX];
	snprintf(port, sizeof port, "%u", connection->address->port);
	connection->resolve.data = connection;
	connection->state = RESOLVING;
	int failed = uv_getaddrinfo(connection->loop, &connection->resolve, on_addresses, connection->address->host,
				    port, &hints);
	if (!failed) {
		connection->used++;
		return;
	}
	connection->state = CONNECTING;
	fail_later(connection, "resolve", uv_strerror(failed));
}

/* Writes an address that needs no look-up, and returns its length. 0: it needs one. */
static socklen_t known_address(const struct address *address, struct sockaddr_storage *ret_to)
{
	struct sockaddr_un *socket = (struct sockaddr_un *)ret_to;
	if (address->is_unix) {
		assert(strlen(address->host) < sizeof socket->sun_path);
		*socket = (struct sockaddr_un){.sun_family = AF_UNIX};
		strcpy(socket->sun_path, address->host);
		return sizeof *socket;
	}
	if (uv_ip4_addr(address->host, address->port, (struct sockaddr_in *)ret_to) == 0)
		return sizeof(struct sockaddr_in);
	if (uv_ip6_addr(address->host, address->port, (struct sockaddr_in6 *)ret_to) == 0)
		return sizeof(struct sockaddr_in6);
	return 0;
}

/* ---- for leases and masters ---- */

struct transport_connection *transport_connect(struct uv_loop_s *loop, const struct address *address, unsigned attempt,
					       const struct transport_connection *beside,
					       const struct transport_events *events, void *arg)
{
	struct sockaddr_storage to;
	socklen_t len = sizeof to;
	assert(loop && events->connected && events->answered && events->ended);
	struct transport_connection *connection = memory_zeroed(1, sizeof *connection);
	connection->loop = loop;
	connection->address = address;
	connection->attempt = attempt;
	connection->events = events;
	connection->arg = arg;
	connection->fd = -1;
	transport_reader_init(&connection->reader);
	connection->used = 1;
	uv_timer_init(loop, &connection->failure);
	connection->failure.data = connection;
	if (!beside || address->is_unix)
		len = known_address(address, &to);
	else if (getpeername(beside->fd, (struct sockaddr *)&to, &len) != 0)
		len = 0;
	if (len > 0)
		connect_to(connection, (struct sockaddr *)&to, len);
	else if (beside)
		fail_later(connection, "connection", "the first one has ended");
	else
		resolve(connection);
	return connection;
}

unsigned transport_address_count(const struct transport_connection *connection)
{
	return connection->address_count;
}

bool transport_is_resolving(const struct transport_connection *connection)
{
	return connection->state == RESOLVING;
}

void transport_close(struct transport_connection *connection)
{
	assert(connection->state != CLOSED);
	if (connection->state == RESOLVING)
		(void)uv_cancel((uv_req_t *)&connection->resolve);
	connection->state = CLOSED;
	if (!connection->busy)
		end(connection);
}

void transport_send(struct transport_connection *connection, size_t count, const struct transport_word arguments[])
{
	assert(count > 0 && (connection->state == OPEN || connection->state == ANSWERED));
	connection->waiting++;
	transport_output_append(&connection->output, count, arguments);
}

void transport_subscribe(struct transport_connection *connection, const char *channel)
{
	const struct transport_word arguments[] = {{"SUBSCRIBE", 9}, {channel, strlen(channel)}};
	assert(connection->state == OPEN && !connection->subscribes);
	connection->subscribes = true;
	connection->reader.reply_max = TRANSPORT_MESSAGE_MAX;
	transport_output_append(&connection->output, 2, arguments);
}

void transport_flush(struct transport_connection *connection)
{
	if (connection->output.len == 0 || connection->blocked || connection->busy)
		return;
	step_write(connection);
	watch(connection);
}

bool transport_has_unread(const struct transport_connection *connection)
{
	int count = 0;
	return connection->fd >= 0 && ioctl(connection->fd, FIONREAD, &count) == 0 && count > 0;
}

bool transport_is_in_tls_handshake(const struct transport_connection *connection)
{
	return connection->ssl && !SSL_is_init_finished(connection->ssl);
}
