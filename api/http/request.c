/* SPDX-License-Identifier: MIT */
/* Reads one request: checks its headers and collects its body for the service.
 *
 * libmicrohttpd calls request_step() once after the headers, for each piece of the body, after all of it, and again
 * after a resume. An error that is known early is stored and answered after the body has been discarded, so that the
 * connection can be kept. Doubtful framing, and anything too large, is answered at once and ends the connection.
 *
 * A grant is released only if none of its answer can have reached the client: the client has closed its side before the
 * answer is queued, or the answer cannot be queued. Later the kernel's view of the socket (unacknowledged bytes,
 * resets) does not show whether the client has read the token. Worker's thread. */
#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http_internal.h"

static const struct http_service *request_service(const struct request *request)
{
	return request->connection->api->config.service;
}

/* The states that may come before a state. */
static const unsigned states_before[] = {
	[REQUEST_NONE] = ~(1u << REQUEST_NONE),
	[REQUEST_BEGUN] = 1u << REQUEST_NONE,
	[REQUEST_BODY] = 1u << REQUEST_BEGUN,
	[REQUEST_RUNNING] = 1u << REQUEST_BODY,
	[REQUEST_DROPPED] = 1u << REQUEST_RUNNING,
	[REQUEST_ANSWERED] = 1u << REQUEST_BODY | 1u << REQUEST_RUNNING,
	[REQUEST_WRITTEN] = 1u << REQUEST_BEGUN | 1u << REQUEST_BODY,
};

static void request_enter(struct request *request, enum request_state state)
{
	struct connection *connection = request->connection;
	assert((states_before[state] & 1u << request->state) != 0);
	if (request->state == REQUEST_BEGUN)
		TAILQ_REMOVE(&connection->mhd_daemon->heads, connection, head_entry);
	if (state == REQUEST_BEGUN)
		TAILQ_INSERT_HEAD(&connection->mhd_daemon->heads, connection, head_entry);
	request->state = state;
}

void request_forget_input(struct request *request)
{
	free(request->target);
	free(request->body);
	request->target = request->body = NULL;
	request->body_len = 0;
}

void request_begin(struct request *request, const char *target)
{
	struct connection *connection = request->connection;
	assert(target && connection);
	/* the previous request, if the library has not reported its end */
	request_end(request, MHD_REQUEST_TERMINATED_WITH_ERROR);
	*request = (struct request){
		.connection = connection,
		.context = &connection->api->context,
		.peer = connection->peer,
		.tls_peer = connection->link.peer,
		.reach = connection->reach,
		.call = connection->call,
		.method = HTTP_OTHER,
		.route = HTTP_ROUTE_NONE,
		.started_us = clock_now_us(),
		.target_len = strlen(target),
	};
	request_enter(request, REQUEST_BEGUN);
	memset(request->call, 0, request_service(request)->call_size);
	if (request->target_len <= REQUEST_TARGET_MAX)
		request->target = memory_copy(target, request->target_len);
	connection->requests++;
	connection->linger = connection_is_spent(connection); /* further requests may have arrived, and are not read */
	if (connection->phase == CONNECTION_IDLE)             /* a new connection's time runs from its accept */
		connection_enter(connection, CONNECTION_RECEIVING);
}

/* Stores an answer that ends the connection at once. */
static void request_reject(struct request *request, unsigned status, const char *detail)
{
	assert(request->reply.status == 0 && status >= 400);
	request_service(request)->reject(request, status, detail);
	request->reply.close = true;
	request->connection->linger = true;
}

/* The same without the library, if it takes no answer or has no room for one. */
static enum MHD_Result request_reject_raw(struct request *request, unsigned status, const char *detail)
{
	reply_clear(&request->reply);
	request_service(request)->reject(request, status, detail);
	tls_link_answer(request->connection, status, detail, request->id);
	request_enter(request, REQUEST_WRITTEN);
	return MHD_NO;
}

static const char *request_too_large(const struct request *request)
{
	_Static_assert(REQUEST_BODY_MAX == 16384 && REQUEST_LARGE_BODY_MAX == 65536, "the texts name them");
	return request->body_max == REQUEST_BODY_MAX ? "The body is larger than 16384 bytes. Send a smaller one."
						     : "The body is larger than 65536 bytes. Send fewer leases.";
}

