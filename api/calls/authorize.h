/* The door: what a request must pass before its handler runs. Each step notes the refusal in the request where it does
 * not pass.
 *
 *     headers ─► page (Host, Origin) ─► rate of the address ─► route ─► caller, right, rate of the key ─► resource
 *             ─► body ─► handler
 *
 * Who may do what is decided in access.c; the rest of the door is here. Worker's thread. */
#ifndef AUTHORIZE_H
#define AUTHORIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "api/auth/access.h"

struct request;
struct body_limits;

/* Host and Origin: 403 where a page calls that may not. A preflight of one that may is answered here (204). */
bool authorize_page(struct request *request, const char *method) __attribute__((warn_unused_result));

/* One request more from this address: 429 where it is one too many. */
bool authorize_address(struct request *request) __attribute__((warn_unused_result));

/* Finds out who calls, and whether he may make this call at all: 401, 403, and 429 by the rate of his key. */
bool authorize_caller(struct request *request) __attribute__((warn_unused_result));

/* Whether he may do so to this resource, or list what begins with these bytes: 403. */
bool authorize_resource(struct request *request, const char *bytes, size_t len) __attribute__((warn_unused_result));

/* Keys or authorities have been read again: finds out anew who calls, and returns what that caller may. A request that
 * is refused stays with who called before. */
enum access_verdict authorize_again(struct request *request) __attribute__((warn_unused_result));

/* Notes 401 or 403, as the verdict says; false unless that is ACCESS_ALLOWED. */
bool authorize_refuse(struct request *request, enum access_verdict verdict);

/* Lowers the bounds of a body to those of the caller. */
void authorize_limit(const struct request *request, struct body_limits *limits);

/* One request of his more that may wait: 429 where it is one too many. */
bool authorize_wait(struct request *request) __attribute__((warn_unused_result));

/* It does not wait any more; does nothing where it never did. */
void authorize_wait_end(struct request *request);

/* Forgets the caller: the request is over. */
void authorize_end(struct request *request);

#endif
