/* SPDX-License-Identifier: MIT */
/* Errors as problem+json: the table of statuses, codes and titles, and their JSON. See calls.h. No state, any
 * thread. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"

static const struct {
	uint16_t status;
	const char *code, *title;
	const char *detail; /* for all requests; NULL: each has its own */
} problems[PROBLEM_COUNT] = {
	[PROBLEM_INVALID_REQUEST] = {400, "invalid-request", "Invalid request", NULL},
	[PROBLEM_UNAUTHORIZED] = {401, "unauthorized", "Authentication required", NULL},
	[PROBLEM_FORBIDDEN] = {403, "forbidden", "Permission denied", NULL},
	[PROBLEM_NOT_FOUND] = {404, "not-found", "Unknown path", NULL},
	[PROBLEM_METHOD_NOT_ALLOWED] = {405, "method-not-allowed", "Method not allowed", NULL},
	[PROBLEM_LOCKED] =
		{409, "locked", "Lock held",
		 "Another holder has the lock, or may have it. Wait for it with wait_ms, or try again later."},
	[PROBLEM_NOT_OWNER] = {409, "not-owner", "Lock held by another holder",
			       "Another holder has the lock now. Stop the work that it protects."},
	[PROBLEM_LEASE_EXPIRED] = {410, "lease-expired", "Lease expired",
				   "Nobody holds the lock with this token any more. Stop the work that it protects."},
	[PROBLEM_BODY_TOO_LARGE] = {413, "too-large", "Body too large", NULL},
	[PROBLEM_URL_TOO_LONG] = {414, "too-large", "URL too long", NULL},
	[PROBLEM_BODY_ENCODED] = {415, "invalid-request", "Unsupported content encoding", NULL},
	[PROBLEM_HEADERS_TOO_LARGE] = {431, "too-large", "Headers too large", NULL},
	[PROBLEM_OTHER_HTTP_VERSION] = {505, "invalid-request", "Unsupported HTTP version", NULL},
	[PROBLEM_TOO_MANY_REQUESTS] = {429, "too-many-requests", "Too many requests, connections or waiters", NULL},
	[PROBLEM_NO_QUORUM] = {503, "no-quorum", "No quorum", NULL},
	[PROBLEM_SPLIT_VOTE] =
		{503, "split-vote", "Split vote",
		 "Several callers shared the votes. Try again after Retry-After, or wait in the queue with wait_ms."},
	[PROBLEM_DRAINING] = {503, "draining", "Service shutting down",
			      "The service is shutting down. Ask another redlockd, or this one after Retry-After."},
};

enum problem problem_of_status(unsigned status)
{
	enum problem problem = 0;
	while (problem < PROBLEM_COUNT && problems[problem].status != status)
		problem++;
	assert(problem < PROBLEM_COUNT);
	return problem;
}

enum problem problem_of_lease(enum lease_status status)
{
	switch (status) {
	case LEASE_LOCKED: return PROBLEM_LOCKED;
	case LEASE_NOT_OWNER: return PROBLEM_NOT_OWNER;
	case LEASE_EXPIRED: return PROBLEM_LEASE_EXPIRED;
	case LEASE_NO_QUORUM: return PROBLEM_NO_QUORUM;
	case LEASE_SPLIT_VOTE: return PROBLEM_SPLIT_VOTE;
	case LEASE_TOO_MANY: return PROBLEM_TOO_MANY_REQUESTS;
	default: assert(status == LEASE_DRAINING); return PROBLEM_DRAINING;
	}
}

unsigned problem_status(enum problem problem)
{
	assert(problem < PROBLEM_COUNT);
	return problems[problem].status;
}

const char *problem_code(enum problem problem)
{
	assert(problem < PROBLEM_COUNT);
	return problems[problem].code;
}

