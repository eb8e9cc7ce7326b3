/* SPDX-License-Identifier: MIT */
/* Shared parts of fuzz_http.c: the HTTP side of one worker over a stand-in for leases, and its clients. */
#ifndef FUZZ_HTTP_H
#define FUZZ_HTTP_H

#include "fuzz.h"
#include "server/leases/leases.h"

enum {
	CLIENTS = 4,          /* of an input; the api takes one less, so that one is refused */
	OPS_MAX = 1024,       /* under way at once */
	GRANTS_MAX = 512,     /* of an input */
	ANSWERS_MAX = 1 << 18 /* bytes for one client: several times what it can ask for */
};

struct hold;

/* ---- the stand-in for leases (fuzz_http_leases.c) ---- */

struct lease_op {
	bool used;
	int fd; /* whose request it is: the api's end of the connection; −1: nobody listens */
	struct lease_request request;
	lease_done_fn *done;
	void *arg;
};

struct lease_listing {
	bool used;
	lease_list_found_fn *found;
	lease_list_done_fn *done;
	void *arg;
};

/* A lease that was granted, by the number in its token. */
struct grant {
	int fd;
	bool held;       /* by its connection */
	bool given_back; /* or dropped, where it was held */
};

extern struct leases {
	struct lease_op ops[OPS_MAX];
	struct lease_listing listings[OPS_MAX];
	size_t under_way, holds;
	bool draining;
	bool troubled; /* something was answered that is a 503 over HTTP */
	size_t grant_count;
	struct grant grants[GRANTS_MAX];
} leases;

/* Answers the operation or listing that began first, as far as slots tell; `choice` picks one of the answers that there
 * are for it. False: there is none. */
bool leases_answer_one(uint8_t choice);

/* Something happens to all that is held: renewed, lost or draining by `choice`. */
void leases_tell_holds(uint8_t choice);

/* The input is over: nothing may be under way. */
void leases_check_end(void);

/* The number of the grant whose token this is; −1: none. */
int leases_grant_of(const char *token);

/* ---- clients (fuzz_http_clients.c) ---- */

struct client {
	int fd;     /* −1: none */
	int served; /* the number of the connection, of all there were; −1: none yet */
	bool tcp;
	bool deaf;  /* does not read */
	bool lossy; /* it may miss bytes that were sent to it: nothing follows from what it has not seen */
	size_t len;
	char *text; /* its answers: ANSWERS_MAX bytes and a NUL */
};

struct api;

void client_open(struct api *api, struct client *client);

/* The number of the connection whose end at the api has this descriptor now: descriptors are used again. */
int client_serving(int fd);
void client_send(struct client *client, const char *bytes, size_t len);
void client_read(struct client *client);

/* Reads what is there and closes; `reset`: without reading, and so that TCP says RST. */
void client_close(struct client *client, bool reset);

/* ---- what came back (fuzz_http_answers.c) ---- */

/* `text` (terminated) is what one client was sent: whole answers, the last one perhaps cut off. Returns how many whole
 * ones. */
unsigned answers_check(const char *text, size_t len, bool trouble_is_due);

/* True if the token of this grant is in it. */
bool answers_hold_token(const char *text, size_t len, int grant);

#endif
