/* SPDX-License-Identifier: MIT */
/* Answers: stored in the request, then queued with the headers that belong to them. See http.h.
 *
 * An answer may be known long before libmicrohttpd takes it: it takes none while it reads a body, nor while a
 * connection is suspended. Between two pieces of a stream the connection is suspended (phase WORKING) and watched. A
 * piece that the client does not read has the deadline of every answer (--request-timeout-ms). Worker's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "http_internal.h"

enum { BLOCK_BYTES = 4096 }; /* how much of a stream the library requests at once */

void reply_static(struct request *request, unsigned status, const char *type, const char *bytes, size_t len)
{
	struct reply *reply = &request->reply;
	assert(reply->status == 0 && status >= 200 && status < 600);
	assert(bytes);
	reply->status = status;
	reply->type = type;
	reply->bytes = bytes;
	reply->len = len;
}

void reply_owned(struct request *request, unsigned status, const char *type, char *bytes, size_t len)
{
	assert(!request->reply.owned);
	reply_static(request, status, type, bytes, len);
	request->reply.owned = bytes;
}

void reply_copy(struct request *request, unsigned status, const char *type, const char *bytes, size_t len)
{
	assert(len > 0);
	reply_owned(request, status, type, memory_copy(bytes, len), len);
}

void reply_empty(struct request *request, unsigned status)
{
	reply_static(request, status, NULL, "", 0);
}

void reply_stream(struct request *request, unsigned status, const char *type, reply_read_fn *read, void *arg,
		  unsigned vanished_ms)
{
	assert(read && vanished_ms > 0);
	suspend_probe(request->connection, vanished_ms);
	reply_static(request, status, type, "", 0);
	request->reply.read = read;
	request->reply.read_arg = arg;
	request->reply.close = true; /* the connection ends with the stream */
}

void reply_wake(struct request *request)
{
	struct connection *connection = request->connection;
	assert(request->reply.read);
	if (request->state != REQUEST_ANSWERED || connection->phase != CONNECTION_WORKING)
		return;
	suspend_end(connection);
	connection_enter(connection, CONNECTION_ANSWERING);
}

/* ---- streams ---- */

static ssize_t reply_end_stream(struct connection *connection, ssize_t how)
{
	connection_look_again(connection);
	return how;
}

/* MHD_ContentReaderCallback: the next piece of the body. */
static ssize_t reply_read_stream(void *arg, uint64_t position, char *bytes, size_t size)
{
	struct request *request = arg;
	struct connection *connection = request->connection;
	(void)position;
	if (connection_is_ending(connection))
		return reply_end_stream(connection, MHD_CONTENT_READER_END_WITH_ERROR);
	ssize_t len = request->reply.read(request->reply.read_arg, bytes, size);
	assert(len >= REPLY_STREAM_BREAK && len <= (ssize_t)size);
	if (len > 0) { /* the client must read this piece in time */
		connection_enter(connection, CONNECTION_ANSWERING);
		return len;
	}
	if (len == REPLY_STREAM_BREAK)
		return reply_end_stream(connection, MHD_CONTENT_READER_END_WITH_ERROR);
	if (len == REPLY_STREAM_END) {
		/* On close, unread bytes of the client would reset the connection before the last piece is read. */
		char byte;
		connection->linger = recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
		return reply_end_stream(connection, MHD_CONTENT_READER_END_OF_STREAM);
	}
	connection_suspend(connection, true);
	return 0;
}

/* ---- to libmicrohttpd ---- */

/* The library rejects some values, but none of ours. */
void reply_add_header(struct MHD_Response *response, const char *name, const char *value)
{
	assert(value[0] != '\0');
	if (MHD_add_response_header(response, name, value) != MHD_YES)
		memory_exhausted("header");
}

/* Adds the time for which the connection may be idle: less than --idle-timeout-ms, so that the client ends the
 * connection itself and no request meets our end. Nothing if that is below a second. */
static void reply_keep_alive(struct MHD_Response *response, uint32_t idle_timeout_ms)
{
	uint32_t margin_ms = MAX(idle_timeout_ms / 10, 1000U);
	char text[32] = "timeout=";
	if (idle_timeout_ms < margin_ms + 1000)
		return;
	text[8 + text_decimal((idle_timeout_ms - margin_ms) / 1000, text + 8)] = '\0';
	reply_add_header(response, "Keep-Alive", text);
	/* a header for this connection only must be named there */
	MHD_set_response_options(response, MHD_RF_SEND_KEEP_ALIVE_HEADER, MHD_RO_END);
}

static void reply_add_headers(struct MHD_Response *response, const struct request *request)
{
	const struct reply *reply = &request->reply;
	const struct api *api = request->connection->api;
	reply_add_header(response, "X-Request-Id", request->id);
	reply_add_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	reply_add_header(response, "X-Content-Type-Options", "nosniff");
	if (reply->type)
		reply_add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
	if (reply->retry_after_s > 0) {
		char seconds[16];
		snprintf(seconds, sizeof seconds, "%u", reply->retry_after_s);
		reply_add_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
	}
	api->config.service->add_headers(request, response);
	if (reply->close || request->headers.chunked || connection_is_spent(request->connection) ||
	    api->context.draining)
		reply_add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	else if (!request->headers.closes)
		reply_keep_alive(response, api->config.options->idle_timeout_ms);
}

static struct MHD_Response *reply_new_response(struct request *request)
{
	struct reply *reply = &request->reply;
	enum MHD_ResponseMemoryMode mode = reply->owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT;
	if (reply->read)
		return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, reply_read_stream, request,
							 NULL);
	/* The library does not write through the pointer. */
	return MHD_create_response_from_buffer(reply->len, (void *)(uintptr_t)reply->bytes, mode);
}

bool reply_queue(struct request *request)
{
	assert(request->reply.status != 0);
	struct MHD_Response *response = reply_new_response(request);
	if (!response)
		memory_exhausted("response");
	request->reply.owned = NULL; /* the response owns it now */
	reply_add_headers(response, request);
	enum MHD_Result queued = MHD_queue_response(request->connection->mhd, request->reply.status, response);
	MHD_destroy_response(response);
	return queued == MHD_YES;
}

void reply_clear(struct reply *reply)
{
	free(reply->owned);
	memset(reply, 0, sizeof *reply);
}
