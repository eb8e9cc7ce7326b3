/* The one way in which a request is answered: the answer is noted in the request, and goes to libmicrohttpd as soon as
 * that takes it. */
#ifndef REPLY_H
#define REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/calls/problem.h"
#include "server/leases/leases.h"

struct request;

enum { REPLY_ALLOW_MAX = 64, REPLY_NONCE_LEN = 32 };

struct reply {
	unsigned status;            /* 0: none is noted */
	const char *code;           /* of a problem; NULL: it is none */
	const char *type;           /* Content-Type; NULL: there is no body */
	uint32_t retry_after_s;     /* 0: no such header */
	struct redlock_votes votes; /* of an answer that wants for a quorum, for the log; needed 0: it does not */
	bool close;                 /* the connection must end with it, and need not wait for the body of the request */
	bool location;              /* of the resource of the request */
	bool preflight;             /* what a page of the request's origin may send */
	char allow[REPLY_ALLOW_MAX];     /* "": no such header */
	char nonce[REPLY_NONCE_LEN + 1]; /* of the styles and scripts of a page; "": none may run */
	char *owned;                     /* body on the heap, or NULL */
	const char *bytes;               /* body */
	size_t len;
};

/* Notes an answer whose body is static. */
void reply_static(struct request *request, unsigned status, const char *type, const char *bytes, size_t len);

/* The same for a body that malloc() made; takes it over. NULL: memory was short, and the connection is closed. */
void reply_owned(struct request *request, unsigned status, const char *type, char *bytes, size_t len);

/* The same for a body that is copied; where memory is short the connection is closed. */
void reply_copy(struct request *request, unsigned status, const char *type, const char *bytes, size_t len);

/* The same for JSON; takes over the reference. */
void reply_json(struct request *request, unsigned status, json_t *json);

/* An answer without a body. */
void reply_empty(struct request *request, unsigned status);

/* A problem; `members` as for problem_new(). */
void reply_problem(struct request *request, enum problem problem, const char *detail, json_t *members);

/* 400 with what is wrong with which field. */
void reply_invalid(struct request *request, const char *detail, const struct field_errors *errors);

/* Hands the noted answer to libmicrohttpd. False where memory is short. */
bool reply_queue(struct request *request) __attribute__((warn_unused_result));

/* Forgets the answer. */
void reply_clear(struct reply *reply);

#endif
