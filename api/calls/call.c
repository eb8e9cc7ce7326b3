/* SPDX-License-Identifier: MIT */
/* Replies of a call: problems, JSON, and the headers that belong to them; its line in the log. See calls_internal.h. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"

char *call_dump(json_t *json)
{
	char *text = json_dumps(json, JSON_COMPACT);
	if (!text)
		memory_exhausted("json");
	json_decref(json);
	return text;
}

void call_reply_json(struct call *call, unsigned status, json_t *json)
{
	char *text = call_dump(json);
	assert(status >= 200);
	reply_owned(call->request, status, "application/json", text, strlen(text));
}

bool call_reject_with(struct call *call, enum problem problem, const char *detail, json_t *members,
		      const struct field_errors *errors)
{
	struct reply *reply = &call->request->reply;
	assert(!errors || errors->count > 0);
	call_reply_json(call, problem_status(problem), problem_new(problem, detail, members, errors));
	reply->code = problem_code(problem);
	reply->type = PROBLEM_CONTENT_TYPE;
	if (problem_status(problem) == 503)
		call_retry_after(call, 0);
	return false;
}

bool call_reject(struct call *call, enum problem problem, const char *detail)
{
	return call_reject_with(call, problem, detail, NULL, NULL);
}

void call_retry_after(struct call *call, uint64_t ms)
{
	call->request->reply.retry_after_s = ms <= 1000 ? 1 : (uint32_t)((ms - 1) / 1000 + 1);
}

json_t *call_text_new(const char *bytes, size_t len)
{
	json_t *text = len > 0 ? json_stringn(bytes, len) : NULL;
	return text ? text : json_null();
}

/* ---- votes ---- */

#define VOTE(member)                                            \
	{                                                       \
#member, offsetof(struct redlock_votes, member) \
	}
static const struct {
	const char *name;
	size_t at;
} vote_members[] = {VOTE(needed), VOTE(granted), VOTE(refused), VOTE(failed), VOTE(quarantined), VOTE(masters)};
enum { VOTE_MEMBERS = sizeof vote_members / sizeof vote_members[0] };

static unsigned votes_at(const struct redlock_votes *votes, size_t i)
{
	return ((const uint8_t *)votes)[vote_members[i].at];
}

json_t *call_votes_new(const struct redlock_votes *votes)
{
	json_t *object = json_object();
	assert(votes->needed <= votes->masters);
	for (size_t i = 0; i < VOTE_MEMBERS; i++)
		json_object_set_new(object, vote_members[i].name, json_integer(votes_at(votes, i)));
	return object;
}

/* ---- headers ---- */

static void call_add_location(struct MHD_Response *response, const struct call *call)
{
	char text[sizeof("/locks/") + PATH_ENCODED_MAX] = "/locks/";
	assert(call_has_resource(call));
	path_encode(call->lease.resource, call->lease.resource_len, text + strlen(text));
	reply_add_header(response, MHD_HTTP_HEADER_LOCATION, text);
}

/* Only the page's own style and script, and only our own data. No text becomes HTML (trusted types: none); data: is for
 * an empty icon. */
static void call_add_policy(struct MHD_Response *response, const char *nonce)
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
	reply_add_header(response, "Content-Security-Policy", text);
	reply_add_header(response, "Referrer-Policy", "no-referrer");
}

/* Headers that let a browser call for a page of another origin. */
static void call_add_cross_origin(struct MHD_Response *response, const struct call *call)
{
	assert(call->origin);
	reply_add_header(response, "Access-Control-Allow-Origin", call->origin);
	reply_add_header(response, MHD_HTTP_HEADER_VARY, "Origin");
	if (!call->preflight) {
		reply_add_header(response, "Access-Control-Expose-Headers",
				 "ETag, Location, Retry-After, X-Request-Id");
		return;
	}
	reply_add_header(response, "Access-Control-Allow-Methods", "GET, POST, PUT, DELETE");
	reply_add_header(response, "Access-Control-Allow-Headers",
			 "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Lock-Token, "
			 "Traceparent, X-Api-Key, X-Request-Id");
	reply_add_header(response, "Access-Control-Max-Age", "600");
}

void call_add_headers(const struct call *call, struct MHD_Response *response)
{
	unsigned status = call->request->reply.status;
	assert(status != 0);
	if (call->allow[0] != '\0')
		reply_add_header(response, MHD_HTTP_HEADER_ALLOW, call->allow);
	if (status == 201 && call->lease.set_count == 0) /* a set has no path */
		call_add_location(response, call);
	if (call->tag[0] != '\0') {
		char text[LEASE_TAG_MAX + 2];
		snprintf(text, sizeof text, "\"%s\"", call->tag);
		reply_add_header(response, MHD_HTTP_HEADER_ETAG, text);
	}
	if (call->stream || call->watch) /* nginx: pass each line on at once */
		reply_add_header(response, "X-Accel-Buffering", "no");
	if (status == 401)
		reply_add_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"redlockd\"");
	if (call->origin)
		call_add_cross_origin(response, call);
	if (call->nonce[0] != '\0')
		call_add_policy(response, call->nonce);
}

/* ---- the log ---- */

/* True for a request that an operator should look into. A held lock is normal, and so frequent that its lines would
 * hide the others. A lease that was lost before it was extended is not. */
static bool call_is_error(const struct call *call, unsigned status)
{
	bool any_of_many = call->bulk && call->bulk->problems > 0;
	bool is_lost = call->lease.operation == LEASE_EXTEND && (status == 409 || status == 410 || any_of_many);
	return is_lost || call->votes.needed > 0 || status == 401 || status == 403 || status == 429 || status >= 500 ||
	       (call->stream && hold_stream_is_lost(call->stream));
}

void call_log(const struct call *call, unsigned status, const char *ended, enum MHD_RequestTerminationCode how)
{
	const struct request *request = call->request;
	bool no_quorum = status != 0 && call->votes.needed > 0, quiet = call->route && call->route->quiet;
	enum log_level level = quiet ? LOG_DEBUG : no_quorum ? LOG_WARN : LOG_INFO;
	enum log_requests wanted = request->context->config->options->log_requests;
	assert(request->state != REQUEST_NONE);
	if (!log_wants(level) || wanted == LOG_REQUESTS_NONE ||
	    (wanted == LOG_REQUESTS_ERRORS && (!call_is_error(call, status) || !log_allows("request", status))))
		return;
	log_begin(level, "request");
	call_log_id(call);
	log_text("method", http_method_name(request->method));
	log_text("route", call->route ? call->route->name : "none");
	call_log_names(call->lease.resource, call->lease.resource_len, call->lease.set_count);
	if (call->bulk) {
		log_num("leases", (int64_t)call->bulk->count);
		log_num("problems", (int64_t)call->bulk->problems);
	}
	if (call->caller.known)
		log_text("caller", call->caller.name);
	if (status == 401 || status == 403 || status == 429)
		call_log_address(call);
	if (status != 0)
		log_num("status", status);
	log_text("code", status != 0 ? request->reply.code : NULL);
	for (size_t i = 0; no_quorum && i < VOTE_MEMBERS; i++)
		log_num(vote_members[i].name, votes_at(&call->votes, i));
	log_text("ended", ended);
	if (call->stream)
		hold_stream_log(call, how);
	if (call->streams)
		log_num("events", call->events);
	log_num("us", (int64_t)(clock_now_us() - request->started_us));
	log_end();
}
