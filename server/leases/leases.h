/* SPDX-License-Identifier: MIT */
/* Leases of one worker: operations on them, listings, leases held for a connection, and the functions for the worker.
 *
 * Plain structs in, plain structs out. Everything belongs to one worker's thread. Answers and events never come from
 * within a call of this header: they come later, from the worker's loop. Requests are copied. */
#ifndef LEASES_H
#define LEASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/base.h"
#include "server/redlock/redlock.h"

struct masters;
struct metrics;
struct options;
struct uv_loop_s;

enum {
	LEASE_RESOURCE_MAX = 256, /* bytes of UTF-8 */
	LEASE_SET_MAX = 16,       /* resources of one lease */
	LEASE_SLOTS_MAX = 1024,
	LEASE_HOLDERS_MAX = 100, /* leases that hold a resource together: so many are listed */
	LEASE_HOLDERS_FEW = 3,   /* the same in a listing of locks */
	LEASE_NAMES_MAX = LEASE_SET_MAX * (LEASE_RESOURCE_MAX + 1) - 1,
	LEASE_OWNER_MAX = 128,
	LEASE_CALLER_MAX = 128,
	LEASE_METADATA_MAX = 1024,
	LEASE_TOKEN_LEN = RANDOM_TOKEN_LEN,
	LEASE_LIST_MAX = 1000,
	LEASE_CURSOR_MAX = 96,
	LEASE_PLACE_KEPT_MS = 2000 /* as server/scripts/lib/queue.lua has it */
};

/* The core's kinds, and FORCE: release without a token, whoever holds the lock (for operators). */
enum lease_operation {
	LEASE_ACQUIRE = REDLOCK_ACQUIRE,
	LEASE_EXTEND = REDLOCK_EXTEND,
	LEASE_RELEASE = REDLOCK_RELEASE,
	LEASE_INSPECT = REDLOCK_INSPECT,
	LEASE_FORCE
};

/* The codes of the contract: the core's outcomes, and LEASE_TOO_MANY. LEASE_OK is 201, 200 or 204 by the operation. */
enum lease_status {
	LEASE_OK = REDLOCK_OK,
	LEASE_LOCKED = REDLOCK_LOCKED, /* 409 locked */
	/* 409 not-owner. FORCE: redlockd did not write the key (then the holder is not known), or the key belongs to a
	 * newcomer or to a holder with another fence; none is deleted */
	LEASE_NOT_OWNER = REDLOCK_NOT_OWNER,
	LEASE_EXPIRED = REDLOCK_EXPIRED,     /* 410 lease-expired. FORCE: nobody holds it */
	LEASE_NO_QUORUM = REDLOCK_NO_QUORUM, /* 503 no-quorum */
	LEASE_SPLIT_VOTE = REDLOCK_SPLIT,    /* 503 split-vote */
	LEASE_DRAINING = REDLOCK_CANCELLED,  /* 503 draining: the only cancelled operations that get an answer */
	LEASE_TOO_MANY,                      /* 429 too-many-requests: it would have to wait, but too many do */
	LEASE_STATUS_COUNT
};

/* One lease alone; any number of shared ones; or some, each on a slot of its own. */
enum lease_mode { LEASE_EXCLUSIVE, LEASE_SHARED, LEASE_SLOT };

/* ---- operations ---- */

