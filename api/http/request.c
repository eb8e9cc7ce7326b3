/* One request: its headers are checked, its body collected, its call carried out, its answer queued, its line logged.
 *
 * libmicrohttpd calls request_step() once when the headers are in, for each piece of the body, when all is in, and
 * again after a resume. An error that is known early is noted and answered when the body has been read away, so that
 * the connection can be kept; but what casts doubt on the framing, and what is too large, is answered at once and ends
 * the connection.
 *
 * A grant is given back only if none of its answer can have reached the client: the client has closed its side before
 * the answer is queued, or the answer cannot be queued. From then on the lease outlives the connection: the kernel's
 * view of the socket (unacknowledged bytes, resets) cannot tell whether the client has read the token. All on the
 * worker's thread. */
#include "request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/authorize.h"
#include "api/calls/calls.h"
#include "api/calls/hold_stream.h"
#include "http_internal.h"
#include "api/calls/request_log.h"
#include "server/base/base.h"

enum { MADE_ID_LEN = 16 };

void request_init(struct request *request, struct connection *connection)
{
	memset(request, 0, sizeof(*request));
	request->connection = connection;
}

static void forget_target(struct request *request)
{
	free(request->target);
	request->target = NULL;
}

static void forget_body(struct request *request)
{
	free(request->body);
	request->body = NULL;
	request->body_len = 0;
}

/* 64 random bits in hexadecimal: only a name, but that of no other request. */
static void make_id(char ret_id[MADE_ID_LEN + 1])
{
	uint64_t number = random_number();

	for (int i = MADE_ID_LEN - 1; i >= 0; i--, number >>= 4)
		ret_id[i] = "0123456789abcdef"[number & 15];
	ret_id[MADE_ID_LEN] = '\0';
}

void request_begin(struct request *request, const char *target)
{
	struct connection *connection = request->connection;

	/* the one before, should the library not have told of its end */
	request_end(request, MHD_REQUEST_TERMINATED_WITH_ERROR);
	request_init(request, connection);
	request->state = REQUEST_BEGUN;
	request->method = HTTP_OTHER;
	request->started_us = api_now_us();
	request->target_len = strlen(target);
	if (request->target_len <= REQUEST_TARGET_MAX && (request->target = malloc(request->target_len + 1)) != NULL)
		memcpy(request->target, target, request->target_len + 1);
	connection->had_request = true;
	connection->requests++;
	connection->linger = connection_is_spent(connection); /* further ones may have come already, and are not read */
	if (connection->phase == CONNECTION_IDLE)             /* a new connection's time runs from its accept */
		connection_enter(connection, CONNECTION_RECEIVING);
}

/* Answers that end the connection at once. */
static void refuse(struct request *request, enum problem problem, const char *detail)
{
	if (problem == PROBLEM_INVALID_REQUEST) {
		struct field_errors errors = {.count = 0};
		field_errors_add(&errors, "request", "%s", detail);
		reply_invalid(request, detail, &errors);
	} else {
		reply_problem(request, problem, detail, NULL);
	}
	request->reply.close = true;
	request->connection->linger = true;
}

/* The same past the library, where that takes no answer or has no room for one. */
static enum MHD_Result refuse_raw(struct request *request, enum problem problem, const char *detail)
{
	reply_clear(&request->reply);
	reply_problem(request, problem, detail, NULL);
	connection_write_raw(request->connection, problem, detail, request->id);
	request->written_raw = true;
	return MHD_NO;
}

static bool is_answered(const struct request *request)
{
	return request->reply.status != 0 || request->failed;
}

static bool find_route(struct request *request, const char *method, const char *path, const char **ret_rest)
{
	char allow[REPLY_ALLOW_MAX];

	if (strcmp(path, "*") == 0) { /* OPTIONS: what the server can do as a whole (RFC 9110, 9.3.7) */
		reply_empty(request, 204);
		snprintf(request->reply.allow, sizeof(request->reply.allow), "GET, HEAD, POST, PUT, DELETE, OPTIONS");
		return false;
	}
	switch (route_find(method, path, &request->route, ret_rest, allow, sizeof(allow))) {
	case ROUTE_NO_PATH: reply_problem(request, PROBLEM_NOT_FOUND, "There is no such path.", NULL); return false;
	case ROUTE_NO_METHOD:
		reply_problem(request, PROBLEM_METHOD_NOT_ALLOWED,
			      "The header Allow says which methods this path takes.", NULL);
		memcpy(request->reply.allow, allow, sizeof(allow));
		return false;
	case ROUTE_FOUND: break;
	}
	request->lease.operation = request->route->call;
	return true;
}

