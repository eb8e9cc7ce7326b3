/* hiredis in the libuv loop: reads, writes and the end of one connection.
 *
 * Writing: hiredis asks for the writable event whenever a command is appended. For a connection with an owner the wish
 * is only noted, and all that was appended in a round leaves in one write at its end (master_io_flush). The writable
 * event is waited for only where the socket does not take everything.
 *
 * Over TLS a read may have to write first and a write to read. hiredis follows that up except in one case: after a read
 * that found nothing, it takes every unfinished write for one that waits for a read, also one that the socket had no
 * room for. The rest would stay until the master sends something, which it may not do before it has got the rest. So
 * after each step this file looks at what the TLS connection itself waits for.
 *
 * hiredis frees a context by itself on errors. `cleanup` is the one way out that it always takes, so the owner hears
 * there that its connection has ended. */
#include <hiredis/hiredis.h>
#if HIREDIS_MAJOR < 1
#include <hiredis/sds.h>
#endif
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "master_link.h"
#include "master_tls.h"

static void on_poll(uv_poll_t *poll, int status, int events);

static void on_io_closed(uv_handle_t *handle)
{
	struct master_io *io = handle->data;
	assert(!io->context);
	master_tls_free(io->ssl);
	free(io);
}

static void poll_for(struct master_io *io, int events)
{
	assert(!(events & ~(UV_READABLE | UV_WRITABLE)));
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
	assert(io->context);
	if (!io->ssl) {
		redisAsyncHandleRead(io->context);
		return;
	}
	/* A record is never larger than what hiredis reads at once. Should that change, the rest of it must not be
	 * left. */
	do {
		master_tls_clear_errors();
		redisAsyncHandleRead(io->context);
	} while (io->context && master_tls_has_more(io->ssl));
	if (io->context && master_tls_wants_write(io->ssl))
		poll_for(io, io->events | UV_WRITABLE);
}

#if HIREDIS_MAJOR < 1
/* hiredis 0.14 takes a new buffer after each complete write, and crashes where there is no memory for it. So the bytes
 * are written here and the buffer is kept. hiredis does everything else when it finds nothing left to write, or gets
 * the same error. */
static void write_all(struct master_io *io)
{
	if (!(io->context->c.flags & REDIS_CONNECTED))
		/* finds that it is connected, as a write would, and writes nothing */
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

/* io stays valid, also where the connection ends: libuv frees it in its own round. */
static void step_write(struct master_io *io)
{
	assert(io->context);
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
	assert(poll == &io->poll);
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
	if (connected && !io->flushing && io->ended)
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

/* The peer is no Redis: hiredis names the first byte that is wrong. */
static void explain_protocol(const char *error, char ret_reason[STATUS_REASON_MAX])
{
	const char *guess = strstr(error, "got \"H\"")       ? "; is it an HTTP server?"
			    : strstr(error, "got \"\\x15\"") ? "; if it is TLS, the address begins with rediss://"
							     : "";
	snprintf(ret_reason, STATUS_REASON_MAX, "protocol: this is no Redis server: %.120s%s", error, guess);
}

static void explain_end(const struct master_io *io, char ret_reason[STATUS_REASON_MAX])
{
	const redisContext *context = &io->context->c;
	const char *error = context->errstr[0] ? context->errstr : "closed";
	if (io->ssl && context->flags & REDIS_CONNECTED)
		master_tls_explain(io->ssl, error, ret_reason, STATUS_REASON_MAX);
	else if (context->err == REDIS_ERR_PROTOCOL)
		explain_protocol(error, ret_reason);
	else
		snprintf(ret_reason, STATUS_REASON_MAX, "connection: %.120s%s", error, io->hint ? io->hint : "");
}

/* hiredis is about to free the context: all pending callbacks have been called. */
static void hook_cleanup(void *arg)
{
	struct master_io *io = arg;
	char reason[STATUS_REASON_MAX];
	assert(io->context);
	explain_end(io, reason);
	io->context = NULL;
	uv_poll_stop(&io->poll);
	uv_close((uv_handle_t *)&io->poll, on_io_closed);
	if (io->ended)
		io->ended(io->arg, reason);
}

/* A server that is no Redis may announce a list of a thousand million elements; hiredis 0.14 would make room for it and
 * walk through it. None of our replies has more than a page of SCAN. */
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
	assert(context->c.reader);
	pthread_once(&bounded_once, make_bounded_functions);
	context->c.reader->fn = &bounded_functions;
}

/* The parts of a connection in the loop. NULL: nothing is left of them, and ret_reason says why. */
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
				   char ret_reason[STATUS_REASON_MAX])
{
	assert(context->c.fd >= 0 && !context->ev.data);
	struct master_io *io = make_io(loop, context, address, ret_reason);
	if (!io)
		return NULL;
	io->poll.data = io;
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

void master_io_flush(struct master_io *io)
{
	if (!io->want_write || !io->context || io->context->c.flags & REDIS_IN_CALLBACK)
		return;
	io->want_write = false;
	step_write(io);
}

void master_io_end_for_memory(struct master_io *io)
{
	assert(io->context);
	io->context->c.err = REDIS_ERR_OOM;
	snprintf(io->context->c.errstr, sizeof io->context->c.errstr, "out of memory");
}

bool master_io_has_unread(const struct master_io *io)
{
	int count = 0;
	return io->context && ioctl(io->context->c.fd, FIONREAD, &count) == 0 && count > 0;
}

bool master_io_is_in_tls_handshake(const struct master_io *io)
{
	return io->ssl && master_tls_is_in_handshake(io->ssl);
}

void master_io_set_options(int fd, bool is_unix)
{
	assert(fd >= 0);
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
