/* Replies of a call: problems, JSON, and the headers that belong to them. See calls_internal.h. */
#include <assert.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"

void call_reply_json(struct call *call, unsigned status, json_t *json)
{
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

	assert(status >= 200);
	json_decref(json);
	if (json_memory_failed()) { /* half an answer is none */
		free(text);
		text = NULL;
	}
	reply_owned(call->request, status, "application/json", text, text ? strlen(text) : 0);
}

bool call_reject(struct call *call, enum problem problem, const char *detail, json_t *members,
		 const struct field_errors *errors)
{
	struct reply *reply = &call->request->reply;

	assert(detail && (!errors || errors->count > 0));
	call_reply_json(call, problem_status(problem), problem_new(problem, detail, members, errors));
	reply->code = problem_code(problem);
	if (reply->type)
		reply->type = PROBLEM_CONTENT_TYPE;
	if (problem_status(problem) == 503 && reply->retry_after_s == 0)
		reply->retry_after_s = 1;
	return false;
}

bool call_reject_draining(struct call *call)
{
	return call_reject(call, PROBLEM_DRAINING, "The service is shutting down.", NULL, NULL);
}

/* ---- headers ---- */

static bool call_add(struct MHD_Response *response, const char *name, const char *value)
{
	return MHD_add_response_header(response, name, value) == MHD_YES;
}

static bool call_add_location(struct MHD_Response *response, const struct call *call)
{
	char text[sizeof("/locks/") + PATH_ENCODED_MAX] = "/locks/";

	assert(call->has_resource);
	path_encode(call->lease.resource, call->lease.resource_len, text + strlen(text));
	return call_add(response, MHD_HTTP_HEADER_LOCATION, text);
}

/* Only the page's own style and script, and only our own data. No text becomes HTML (trusted types: none); data: is for
 * an icon that is none. */
static bool call_add_policy(struct MHD_Response *response, const char *nonce)
{
	char text[384];

	assert(strlen(nonce) == CALL_NONCE_LEN);
	int len = snprintf(text, sizeof text,
			   "default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; connect-src 'self'; "
			   "img-src data:; "
			   "base-uri 'none'; form-action 'none'; "
			   "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
			   nonce, nonce);
	assert(len > 0 && (size_t)len < sizeof text);
	return call_add(response, "Content-Security-Policy", text) &&
	       call_add(response, "Referrer-Policy", "no-referrer");
}

/* What a browser lets a page of another origin do and see. */
static bool call_add_cross_origin(struct MHD_Response *response, const struct call *call)
{
	bool ok = call_add(response, "Access-Control-Allow-Origin", call->origin) &&
		  call_add(response, MHD_HTTP_HEADER_VARY, "Origin");

	assert(call->origin);
	if (!call->preflight)
		return ok && call_add(response, "Access-Control-Expose-Headers", "Location, Retry-After, X-Request-Id");
	return ok && call_add(response, "Access-Control-Allow-Methods", "GET, POST, PUT, DELETE") &&
	       call_add(response, "Access-Control-Allow-Headers",
			"Authorization, Content-Type, Lock-Token, X-Api-Key, X-Request-Id") &&
	       call_add(response, "Access-Control-Max-Age", "600");
}

bool call_add_headers(const struct call *call, struct MHD_Response *response)
{
	const struct request *request = call->request;
	bool ok = true;

	assert(request->reply.status != 0);
	if (call->shows_allow)
		ok = ok && call_add(response, MHD_HTTP_HEADER_ALLOW, call->allow);
	if (call->location)
		ok = ok && call_add_location(response, call);
	if (call->stream) /* nginx: pass each line on at once */
		ok = ok && call_add(response, "X-Accel-Buffering", "no");
	if (request->reply.status == 401)
		ok = ok && call_add(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"redlockd\"");
	if (call->origin)
		ok = ok && call_add_cross_origin(response, call);
	if (call->nonce[0] != '\0')
		ok = ok && call_add_policy(response, call->nonce);
	return ok;
}
