/* The head of a request: its target, its headers, and whether its framing is beyond doubt. */
#ifndef HEADERS_H
#define HEADERS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/leases/leases.h"

enum { HEADERS_BYTES_MAX = 8192, HEADERS_COUNT_MAX = 64, HEADERS_COOKIES_MAX = 50, HEADERS_REQUEST_ID_MAX = 64 };

struct headers {
	const char *broken; /* NULL, or why the request cannot be trusted and the connection must end (static) */
	bool too_large;     /* more than HEADERS_BYTES_MAX or HEADERS_COUNT_MAX */
	/* the library has made a copy of each, and may have no room left for an answer */
	bool many_cookies;
	bool has_body;
	bool chunked;
	uint64_t content_length; /* unless chunked */
	bool is_encoded;         /* a Content-Encoding other than identity */
	bool has_json;           /* a Content-Type of application/json */
	/* The bytes of the next three lie in the request, and are there until its first access handler call ends. NULL:
	 * no such header. */
	const char *host, *origin, *key;
	size_t host_len, origin_len, key_len;
	bool keys_twice;   /* more than one key: which counts is not clear */
	bool other_scheme; /* an Authorization that is not Bearer: of no meaning here, perhaps meant for a proxy */
	bool preflight;    /* Access-Control-Request-Method */
	/* Idempotency-Key, as given; lies in the request, too. NULL: none */
	const char *idempotency_key;
	size_t idempotency_key_len;
	bool idempotency_keys_twice;
	/* Lock-Token; BAD: it is no token, or there twice */
	enum { HEADERS_TOKEN_NONE, HEADERS_TOKEN_GOOD, HEADERS_TOKEN_BAD } token_state;
	char token[LEASE_TOKEN_LEN];                 /* GOOD */
	char request_id[HEADERS_REQUEST_ID_MAX + 1]; /* "": none that could be used */
};

/* Reads the headers of `mhd` in the first call of its access handler; `url`, `method` and `version` as given to it,
 * `target_len` the length of the raw target. */
void headers_read(struct MHD_Connection *mhd, const char *url, const char *method, const char *version,
		  size_t target_len, struct headers *ret_headers);

/* True for 40 lower-case hex digits. */
#define HEADERS_TOKEN_RULE "must be 40 lower-case hexadecimal digits"
bool headers_is_token(const char *bytes, size_t len);

/* True if the raw target is made of visible ASCII, without `#`, and begins with a slash. */
bool target_is_origin(const char *target, size_t len);

/* The rest of a terminated target in absolute form (`http://authority/path?query`, RFC 9112, 3.2.2) behind its
 * authority, which is written to *ret_host: it begins with a slash or a question mark, or is empty. NULL: the target
 * has another form, or holds what a target may not. */
const char *target_after_authority(const char *target, size_t len, const char **ret_host, size_t *ret_host_len);

/* Takes any terminated target apart, in place. Returns its path ("*" only for OPTIONS), or NULL if it is no target.
 * *ret_query: what follows the question mark, or NULL. The authority of a target in absolute form replaces *ret_host;
 * other forms leave that as it is. */
const char *target_parse(char *target, size_t len, bool options, const char **ret_host, size_t *ret_host_len,
			 const char **ret_query);

#endif
