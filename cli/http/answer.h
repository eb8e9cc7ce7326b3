/* The meaning of an answer of redlockd for redlockctl. Pure: bytes in, a struct out. */
#ifndef ANSWER_H
#define ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/base/cli_base.h"

enum outcome {
	OUTCOME_DONE,        /* 2xx */
	OUTCOME_HELD,        /* 409 locked: somebody else holds it */
	OUTCOME_SPLIT,       /* 503 split-vote: several tried at once, none won */
	OUTCOME_LOST,        /* 409 not-owner, 410 lease-expired: the lease is not ours any more */
	OUTCOME_UNAVAILABLE, /* no answer, 429, other 5xx: another server, or later */
	/* nothing was sent: the certificate of the server is not trusted. Another server may be */
	OUTCOME_UNTRUSTED,
	OUTCOME_FORBIDDEN, /* 401, 403: no key, or one without the right */
	OUTCOME_INVALID,   /* 400, 413, 414, 431: a mistake in the request */
	OUTCOME_STRANGE    /* not an answer of redlockd, or of an unknown version */
};

enum { ANSWER_CODE_MAX = 40, ANSWER_DETAIL_MAX = 400 };

struct answer {
	enum outcome outcome;
	/* the problem's code, "unreachable", "untrusted" or "strange"; empty where it is done */
	char code[ANSWER_CODE_MAX];
	char detail[ANSWER_DETAIL_MAX]; /* for people: one line without control characters */
	uint64_t retry_after_ms;
	bool is_busy;         /* 429: not to be asked before retry_after_ms */
	bool bounds_wait;     /* 400 because of wait_ms */
	uint64_t wait_max_ms; /* its bound; 0: not understood */
	json_t *json;         /* the body; NULL where there is none */
};

struct lease {
	char token[41];
	uint64_t fence, ttl_ms, validity_ms;
};

/* status: 0 if there was no answer; `failure` says why. Free with answer_fini(). */
void answer_read(struct answer *ret_answer, long status, const char *body, size_t len, const char *failure);
void answer_fini(struct answer *answer);

/* True: other servers may answer differently; the next one is to be asked. */
bool answer_is_of_one(const struct answer *answer);

/* Sets an answer of redlockctl's own, if no server was asked or its answer cannot be used. */
void answer_set(struct answer *answer, enum outcome outcome, const char *code, const char *detail);

/* The lease in an answer to acquire (token NULL) or extend (the token that it must have). False: the answer becomes
 * OUTCOME_STRANGE. */
bool answer_lease(struct answer *answer, const char *name, const char *token, struct lease *ret_lease)
	__attribute__((warn_unused_result));

/* Turns the state of a lock (GET) into the answer of a request that waits for it. False: it is not a state. */
bool answer_state(struct answer *answer) __attribute__((warn_unused_result));

/* Text to add to the message of an answer: how to give a key, if one is required and none was given. Static, may be
 * empty. */
const char *answer_hint(const struct answer *answer, const struct credentials *credentials);

#endif
