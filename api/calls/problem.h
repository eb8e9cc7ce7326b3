/* Errors as application/problem+json (RFC 9457): the one table of statuses and codes, and lists of invalid fields. */
#ifndef PROBLEM_H
#define PROBLEM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/leases/leases.h"

#define PROBLEM_CONTENT_TYPE "application/problem+json"

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
	PROBLEM_TOO_MANY_REQUESTS,
	PROBLEM_NO_QUORUM,
	PROBLEM_SPLIT_VOTE,
	PROBLEM_DRAINING,
	PROBLEM_COUNT
};

/* The problem of a status that means only one: 400, 413, 414, 429 and 431. */
enum problem problem_of_status(unsigned status);

/* The problem of an operation that did not succeed. */
enum problem problem_of_lease(enum lease_status status);

/* The members that are the same for every problem of a kind: 409 and `locked`, and so on. Static. */
unsigned problem_status(enum problem problem);
const char *problem_code(enum problem problem);
const char *problem_title(enum problem problem);

enum { FIELD_ERRORS_MAX = 8, FIELD_NAME_MAX = 32, FIELD_REASON_MAX = 120 };

/* The invalid fields of a request; those beyond the maximum are left out. */
struct field_errors {
	size_t count;
	struct field_error {
		char field[FIELD_NAME_MAX + 1];
		char reason[FIELD_REASON_MAX];
	} items[FIELD_ERRORS_MAX];
};

/* Adds one error; `field` is a name of ours. */
void field_errors_add(struct field_errors *errors, const char *field, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for a name that the client made up: shown only if it is short and plain, so that nothing secret comes
 * back. */
void field_errors_add_name(struct field_errors *errors, const char *name, size_t name_len, const char *reason);

/* Makes the object: type, title, status, detail, code, then the members of `members` (may be NULL; its reference is
 * taken over) and `errors` (may be NULL). The caller owns the result; NULL where memory is short. */
json_t *problem_new(enum problem problem, const char *detail, json_t *members, const struct field_errors *errors);

/* A whole answer over HTTP/1.1 that closes the connection, for where no request is there to answer. Returns its
 * length in bytes; `size` is at least 1024. */
size_t problem_write_raw(enum problem problem, const char *detail, const char *request_id, char *text, size_t size);

#endif