/* The resource that the path names. */
static bool take_resource(struct request *request, const char *rest)
{
	size_t len = 0;
	const char *reason = path_decode(rest, strlen(rest), false, request->lease.resource, LEASE_RESOURCE_MAX, &len);
	if (reason == NULL)
		reason = path_check_resource(request->lease.resource, len);
	if (reason != NULL) {
		struct field_errors errors = {.count = 0};
		field_errors_add(&errors, "resource", "%s", reason);
		reply_invalid(request, "What the path names cannot be a resource.", &errors);
		return false;
	}
	request->lease.resource_len = (uint16_t)len;
	request->has_resource = true;
	return true;
}

/* `force` changes what the caller must be allowed to do. */
static void take_force(struct request *request, struct field_errors *errors)
{
	const struct path_param *param = request->params;

	if (param == NULL || request->lease.operation != LEASE_RELEASE || !param->given)
		return;
	request->force = true;
	if (strcmp(param->value, "true") != 0)
		field_errors_add(errors, "force", "must be true");
	if (request->headers.has_token)
		field_errors_add(errors, "Lock-Token", "must not be there with force");
}

/* What the route does not allow: parameters, a body, a body from a page of another type. */
static bool check_route(struct request *request, struct field_errors *errors)
{
	const struct headers *headers = &request->headers;
	if (headers->keys_twice)
		field_errors_add(errors, "Authorization", "a key must come once, in Authorization or in X-Api-Key");
	if (headers->has_body && !request->route->takes_body)
		field_errors_add(errors, "body", "must not be there");
	if (headers->has_body && headers->has_origin && !headers->has_json)
		field_errors_add(errors, "Content-Type", "must be application/json where there is an Origin");
	if (headers->token_bad && request->route->takes_body)
		field_errors_add(errors, "Lock-Token", "must be %d lower-case hexadecimal digits, given once",
				 LEASE_TOKEN_LEN);
	if (errors->count > 0)
		reply_invalid(request, "The request does not fit the call.", errors);
	else if (headers->has_body && headers->is_encoded)
		reply_problem(request, PROBLEM_BODY_ENCODED, "Send the body as it is, without Content-Encoding.",
			      json_pack("{s:[{s:s, s:s}]}", "errors", "field", "Content-Encoding", "reason",
					"must be identity, or not be there"));
	return !is_answered(request);
}

/* From the route to the handler's door; what stands in a body comes later. */
static bool enter(struct request *request, const char *method, const char *path, const char *query)
{
	struct field_errors errors = {.count = 0};
	const char *rest = NULL;

	if (!find_route(request, method, path, &rest))
		return false;
	bool names_resource = strstr(request->route->pattern, "{resource}") != NULL;
	if (request->route->params[0] != NULL &&
	    (request->params = calloc(PATH_PARAMS_MAX, sizeof(*request->params))) == NULL) {
		request_fail(request);
		return false;
	}
	path_parse_query(query, request->route->params, request->params, &errors);
	take_force(request, &errors);
	if (!authorize_caller(request) || (names_resource && !take_resource(request, rest)) ||
	    !check_route(request, &errors))
		return false;
	if (request->has_resource)
		return authorize_resource(request, request->lease.resource, request->lease.resource_len);
	return request->route->need != ACCESS_LIST ||
	       authorize_resource(request, request->params[0].value, request->params[0].len);
}

