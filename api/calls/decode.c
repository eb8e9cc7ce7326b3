/* SPDX-License-Identifier: MIT */
/* Decodes a call: the resource in its path, the parameters in its query, its body. See calls_internal.h.
 *
 * Decoded values are checked here, so that handlers and leases get values within their bounds. Worker's thread. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "calls_internal.h"

/* ---- path, query and headers ---- */

/* Stores the resource. Adds an error if it is not a valid name, unless there is an error already. */
static void decode_resource(struct call *call, const char *bytes, size_t len, const char *reason,
			    struct field_errors *errors)
{
	assert(!call_has_resource(call));
	if (!reason)
		reason = path_check_resource(bytes, len);
	if (reason) {
		field_errors_add(errors, "resource", "%s", reason);
		return;
	}
	call->lease.resource = memory_copy(bytes, len);
	call->lease.resource_len = (uint16_t)len;
}

static void decode_path(struct call *call, struct field_errors *errors)
{
	char resource[LEASE_RESOURCE_MAX];
	size_t len = 0;
	const char *reason = path_decode(call->rest, strlen(call->rest), false, resource, sizeof resource, &len);
	decode_resource(call, resource, len, reason, errors);
}

/* Decodes the resource of GET on /locks, and rejects parameters that do not fit it. */
static void decode_selection(struct call *call, struct field_errors *errors)
{
	assert(call->query);
	const struct path_param *params = call->query->params;
	bool lists = call->route->need == ACCESS_LIST;
	if (call->rest && params[PARAM_RESOURCE].given)
		field_errors_add(errors, "resource", BODY_NAME_TWICE);
	else if (!lists && !call->rest && errors->count == 0)
		decode_resource(call, params[PARAM_RESOURCE].value, params[PARAM_RESOURCE].len, NULL, errors);
	for (size_t i = PARAM_PREFIX; !lists && call->route->params[i]; i++)
		if (params[i].given)
			field_errors_add(errors, call->route->params[i], "must not be there beside resource");
	if (lists && params[PARAM_WAIT].given)
		field_errors_add(errors, "wait_ms", "must not be there without resource");
}

/* The number of a parameter, at most 16 digits; 0 if it is not a number or larger than `max`. */
static uint64_t decode_number(const struct path_param *param, uint64_t max)
{
	bool number = param->len > 0 && param->len <= 16 && strspn(param->value, "0123456789") == param->len;
	uint64_t value = number ? strtoull(param->value, NULL, 10) : 0;
	assert(max > 0);
	return value <= max ? value : 0;
}

/* Decodes the `fence` of a forced release; 0: none. */
static void decode_fence(struct call *call, const struct path_param *param, struct field_errors *errors)
{
	assert(param && (call->route->operation == LEASE_FORCE || call->route->operation == LEASE_RELEASE));
	if (!param->given)
		return;
	call->lease.fence = decode_number(param, REDLOCK_FENCE_LIMIT - 1);
	if (call->route->operation != LEASE_FORCE)
		field_errors_add(errors, "fence", "must not be there without force=true");
	else if (call->lease.fence == 0)
		field_errors_add(errors, "fence", "must be from 1 to %" PRIu64, REDLOCK_FENCE_LIMIT - 1);
}

/* Decodes the `keep_ms` of a release. */
static void decode_keep(struct call *call, const struct path_param *param, struct field_errors *errors)
{
	uint64_t keep_ms = decode_number(param, call->limits.max_ttl_ms);
	assert(call->route->operation == LEASE_FORCE || call->route->operation == LEASE_RELEASE);
	if (!param->given)
		return;
	call->lease.keep_ms = (uint32_t)keep_ms;
	if (call->route->operation == LEASE_FORCE)
		field_errors_add(errors, "keep_ms", "must not be there with force=true");
	else if (keep_ms == 0 && strcmp(param->value, "0") != 0)
		field_errors_add(errors, "keep_ms", "must be from 0 to %u", call->limits.max_ttl_ms);
}

/* A key that a person chose is usually shorter than this, and would give one lease to all that use it. */
static void check_idempotency_key(const struct call *call, struct field_errors *errors)
{
	enum { KEY_MIN = 16, KEY_MAX = 128 };
	const struct headers *headers = &call->request->headers;
	const char *key = headers->idempotency_key;
	size_t len = headers->idempotency_key_len, visible = 0;
	assert(call->route->need == ACCESS_ACQUIRE);
	while (visible < len && key[visible] > ' ' && key[visible] <= '~')
		visible++;
	if (len < KEY_MIN || len > KEY_MAX || visible < len || headers->idempotency_keys_twice)
		field_errors_add(errors, "Idempotency-Key",
				 "must be %d to %d visible ASCII characters, given once: unique for each acquisition, "
				 "as a UUID is",
				 KEY_MIN, KEY_MAX);
}

