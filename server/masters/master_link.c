/* The life of the connection to one master: resolve the name off the loop, connect, and when the connection ends try
 * again after a random, growing pause. What happens is reported to the owner (struct master_link_events).
 *
 * A process that is merely stopped keeps its connection: its kernel goes on acknowledging. TCP_USER_TIMEOUT ends
 * connections whose path has gone. */
#include "master_link.h"

#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "server/base/base.h"

static void on_timer(uv_timer_t *timer);

void master_link_set_timer(struct master_link *link, uint64_t delay_ms)
{
	if (!link->closing)
		uv_timer_start(&link->timer, on_timer, delay_ms, 0);
}

static uint64_t backoff_ms(const struct master_link *link)
{
	uint32_t doublings = link->attempts < 8 ? link->attempts : 8;
	uint64_t ceiling_ms = (uint64_t)MASTER_BACKOFF_MIN_MS << doublings;
	if (ceiling_ms > MASTER_BACKOFF_MAX_MS)
		ceiling_ms = MASTER_BACKOFF_MAX_MS;
	return ceiling_ms / 2 + random_number() % (ceiling_ms / 2 + 1);
}

static void drop_connection(struct master_link *link)
{
	if (!link->io)
		return;
	redisAsyncContext *context = link->io->context;
	if (context)
		redisAsyncFree(context); /* from within a callback hiredis does it afterwards */
}

static void fail(struct master_link *link, const char *reason, bool by_peer)
{
	assert(reason[0]);
	if (link->state == LINK_CLOSED || link->state == LINK_DOWN)
		return;
	enum link_state was = link->state;
	link->state = LINK_DOWN;
	/* localhost may be ::1 first, and 127.0.0.1 next */
	link->tried = link->tried || link->attempts + 1 >= link->addresses;
	link->events->failed(link->arg, was, reason, by_peer);
	drop_connection(link);
	master_link_set_timer(link, backoff_ms(link));
	if (link->attempts < UINT32_MAX)
		link->attempts++;
}

void master_link_fail(struct master_link *link, const char *reason)
{
	fail(link, reason, false);
}

/* ---- connecting ---- */

/* Called by hiredis; nothing may be freed from here. On failure its cleanup comes next. */
static void on_connect(const redisAsyncContext *context, int status)
{
	struct master_io *io = context->ev.data;
	struct master_link *link = io->arg;
	if (status != REDIS_OK)
		return;
	assert(link->io == io && link->state == LINK_CONNECTING);
	master_io_set_options(context->c.fd, link->address->is_unix);
	if (!link->address->is_unix)
		io->hint = "; it was closed during the handshake: if the port speaks TLS, the address begins with "
			   "rediss://";
	link->state = LINK_HANDSHAKE;
	link->events->connected(link->arg);
}

static void on_ended(void *arg, const char *reason)
{
	struct master_link *link = arg;
	assert(link->io);
	link->io = NULL;
	fail(link, reason, true);
	link->events->ended(link->arg);
}

