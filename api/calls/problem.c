/* Errors as problem+json: the table of statuses, codes and titles, and their JSON. See problem.h. No state, any
 * thread. */
#include "problem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	uint16_t status;
	const char *code, *phrase, *title;
} problems[PROBLEM_COUNT] = {
	[PROBLEM_INVALID_REQUEST] = {400, "invalid-request", "Bad Request", "Invalid request"},
	[PROBLEM_UNAUTHORIZED] = {401, "unauthorized", "Unauthorized", "Authentication required"},
	[PROBLEM_FORBIDDEN] = {403, "forbidden", "Forbidden", "Permission denied"},
	[PROBLEM_NOT_FOUND] = {404, "not-found", "Not Found", "Unknown path"},
	[PROBLEM_METHOD_NOT_ALLOWED] = {405, "method-not-allowed", "Method Not Allowed", "Method not allowed"},
	[PROBLEM_LOCKED] = {409, "locked", "Conflict", "Lock held"},
	[PROBLEM_NOT_OWNER] = {409, "not-owner", "Conflict", "Lock held by another holder"},
	[PROBLEM_LEASE_EXPIRED] = {410, "lease-expired", "Gone", "Lease expired"},
	[PROBLEM_BODY_TOO_LARGE] = {413, "too-large", "Content Too Large", "Body too large"},
	[PROBLEM_URL_TOO_LONG] = {414, "too-large", "URI Too Long", "URL too long"},
	[PROBLEM_BODY_ENCODED] = {415, "invalid-request", "Unsupported Media Type", "Unsupported content encoding"},
	[PROBLEM_HEADERS_TOO_LARGE] = {431, "too-large", "Request Header Fields Too Large", "Headers too large"},
	[PROBLEM_TOO_MANY_REQUESTS] = {429, "too-many-requests", "Too Many Requests",
				       "Too many requests, connections or waiters"},
	[PROBLEM_NO_QUORUM] = {503, "no-quorum", "Service Unavailable", "No quorum"},
	[PROBLEM_SPLIT_VOTE] = {503, "split-vote", "Service Unavailable", "Split vote"},
	[PROBLEM_DRAINING] = {503, "draining", "Service Unavailable", "Service shutting down"},
};

enum problem problem_of_status(unsigned status)
{
	switch (status) {
	case 400: return PROBLEM_INVALID_REQUEST;
	case 413: return PROBLEM_BODY_TOO_LARGE;
	case 414: return PROBLEM_URL_TOO_LONG;
	case 429: return PROBLEM_TOO_MANY_REQUESTS;
	case 431: return PROBLEM_HEADERS_TOO_LARGE;
	default: assert(false); return PROBLEM_COUNT;
	}
}

enum problem problem_of_lease(enum lease_status status)
{
	static const enum problem of_lease[LEASE_STATUS_COUNT] = {
		[LEASE_LOCKED] = PROBLEM_LOCKED,
		[LEASE_NOT_OWNER] = PROBLEM_NOT_OWNER,
		[LEASE_EXPIRED] = PROBLEM_LEASE_EXPIRED,
		[LEASE_NO_QUORUM] = PROBLEM_NO_QUORUM,
		[LEASE_SPLIT_VOTE] = PROBLEM_SPLIT_VOTE,
		[LEASE_DRAINING] = PROBLEM_DRAINING,
		[LEASE_TOO_MANY] = PROBLEM_TOO_MANY_REQUESTS,
	};

	assert(status != LEASE_OK && status < LEASE_STATUS_COUNT);
	return of_lease[status];
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

const char *problem_title(enum problem problem)
{
	assert(problem < PROBLEM_COUNT);
	return problems[problem].title;
}

void field_errors_add(struct field_errors *errors, const char *field, const char *format, ...)
{
	va_list arguments;

	assert(strlen(field) <= FIELD_NAME_MAX);
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
	char shown[FIELD_NAME_MAX + 1] = "?";
	bool plain = name_len > 0 && name_len <= FIELD_NAME_MAX;

	for (size_t i = 0; plain && i < name_len; i++)
		plain = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
			(name[i] >= '0' && name[i] <= '9') || name[i] == '_' || name[i] == '-' || name[i] == '.';
	if (plain) {
		memcpy(shown, name, name_len);
		shown[name_len] = '\0';
	}
	field_errors_add(errors, shown, "%s", reason);
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

json_t *problem_new(enum problem problem, const char *detail, json_t *members, const struct field_errors *errors)
{
	char type[64];

	assert(problem < PROBLEM_COUNT);
	snprintf(type, sizeof type, "urn:redlockd:problem:%s", problems[problem].code);
	json_t *object = json_pack("{s:s, s:s, s:i, s:s, s:s}", "type", type, "title", problems[problem].title,
				   "status", (int)problems[problem].status, "detail", detail, "code",
				   problems[problem].code);
	if (members) {
		json_object_update(object, members);
		json_decref(members);
	}
	if (errors)
		json_object_set_new(object, "errors", errors_new(errors));
	return object;
}

size_t problem_write_raw(enum problem problem, const char *detail, const char *request_id, char *text, size_t size)
{
	char body[512], errors[160] = "";

	assert(problem < PROBLEM_COUNT && size >= 1024);
	if (problem == PROBLEM_INVALID_REQUEST)
		snprintf(errors, sizeof errors, ",\"errors\":[{\"field\":\"request\",\"reason\":\"%s\"}]", detail);
	/* `detail` is a literal of ours: nothing in it needs escaping. */
	int body_len = snprintf(body, sizeof body,
				"{\"type\":\"urn:redlockd:problem:%s\",\"title\":\"%s\",\"status\":%u,\"detail\":\"%"
				"s\",\"code\":\"%s\"%s}",
				problems[problem].code, problems[problem].title, (unsigned)problems[problem].status,
				detail, problems[problem].code, errors);
	assert(body_len > 0 && (size_t)body_len < sizeof body);
	int len = snprintf(text, size,
			   "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: " PROBLEM_CONTENT_TYPE
			   "\r\nContent-Length: %d\r\n"
			   "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n%s\r\n%s",
			   (unsigned)problems[problem].status, problems[problem].phrase, body_len, request_id,
			   problem == PROBLEM_TOO_MANY_REQUESTS ? "Retry-After: 1\r\n" : "", body);
	assert(len > 0 && (size_t)len < size);
	return (size_t)len;
}
