/* The way of a request from its head to its reply. api/http reads it and calls the functions of calls_service():
 *
 *     pipeline_head()   route -> authorize_call -> decode_target -> authorize_operation
 *     pipeline_whole()  decode_body -> authorize_operation (if the resource is in the body) -> handle
 *
 * A stage that rejects has noted a reply through call_reject(), and no later stage runs. The reply of an operation
 * comes from the worker's loop; it resumes the request. What can happen to a call besides (its client leaves, the
 * service ends, the keys change, the request is over) is below. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "calls_internal.h"

static void pipeline_head(struct request *request, const char *method, const char *path, const char *query)
{
	struct call *call = request->call;

	assert(!call->request && !request_is_answered(request));
	call->request = request;
	call->match = route_find(method, path, query, &call->found, &call->rest, call->allow, sizeof call->allow);
	size_t index = route_index(call->found);
	bool authorized = authorize_call(call, method);
	if (call->route)
		request->route = index;
	/* the resource of an acquisition is in the body; other routes have one in the path, a prefix, or none */
	request->accepted = authorized && decode_target(call, query) &&
			    ((!call->has_resource && call->route->need != ACCESS_LIST) || authorize_operation(call));
	call->rest = NULL;
}

static void pipeline_whole(struct request *request)
{
	struct call *call = request->call;
	bool named = call->has_resource;

	assert(request->accepted && call->route && !request_is_answered(request));
	if (!decode_body(call) || (call->has_resource && !named && !authorize_operation(call)))
		return;
	call->route->handle(call);
	assert(request_is_answered(request) != (call->op || call->listing));
	request->takes_long = call->listing || (call->lease.operation == LEASE_ACQUIRE && call->lease.wait_ms > 0);
}

/* Reading failed: no stage has run, or none will. */
static void pipeline_reject(struct request *request, unsigned status, const char *detail)
{
	struct call *call = request->call;
	struct field_errors errors = {.count = 0};
	enum problem problem = problem_of_status(status);

	call->request = request;
	if (problem == PROBLEM_INVALID_REQUEST)
		field_errors_add(&errors, "request", "%s", detail);
	call_reject(call, problem, detail, NULL, errors.count > 0 ? &errors : NULL);
}

static size_t pipeline_write_raw(unsigned status, const char *detail, const char *request_id, char *text, size_t size)
{
	return problem_write_raw(problem_of_status(status), detail, request_id, text, size);
}

static bool pipeline_add_headers(const struct request *request, struct MHD_Response *response)
{
	const struct call *call = request->call;

	assert(route_may_answer(call->route, request->reply.status, request->reply.code));
	return call_add_headers(call, response);
}

static void pipeline_leave(struct request *request)
{
	struct call *call = request->call;

	assert(request->state == REQUEST_RUNNING || call->stream);
	if (request->state == REQUEST_ANSWERED) {
		hold_stream_leave(call);
		return;
	}
	if (!call->op && !call->listing)
		return; /* answered and resumed already */
	lock_call_cancel(call);
	request_drop(request);
}

static void pipeline_abort(struct request *request)
{
	struct call *call = request->call;

	assert(request->context->ending);
	if (call->stream) {
		hold_stream_abort(call);
		return;
	}
	if (!call->op && !call->listing)
		return; /* answered and resumed already */
	lock_call_cancel(call);
	call_reject_draining(call);
	request_resume(request);
}

/* An operation under way is cancelled and answered 401 or 403, a stream ends with the line `lost`, a body that still
 * comes is not acted upon. */
static void pipeline_review(struct request *request)
{
	struct call *call = request->call;
	bool receiving = request->state == REQUEST_BODY && request->accepted, under_way = call->op || call->listing;

	if (!receiving && !under_way && !call->stream)
		return; /* it has not asked for anything yet, or has its answer */
	enum access_verdict verdict = authorize_again(call);
	if (verdict == ACCESS_ALLOWED)
		return;
	if (call->stream) {
		hold_stream_revoke(call, authorize_problem(verdict));
		return;
	}
	lock_call_cancel(call);
	authorize_accept(call, verdict);
	request->accepted = false;
	if (under_way)
		request_resume(request);
}

static void pipeline_end(struct request *request, unsigned status, const char *ended,
			 enum MHD_RequestTerminationCode how)
{
	struct call *call = request->call;

	assert(request->state != REQUEST_NONE);
	call->request = request; /* its head may never have come */
	if (call->op || call->listing)
		lock_call_cancel(call);
	if (call->granted && request->state != REQUEST_ANSWERED)
		lease_release_abandoned(request->context->config->leases, call->lease.resource,
					call->lease.resource_len, call->lease.token);
	request_log(call, status, ended, how);
	if (call->stream)
		hold_stream_close(call, how);
	if (call->keys)
		authorize_end(call);
	free(call->query);
	memset(call, 0, sizeof *call);
}

const struct http_service *calls_service(void)
{
	static const struct http_service service = {
		.call_size = sizeof(struct call),
		.route_name = route_name,
		.head = pipeline_head,
		.whole = pipeline_whole,
		.reject = pipeline_reject,
		.write_raw = pipeline_write_raw,
		.add_headers = pipeline_add_headers,
		.leave = pipeline_leave,
		.abort = pipeline_abort,
		.review = pipeline_review,
		.end = pipeline_end,
	};

	return &service;
}

void calls_setup(size_t workers)
{
	json_memory_setup();
	api_setup(workers, calls_service());
}
