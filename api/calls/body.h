/* The JSON bodies of the lease operations, decoded into the plain struct that server/leases takes. Private to this
 * folder. */
#ifndef BODY_H
#define BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "problem.h"
#include "server/leases/leases.h"

enum { BODY_MAX = 16384 }; /* bytes */

/* The bounds of a body, and its defaults. */
struct body_limits {
	uint32_t default_ttl_ms, min_ttl_ms, max_ttl_ms, max_wait_ms;
};

/* Parses the body of an acquisition, extension or release (`ret_request->operation` says which) and fills in what
 * belongs to it: resource, owner, ttl_ms, wait_ms and hold; token and ttl_ms; token. `header_token` is the well-formed
 * token of the header Lock-Token or NULL; with it the body of an extension or release may be empty. Returns false and
 * adds to `errors` what is wrong, field by field, or nothing if memory is short; *ret_request is then as before. */
bool body_parse(const char *bytes, size_t len, const char *header_token, const struct body_limits *limits,
		struct lease_request *ret_request, struct field_errors *errors) __attribute__((warn_unused_result));

/* True if the body says nothing: empty, blanks, or null, which some clients send with a DELETE that has no body (Go:
 * json.Marshal(nil)). */
bool body_is_nothing(const char *bytes, size_t len);

/* ---- body_flat.c: the usual bodies, read in place: a flat JSON object of plain strings, whole numbers, true, false */

enum { BODY_FLAT_MAX = 8 }; /* members */

/* The value of a member. */
struct body_value {
	enum { BODY_STRING, BODY_INTEGER, BODY_BOOLEAN, BODY_OTHER } kind;
	const char *bytes; /* of a string; not terminated */
	size_t len;
	int64_t integer;
	bool boolean;
};

struct body_member {
	const char *name; /* not terminated */
	size_t name_len;
	struct body_value value;
};

/* Finds the members of `bytes`, in their order; what they point to lies in `bytes`. False if there is anything that
 * this does not understand, right or wrong (escapes, other characters than visible ASCII and spaces in strings,
 * fractions, nesting, a member given twice, a mistake): then the text needs a whole parser. */
bool body_flat_scan(const char *bytes, size_t len, struct body_member ret_members[BODY_FLAT_MAX], size_t *ret_count)
	__attribute__((warn_unused_result));

#endif
