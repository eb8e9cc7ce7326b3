/* One connection to one master: resolve the name off the loop, connect, keep hiredis going in the libuv loop, and when
 * it ends try again after a random, growing pause.
 *
 * Writing: hiredis asks for the writable event whenever a command is appended. Instead of going round through epoll for
 * each, the request is noted and all that was appended in a round leaves in one write at its end (master_link_flush);
 * only where the socket does not take it all is the writable event waited for.
 *
 * Over TLS a read may have to write first and a write to read. hiredis follows that up, but for one case: where a read
 * has found nothing, it takes every write that is not done for one that waits for a read, also one that the socket has
 * no room for; what is left then lay there until the master speaks, which it may not do before it has got the rest. So
 * after each step it is looked at what the connection itself waits for.
 *
 * A process that is merely stopped keeps its connection: its kernel goes on acknowledging. TCP_USER_TIMEOUT ends
 * connections whose path is gone. hiredis frees a context by itself on errors; `cleanup` is the one way out that it
 * always takes, so the master learns there that its connection is gone. */
#include <assert.h>
#include <hiredis/hiredis.h>
#if HIREDIS_MAJOR < 1
#include <hiredis/sds.h>
#endif
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "master_internal.h"
#include "master_tls.h"
#include "server/base/base.h"

static void on_timer(uv_timer_t *timer);
static void on_poll(uv_poll_t *poll, int status, int events);
static void connect_to(struct master *master, const char *host);

/* ---- hiredis in libuv ---- */

static void on_io_closed(uv_handle_t *handle)
{
	struct master_io *io = handle->data;
	master_tls_free(io->ssl);
	free(io);
}

static void poll_for(struct master_io *io, int events)
{
	if (io->events == events || !io->context)
		return;
	io->events = events;
	if (events)
		uv_poll_start(&io->poll, events, on_poll);
	else
		uv_poll_stop(&io->poll);
}

static void step_read(struct master_io *io)
{
	if (!io->ssl) {
		redisAsyncHandleRead(io->context);
		return;
	}
	/* a record is never larger than what hiredis reads at once; should that change, the rest of it is not to lie
	 * there */
	do {
		master_tls_clear_errors();
		redisAsyncHandleRead(io->context);
	} while (io->context && master_tls_has_more(io->ssl));
	if (io->context && master_tls_wants_write(io->ssl))
		poll_for(io, io->events | UV_WRITABLE);
}

#if HIREDIS_MAJOR < 1
/* hiredis 0.14 takes a new buffer after each write that took all, and crashes where there is no memory for it. So the
 * bytes are written here and the buffer is kept; all else that is to be done then, or where a write fails, hiredis does
 * when it finds nothing left to write, or meets the same error. */
static void write_all(struct master_io *io)
{
	if (!(io->context->c.flags & REDIS_CONNECTED))
		/* learns that it is connected, as a write would, and writes nothing */
		redisAsyncHandleRead(io->context);
	redisContext *context = io->context ? &io->context->c : NULL;
	if (!context || context->err || !(context->flags & REDIS_CONNECTED))
		return;
	ssize_t wrote = 0;
	while (sdslen(context->obuf) > 0 && wrote >= 0) {
		wrote = write(context->fd, context->obuf, sdslen(context->obuf));
		if (wrote == (ssize_t)sdslen(context->obuf))
			sdsclear(context->obuf);
		else if (wrote > 0)
			sdsrange(context->obuf, (int)wrote, -1);
	}
}
#else
static void write_all(struct master_io *io)
{
	(void)io;
}
#endif

/* io lives on, whatever happens: libuv frees it in its own round. */
static void step_write(struct master_io *io)
{
	if (io->ssl)
		master_tls_clear_errors();
	io->flushing = true;
	write_all(io);
	if (io->context)
		redisAsyncHandleWrite(io->context);
	io->flushing = false;
	if (!io->ssl || !io->context)
		return;
	bool left = io->context->c.obuf[0] != '\0'; /* commands begin with a * */
	if (left && !master_tls_wants_read(io->ssl))
		poll_for(io, io->events | UV_WRITABLE);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct master_io *io = poll->data;
	int reads = io->ssl ? UV_READABLE | UV_WRITABLE : UV_READABLE; /* over TLS a read may have waited for room */
	if (status < 0)
		io->events = 0; /* libuv has stopped watching */
	if (io->context && (status < 0 || events & reads))
		step_read(io);
	if (io->context && events & UV_WRITABLE)
		step_write(io);
}

