/* SPDX-License-Identifier: MIT */
/* The endpoints: the route table, and the handling of a request that has been read. See pipeline.c.
 *
 * The one header of this folder for the others. redlockctl uses path.c and problem.c, which do not need the HTTP
 * side. */
#ifndef CALLS_H
#define CALLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/leases/leases.h"

struct http_service;

/* The handlers of requests, for api_config. */
const struct http_service *calls_service(void);

/* Prints the route table as lines "METHOD PATTERN STATUS CODE"; `-`: no code, `* *`: answers without a route. */
void calls_print_routes(FILE *to);

/* ---- problem.c: errors as application/problem+json (RFC 9457), the one table of statuses and codes ---- */

#define PROBLEM_CONTENT_TYPE "application/problem+json"
#define PROBLEM_TYPE_PREFIX "/docs/errors#" /* with the code: its section in the page of errors */

enum problem {
	PROBLEM_INVALID_REQUEST,
	PROBLEM_UNAUTHORIZED,
	PROBLEM_FORBIDDEN,
	PROBLEM_NOT_FOUND,
	PROBLEM_METHOD_NOT_ALLOWED,
	PROBLEM_LOCKED,
	PROBLEM_NOT_OWNER,
	PROBLEM_LEASE_EXPIRED,
	PROBLEM_BODY_TOO_LARGE,
	PROBLEM_URL_TOO_LONG,
	PROBLEM_BODY_ENCODED,
	PROBLEM_HEADERS_TOO_LARGE,
	PROBLEM_OTHER_HTTP_VERSION,
	PROBLEM_TOO_MANY_REQUESTS,
	PROBLEM_NO_QUORUM,
	PROBLEM_SPLIT_VOTE,
	PROBLEM_DRAINING,
	PROBLEM_COUNT
};

/* The problem of a status that has only one (400, 413, 414, 429, 431), and of an operation that did not succeed. */
enum problem problem_of_status(unsigned status);
enum problem problem_of_lease(enum lease_status status);

/* Static. */
unsigned problem_status(enum problem problem);
const char *problem_code(enum problem problem);

enum { FIELD_ERRORS_MAX = 8, FIELD_NAME_MAX = 32, FIELD_ITEM_MAX = sizeof("leases[255].") - 1, FIELD_REASON_MAX = 120 };

/* The invalid fields of a request; those beyond the maximum are left out. */
struct field_errors {
	size_t count;
	struct field_error {
		char field[FIELD_ITEM_MAX + FIELD_NAME_MAX + 1];
		char reason[FIELD_REASON_MAX];
	} items[FIELD_ERRORS_MAX];
};

/* Adds one error; `field` is a name of ours. */
void field_errors_add(struct field_errors *errors, const char *field, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for a name from the client. It is shown only if it is short and plain, since it may be a secret. */
void field_errors_add_name(struct field_errors *errors, const char *name, size_t name_len, const char *reason);

/* Makes the object: type, title, status, detail, code, then the members of `members` (may be NULL; its reference is
 * taken over) and `errors` (may be NULL: an invalid request then has the detail as the error of the field `request`).
 * `detail` NULL: the errors as text or, without errors, the text for all problems of this kind. */
json_t *problem_new(enum problem problem, const char *detail, json_t *members, const struct field_errors *errors);

/* The same as text, open for more members: no brace closes it, nothing is terminated. `detail` needs no escapes; NULL:
 * the text for all problems of this kind. Returns its end. */
enum { PROBLEM_WRITTEN_MAX = 512 };
char *problem_write(enum problem problem, const char *detail, char *ret_text);

/* ---- path.c: the path and the query of a request. Pure functions over bytes. ---- */

enum {
	PATH_PARAMS_MAX = 6,  /* query parameters that one route knows */
	PATH_VALUE_MAX = 256, /* bytes of a decoded query value */
	PATH_ENCODED_MAX = 3 * 256
};

/* Decodes %XX strictly; with `plus` a plus sign is a space, as in forms and query strings. Returns NULL and sets
 * *ret_len, or the reason (static) why it is not valid or does not fit into `size` bytes. */
const char *path_decode(const char *raw, size_t raw_len, bool plus, char *ret_bytes, size_t size, size_t *ret_len)
	__attribute__((warn_unused_result));

/* The rule for the name of a lock: 1 … 256 bytes of UTF-8, no control characters, without `redlockd:` and without a
 * segment `.` or `..`. NULL, or the reason (static) why the bytes are no such name. */
const char *path_check_resource(const char *bytes, size_t len) __attribute__((warn_unused_result));

/* The inverse, for Location: encodes all but unreserved characters and slashes. `ret_text` has room for
 * PATH_ENCODED_MAX + 1 bytes and is terminated. Takes at most 256 bytes. */
void path_encode(const char *bytes, size_t len, char *ret_text);

/* One parameter of a query that a route knows. */
struct path_param {
	bool given;
	size_t len;
	char value[PATH_VALUE_MAX + 1]; /* decoded and terminated; has no NUL in it */
};

/* Parses a raw query (NULL: none) against the names that the route knows (NULL at the end) into
 * params[i] for names[i]. Every unknown, repeated or ill-formed parameter is added to `errors`. */
void path_parse_query(const char *query, const char *const names[], struct path_param params[PATH_PARAMS_MAX],
		      struct field_errors *errors);

#endif