/* A request, already checked by the caller: lengths and ttl within their bounds, token well-formed. */
struct lease_request {
	enum lease_operation operation;
	uint32_t ttl_ms;      /* acquire, extend; inspect: see lease_watch.c, else 0 */
	uint32_t wait_ms;     /* acquire: how long to wait in the queue; 0: not at all */
	uint32_t keep_ms;     /* release: for how long nobody gets it then; 0: not at all */
	enum lease_mode mode; /* acquire */
	uint32_t slots;       /* acquire, LEASE_SLOT: 1 … LEASE_SLOTS_MAX */
	/* acquire: the HTTP side will hold the lease (hold_new); ignored here. extend: the holder asks for messages of
	 * waiters (lease_watch.c) */
	bool hold;
	/* force: the holder's, or nothing is released; 0: any holder's. extend with a key: the lease's */
	uint64_t fence;
	/* acquire: a hash of caller and Idempotency-Key; extend: confirms it in the lease, with its fence; release:
	 * takes the place that was kept for it, and releases nothing. 0: none */
	uint64_t key;
	uint64_t arrival;  /* acquire with a key: that of the place that was taken; 0: none */
	bool wait_for_all; /* inspect: until every master has answered, or its time is up */
	bool few;          /* inspect: LEASE_HOLDERS_FEW */
	bool more;         /* another request follows at once: its commands may wait for those */
	/* extend (leases.c), inspect (lease_share.c): by redlockd alone, so that no metrics count it and no drain waits
	 * for it */
	bool unasked;
	char token[LEASE_TOKEN_LEN]; /* extend, release */
	/* The texts are not terminated. For several resources `resource` has their sorted names, separated by line
	 * feeds; names have no control characters. */
	uint8_t set_count;     /* how many they are; 0: one */
	uint16_t resource_len; /* 1 … LEASE_RESOURCE_MAX, or LEASE_NAMES_MAX */
	const char *resource;
	/* acquire: who takes the lease, and its metadata, compact JSON, without control characters */
	uint16_t owner_len, caller_len, metadata_len; /* 0: none */
	const char *owner, *caller, *metadata;
};

/* How many resources a request has. */
static inline size_t lease_request_count(const struct lease_request *request)
{
	return request->set_count > 0 ? request->set_count : 1;
}

/* The holder of a resource, as far as the masters know. */
struct lease_holder {
	bool known;        /* false: the key was not written by redlockd (another library, another type) */
	bool kept;         /* it was released with keep_ms */
	bool confirmed;    /* it has had `key` since it was granted; false: that request is under way */
	uint8_t set_count; /* of a set, with its names, as in struct lease_request; 0: one resource */
	uint16_t owner_len, caller_len, metadata_len, names_len; /* 0: none */
	uint16_t slot;                                           /* LEASE_SLOT */
	enum lease_mode mode;
	uint64_t fence;         /* 0: not known */
	uint64_t hold_until_ms; /* of the master's time: the bound on its age; 0: none */
	uint64_t key;           /* of the request that it was granted to; 0: none */
	/* followed by the caller, the metadata and the names, in the holder's own memory; NULL: none of them */
	const char *owner;
};

/* The leases that hold a resource together. Answers share them, and do not change them. */
struct lease_holders {
	uint32_t shares; /* answers that share it, minus one */
	/* the text that the HTTP side writes for the first of those answers and sends for all; freed with the last.
	 * NULL: not yet */
	char *text;
	size_t text_len;
	uint32_t count;  /* how many there are */
	uint32_t listed; /* how many are in `list`, ordered by fence */
	uint64_t digest; /* of all of them: another one if a lease comes or goes */
	uint64_t now_ms; /* of one master: its time */
	bool disagree;   /* some are not listed, and no majority has the same leases */
	struct lease_held {
		struct lease_holder holder;
		uint64_t remaining_ms;
		uint8_t reports;             /* how many masters have reported its value; 0: the holder is not known */
		char token[LEASE_TOKEN_LEN]; /* for a forced release, and for nobody else */
	} list[];
};

struct lease_answer {
	enum lease_status status;
	bool too_late; /* NO_QUORUM only: a majority granted, but no validity was left */
	struct redlock_votes votes;
	uint32_t waited_ms;     /* from the request to the answer */
	uint16_t place_kept_ms; /* acquire with a key, LOCKED or DRAINING; 0: its place is not kept */
	/* acquire with a key, OK: the lease has the key, and is never released but by its token or by force; it was
	 * granted to an earlier request */
	bool confirmed, again;

	/* acquire, extend, when OK: the lease */
	char token[LEASE_TOKEN_LEN];
	uint64_t fence;       /* grows with every new holder of a resource; stays over extensions; below 2^53 */
	uint32_t ttl_ms;      /* extend: may be shorter than asked for, at the bound of --max-hold-ms */
	uint32_t validity_ms; /* ttl − elapsed − drift, rounded down: what was left when the votes were decided */
	uint64_t until_us;    /* when it ends, by clock_now_us() */
	uint32_t drift_ms;    /* rounded up */
	enum lease_mode mode;
	uint16_t slot; /* LEASE_SLOT */

	/* not OK */
	uint32_t retry_after_ms;