static void hook_add_read(void *arg)
{
	struct master_io *io = arg;
	poll_for(io, io->events | UV_READABLE);
}

static void hook_del_read(void *arg)
{
	struct master_io *io = arg;
	poll_for(io, io->events & ~UV_READABLE);
}

static void hook_add_write(void *arg)
{
	struct master_io *io = arg;
	bool connected = io->context && io->context->c.flags & REDIS_CONNECTED;
	if (connected && !io->flushing && io->master)
		io->want_write = true;
	else
		poll_for(io, io->events | UV_WRITABLE);
}

static void hook_del_write(void *arg)
{
	struct master_io *io = arg;
	io->want_write = false;
	poll_for(io, io->events & ~UV_WRITABLE);
}

/* What answers is no Redis: hiredis names the first byte that is wrong. */
static void explain_protocol(const char *told, char ret_why[STATUS_REASON_MAX])
{
	const char *guess = strstr(told, "got \"H\"")       ? "; is it an HTTP server?"
			    : strstr(told, "got \"\\x15\"") ? "; if it is TLS, the address begins with rediss://"
							    : "";
	snprintf(ret_why, STATUS_REASON_MAX, "protocol: this is no Redis server: %.120s%s", told, guess);
}

static void explain_end(const struct master_io *io, char ret_why[STATUS_REASON_MAX])
{
	const redisContext *context = &io->context->c;
	const char *told = context->errstr[0] ? context->errstr : "closed";
	bool handshake = io->master && io->master->link == LINK_HANDSHAKE;
	if (handshake && io->master->check.words[0]) /* the server has said why */
		master_check_write(io->master, ret_why);
	else if (io->ssl && context->flags & REDIS_CONNECTED)
		master_tls_explain(io->ssl, told, ret_why, STATUS_REASON_MAX);
	else if (context->err == REDIS_ERR_PROTOCOL)
		explain_protocol(told, ret_why);
	else
		snprintf(ret_why, STATUS_REASON_MAX, "connection: %.120s%s", told,
			 handshake && !io->master->address->is_unix
				 ? "; it was closed during the handshake: if the port speaks TLS, the address begins "
				   "with rediss://"
				 : "");
}

/* hiredis is about to free the context: all pending callbacks have been called. */
static void hook_cleanup(void *arg)
{
	struct master_io *io = arg;
	struct master *master = io->master;
	char why[STATUS_REASON_MAX];
	explain_end(io, why);
	io->context = NULL;
	io->master = NULL;
	uv_poll_stop(&io->poll);
	uv_close((uv_handle_t *)&io->poll, on_io_closed);
	if (!master)
		return;
	master->io = NULL;
	if (master->link != LINK_DOWN && master->link != LINK_CLOSED)
		master_link_fail(master, why);
	master_batch_lost(master);
}

/* A server that is no Redis of ours may announce a list of a thousand million elements; hiredis 0.14 would make room
 * for it and walk through it. None of our replies has more than a page of SCAN. */
static redisReplyObjectFunctions bounded_functions;
static pthread_once_t bounded_once = PTHREAD_ONCE_INIT;

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif
static void *(*unbounded_array)(const redisReadTask *task, element_count elements);

static void *create_bounded_array(const redisReadTask *task, element_count elements)
{
	return elements > MASTER_ELEMENTS_MAX ? NULL : unbounded_array(task, elements);
}

static void make_bounded_functions(void)
{
	redisReader *reader = redisReaderCreate();
	if (!reader)
		abort();
	bounded_functions = *reader->fn;
	unbounded_array = bounded_functions.createArray;
	bounded_functions.createArray = create_bounded_array;
	redisReaderFree(reader);
}

static void bound_replies(redisAsyncContext *context)
{
	pthread_once(&bounded_once, make_bounded_functions);
	context->c.reader->fn = &bounded_functions;
}