/* Checks a head before its path is read; stores the answer to an invalid one. Returns the path, or NULL. */
static const char *request_check_head(struct request *request, const char *method, const char **ret_query)
{
	struct headers *headers = &request->headers;
	const char *path = NULL;
	if (headers->many_cookies) {
		request_reject_raw(request, 431, "There are more than 50 cookies. None is needed.");
	} else if (request->target_len > REQUEST_TARGET_MAX) {
		request_reject(request, 414, "The URL is longer than 2048 bytes. Send a shorter one.");
	} else if (headers->too_large) {
		request_reject(request, 431,
			       "The headers are larger than 8192 bytes, or there are more than 64. Send fewer.");
	} else if (headers->broken) {
		request_reject(request, 400, headers->broken);
	} else if (!(path = target_parse(request->target, request->target_len, strcmp(method, "OPTIONS") == 0,
					 &headers->host, &headers->host_len, ret_query))) {
		request_reject(request, 400,
			       "The URL must begin with a slash, or with http:// and a host, and hold visible ASCII "
			       "characters only.");
	} else {
		request->body_max = REQUEST_BODY_MAX;
		if (headers->chunked || headers->content_length > REQUEST_BODY_MAX)
			request->body_max = request_service(request)->body_max(method, path, *ret_query);
		if (headers->content_length > request->body_max)
			request_reject(request, 413, request_too_large(request));
	}
	return request_is_answered(request) ? NULL : path;
}

static void request_name(struct request *request)
{
	memcpy(request->id, request->headers.request_id, sizeof request->id);
	if (request->id[0] == '\0') { /* random, so that no other request has it */
		unsigned char bytes[8];
		random_bytes(bytes, sizeof bytes);
		hex_write(bytes, sizeof bytes, request->id);
	}
}

static void request_read_head(struct request *request, const char *url, const char *method, const char *version)
{
	struct headers *headers = &request->headers;
	const char *query = NULL;
	headers_read(request->connection->mhd, url, method, version, request->target_len, headers);
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection->mhd,
								       MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	request->connection->read += info ? info->header_size : 0;
	request->method = http_method_parse(method);
	request_name(request);
	const char *path = request_check_head(request, method, &query);
	if (headers->chunked) /* the connection ends with the answer (headers.c) */
		request->connection->linger = true;
	if (path)
		request_service(request)->head(request, method, path, query);
}

/* True if the head is complete, the handler has not been called, and no answer is queued. */
static bool request_is_rejected_now(const struct connection *connection)
{
	return MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE) &&
	       !MHD_get_connection_info(connection->mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
}

void request_forestall(struct mhd_daemon *mhd_daemon)
{
	struct connection *connection = TAILQ_FIRST(&mhd_daemon->heads);
	while (connection && !request_is_rejected_now(connection))
		connection = TAILQ_NEXT(connection, head_entry);
	if (!connection)
		return;
	struct request *request = &connection->request;
	headers_read_rejected(connection->mhd, &request->headers);
	request_name(request);
	if (request->headers.broken)
		request_reject_raw(request, 400, request->headers.broken);
	else
		request_reject_raw(request, 431, "The headers are too large. Send fewer.");
}

static enum MHD_Result request_answer(struct request *request)
{
	struct connection *connection = request->connection;
	assert(request_is_answered(request));
	if (request->reply.grants && connection_is_disconnected(connection))
		return MHD_NO; /* the service releases the grant at the request's end */
	if (!reply_queue(request))
		return MHD_NO;
	request_enter(request, REQUEST_ANSWERED);
	connection_enter(connection, CONNECTION_ANSWERING);
	return MHD_YES;
}

/* Keeps a piece of the body, or only counts it if nobody will read it. */
static enum MHD_Result request_read_body(struct request *request, const char *data, size_t *data_len)
{
	size_t room = request->headers.chunked ? request->body_max : (size_t)request->headers.content_length;
	assert(request->state == REQUEST_BODY);
	if (request->body_len + *data_len > request->body_max) {
		/* Only a chunked body gets here. libmicrohttpd takes no answer in the middle of a body. */
		return request_reject_raw(request, 413, request_too_large(request));
	}
	if (!request_is_answered(request)) {
		if (!request->body)
			request->body = memory_alloc(room);
		assert(request->body_len + *data_len <= room);
		memcpy(request->body + request->body_len, data, *data_len);
	}
	request->body_len += *data_len;
	request->connection->read += *data_len;
	*data_len = 0;
	return MHD_YES;
}

