/* SPDX-License-Identifier: MIT */
/* The way of a request from its head to its reply. api/http reads it and calls the functions of calls_service():
 *
 *     pipeline_head()   authorize_page -> route -> authorize_caller -> decode_target -> authorize_operation
 *     pipeline_complete()  decode_body -> authorize_operation (if the resource is in the body) -> handle
 *
 * A stage that rejects has stored a reply through call_reject(), and no later stage runs. The reply of an operation
 * comes from the worker's loop; it resumes the request. The other events of a call (its client leaves, the service
 * ends, the keys change, the request is over) are below. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"

enum { VERIFY_BUDGET_US = 1000 };

/* Answers a request for which there is no route. */
static bool pipeline_answer_routeless(struct call *call, const char *method, const char *path)
{
	char detail[192];
	assert(!call->route);
	if (call->allow[0] != '\0' && strcmp(method, "OPTIONS") == 0) {
		strcat(call->allow, ", OPTIONS");
		reply_empty(call->request, 204);
		return false;
	}
	if (call->allow[0] != '\0') {
		snprintf(detail, sizeof detail, "This path takes %s, not %.20s.%s", call->allow, method,
			 strcmp(method, "POST") == 0 && strncmp(path, "/locks/", 7) == 0
				 ? " To acquire, POST /locks with the resource in the body."
				 : "");
		return call_reject(call, PROBLEM_METHOD_NOT_ALLOWED, detail);
	}
	snprintf(detail, sizeof detail, "There is no path %.100s. GET /openapi.yaml lists the paths.", path);
	return call_reject(call, PROBLEM_NOT_FOUND, detail);
}

/* Finds the route. It runs after the checks of page and address, so that rejected ones do not learn which paths
 * exist. */
static bool pipeline_route(struct call *call, const char *method, const char *path, const char *query)
{
	if (strcmp(path, "*") == 0) { /* OPTIONS: the abilities of the server in general (RFC 9110, 9.3.7) */
		strcpy(call->allow, "GET, HEAD, POST, PUT, DELETE, OPTIONS");
		reply_empty(call->request, 204);
		return false;
	}
	call->route = route_find(method, path, query, &call->rest, call->allow);
	if (!call->route)
		return pipeline_answer_routeless(call, method, path);
	call->request->route = route_index(call->route);
	return true;
}

/* Decodes the target for a caller that is known, and checks what it names. */
static bool pipeline_decode_target(struct call *call, const char *query)
{
	/* the resource of an acquisition is in the body; other routes have one in the path, a prefix, or none */
	bool accepted = decode_target(call, query) &&
			((!call_has_resource(call) && call->route->need != ACCESS_LIST) || authorize_operation(call));
	call->rest = NULL;
	return accepted;
}

static void pipeline_head(struct request *request, const char *method, const char *path, const char *query)
{
	struct call *call = request->call;
	assert(!call->request && !request_is_answered(request));
	call->request = request;
	bool accepted = authorize_page(call, method) && pipeline_route(call, method, path, query) &&
			authorize_caller(call);
	if (accepted && call->token) {
		call->raw_query = query;
		request->keeps_input = true;
		return;
	}
	accepted = accepted && pipeline_decode_target(call, query);
	assert(accepted != request_is_answered(request));
	call->rest = NULL;
}

/* Handles a call whose caller is known. Returns true if that may take longer than a few round trips. */
static bool pipeline_handle(struct call *call)
{
	struct request *request = call->request;
	bool named = call_has_resource(call);
	assert(call->route && !call->token && !request_is_answered(request));
	if (!decode_body(call) || (call_has_resource(call) && !named && !authorize_operation(call)))
		return false;
	if (call->bulk)
		bulk_submit(call);
	else
		call->route->handle(call);
	assert(request_is_answered(request) !=
	       (call->op || bulk_is_under_way(call->bulk) || call->listing || (call->watch && !call->streams)));
	return call->listing || call->lease.wait_ms > 0;
}

/* The caller is known only now. */
static bool pipeline_go_on(struct call *call)
{
	bool takes_long = pipeline_decode_target(call, call->raw_query) && pipeline_handle(call);
	call->request->keeps_input = false;
	return takes_long;
}

static bool pipeline_complete(struct request *request)
{
	struct call *call = request->call;
	if (!call->token)
		return pipeline_handle(call);
	if (request->context->ending)
		return call_reject(call, PROBLEM_DRAINING, NULL);
	if (!authorize_wait_for_verification(call))
		return false;
	return call->token || pipeline_go_on(call);
}

/* It is the turn of a call whose token waits to be verified. */
static void pipeline_verify(struct call *call)
{
	struct request *request = call->request;
	if (request->state != REQUEST_RUNNING)
		return; /* its connection is ending */
	if (authorize_verify(call))
		pipeline_go_on(call);
	request_forget_input(request);
	if (request_is_answered(request))
		request_resume(request);
}

/* Reading failed: no stage has run, or no other will. */
static void pipeline_reject(struct request *request, unsigned status, const char *detail)
{
	struct call *call = request->call;
	call->request = request;
	call_reject(call, problem_of_status(status), detail);
}

static size_t pipeline_write_raw(unsigned status, const char *detail, const char *request_id, char *text, size_t size)
{
	enum problem problem = problem_of_status(status);
	char *body = call_dump(problem_new(problem, detail, NULL, NULL));
	assert(size >= 1024);
	int len = snprintf(text, size,
			   "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: " PROBLEM_CONTENT_TYPE
			   "\r\nContent-Length: %zu\r\n"
			   "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n%s\r\n%s",
			   status, MHD_get_reason_phrase_for(status), strlen(body), request_id,
			   problem == PROBLEM_TOO_MANY_REQUESTS ? "Retry-After: 1\r\n" : "", body);
	assert(len > 0 && (size_t)len < size);
	free(body);
	return (size_t)len;
}