/* `host` is numeric, so hiredis has no name to look up. */
static void connect_to(struct master_link *link, const char *host)
{
	const struct master_address *address = link->address;
	assert(!link->io);
	link->state = LINK_CONNECTING;
	char why[STATUS_REASON_MAX];
	redisAsyncContext *context = address->is_unix ? redisAsyncConnectUnix(address->host)
						      : redisAsyncConnect(host, address->port);
	if (!context || context->err) {
		snprintf(why, sizeof why, "connection: %.120s", context ? context->errstr : "out of memory");
		if (context)
			redisAsyncFree(context);
		master_link_fail(link, why);
		return;
	}
	struct master_io *io = master_io_attach(link->loop, context, address, why);
	if (!io) {
		redisAsyncFree(context);
		master_link_fail(link, why);
		return;
	}
	io->ended = on_ended;
	io->arg = link;
	link->io = io;
	master_link_set_timer(link, MASTER_HANDSHAKE_MS);
	redisAsyncSetConnectCallback(context, on_connect);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
	struct master_link *link = request->data;
	char host[NI_MAXHOST];
	if (link->state != LINK_RESOLVING) {
		uv_freeaddrinfo(found);
		return;
	}
	uint32_t count = 0;
	for (struct addrinfo *a = found; a; a = a->ai_next)
		count++;
	if (status < 0 || count == 0) {
		uv_freeaddrinfo(found);
		char why[STATUS_REASON_MAX];
		snprintf(why, sizeof why, "resolve: %.120s", status < 0 ? uv_strerror(status) : "no address");
		master_link_fail(link, why);
		return;
	}
	link->addresses = count;
	/* another one each time, so that one dead address of a name does not block it */
	struct addrinfo *chosen = found;
	for (uint32_t skip = link->attempts % count; skip > 0; skip--)
		chosen = chosen->ai_next;
	int failed = getnameinfo(chosen->ai_addr, chosen->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
	uv_freeaddrinfo(found);
	if (failed)
		master_link_fail(link, "resolve: no usable address");
	else
		connect_to(link, host);
}

static bool is_numeric(const char *host)
{
	unsigned char buffer[sizeof(struct in6_addr)];
	return uv_inet_pton(AF_INET, host, buffer) == 0 || uv_inet_pton(AF_INET6, host, buffer) == 0;
}

static void begin_connecting(struct master_link *link)
{
	const struct master_address *address = link->address;
	assert(link->state == LINK_DOWN && !link->closing);
	if (address->is_unix || is_numeric(address->host)) {
		connect_to(link, address->host);
		return;
	}
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	link->state = LINK_RESOLVING;
	link->resolve.data = link;
	int failed = uv_getaddrinfo(link->loop, &link->resolve, on_resolved, address->host, NULL, &hints);
	if (failed)
		master_link_fail(link, "resolve: cannot start");
}

/* ---- the life of the link ---- */

static const char *late_words(const struct master_link *link)
{
	assert(link->state == LINK_CONNECTING || link->state == LINK_HANDSHAKE);
	bool in_tls = link->state == LINK_HANDSHAKE && link->io && master_io_is_in_tls_handshake(link->io);
	if (in_tls)
		return "tls: no end of the handshake; without TLS on that port the address begins with redis://";
	return link->state == LINK_CONNECTING
		       ? "timeout: no connection"
		       : "timeout: no answer to the handshake; is it a Redis server, without TLS?";
}

static void on_timer(uv_timer_t *timer)
{
	struct master_link *link = timer->data;
	switch (link->state) {
	case LINK_DOWN: begin_connecting(link); break;
	case LINK_CONNECTING:
	case LINK_HANDSHAKE: master_link_fail(link, late_words(link)); break;
	case LINK_UP: link->events->ticked(link->arg); break;
	case LINK_RESOLVING:
	case LINK_CLOSED: break;
	}
}

void master_link_start(struct master_link *link)
{
	assert(link->loop && link->address && link->events && link->arg);
	uv_timer_init(link->loop, &link->timer);
	link->timer.data = link;
	link->state = LINK_DOWN;
	master_link_set_timer(link, 0);
}

void master_link_set_up(struct master_link *link)
{
	assert(link->state == LINK_HANDSHAKE && link->io);
	link->state = LINK_UP;
	link->io->hint = NULL;
	link->attempts = 0;
	link->tried = true;
}

void master_link_flush(struct master_link *link)
{
	if (link->io)
		master_io_flush(link->io);
}

void master_link_close(struct master_link *link)
{
	assert(!link->closing);
	link->closing = true;
	if (link->state == LINK_RESOLVING)
		uv_cancel((uv_req_t *)&link->resolve);
	link->state = LINK_CLOSED;
	drop_connection(link);
	uv_timer_stop(&link->timer);
	uv_close((uv_handle_t *)&link->timer, NULL);
}
