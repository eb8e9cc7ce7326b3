/* SPDX-License-Identifier: MIT */
/* The meaning of an answer of redlockd for redlockctl. Pure: bytes in, a struct out. */
#ifndef ANSWER_H
#define ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/base/cli_base.h"

enum outcome {
	OUTCOME_DONE,        /* 2xx, 304 */
	OUTCOME_HELD,        /* 409 locked: somebody else holds it */
	OUTCOME_SPLIT,       /* 503 split-vote: several tried at once, none won */
	OUTCOME_LOST,        /* 409 not-owner, 410 lease-expired: the lease is not ours any more */
	OUTCOME_UNAVAILABLE, /* no answer, 429, other 5xx: another server, or later */
	/* the certificate of the server is not trusted, so nothing was sent; another server may work */
	OUTCOME_UNTRUSTED,
	OUTCOME_FORBIDDEN, /* 401, 403: no key, or one without the right */
	OUTCOME_INVALID,   /* 400, 413, 414, 431: the request is invalid */
	OUTCOME_REFUSED,   /* by redlockctl itself */
	OUTCOME_STRANGE    /* not an answer of redlockd, or of an unknown version */
};

enum { ANSWER_CODE_MAX = 40, ANSWER_DETAIL_MAX = 400, ANSWER_TEXT_MAX = ANSWER_DETAIL_MAX + 400, ANSWER_TAG_MAX = 80 };

struct answer {
	enum outcome outcome;
	/* the problem's code, "unreachable", "untrusted" or "strange"; empty where it is done */
	char code[ANSWER_CODE_MAX];
	char detail[ANSWER_DETAIL_MAX]; /* for people: one line without control characters */
	uint64_t retry_after_ms;
	bool is_busy;                    /* 429: no further request before retry_after_ms */
	bool is_lost;                    /* the request may have been carried out: its answer is missing or unusable */
	uint64_t place_kept_ms;          /* how long the wait may continue in its place; 0: no place */
	uint64_t ttl_min_ms, ttl_max_ms; /* 400 because of ttl_ms: its bounds; 0: not understood */
	uint64_t sent_us;                /* a time before the request was sent */
	uint64_t begun_us;               /* a time before the first request of this acquisition; 0: not of one */
	char tag[ANSWER_TAG_MAX];        /* ETag; empty: none */
	json_t *json;                    /* the body; NULL where there is none */
};

struct lease {
	char token[41];
	uint64_t fence, ttl_ms, validity_ms;
	uint64_t slot;    /* with --slots */
	uint64_t waiters; /* after an extension; 0 from an older server */
	uint64_t sent_us; /* the validity counts from here */
};

/* status: 0 if there was no answer; `failure` says why. Free with answer_fini(). */
void answer_read(struct answer *ret_answer, long status, const char *body, size_t len, const char *failure);
void answer_fini(struct answer *answer);

/* A text of the server in the words of redlockctl: with options for members of requests, without headers. */
void answer_translate(char detail[ANSWER_DETAIL_MAX]);
/* The option for a member of a request; the member itself if there is none. */
const char *answer_option_of(const char *field);

/* Turns a 2xx or 304 that does not fit the request into no answer. */
void answer_check_status(struct answer *answer, const char *method, long status);

/* True: other servers may answer differently, so the next one gets the request. */
bool answer_is_of_one(const struct answer *answer);

/* Sets an answer of redlockctl's own, if no server was asked or its answer cannot be used. */
void answer_set(struct answer *answer, enum outcome outcome, const char *code, const char *detail);

/* A text in an object; "" if there is none. */
const char *answer_member(const json_t *object, const char *name);

/* The lease in an answer to acquire (`before` NULL) or extend (its token, with the ttl that was asked for). False: the
 * answer becomes OUTCOME_UNAVAILABLE with is_lost, and `detail` has the fault. */
bool answer_lease(struct answer *answer, const struct arguments *arguments, const struct lease *before,
		  struct lease *ret_lease) __attribute__((warn_unused_result));

/* True: nobody holds the lease any more. */
bool answer_is_expired(const struct answer *answer);

/* Turns an answer to a GET of the lock into that of a request that waits for it: names the holder, if known. */
void answer_state(struct answer *answer);

int answer_status(const struct answer *answer, const struct arguments *arguments);

/* Writes the detail for people: after the server, if another one may answer differently; with a hint for a key, if one
 * is required and none was given; and with the option as it was given. Returns ret_text. */
const char *answer_explain(const struct answer *answer, const struct arguments *arguments, const char *server,
			   char ret_text[ANSWER_TEXT_MAX]);

#endif