void field_errors_add(struct field_errors *errors, const char *field, const char *format, ...)
{
	va_list arguments;
	assert(strlen(field) <= FIELD_ITEM_MAX + FIELD_NAME_MAX);
	if (errors->count == FIELD_ERRORS_MAX)
		return;
	struct field_error *error = &errors->items[errors->count++];
	snprintf(error->field, sizeof error->field, "%s", field);
	va_start(arguments, format);
	vsnprintf(error->reason, sizeof error->reason, format, arguments);
	va_end(arguments);
}

void field_errors_add_name(struct field_errors *errors, const char *name, size_t name_len, const char *reason)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	char shown[FIELD_NAME_MAX + 1] = "";
	if (name_len <= FIELD_NAME_MAX)
		memcpy(shown, name, name_len);
	bool is_plain = shown[0] != '\0' && strspn(shown, plain) == name_len;
	field_errors_add(errors, is_plain ? shown : "?", "%s", reason);
}

static json_t *errors_new(const struct field_errors *errors)
{
	json_t *list = json_array();
	assert(errors->count <= FIELD_ERRORS_MAX);
	for (size_t i = 0; i < errors->count; i++)
		json_array_append_new(list, json_pack("{s:s, s:s}", "field", errors->items[i].field, "reason",
						      errors->items[i].reason));
	return list;
}

/* "ttl_ms: must be from 100 to 60000; owner: must be a string." */
static json_t *errors_text_new(const struct field_errors *errors)
{
	char text[FIELD_ERRORS_MAX * (FIELD_ITEM_MAX + FIELD_NAME_MAX + FIELD_REASON_MAX + 4)];
	size_t len = 0;
	assert(errors->count > 0 && errors->count <= FIELD_ERRORS_MAX);
	for (size_t i = 0; i < errors->count; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s: %s%s", errors->items[i].field,
					errors->items[i].reason, i + 1 < errors->count ? "; " : ".");
	assert(len < sizeof text);
	return json_string(text);
}

char *problem_write(enum problem problem, const char *detail, char *ret_text)
{
	char *at = stpcpy(ret_text, "{\"type\":\"" PROBLEM_TYPE_PREFIX);
	assert(problem < PROBLEM_COUNT && (detail || problems[problem].detail));
	at = stpcpy(at, problems[problem].code);
	at = stpcpy(stpcpy(at, "\",\"title\":\""), problems[problem].title);
	at = stpcpy(at, "\",\"status\":");
	at += text_decimal(problems[problem].status, at);
	at = stpcpy(stpcpy(at, ",\"detail\":\""), detail ? detail : problems[problem].detail);
	at = stpcpy(stpcpy(at, "\",\"code\":\""), problems[problem].code);
	*at++ = '"';
	assert(at <= ret_text + PROBLEM_WRITTEN_MAX);
	return at;
}

json_t *problem_new(enum problem problem, const char *detail, json_t *members, const struct field_errors *errors)
{
	struct field_errors general = {.count = 0};
	char type[64];
	assert(problem < PROBLEM_COUNT && (detail || errors || problems[problem].detail));
	snprintf(type, sizeof type, PROBLEM_TYPE_PREFIX "%s", problems[problem].code);
	json_t *shown = !detail && errors ? errors_text_new(errors)
					  : json_string(detail ? detail : problems[problem].detail);
	if (!shown) /* not UTF-8: the text of a library or of a server */
		shown = json_string(problems[problem].title);
	if (problem == PROBLEM_INVALID_REQUEST && !errors) {
		field_errors_add(&general, "request", "%s", detail);
		errors = &general;
	}
	json_t *object = json_pack("{s:s, s:s, s:i, s:o, s:s}", "type", type, "title", problems[problem].title,
				   "status", (int)problems[problem].status, "detail", shown, "code",
				   problems[problem].code);
	if (members)
		json_object_update(object, members);
	json_decref(members);
	if (errors)
		json_object_set_new(object, "errors", errors_new(errors));
	return object;
}