/* The parts of a connection in the loop; NULL, with nothing left of them, and why. */
static struct master_io *make_io(uv_loop_t *loop, redisAsyncContext *context, const struct master_address *address,
				 char ret_reason[STATUS_REASON_MAX])
{
	struct master_io *io = calloc(1, sizeof *io);
	snprintf(ret_reason, STATUS_REASON_MAX, "connection: out of memory");
	if (!io)
		return NULL;
	if (address->tls && !(io->ssl = master_tls_begin(context, address, ret_reason, STATUS_REASON_MAX))) {
		free(io);
		return NULL;
	}
	if (uv_poll_init(loop, &io->poll, context->c.fd) != 0) {
		master_tls_free(io->ssl);
		free(io);
		return NULL;
	}
	return io;
}

struct master_io *master_io_attach(uv_loop_t *loop, redisAsyncContext *context, const struct master_address *address,
				   struct master *master, char ret_reason[STATUS_REASON_MAX])
{
	struct master_io *io = make_io(loop, context, address, ret_reason);
	if (!io)
		return NULL;
	io->poll.data = io;
	io->master = master;
	io->context = context;
	bound_replies(context);
	context->ev.data = io;
	context->ev.addRead = hook_add_read;
	context->ev.delRead = hook_del_read;
	context->ev.addWrite = hook_add_write;
	context->ev.delWrite = hook_del_write;
	context->ev.cleanup = hook_cleanup;
	return io;
}

/* Not from within a callback of this very connection, where hiredis must not be asked to write: an error would free it
 * under the callback. What was appended there leaves at the end of the round. */
void master_link_flush(struct master *master)
{
	struct master_io *io = master->io;
	if (!io || !io->want_write || !io->context || io->context->c.flags & REDIS_IN_CALLBACK)
		return;
	io->want_write = false;
	step_write(io);
}

bool masters_have_unread(const struct masters *masters, size_t i)
{
	assert(i < masters->count);
	const struct master_io *io = masters->list[i].io;
	int count = 0;
	return io && io->context && ioctl(io->context->c.fd, FIONREAD, &count) == 0 && count > 0;
}

/* ---- connecting ---- */