	/* acquire: LOCKED; extend: unused; inspect: the holder if `held`; extend OK: the lease's own owner;
	 * force: whose lease was released, or may have been (NO_QUORUM); NOT_OWNER: the present holder; release OK: the
	 * lease's own with --log-leases, else not known */
	struct lease_holder holder;
	uint64_t holder_id;     /* of the token, or of another program's value; the same for all masters and redlockd */
	uint8_t blocking_index; /* acquire, LOCKED, of a set: the resource that is held, or has another waiter */
	/* inspect, extend: how many wait for it, over all replicas; of a set, the largest number over its resources */
	uint32_t waiters;
	bool held;             /* inspect */
	bool expires;          /* inspect, held: false for another program's key without an expiry */
	uint64_t remaining_ms; /* inspect, held and expires: until all that hold it have ended */
	/* inspect, held by leases that leave room for others, and force with --log-leases, if they were released; NULL:
	 * it is not */
	struct lease_holders *several;
	uint64_t ago_ms; /* a watch: since when the times of `several` are known */
};

struct leases;   /* all operations of one worker */
struct lease_op; /* one operation under way */

typedef void lease_done_fn(void *arg, const struct lease_answer *answer);

/* Starts an operation. An acquisition with a key may give an earlier lease again (lease_keyed.c). `done` is called
 * exactly once, unless lease_cancel() comes first; NULL: nobody waits for the answer. */
struct lease_op *lease_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
			      void *arg);

/* Forgets the caller of `op`: `done` is not called any more, and a lease that was or will be granted is released. */
void lease_cancel(struct lease_op *op);

/* Releases an abandoned grant of the token to `acquired`: its client disconnected before the lease could be written to
 * it. */
void lease_release_abandoned(struct leases *leases, const struct lease_request *acquired,
			     const char token[LEASE_TOKEN_LEN]);

/* ---- listings ---- */

struct lease_list_request {
	uint16_t prefix_len; /* 0: all */
	uint16_t limit; /* 1 … LEASE_LIST_MAX: about how many at most; a page with fewer or none may not be the last */
	bool by_owner;  /* only locks of this owner; owner_len 0: only those without one */
	uint16_t owner_len;
	char owner[LEASE_OWNER_MAX];
	char prefix[LEASE_RESOURCE_MAX];
	char cursor[LEASE_CURSOR_MAX]; /* terminated; "" for the first page, else as given by the page before */
};

struct lease_list_answer {
	enum lease_status status;   /* LEASE_OK or LEASE_NO_QUORUM */
	struct redlock_votes votes; /* NO_QUORUM: as for an inspection */
	uint32_t retry_after_ms;
	size_t count;                /* of the locks that were found */
	char next[LEASE_CURSOR_MAX]; /* terminated; "": that was the last page */
};

/* A lock of the page: `answer` as for LEASE_INSPECT, `held` is true. Valid only during the call. They come as they are
 * found, a few in a round of the loop, and are a page only if `done` gets LEASE_OK. */
typedef void lease_list_found_fn(void *arg, const char *resource, size_t len, const struct lease_answer *answer);
typedef void lease_list_done_fn(void *arg, const struct lease_list_answer *answer);

struct lease_listing;

/* True if `cursor` is one that lease_list() could have given. */
bool lease_cursor_valid(const struct leases *leases, const char *cursor);

/* Starts a page of the locks whose resource begins with a prefix, of one owner if one is named. Otherwise like
 * lease_submit(). */
struct lease_listing *lease_list(struct leases *leases, const struct lease_list_request *request,
				 lease_list_found_fn *found, lease_list_done_fn *done, void *arg);
void lease_list_cancel(struct lease_listing *listing);

/* ---- watching ---- */

enum { LEASE_TAG_MAX = 24 };

/* The name of the state that an inspection found, visible ASCII, terminated: changes with the holder, not with time. It
 * is the same from each redlockd. */
void lease_tag_write(const struct lease_answer *answer, char ret_tag[LEASE_TAG_MAX]);

struct lease_watcher;

enum lease_watch_event {
	LEASE_WATCH_CHANGED, /* lease_watch_take() has a state that the watcher has not seen */
	LEASE_WATCH_TIME,    /* `time_ms` has passed since the watch began, or since the last event */
	LEASE_WATCH_DRAINING /* the last one: the service ends */
};