static void pipeline_add_headers(const struct request *request, struct MHD_Response *response)
{
	const struct call *call = request->call;
	assert(route_may_answer(call->route, request->reply.status, request->reply.code));
	call_add_headers(call, response);
}

/* True if something was under way. */
static bool pipeline_cancel(struct call *call)
{
	return verify_cancel(call) || watch_cancel(call) || lock_call_cancel(call) || bulk_cancel(call);
}

static void pipeline_leave(struct request *request)
{
	struct call *call = request->call;
	assert(request->state == REQUEST_RUNNING || call->stream || call->watch);
	if (request->state == REQUEST_ANSWERED && call->stream)
		hold_stream_leave(call);
	else if (request->state == REQUEST_ANSWERED)
		watch_leave(call);
	else if (pipeline_cancel(call)) /* else it is answered and resumed already */
		request_drop(request);
}

static void pipeline_abort(struct request *request)
{
	struct call *call = request->call;
	assert(request->context->ending);
	if (call->stream) {
		hold_stream_abort(call);
	} else if (call->watch && call->streams) {
		watch_finish(call);
	} else if (pipeline_cancel(call)) { /* else it is answered and resumed already */
		call_reject(call, PROBLEM_DRAINING, NULL);
		request_resume(request);
	}
}

static bool pipeline_is_under_way(const struct call *call)
{
	return call->op || bulk_is_under_way(call->bulk) || call->listing || (call->watch && !call->streams);
}

/* A caller without its right: an operation under way is cancelled and answered 401 or 403, a stream ends with the line
 * `lost`, and a body that is still being received has no effect. */
static void pipeline_revoke(struct call *call, enum access_verdict verdict)
{
	bool under_way = pipeline_is_under_way(call);
	if (call->stream) {
		hold_stream_revoke(call, authorize_problem(verdict));
	} else if (call->watch && call->streams) {
		watch_finish(call);
	} else {
		pipeline_cancel(call);
		authorize_accept(call, verdict);
		if (under_way)
			request_resume(call->request);
	}
}

/* After a reload. */
static void pipeline_review(struct request *request)
{
	struct call *call = request->call;
	bool receiving = request->state == REQUEST_BODY && !request_is_answered(request);
	if (!receiving && !pipeline_is_under_way(call) && !call->stream && !call->watch)
		return; /* no head yet, or answered already */
	if (call->token)
		return; /* the present keys verify it */
	enum access_verdict verdict = authorize_again(call);
	if (verdict != ACCESS_ALLOWED && !authorize_renew(call))
		pipeline_revoke(call, verdict);
}

/* The token of the caller has ended. */
static void pipeline_end_token(struct call *call)
{
	if (!pipeline_is_under_way(call) && !call->stream && !call->watch)
		return;
	if (authorize_renew(call)) {
		verify_use(call);
		return;
	}
	call->caller.reason = token_reason(TOKEN_EXPIRED);
	pipeline_revoke(call, ACCESS_UNKNOWN);
}

static uint64_t pipeline_run(const struct request_context *context)
{
	struct call *call;
	if (!calls_state(context)->tokens)
		return UINT64_MAX;
	uint64_t now_us = clock_now_us(), until_us = now_us + VERIFY_BUDGET_US;
	while ((call = verify_next(context)) != NULL) {
		pipeline_verify(call);
		if (clock_now_us() >= until_us)
			break;
	}
	while ((call = verify_next_ended(context, now_us)) != NULL) {
		pipeline_end_token(call);
		if (clock_now_us() >= until_us)
			break;
	}
	return verify_due_us(context);
}

static void pipeline_end(struct request *request, unsigned status, const char *ended,
			 enum MHD_RequestTerminationCode how)
{
	struct call *call = request->call;
	assert(request->state != REQUEST_NONE);
	call->request = request; /* its head may never have come */
	pipeline_cancel(call);
	if (request->reply.grants && !call->stream && request->state != REQUEST_ANSWERED) {
		if (trail_is_on(call))
			trail_left(call);
		lease_release_abandoned(request->context->config->leases, &call->lease, call->lease.token);
	}
	if (trail_is_on(call))
		trail_refused(call);
	call_log(call, status, ended, how);
	if (call->stream)
		hold_stream_close(call, how);
	watch_close(call);
	authorize_end(call);
	bulk_free(call->bulk);
	if (call->query)
		text_fini(&call->query->locks);
	free(call->query);
	free((char *)call->lease.metadata);
	free((char *)call->lease.owner);
	free((char *)call->lease.resource);
	memset(call, 0, sizeof *call);
}

const struct http_service *calls_service(void)
{
	static const struct http_service service = {
		.call_size = sizeof(struct call),
		.state_size = sizeof(struct calls_state),
		.route_name = route_name,
		.body_max = route_body_max,
		.head = pipeline_head,
		.complete = pipeline_complete,
		.reject = pipeline_reject,
		.write_raw = pipeline_write_raw,
		.add_headers = pipeline_add_headers,
		.run = pipeline_run,
		.close = verify_close,
		.leave = pipeline_leave,
		.abort = pipeline_abort,
		.review = pipeline_review,
		.end = pipeline_end,
	};
	return &service;
}