void master_link_set_options(int fd, bool is_unix)
{
	if (is_unix)
		return;
	int on = 1, timeout_ms = MASTER_TCP_TIMEOUT_MS, idle_s = 2, interval_s = 1, probes = 3;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

/* Called by hiredis; nothing may be freed from here. On failure its cleanup comes next. */
static void on_connect(const redisAsyncContext *context, int status)
{
	struct master_io *io = context->ev.data;
	struct master *master = io->master;
	if (status != REDIS_OK || !master)
		return;
	master_link_set_options(context->c.fd, master->address->is_unix);
	master->link = LINK_HANDSHAKE;
	master_handshake(master);
}

/* `host` is numeric, so hiredis has no name to look up. */
static void connect_to(struct master *master, const char *host)
{
	const struct master_address *address = master->address;
	master->link = LINK_CONNECTING;
	char why[STATUS_REASON_MAX];
	redisAsyncContext *context = address->is_unix ? redisAsyncConnectUnix(address->host)
						      : redisAsyncConnect(host, address->port);
	if (!context || context->err) {
		snprintf(why, sizeof why, "connection: %.120s", context ? context->errstr : "out of memory");
		if (context)
			redisAsyncFree(context);
		master_link_fail(master, why);
		return;
	}
	struct master_io *io = master_io_attach(master->all->loop, context, address, master, why);
	if (!io) {
		redisAsyncFree(context);
		master_link_fail(master, why);
		return;
	}
	master->io = io;
	master_link_timer(master, MASTER_HANDSHAKE_MS);
	redisAsyncSetConnectCallback(context, on_connect);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
	struct master *master = request->data;
	char host[NI_MAXHOST];
	if (master->link != LINK_RESOLVING) {
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
		master_link_fail(master, why);
		return;
	}
	master->addresses = count;
	/* another one each time, so that one dead address of a name does not block it */
	struct addrinfo *chosen = found;
	for (uint32_t skip = master->attempts % count; skip > 0; skip--)
		chosen = chosen->ai_next;
	int failed = getnameinfo(chosen->ai_addr, chosen->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
	uv_freeaddrinfo(found);
	if (failed)
		master_link_fail(master, "resolve: no usable address");
	else
		connect_to(master, host);
}

static bool is_numeric(const char *host)
{
	unsigned char buffer[sizeof(struct in6_addr)];
	return uv_inet_pton(AF_INET, host, buffer) == 0 || uv_inet_pton(AF_INET6, host, buffer) == 0;
}

static void begin_connecting(struct master *master)
{
	const struct master_address *address = master->address;
	if (address->is_unix || is_numeric(address->host)) {
		connect_to(master, address->host);
		return;
	}
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	master->link = LINK_RESOLVING;
	master->resolve.data = master;
	int failed = uv_getaddrinfo(master->all->loop, &master->resolve, on_resolved, address->host, NULL, &hints);
	if (failed)
		master_link_fail(master, "resolve: cannot start");
}

/* ---- the life of the link ---- */

void master_link_timer(struct master *master, uint64_t delay_ms)
{
	if (!master->closing)
		uv_timer_start(&master->timer, on_timer, delay_ms, 0);
}

static uint64_t backoff_ms(const struct master *master)
{
	uint32_t doublings = master->attempts < 8 ? master->attempts : 8;
	uint64_t ceiling_ms = (uint64_t)MASTER_BACKOFF_MIN_MS << doublings;
	if (ceiling_ms > MASTER_BACKOFF_MAX_MS)
		ceiling_ms = MASTER_BACKOFF_MAX_MS;
	return ceiling_ms / 2 + random_number() % (ceiling_ms / 2 + 1);
}

static bool is_shaking_hands(const struct master *master)
{
	const struct master_io *io = master->io;
	return master->link == LINK_HANDSHAKE && io && io->ssl && master_tls_is_shaking_hands(io->ssl);
}

static const char *late_words(const struct master *master)
{
	if (is_shaking_hands(master))
		return "tls: no end of the handshake; without TLS on that port the address begins with redis://";
	return master->link == LINK_CONNECTING
		       ? "timeout: no connection"
		       : "timeout: no answer to the handshake; is it a Redis server, without TLS?";
}

static void on_timer(uv_timer_t *timer)
{
	struct master *master = timer->data;
	switch (master->link) {
	case LINK_DOWN: begin_connecting(master); break;
	case LINK_CONNECTING:
	case LINK_HANDSHAKE: master_link_fail(master, late_words(master)); break;
	case LINK_UP: master_heartbeat_tick(master); break;
	case LINK_RESOLVING:
	case LINK_CLOSED: break;
	}
}

void master_link_start(struct master *master)
{
	uv_timer_init(master->all->loop, &master->timer);
	master->timer.data = master;
	master->link = LINK_DOWN;
	master_link_timer(master, 0);
}

static void drop_connection(struct master *master)
{
	if (!master->io)
		return;
	redisAsyncContext *context = master->io->context;
	if (context)
		redisAsyncFree(context); /* from within a callback hiredis does it afterwards */
}

void master_link_fail(struct master *master, const char *reason)
{
	if (master->link == LINK_CLOSED || master->link == LINK_DOWN)
		return;
	master_check_end(master);
	master->link = LINK_DOWN;
	master->hung = false;
	master->heartbeat_out = false;
	/* localhost may be ::1 first, and 127.0.0.1 next */
	master->tried = master->tried || master->attempts + 1 >= master->addresses;
	master->has_rtt = false;
	master->soft_reason[0] = '\0';
	master_guard_tell(master, GUARD_LOST);
	snprintf(master->reason, sizeof master->reason, "%s", reason);
	master_state_changed(master);
	drop_connection(master);
	master_link_timer(master, backoff_ms(master));
	if (master->attempts < UINT32_MAX)
		master->attempts++;
}

void master_link_close(struct master *master)
{
	master->closing = true;
	if (master->link == LINK_RESOLVING)
		uv_cancel((uv_req_t *)&master->resolve);
	master->link = LINK_CLOSED;
	drop_connection(master);
	uv_timer_stop(&master->timer);
	uv_close((uv_handle_t *)&master->timer, NULL);
}
