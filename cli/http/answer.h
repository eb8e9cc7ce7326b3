/* What an answer of redlockd means to redlockctl. Pure: bytes in, a struct out. */
#ifndef ANSWER_H
#define ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/base/cli_base.h"

enum outcome {
	OUTCOME_DONE,        /* 2xx */
	OUTCOME_HELD,        /* 409 locked: somebody else has it */
	OUTCOME_SPLIT,       /* 503 split-vote: several tried at once, none won */
	OUTCOME_LOST,        /* 409 not-owner, 410 lease-expired: the lease is not ours any more */
	OUTCOME_UNAVAILABLE, /* no answer, 429, other 5xx: another server, or later */
	/* nothing was sent: the server could not show that it is the one that was meant. Another one may */
	OUTCOME_UNTRUSTED,
	OUTCOME_FORBIDDEN, /* 401, 403: the key, or the lack of one, is at fault */
	OUTCOME_INVALID,   /* 400, 413, 414, 431: the request is at fault */
	OUTCOME_STRANGE    /* not from redlockd, or not from one that we know */
};

enum { ANSWER_CODE_MAX = 40, ANSWER_DETAIL_MAX = 400 };

struct answer {
	enum outcome outcome;
	/* the problem's code, "unreachable", "untrusted" or "strange"; empty where it is done */
	char code[ANSWER_CODE_MAX];
	char detail[ANSWER_DETAIL_MAX]; /* for people: one line without control characters */
	uint64_t retry_after_ms;
	bool is_busy;         /* 429: it would not like to be asked before retry_after_ms */
	bool bounds_wait;     /* 400 because of wait_ms ... */
	uint64_t wait_max_ms; /* ... which may be this at most; 0 where that is not to be understood */
	json_t *json;         /* the body; NULL where there is none */
};

struct lease {
	char token[41];
	uint64_t fence, ttl_ms, validity_ms;
};

/* status: 0 where no answer came, then `failure` says why. Give back with answer_fini(). */
void answer_read(struct answer *ret_answer, long status, const char *body, size_t len, const char *failure);
void answer_fini(struct answer *answer);

/* True: it is not known that all servers would say so; the next one is to be asked. */
bool answer_is_of_one(const struct answer *answer);

/* Makes one of redlockctl's own, where no server was asked or its answer is of no use. */
void answer_set(struct answer *answer, enum outcome outcome, const char *code, const char *detail);

/* The lease in an answer to acquire (token NULL) or extend (the token that it must have). False: the answer is made
 * OUTCOME_STRANGE. */
bool answer_lease(struct answer *answer, const char *name, const char *token, struct lease *ret_lease)
	__attribute__((warn_unused_result));

/* The state of a lock that somebody waits for, made into the answer that refuses it. False: it is none. */
bool answer_state(struct answer *answer) __attribute__((warn_unused_result));

/* What to add to the message where a server does not let us: how a key is given, if there was none. Static, may be
 * empty. */
const char *answer_hint(const struct answer *answer, const struct credentials *credentials);

#endif
