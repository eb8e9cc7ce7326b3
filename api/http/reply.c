/* Answers: noted in the request, then queued with all headers that belong to them. See reply.h.
 *
 * An answer may be known long before libmicrohttpd takes it: it takes none while it reads a body, nor while a
 * connection is suspended. So it is noted first; request.c queues it when the time has come. Worker's thread. */
#include "reply.h"

#include <assert.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth/auth.h"
#include "api/calls/hold_stream.h"
#include "api/calls/path.h"
#include "http_internal.h"

void reply_static(struct request *request, unsigned status, const char *type, const char *bytes, size_t len)
{
	struct reply *reply = &request->reply;

	assert(reply->status == 0 && status >= 200);
	reply->status = status;
	reply->type = type;
	reply->bytes = bytes;
	reply->len = len;
}

void reply_owned(struct request *request, unsigned status, const char *type, char *bytes, size_t len)
{
	if (bytes == NULL) {
		request_fail(request);
		return;
	}
	reply_static(request, status, type, bytes, len);
	request->reply.owned = bytes;
}

void reply_copy(struct request *request, unsigned status, const char *type, const char *bytes, size_t len)
{
	char *copy = malloc(len);

	if (copy != NULL)
		memcpy(copy, bytes, len);
	reply_owned(request, status, type, copy, len);
}

void reply_json(struct request *request, unsigned status, json_t *json)
{
	char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;

	json_decref(json);
	if (json_memory_failed()) { /* half an answer is none */
		free(text);
		text = NULL;
	}
	reply_owned(request, status, "application/json", text, text != NULL ? strlen(text) : 0);
}

void reply_empty(struct request *request, unsigned status)
{
	reply_static(request, status, NULL, "", 0);
}

static void reply_problem_object(struct request *request, enum problem problem, json_t *object)
{
	reply_json(request, problem_status(problem), object);
	request->reply.code = problem_code(problem);
	if (request->reply.type != NULL)
		request->reply.type = PROBLEM_CONTENT_TYPE;
	if (problem_status(problem) == 503 && request->reply.retry_after_s == 0)
		request->reply.retry_after_s = 1;
}

void reply_problem(struct request *request, enum problem problem, const char *detail, json_t *members)
{
	reply_problem_object(request, problem, problem_new(problem, detail, members, NULL));
}

void reply_invalid(struct request *request, const char *detail, const struct field_errors *errors)
{
	assert(errors == NULL || errors->count > 0);
	reply_problem_object(request, PROBLEM_INVALID_REQUEST,
			     problem_new(PROBLEM_INVALID_REQUEST, detail, NULL, errors));
}

static bool add(struct MHD_Response *response, const char *name, const char *value)
{
	return MHD_add_response_header(response, name, value) == MHD_YES;
}

static bool add_location(struct MHD_Response *response, const struct request *request)
{
	char text[sizeof("/locks/") + PATH_ENCODED_MAX] = "/locks/";

	path_encode(request->lease.resource, request->lease.resource_len, text + strlen(text));
	return add(response, MHD_HTTP_HEADER_LOCATION, text);
}

/* Nothing but the page's own style and script, and only our own data. No text becomes HTML (trusted types: none); data:
 * is for an icon that is none. */
static bool add_policy(struct MHD_Response *response, const char *nonce)
{
	char text[384];

	snprintf(text, sizeof(text),
		 "default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; connect-src 'self'; img-src data:; "
		 "base-uri 'none'; form-action 'none'; "
		 "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		 nonce, nonce);
	return add(response, "Content-Security-Policy", text) && add(response, "Referrer-Policy", "no-referrer");
}

/* What a browser lets a page of another origin do and see. */
static bool add_cross_origin(struct MHD_Response *response, const struct request *request)
{
	bool ok = add(response, "Access-Control-Allow-Origin", request->origin) &&
		  add(response, MHD_HTTP_HEADER_VARY, "Origin");

	if (!request->reply.preflight)
		return ok && add(response, "Access-Control-Expose-Headers", "Location, Retry-After, X-Request-Id");
	return ok && add(response, "Access-Control-Allow-Methods", "GET, POST, PUT, DELETE") &&
	       add(response, "Access-Control-Allow-Headers",
		   "Authorization, Content-Type, Lock-Token, X-Api-Key, X-Request-Id") &&
	       add(response, "Access-Control-Max-Age", "600");
}

static bool add_headers(struct MHD_Response *response, const struct request *request)
{
	const struct reply *reply = &request->reply;
	bool ok = add(response, "X-Request-Id", request->id) &&
		  add(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store") &&
		  add(response, "X-Content-Type-Options", "nosniff");

	if (reply->type != NULL)
		ok = ok && add(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
	if (reply->retry_after_s > 0) {
		char seconds[16];
		snprintf(seconds, sizeof(seconds), "%u", reply->retry_after_s);
		ok = ok && add(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
	}
	if (reply->allow[0] != '\0')
		ok = ok && add(response, MHD_HTTP_HEADER_ALLOW, reply->allow);
	if (reply->location)
		ok = ok && add_location(response, request);
	if (request->stream != NULL) /* nginx: pass each line on at once */
		ok = ok && add(response, "X-Accel-Buffering", "no");
	if (reply->status == 401)
		ok = ok && add(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"redlockd\"");
	if (request->origin != NULL)
		ok = ok && add_cross_origin(response, request);
	if (reply->nonce[0] != '\0')
		ok = ok && add_policy(response, reply->nonce);
	if (reply->close || request->headers.chunked || connection_is_spent(request->connection) ||
	    api_is_draining(request->connection->api))
		ok = ok && add(response, MHD_HTTP_HEADER_CONNECTION, "close");
	return ok;
}

bool reply_queue(struct request *request)
{
	struct reply *reply = &request->reply;
	enum MHD_ResponseMemoryMode mode = reply->owned != NULL ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT;

	assert(reply->status != 0);
	/* The library does not write through the pointer. */
	struct MHD_Response *response = request->stream != NULL
						? hold_stream_response(request)
						: MHD_create_response_from_buffer(
							  reply->len, (void *)(uintptr_t)reply->bytes, mode);
	if (response == NULL)
		return false;
	reply->owned = NULL; /* the response has it now */
	bool ok = add_headers(response, request) &&
		  MHD_queue_response(request->connection->mhd, reply->status, response) == MHD_YES;
	MHD_destroy_response(response);
	return ok;
}

void reply_clear(struct reply *reply)
{
	free(reply->owned);
	memset(reply, 0, sizeof(*reply));
}
