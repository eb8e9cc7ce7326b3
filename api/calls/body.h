/* The JSON bodies of the lease calls, turned into the plain struct that server/ takes. */
#ifndef BODY_H
#define BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "problem.h"
#include "server/leases/leases.h"

enum { BODY_MAX = 16384 }; /* bytes */

/* What a body may say, and what counts where it says nothing. */
struct body_limits {
	uint32_t default_ttl_ms, min_ttl_ms, max_ttl_ms, max_wait_ms;
};

/* True for 40 lower-case hex digits. */
bool body_is_token(const char *bytes, size_t len);

/* Reads the body of an acquisition, extension or release (`ret_request->call` says which) and fills in what belongs to
 * it: resource, owner, ttl_ms, wait_ms and hold; token and ttl_ms; token. `header_token` is the well-formed token of
 * the header Lock-Token or NULL; with it the body of an extension or release may be empty. Returns false and adds to
 * `errors` what is wrong, field by field, or nothing where memory is short; *ret_request is then as before. */
bool body_parse(const char *bytes, size_t len, const char *header_token, const struct body_limits *limits,
		struct lease_request *ret_request, struct field_errors *errors) __attribute__((warn_unused_result));

/* True if it says nothing: empty, blanks, or null, which is what some clients send with a DELETE that has no body (Go:
 * json.Marshal(nil)). */
bool body_is_nothing(const char *bytes, size_t len);

#endif