/* Only this function uses the key itself. A different request with the same key gets another hash, and so another
 * lease. */
static uint64_t hash_idempotency_key(const struct call *call)
{
	const struct headers *headers = &call->request->headers;
	const struct lease_request *lease = &call->lease;
	char mode[24];
	int mode_len = snprintf(mode, sizeof mode, "%d %u", (int)lease->mode, lease->slots);
	const struct access_text texts[] = {{headers->idempotency_key, headers->idempotency_key_len},
					    {lease->owner, lease->owner_len},
					    {lease->metadata, lease->metadata_len},
					    {mode, (size_t)mode_len},
					    {lease->resource, lease->resource_len}};
	assert(headers->idempotency_key && mode_len > 0);
	return access_hash_idempotency_key(&call->caller, texts, sizeof texts / sizeof *texts);
}

/* Rejects what the route does not allow: a `force` other than true, two keys, a body, a page's body of another type, a
 * token. */
static void decode_headers(const struct call *call, struct field_errors *errors)
{
	const struct headers *headers = &call->request->headers;
	bool force = call->route->operation == LEASE_FORCE;
	assert(!force || (call->query && call->query->params[0].given));
	if (force && strcmp(call->query->params[0].value, "true") != 0)
		field_errors_add(errors, "force", "must be true");
	if (headers->keys_twice)
		field_errors_add(errors, "Authorization", "a key must come once, in Authorization or in X-Api-Key");
	if (headers->has_body && !call->route->takes_body)
		field_errors_add(errors, "body", "must not be there");
	if (headers->has_body && headers->origin && !headers->has_json)
		field_errors_add(errors, "Content-Type", "must be application/json where there is an Origin");
	if (force && headers->token_state != HEADERS_TOKEN_NONE)
		field_errors_add(errors, "Lock-Token", "must not be there with force");
	else if (headers->token_state == HEADERS_TOKEN_BAD && call->route->takes_body)
		field_errors_add(errors, "Lock-Token", HEADERS_TOKEN_RULE ", given once");
}

/* The tags of a header, as a terminated text. */
static void decode_tags(const char *name, const char *value, size_t len, const char *quote,
			char ret_seen[WATCH_SEEN_MAX], struct field_errors *errors)
{
	size_t len_max = WATCH_SEEN_MAX - 1 - 2 * strlen(quote);
	if (len > len_max)
		field_errors_add(errors, name, "must be at most %zu bytes", len_max);
	else if (value)
		snprintf(ret_seen, WATCH_SEEN_MAX, "%s%.*s%s", quote, (int)len, value, quote);
}

/* Decodes whether an inspection watches, and which tags its caller knows. */
static void decode_watch(struct call *call, struct field_errors *errors)
{
	const struct headers *headers = &call->request->headers;
	const struct path_param *wait = &call->query->params[PARAM_WAIT];
	uint64_t wait_ms = wait->given ? decode_number(wait, UINT64_MAX) : 0;
	bool gets = call->request->method != HTTP_HEAD;
	char unused[WATCH_SEEN_MAX];
	if (wait->given && wait_ms == 0 && strcmp(wait->value, "0") != 0)
		field_errors_add(errors, "wait_ms", "must be a whole number, not negative, of 16 digits at most");
	call->lease.wait_ms = (uint32_t)MIN(wait_ms, call->limits.max_wait_ms);
	call->streams = headers->wants_stream && gets;
	decode_tags("If-None-Match", headers->seen_tags, headers->seen_tags_len, "", call->query->seen, errors);
	decode_tags("Last-Event-ID", headers->last_event, headers->last_event_len, "\"",
		    call->streams ? call->query->seen : unused, errors);
	if (call->streams || call->query->seen[0] == '\0' || !gets)
		call->lease.wait_ms = 0; /* no known tag to wait for, or a stream of all changes */
}