/* The whole of the headers is there. Notes an answer where they do not lead to a call. */
static void take_headers(struct request *request, const char *url, const char *method, const char *version)
{
	struct headers *headers = &request->headers;
	const char *path = NULL, *query = NULL;
	bool options = strcmp(method, "OPTIONS") == 0;

	headers_read(request->connection->mhd, url, method, version, request->target_len, headers);
	request->method = http_method_parse(method);
	if (headers->request_id[0] != '\0')
		memcpy(request->id, headers->request_id, sizeof(request->id));
	else
		make_id(request->id);
	if (headers->many_cookies) {
		refuse_raw(request, PROBLEM_HEADERS_TOO_LARGE, "There are more than 50 cookies.");
	} else if (request->target_len > REQUEST_TARGET_MAX) {
		refuse(request, PROBLEM_URL_TOO_LONG, "The URL is longer than 2048 bytes.");
	} else if (request->target == NULL) {
		request_fail(request);
	} else if (headers->too_large) {
		refuse(request, PROBLEM_HEADERS_TOO_LARGE,
		       "The headers are larger than 8192 bytes, or there are more than 64.");
	} else if (headers->broken != NULL) {
		refuse(request, PROBLEM_INVALID_REQUEST, headers->broken);
	} else if ((path = path_open_target(request->target, request->target_len, options, &headers->host,
					    &headers->host_len, &query)) == NULL) {
		refuse(request, PROBLEM_INVALID_REQUEST,
		       "The URL must begin with a slash, or with http:// and a host, and hold visible ASCII characters "
		       "only.");
	} else if (headers->content_length > BODY_MAX) {
		refuse(request, PROBLEM_BODY_TOO_LARGE, "The body is larger than 16384 bytes.");
	}
	if (headers->chunked) /* the connection ends with the answer (headers.c) */
		request->connection->linger = true;
	if (is_answered(request))
		return;
	request->admitted = authorize_page(request, method) && authorize_address(request) &&
			    enter(request, method, path, query);
	assert(request->admitted != is_answered(request));
}

void request_fail(struct request *request)
{
	log_begin(LOG_ERROR, "out-of-memory");
	log_text("id", request->id);
	log_end();
	request->failed = true;
}

/* Queues the noted answer. */
static enum MHD_Result answer(struct request *request)
{
	struct connection *connection = request->connection;

	if (request->failed || request->gone)
		return MHD_NO;
	assert(route_may_answer(request->route, request->reply.status, request->reply.code));
	if ((request->granted || request->stream != NULL) && connection_is_gone(connection))
		return MHD_NO; /* request_end() gives the grant back */
	if (!reply_queue(request)) {
		request_fail(request);
		return MHD_NO;
	}
	request->state = REQUEST_ANSWERED;
	connection_enter(connection, CONNECTION_ANSWERING);
	return MHD_YES;
}

static bool keep_body(struct request *request, const char *data, size_t len)
{
	size_t room = request->headers.chunked ? BODY_MAX : (size_t)request->headers.content_length;

	if (request->body == NULL)
		request->body = malloc(room);
	if (request->body == NULL)
		return false;
	assert(request->body_len + len <= room);
	memcpy(request->body + request->body_len, data, len);
	return true;
}

/* A piece of the body. What nobody will read is only counted. */
static enum MHD_Result take_body(struct request *request, const char *data, size_t *data_len)
{
	if (request->body_len + *data_len > BODY_MAX) {
		/* Only a chunked one comes this far. libmicrohttpd takes no answer in the middle of a body. */
		return refuse_raw(request, PROBLEM_BODY_TOO_LARGE, "The body is larger than 16384 bytes.");
	}
	if (request->admitted && !keep_body(request, data, *data_len)) {
		request_fail(request);
		return MHD_NO;
	}
	request->body_len += *data_len;
	*data_len = 0;
	return MHD_YES;
}

/* The resource of an acquisition stands in its body. */
static bool authorize_body(struct request *request)
{
	if (!request->route->takes_body)
		return true;
	if (!lock_call_read_body(request))
		return false;
	if (request->force) /* it was admitted with its headers */
		return true;
	request->has_resource = true;
	return authorize_resource(request, request->lease.resource, request->lease.resource_len) &&
	       authorize_wait(request);
}

/* The request is whole: carries out its call, unless an answer is known already. */
static enum MHD_Result run(struct request *request)
{
	bool admitted = request->admitted && authorize_body(request);

	forget_body(request);
	if (admitted)
		request->route->handle(request);
	if (is_answered(request))
		return answer(request);
	assert(request->op != NULL || request->listing != NULL);
	if (request->connection->phase == CONNECTION_ENDING)
		return MHD_NO; /* too late: request_end() cancels it */
	request->state = REQUEST_RUNNING;
	connection_enter(request->connection, CONNECTION_WORKING);
	MHD_suspend_connection(request->connection->mhd);
	if (request->listing != NULL || (request->lease.operation == LEASE_ACQUIRE && request->lease.wait_ms > 0))
		/* only what can take longer than a few round trips is worth two system calls */
		gone_watch(request->connection);
	return MHD_YES;
}

