/* Leases as the HTTP side sees them: plain structs in, plain structs out. This is the only header of server/
 * with which api/ asks for work to be done; it names neither hiredis nor the core nor libuv.
 *
 * Everything here belongs to one worker's thread. Answers never come from within the call that asks: they come
 * later, from the worker's loop. */
#ifndef LEASE_H
#define LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/base.h"

enum {
	LEASE_RESOURCE_MAX = 256, /* bytes of UTF-8 */
	LEASE_OWNER_MAX = 128,
	LEASE_TOKEN_LEN = RANDOM_TOKEN_LEN,
	LEASE_LIST_MAX = 1000,
	LEASE_CURSOR_MAX = 64
};

/* FORCE: release without a token, whoever holds it (an operator's call). */
enum lease_operation { LEASE_ACQUIRE, LEASE_EXTEND, LEASE_RELEASE, LEASE_INSPECT, LEASE_FORCE };
enum { LEASE_OPERATIONS = LEASE_FORCE + 1 };

/* A call, already checked by whoever fills it in: lengths and ttl within their bounds, token well-formed. */
struct lease_request {
	enum lease_operation call;
	uint32_t ttl_ms;                   /* acquire, extend */
	uint32_t wait_ms;                  /* acquire: how long to wait in the line; 0: not at all */
	bool hold;                         /* acquire: the HTTP side will hold the lease (hold.h); of no meaning here */
	uint16_t resource_len;             /* 1 … LEASE_RESOURCE_MAX */
	uint16_t owner_len;                /* acquire; 0: none */
	char resource[LEASE_RESOURCE_MAX]; /* not terminated */
	char owner[LEASE_OWNER_MAX];       /* not terminated */
	char token[LEASE_TOKEN_LEN];       /* extend, release; not terminated */
};

/* The codes of the contract. LEASE_OK is 201, 200 or 204 by the call. */
enum lease_status {
	LEASE_OK,
	LEASE_LOCKED, /* 409 locked */
	/* 409 not-owner; force: a key that redlockd did not write (then the holder is not known), or a newcomer:
	 * neither is deleted */
	LEASE_NOT_OWNER,
	LEASE_EXPIRED,    /* 410 lease-expired; force: nobody holds it */
	LEASE_NO_QUORUM,  /* 503 no-quorum */
	LEASE_SPLIT_VOTE, /* 503 split-vote */
	LEASE_DRAINING,   /* 503 draining: the service is shutting down */
	LEASE_TOO_MANY,   /* 429 too-many-requests: it would have to wait, but too many do */
	LEASE_STATUS_COUNT
};

struct lease_votes {
	uint8_t needed, granted, refused, failed, quarantined, masters;
};

/* Who holds a resource, as far as the masters told. */
struct lease_holder {
	bool known;         /* false: held by a key that redlockd did not write (another library, another type) */
	uint64_t fence;     /* 0: not known */
	uint16_t owner_len; /* 0: the holder gave no owner */
	char owner[LEASE_OWNER_MAX];
};

struct lease_answer {
	enum lease_status status;
	bool too_late; /* NO_QUORUM only: a majority granted, but no validity was left */
	struct lease_votes votes;
	uint32_t waited_ms; /* from the call to the answer */

	/* acquire, extend, when OK: the lease */
	char token[LEASE_TOKEN_LEN];
	uint64_t fence;       /* grows with every new holder of a resource; stays over extensions; below 2^53 */
	uint32_t ttl_ms;      /* extend: may be shorter than asked for, at the bound of --max-hold-ms */
	uint32_t validity_ms; /* ttl − elapsed − drift, rounded down: what was left when the votes were decided */
	uint64_t until_us;    /* when it ends, by clock_now_us() */
	uint32_t drift_ms;    /* rounded up */

	/* not OK */
	uint32_t retry_after_ms;

	/* acquire: LOCKED; extend, release: unused; inspect: the holder if `held`; extend OK: the lease's own owner;
	 * force: whose lease was released, or may have been (NO_QUORUM); NOT_OWNER: who has it */
	struct lease_holder holder;
	uint32_t waiters;      /* inspect: how many wait for it, over all replicas */
	bool held;             /* inspect */
	bool expires;          /* inspect, held: false for a foreign key without an expiry */
	uint64_t remaining_ms; /* inspect, held and expires */
};

struct leases;   /* all operations of one worker */
struct lease_op; /* one operation under way */

typedef void lease_done_fn(void *arg, const struct lease_answer *answer);

/* Starts a call. `done` is called exactly once, later, unless lease_cancel() comes first. Copies *request.
 * Returns NULL where memory is short; then `done` is never called and nothing was sent. */
struct lease_op *lease_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
			      void *arg);

/* Forgets the caller of `op`: `done` is not called any more, and what was or will be granted is given back. */
void lease_cancel(struct lease_op *op);

/* Releases without anybody waiting for the answer; also where memory is short. Copies *request. */
void lease_release_unheard(struct leases *leases, const struct lease_request *request);

/* Gives a lease back for a client that went away before its grant could be written to it. Copies its arguments. */
void lease_give_back(struct leases *leases, const char *resource, size_t resource_len,
		     const char token[LEASE_TOKEN_LEN]);

/* True from SIGTERM on: acquisitions are then answered LEASE_DRAINING. */
bool lease_draining(const struct leases *leases);

/* One lock in a listing. */
struct lease_state {
	uint16_t resource_len;
	char resource[LEASE_RESOURCE_MAX];
	struct lease_answer answer; /* as for LEASE_INSPECT, `held` is true */
};

struct lease_list_request {
	uint16_t prefix_len; /* 0: all */
	uint16_t limit; /* 1 … LEASE_LIST_MAX: about how many at most; a page may hold fewer, or none, and go on */
	char prefix[LEASE_RESOURCE_MAX];
	char cursor[LEASE_CURSOR_MAX]; /* terminated; "" for the first page, else as given by the page before */
};

struct lease_list_answer {
	enum lease_status status; /* LEASE_OK or LEASE_NO_QUORUM */
	struct lease_votes votes; /* NO_QUORUM: as for an inspection */
	uint32_t retry_after_ms;
	size_t count;
	const struct lease_state *states; /* belongs to the caller of `done`'s caller: valid during the call only */
	char next[LEASE_CURSOR_MAX];      /* terminated; "": that was the last page */
};

typedef void lease_list_done_fn(void *arg, const struct lease_list_answer *answer);

struct lease_listing;

/* True if `cursor` is one that lease_list() could have given. */
bool lease_cursor_valid(const struct leases *leases, const char *cursor);

/* Starts a page of the locks whose resource begins with a prefix. As lease_submit() in all else. */
struct lease_listing *lease_list(struct leases *leases, const struct lease_list_request *request,
				 lease_list_done_fn *done, void *arg);
void lease_list_cancel(struct lease_listing *listing);

#endif
