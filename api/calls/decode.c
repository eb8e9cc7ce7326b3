/* Decodes a call: the resource in its path, the parameters in its query, its body. See calls_internal.h.
 *
 * What is decoded is checked here, so that handlers and leases get values within their bounds. Worker's thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "calls_internal.h"

/* ---- path, query and headers ---- */

static bool decode_resource(struct call *call)
{
	size_t len = 0;
	const char *reason = path_decode(call->rest, strlen(call->rest), false, call->lease.resource,
					 LEASE_RESOURCE_MAX, &len);

	assert(call->rest && !call->has_resource);
	if (!reason)
		reason = path_check_resource(call->lease.resource, len);
	if (reason) {
		struct field_errors errors = {.count = 0};
		field_errors_add(&errors, "resource", "%s", reason);
		return call_reject(call, PROBLEM_INVALID_REQUEST, "Invalid resource name in the path.", NULL, &errors);
	}
	call->lease.resource_len = (uint16_t)len;
	call->has_resource = true;
	return true;
}

/* The parameter that made a forced release of the call. */
static void decode_force(const struct call *call, struct field_errors *errors)
{
	assert(call->query->params[0].given);
	if (strcmp(call->query->params[0].value, "true") != 0)
		field_errors_add(errors, "force", "must be true");
	if (call->request->headers.has_token)
		field_errors_add(errors, "Lock-Token", "must not be there with force");
}

/* What the route does not allow: a body, a body from a page of another type, a malformed token. */
static void decode_headers(const struct call *call, struct field_errors *errors)
{
	const struct headers *headers = &call->request->headers;

	if (headers->keys_twice)
		field_errors_add(errors, "Authorization", "a key must come once, in Authorization or in X-Api-Key");
	if (headers->has_body && !call->route->takes_body)
		field_errors_add(errors, "body", "must not be there");
	if (headers->has_body && headers->has_origin && !headers->has_json)
		field_errors_add(errors, "Content-Type", "must be application/json where there is an Origin");
	if (headers->token_bad && call->route->takes_body)
		field_errors_add(errors, "Lock-Token", "must be %d lower-case hexadecimal digits, given once",
				 LEASE_TOKEN_LEN);
}

bool decode_target(struct call *call, const char *query)
{
	const struct route *route = call->route;
	struct field_errors errors = {.count = 0};

	assert(!call->query && !call->has_resource);
	call->lease.operation = route->operation;
	if (route->params[0] && !(call->query = calloc(1, sizeof *call->query))) {
		reply_fail(call->request);
		return false;
	}
	path_parse_query(query, route->params, call->query ? call->query->params : NULL, &errors);
	if (route->operation == LEASE_FORCE)
		decode_force(call, &errors);
	if (call->rest && !decode_resource(call))
		return false;
	decode_headers(call, &errors);
	if (errors.count > 0)
		return call_reject(call, PROBLEM_INVALID_REQUEST, "Invalid parameters.", NULL, &errors);
	if (call->request->headers.has_body && call->request->headers.is_encoded)
		return call_reject(call, PROBLEM_BODY_ENCODED, "Send the body as it is, without Content-Encoding.",
				   json_pack("{s:[{s:s, s:s}]}", "errors", "field", "Content-Encoding", "reason",
					     "must be identity, or not be there"),
				   NULL);
	return true;
}

/* ---- body ---- */

static bool decode_no_body(struct call *call)
{
	struct field_errors errors = {.count = 0};

	if (body_is_nothing(call->request->body, call->request->body_len))
		return true;
	field_errors_add(&errors, "body", "must not be there");
	return call_reject(call, PROBLEM_INVALID_REQUEST, "A forced release takes no body.", NULL, &errors);
}

static bool decode_lease(struct call *call)
{
	const struct request *request = call->request;
	struct field_errors errors = {.count = 0};

	assert(call->limits.max_ttl_ms > 0);
	if (body_parse(request->body, request->body_len, request->headers.has_token ? request->headers.token : NULL,
		       &call->limits, &call->lease, &errors)) {
		call->has_resource = true;
		return true;
	}
	if (errors.count > 0)
		return call_reject(call, PROBLEM_INVALID_REQUEST, "Invalid body.", NULL, &errors);
	reply_fail(call->request);
	return false;
}

/* ---- listing ---- */

/* The number of a `limit`; 0 if it is none. */
static uint16_t decode_limit(const struct path_param *param)
{
	unsigned number = 0;

	if (param->len == 0 || param->len > 4)
		return 0;
	for (size_t i = 0; i < param->len; i++) {
		if (param->value[i] < '0' || param->value[i] > '9')
			return 0;
		number = number * 10 + (unsigned)(param->value[i] - '0');
	}
	return number <= LEASE_LIST_MAX ? (uint16_t)number : 0;
}

static bool decode_listing(struct call *call)
{
	enum { PREFIX, LIMIT, CURSOR, LIMIT_DEFAULT = 100 };
	const struct path_param *params = call->query->params;
	struct lease_list_request *list = &call->query->list;
	struct field_errors errors = {.count = 0};

	_Static_assert((int)PATH_VALUE_MAX <= (int)LEASE_RESOURCE_MAX, "a prefix fits");
	list->prefix_len = (uint16_t)params[PREFIX].len;
	memcpy(list->prefix, params[PREFIX].value, params[PREFIX].len);
	list->limit = params[LIMIT].given ? decode_limit(&params[LIMIT]) : LIMIT_DEFAULT;
	if (list->limit == 0)
		field_errors_add(&errors, "limit", "must be from 1 to %d", LEASE_LIST_MAX);
	if (params[CURSOR].len >= sizeof list->cursor ||
	    (params[CURSOR].len > 0 &&
	     !lease_cursor_valid(call->request->context->config->leases, params[CURSOR].value)))
		field_errors_add(&errors, "cursor", "must be as the page before gave it");
	else
		memcpy(list->cursor, params[CURSOR].value, params[CURSOR].len + 1);
	return errors.count == 0 || call_reject(call, PROBLEM_INVALID_REQUEST, "Invalid query.", NULL, &errors);
}

bool decode_body(struct call *call)
{
	assert(call->route->takes_body || call->request->body_len == 0);
	if (call->route->need == ACCESS_LIST)
		return decode_listing(call);
	if (!call->route->takes_body)
		return true;
	return call->route->operation == LEASE_FORCE ? decode_no_body(call) : decode_lease(call);
}