enum MHD_Result request_step(struct request *request, const char *url, const char *method, const char *version,
			     const char *data, size_t *data_len)
{
	switch (request->state) {
	case REQUEST_BEGUN:
		take_headers(request, url, method, version);
		forget_target(request);
		request->state = REQUEST_BODY;
		if (request->written_raw)
			return MHD_NO;
		return request->reply.close || request->failed ? answer(request) : MHD_YES;
	case REQUEST_BODY: return *data_len > 0 ? take_body(request, data, data_len) : run(request);
	case REQUEST_RUNNING: return answer(request);
	default: return MHD_YES; /* already answered: what still comes of the request is of no interest */
	}
}

void request_resume(struct request *request)
{
	assert(request->state == REQUEST_RUNNING && request->op == NULL && request->listing == NULL);
	assert(request->reply.status != 0 || request->failed);
	connection_resume(request->connection);
}

static void cancel(struct request *request)
{
	if (request->op != NULL && request->lease.operation == LEASE_FORCE)
		lock_call_force_left(request);
	if (request->op != NULL)
		lease_cancel(request->op);
	if (request->listing != NULL)
		lease_list_cancel(request->listing);
	request->op = NULL;
	request->listing = NULL;
}

void request_abort(struct request *request)
{
	if (request->stream != NULL) {
		hold_stream_abort(request);
		return;
	}
	if (request->op == NULL && request->listing == NULL)
		return; /* answered and resumed already */
	cancel(request);
	reply_problem(request, PROBLEM_DRAINING, "The service is shutting down.", NULL);
	request_resume(request);
}

void request_review(struct request *request)
{
	bool receiving = request->state == REQUEST_BODY && request->admitted,
	     under_way = request->op != NULL || request->listing != NULL;

	if (!receiving && !under_way && request->stream == NULL)
		return; /* it has not asked for anything yet, or has its answer */
	enum access_verdict verdict = authorize_again(request);
	if (verdict == ACCESS_ALLOWED)
		return;
	if (request->stream != NULL) {
		hold_stream_revoke(request, verdict == ACCESS_UNKNOWN ? PROBLEM_UNAUTHORIZED : PROBLEM_FORBIDDEN);
		return;
	}
	cancel(request);
	authorize_refuse(request, verdict);
	request->admitted = false;
	if (under_way)
		request_resume(request);
}

void request_leave(struct request *request)
{
	assert(request->state == REQUEST_RUNNING || request->stream != NULL);
	if (request->state == REQUEST_ANSWERED) {
		hold_stream_leave(request);
		return;
	}
	if (request->op == NULL && request->listing == NULL)
		return; /* answered and resumed already */
	cancel(request);
	request->gone = true;
	connection_resume(request->connection);
}

/* The status that the client was given: libmicrohttpd answers some mistakes by itself. */
static unsigned final_status(const struct request *request)
{
	const union MHD_ConnectionInfo *info;

	if (request->written_raw || request->state == REQUEST_ANSWERED)
		return request->reply.status;
	info = MHD_get_connection_info(request->connection->mhd, MHD_CONNECTION_INFO_HTTP_STATUS);
	return info != NULL ? info->http_status : 0;
}

void request_end(struct request *request, enum MHD_RequestTerminationCode how)
{
	struct connection *connection = request->connection;
	const char *ended = NULL;

	if (request->state == REQUEST_NONE)
		return;
	unsigned status = final_status(request);
	cancel(request);
	if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK)
		ended = connection->late                                    ? "late"
			: status == 0 || request->state == REQUEST_ANSWERED ? "client-gone"
									    : NULL;
	if (request->granted && request->state != REQUEST_ANSWERED)
		lease_release_abandoned(connection->api->config.leases, request->lease.resource,
					request->lease.resource_len, request->lease.token);
	request_log(request, status, request->failed ? "out-of-memory" : ended, how);
	if (request->stream != NULL)
		hold_stream_close(request, how);
	http_metrics_request(connection->api->metrics, route_index(request->route), request->method, status);
	if (how == MHD_REQUEST_TERMINATED_COMPLETED_OK && request->reply.close)
		tls_link_bye(&connection->link);
	reply_clear(&request->reply);
	authorize_end(request);
	forget_target(request);
	forget_body(request);
	free(request->params);
	request->params = NULL;
	request->state = REQUEST_NONE;
	request->granted = false;
	connection_enter(connection, CONNECTION_IDLE);
}
