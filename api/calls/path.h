/* The path and the query of a request: percent-decoding, the rule for resources, parameters.
 *
 * Pure functions over bytes, none of which allocates. libmicrohttpd's own decoding is switched off: it is lenient
 * and stops at NUL, so that `a%00b` would be `a`. */
#ifndef PATH_H
#define PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "problem.h"

enum {
	PATH_PARAMS_MAX = 3,  /* query parameters that one route knows */
	PATH_VALUE_MAX = 256, /* bytes of a decoded query value */
	PATH_ENCODED_MAX = 3 * 256
};

/* Decodes %XX strictly; with `plus` a plus sign is a space, as forms and query strings have it. Returns NULL and
 * sets *ret_len, or the reason (static) why it is not valid or does not fit into `size` bytes. */
const char *path_decode(const char *raw, size_t raw_len, bool plus, char *ret_bytes, size_t size, size_t *ret_len)
	__attribute__((warn_unused_result));

/* The rule for the name of a lock: 1 … 256 bytes of UTF-8, no control characters, without `redlockd:` anywhere.
 * Returns NULL, or the reason (static) why the bytes are no such name. */
const char *path_check_resource(const char *bytes, size_t len) __attribute__((warn_unused_result));

/* The other way round, for Location: encodes all but unreserved characters and slashes. `ret_text` has room for
 * PATH_ENCODED_MAX + 1 bytes and is terminated. Takes at most 256 bytes. */
void path_encode(const char *bytes, size_t len, char *ret_text);

/* One parameter of a query that a route knows. */
struct path_param {
	bool given;
	size_t len;
	char value[PATH_VALUE_MAX + 1]; /* decoded and terminated; has no NUL in it */
};

/* Parses a raw query (NULL: none) against the names that the route knows (NULL at the end, at most PATH_PARAMS_MAX).
 * Every unknown, repeated or ill-formed parameter is added to `errors`. Fills params[i] for names[i], and no other;
 * NULL where there are no names. */
void path_parse_query(const char *query, const char *const names[], struct path_param params[PATH_PARAMS_MAX],
		      struct field_errors *errors);

#endif