/* May end the watch of this watcher, and of no other. */
typedef void lease_watch_fn(void *arg, enum lease_watch_event event);

/* True if no more may watch: --max-waiters bounds them, too, apart from the waiters. */
bool lease_watch_is_full(const struct leases *leases);

/* Watches a resource. `seen`: the tag of the state that the watcher knows; "": none. */
struct lease_watcher *lease_watch(struct leases *leases, const char *resource, size_t resource_len, const char *seen,
				  uint32_t time_ms, lease_watch_fn *event, void *arg);

/* The state now, unless the watcher has seen it: then NULL. From now on it has seen it. LEASE_OK, or LEASE_NO_QUORUM
 * while too few masters answer. Valid until the loop goes on. */
const struct lease_answer *lease_watch_take(struct lease_watcher *watcher, const char **ret_tag);

/* The tag of the state as far as it is known; "": not known yet. Valid until the loop goes on. */
const char *lease_watch_tag(const struct lease_watcher *watcher);

void lease_watch_end(struct lease_watcher *watcher);

/* ---- waiters for a lease ---- */

struct lease_wanted;

/* The queue of one of the resources was empty on that master, and has a waiter now. Must end no listening. */
typedef void lease_wanted_fn(void *arg, unsigned master);

/* Listens to the masters' messages for the resources of an extension with `hold`, which asks for them. */
struct lease_wanted *lease_wanted_listen(struct leases *leases, const struct lease_request *extension,
					 lease_wanted_fn *event, void *arg);
void lease_wanted_end(struct lease_wanted *wanted);

/* ---- held leases: renewed each third of their ttl until they are dropped ---- */

struct holds; /* all of one worker */
struct hold;

enum hold_event {
	HOLD_RENEWED,
	HOLD_WANTED, /* hold_take_wanted() is true; HOLD_RENEWED may come with it, too */
	/* the last one; `code` says why: LEASE_EXPIRED, LEASE_NOT_OWNER or LEASE_NO_QUORUM. The rest of the lease is
	 * released */
	HOLD_LOST,
	/* the last one: the service ends. The lease was renewed once more if possible, and is not renewed again */
	HOLD_DRAINING
};

/* May drop the hold, except for HOLD_WANTED. `code` is LEASE_OK but for HOLD_LOST. */
typedef void hold_event_fn(void *arg, enum hold_event event, enum lease_status code);

/* Holds the lease that `answer` to `request` (an acquisition) has just granted. */
struct hold *hold_new(struct holds *holds, const struct lease_request *request, const struct lease_answer *answer,
		      hold_event_fn *on_event, void *arg);

/* How long the lease is still valid. */
uint32_t hold_validity_ms(const struct hold *hold);

/* How many wait for the lease, as far as the hold knows. */
uint32_t hold_waiters(const struct hold *hold);

/* True once for each time that the first request begins to wait. */
bool hold_take_wanted(struct hold *hold);

/* Ends the hold, at any time: no event follows. `release`: the lease is released at once, unless it is lost already;
 * else it expires by itself. */
void hold_drop(struct hold *hold, bool release);

/* ---- for the worker ---- */

/* All arguments outlive the result. */
struct leases *leases_new(struct uv_loop_s *loop, const struct options *options, struct masters *masters,
			  struct metrics *metrics);

/* Hands out the answers that have come since the last call; true if there were any. Call it once per round of the
 * loop. */
bool leases_dispatch(struct leases *leases);

/* From now on acquisitions are answered LEASE_DRAINING; extensions and releases go on. */
void leases_drain(struct leases *leases);

/* How many operations have a caller that waits for the answer. */
size_t leases_waiting(const struct leases *leases);

/* After masters_close(): hands out the last answers and closes the timers of all operations. Run the loop until it is
 * empty, then leases_free(). */
void leases_close(struct leases *leases);
void leases_free(struct leases *leases);

/* All arguments outlive the result. */
struct holds *holds_new(struct uv_loop_s *loop, struct leases *leases, struct metrics *metrics);

/* From now on every hold, also a new one, is renewed once more and ends with HOLD_DRAINING. */
void holds_drain(struct holds *holds);

/* When all are dropped. */
void holds_free(struct holds *holds);

#endif