bool decode_target(struct call *call, const char *query)
{
	const struct route *route = call->route;
	struct field_errors errors = {.count = 0};
	assert(!call->query && !call_has_resource(call));
	call->lease.operation = route->operation;
	if (route->params[0])
		call->query = memory_zeroed(1, sizeof *call->query);
	path_parse_query(query, route->params, call->query ? call->query->params : NULL, &errors);
	if (call->rest)
		decode_path(call, &errors);
	if (route->need == ACCESS_INSPECT || route->need == ACCESS_LIST)
		decode_selection(call, &errors);
	if (route->params[0] && (route->operation == LEASE_FORCE || route->operation == LEASE_RELEASE)) {
		decode_fence(call, &call->query->params[1], &errors);
		decode_keep(call, &call->query->params[2], &errors);
	}
	if (route->need == ACCESS_INSPECT)
		decode_watch(call, &errors);
	decode_headers(call, &errors);
	if (call->request->headers.idempotency_key && route->need == ACCESS_ACQUIRE)
		check_idempotency_key(call, &errors);
	if (errors.count > 0)
		return call_reject_with(call, PROBLEM_INVALID_REQUEST, NULL, NULL, &errors);
	if (!call->request->headers.has_body || !call->request->headers.is_encoded)
		return true;
	field_errors_add(&errors, "Content-Encoding", "must be identity, or not be there");
	return call_reject_with(call, PROBLEM_BODY_ENCODED, NULL, NULL, &errors);
}

/* ---- body ---- */

static bool decode_lease(struct call *call)
{
	static const char too_large[] = "The body is larger than 16384 bytes, and has no leases. Send a smaller one.";
	const struct request *request = call->request;
	const struct headers *headers = &request->headers;
	struct field_errors errors = {.count = 0};
	assert(call->limits.max_ttl_ms > 0 && headers->token_state != HEADERS_TOKEN_BAD);
	if (call->route->takes_leases && !bulk_decode(call))
		return false;
	if (call->bulk)
		return true;
	if (request->body_len > REQUEST_BODY_MAX)
		return call_reject(call, PROBLEM_BODY_TOO_LARGE, too_large);
	if (!body_parse(request->body, request->body_len,
			headers->token_state == HEADERS_TOKEN_GOOD ? headers->token : NULL, &call->limits, &call->lease,
			&errors))
		return call_reject_with(call, PROBLEM_INVALID_REQUEST, NULL, NULL, &errors);
	if (headers->idempotency_key && call->route->need == ACCESS_ACQUIRE)
		call->lease.key = hash_idempotency_key(call);
	return true;
}

/* ---- listing ---- */

static bool decode_listing(struct call *call)
{
	enum { LIMIT_DEFAULT = 100 };
	const struct path_param *params = call->query->params;
	struct lease_list_request *list = &call->query->list;
	struct field_errors errors = {.count = 0};
	_Static_assert((int)PATH_VALUE_MAX <= (int)LEASE_RESOURCE_MAX, "a prefix fits");
	list->prefix_len = (uint16_t)params[PARAM_PREFIX].len;
	memcpy(list->prefix, params[PARAM_PREFIX].value, params[PARAM_PREFIX].len);
	list->limit = params[PARAM_LIMIT].given ? (uint16_t)decode_number(&params[PARAM_LIMIT], LEASE_LIST_MAX)
						: LIMIT_DEFAULT;
	if (list->limit == 0)
		field_errors_add(&errors, "limit", "must be from 1 to %d", LEASE_LIST_MAX);
	if (params[PARAM_CURSOR].len >= sizeof list->cursor ||
	    (params[PARAM_CURSOR].len > 0 &&
	     !lease_cursor_valid(call->request->context->config->leases, params[PARAM_CURSOR].value)))
		field_errors_add(&errors, "cursor", "must be as the page before gave it");
	else
		memcpy(list->cursor, params[PARAM_CURSOR].value, params[PARAM_CURSOR].len + 1);
	list->by_owner = params[PARAM_OWNER].given;
	list->owner_len = (uint16_t)params[PARAM_OWNER].len;
	if (params[PARAM_OWNER].len > LEASE_OWNER_MAX)
		field_errors_add(&errors, "owner", "must be at most %d bytes", LEASE_OWNER_MAX);
	else
		memcpy(list->owner, params[PARAM_OWNER].value, params[PARAM_OWNER].len);
	return errors.count == 0 || call_reject_with(call, PROBLEM_INVALID_REQUEST, NULL, NULL, &errors);
}

bool decode_body(struct call *call)
{
	struct field_errors errors = {.count = 0};
	assert(call->route->takes_body || call->request->body_len == 0);
	if (call->route->need == ACCESS_LIST)
		return decode_listing(call);
	if (call->route->takes_body && (call->route->operation != LEASE_FORCE || !call_has_resource(call)))
		return decode_lease(call);
	if (body_is_nothing(call->request->body, call->request->body_len))
		return true;
	field_errors_add(&errors, "body", "must not be there with force");
	return call_reject_with(call, PROBLEM_INVALID_REQUEST, NULL, NULL, &errors);
}