/* The request is complete: hands it to the service, unless an answer is known already. */
static enum MHD_Result request_run(struct request *request)
{
	assert(request->state == REQUEST_BODY);
	bool takes_long = !request_is_answered(request) && request_service(request)->complete(request);
	if (!request->keeps_input)
		request_forget_input(request);
	if (request_is_answered(request))
		return request_answer(request);
	if (connection_is_ending(request->connection))
		return MHD_NO; /* too late: request_end() cancels it */
	request_enter(request, REQUEST_RUNNING);
	/* an operation of a few round trips is not worth the two system calls of a watch */
	connection_suspend(request->connection, takes_long);
	return MHD_YES;
}

enum MHD_Result request_step(void *arg, struct MHD_Connection *mhd, const char *url, const char *method,
			     const char *version, const char *data, size_t *data_len, void **context)
{
	struct request *request = *context;
	(void)arg, (void)mhd;
	switch (request->state) {
	case REQUEST_BEGUN:
		request_read_head(request, url, method, version);
		if (!request->keeps_input)
			request_forget_input(request);
		if (request->state == REQUEST_WRITTEN)
			return MHD_NO;
		request_enter(request, REQUEST_BODY);
		return request->reply.close ? request_answer(request) : MHD_YES;
	case REQUEST_BODY: return *data_len > 0 ? request_read_body(request, data, data_len) : request_run(request);
	case REQUEST_RUNNING: return request_answer(request);
	case REQUEST_DROPPED: return MHD_NO;
	default: return MHD_YES; /* already answered: the rest of the request does not matter */
	}
}

/* ---- for the service ---- */

void request_resume(struct request *request)
{
	assert(request->state == REQUEST_RUNNING && request_is_answered(request));
	suspend_end(request->connection);
}

void request_drop(struct request *request)
{
	assert(!request_is_answered(request));
	request_enter(request, REQUEST_DROPPED);
	suspend_end(request->connection);
}

bool request_is_late(const struct request *request)
{
	return request->connection->phase == CONNECTION_LATE;
}

bool request_has_vanished(const struct request *request)
{
	return connection_has_vanished(request->connection);
}

void request_identify(struct request *request)
{
	tls_link_identify(request->connection);
	request->tls_peer = request->connection->link.peer;
}

void request_write_address(const struct request *request, char ret_text[REQUEST_ADDRESS_MAX])
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection->mhd,
								       MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *address = info ? info->client_addr : NULL;
	_Static_assert(REQUEST_ADDRESS_MAX >= INET6_ADDRSTRLEN, "room for an IPv6 address");
	memcpy(ret_text, "unix", sizeof "unix");
	if (address && address->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, ret_text,
			  REQUEST_ADDRESS_MAX);
	else if (address && address->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, ret_text,
			  REQUEST_ADDRESS_MAX);
}

/* ---- the end ---- */

/* The status of the client's answer: libmicrohttpd answers some mistakes by itself. */
static unsigned request_final_status(const struct request *request)
{
	const union MHD_ConnectionInfo *info;
	if (request->state == REQUEST_WRITTEN || request->state == REQUEST_ANSWERED)
		return request->reply.status;
	info = MHD_get_connection_info(request->connection->mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
	return info ? info->http_status : 0;
}

void request_end(struct request *request, enum MHD_RequestTerminationCode how)
{
	struct connection *connection = request->connection;
	const char *ended = NULL;
	if (request->state == REQUEST_NONE)
		return;
	unsigned status = request_final_status(request);
	if (status != 0 && request->state != REQUEST_ANSWERED)
		connection->linger = true; /* an answer of the library: the client may still send */
	if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK && request_is_late(request))
		ended = "late";
	else if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK && (status == 0 || request->state == REQUEST_ANSWERED))
		ended = "client-gone";
	request_service(request)->end(request, status, ended, how);
	http_metrics_request(connection->api->config.metrics, request->route, request->method, status);
	if (how == MHD_REQUEST_TERMINATED_COMPLETED_OK && request->reply.close)
		tls_link_bye(&connection->link);
	reply_clear(&request->reply);
	request_forget_input(request);
	request_enter(request, REQUEST_NONE);
	connection_enter(connection, CONNECTION_IDLE);
	suspend_probe(connection, 0); /* an idle connection has its own timeout */
}
