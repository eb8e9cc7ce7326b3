/* Types and functions that the files of this folder share. */
#ifndef LEASE_INTERNAL_H
#define LEASE_INTERNAL_H

#include <uv.h>

#include "leases.h"
#include "server/config/config.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"
#include "server/redlock/redlock.h"

/* Validity is told in whole ms, rounded down. The loss is taken off with the drift beforehand, so that the core grants
 * nothing of which less than a whole ms is left. */
enum { LEASE_ROUNDING_US = 999 };

/* The holder of the resource as one master told it. */
struct lease_sight {
	uint64_t id; /* of the token, or of another program's value */
	struct lease_holder holder;
	char token[LEASE_TOKEN_LEN]; /* holder.known: for a forced release, and for nobody else */
};

/* A command that could not be sent, and the vote that it counts as. */
struct lease_unsent {
	uint16_t attempt, round;
	uint8_t master;
	uint8_t script, vote; /* enum redlock_script, enum redlock_vote */
};

/* One operation. Kept for reuse when it is finished, with its timer. */
struct lease_op {
	struct leases *leases;
	struct lease_op *next; /* in the list of answered ones, or of spare ones */
	struct lease_op *all_next;
	uv_timer_t timer;
	struct redlock core;
	struct lease_request request;
	lease_done_fn *done; /* NULL: nobody waits for the answer */
	void *arg;
	uint64_t began_us;
	uint16_t attempt; /* whose token `token` is */
	char token[LEASE_TOKEN_LEN];
	/* rounds of the loop since its timer fired while answers had arrived that the loop had not read */
	unsigned rounds_late;
	bool answer_waits; /* in the list of answered ones, for leases_dispatch() */
	bool finished;     /* the core is done with it */
	struct lease_answer answer;
	struct lease_queue *queue; /* it waits, or may have to; NULL: it does not */
	struct lease_op *queue_next, *queue_prev;
	struct lease_op *older, *newer; /* of all that wait at this worker, for any resource */
	uint64_t missed_notifications;  /* leases->missed_notifications when it entered or last became the first */
	uint64_t notified_us;           /* the first notification; 0: none yet */
	bool hold_time_noted;           /* release: the time was told to the metrics */
	bool crowded;                   /* it would wait, but too many do */
	bool held_back;                 /* not started: enough others wait for masters */
	struct lease_op *backlog_next;
	bool busy;                 /* the masters have not answered, and the core waits for them */
	struct lease_force *force; /* LEASE_FORCE, until it is answered */
	uint16_t reached;          /* bit i: a command of this attempt was handed to master i */
	size_t unsent_count;
	struct lease_unsent unsent[2 * REDLOCK_MASTERS_MAX]; /* to be given to the core after the step */
	struct lease_sight seen[];                           /* for each master */
};

/* One command under way: what was asked, for the callback. */
struct lease_ref {
	struct lease_ref *next; /* in the list of spare ones */
	struct lease_op *op;
	uint16_t attempt, round;
	enum redlock_script script;
	uint8_t master;
	enum redlock_entry entry;
	bool tokenless;
	uint64_t fence;
	char token[LEASE_TOKEN_LEN]; /* of that attempt */
};

/* A listing under way. */
enum { LEASE_LISTINGS = 2 };
struct lease_list_slot {
	struct lease_listing *listing; /* NULL: free */
	uv_timer_t timer;              /* for the answer to its SCAN */
};

struct leases {
	uv_loop_t *loop;
	const struct options *options;
	struct masters *masters;
	struct metrics *metrics;
	struct lease_op *spare, *all;
	struct lease_ref *spare_refs;
	struct lease_op *done_first, *done_last; /* answered ones, for leases_dispatch() */
	/* listings that have not begun, in the order of their arrival */
	struct lease_listing *list_first, *list_last;
	struct lease_list_slot list_slots[LEASE_LISTINGS];
	bool list_answered; /* since the last pump: the HTTP side has something to write */
	struct lease_queues *queues;
	uint64_t missed_notifications;                 /* how often masters may have dropped entries or notifications */
	size_t waiting;                                /* operations whose answer somebody waits for */
	size_t busy;                                   /* operations that wait for masters */
	struct lease_op *backlog_first, *backlog_last; /* those held back, in the order of their arrival */
	unsigned unflushed;                            /* operations begun since the last flush */
	bool draining;
	/* hybrid logical clock: the last guess, or the largest number seen, in µs of the time of day */
	uint64_t fence_clock;
};

/* ---- lease_command.c: the bytes that go to a master ---- */

struct lease_command {
	enum redlock_script script;
	const char *token; /* LEASE_TOKEN_LEN; release: "" for none */
	const char *entry; /* acquire, release: as lease_command_write_entry() makes it; "" or NULL: none */
	uint64_t fence;    /* acquire, raise */
	bool with_source;  /* EVAL instead of EVALSHA */
};
/* bytes of a command; of one with its source */
enum { LEASE_ENTRY_MAX = 64, LEASE_COMMAND_MAX = 2048, LEASE_COMMAND_SOURCE_MAX = 12288 };
/* "replica:arrival wait_ms", terminated: a queue entry, and for how long it may be needed; 0: it is removed. */
void lease_command_write_entry(const struct leases *leases, uint64_t arrival, uint64_t wait_ms,
			       char ret_entry[LEASE_ENTRY_MAX]);
/* Returns its length. `size`: LEASE_COMMAND_MAX, or LEASE_COMMAND_SOURCE_MAX for one with its source. */
size_t lease_command_format(const struct options *options, const struct lease_request *request,
			    const struct lease_command *command, char *ret_bytes, size_t size);
/* The bucket of a resource, 0 … MASTER_FENCE_BUCKETS−1: the same on every redlockd. */
unsigned lease_command_bucket(const char *resource, size_t len);
/* How many keys one SCAN of a listing looks at: it blocks a master for about 50 µs. */
enum { LEASE_SCAN_KEYS = 100 };
unsigned lease_command_scan_keys(const struct lease_list_request *request);
/* SCAN cursor MATCH {prefix}{resource prefix}* COUNT keys. */
size_t lease_command_scan(const struct options *options, const struct lease_list_request *request, uint64_t cursor,
			  char ret_bytes[LEASE_COMMAND_MAX]);

/* ---- lease_answer.c: pure ---- */

uint64_t lease_answer_token_id(const char token[LEASE_TOKEN_LEN]);
/* Until when, in the master's ms, the lease with this value can be extended (--max-hold-ms). 0: no bound, or not a
 * value of redlockd's. */
uint64_t lease_answer_hold_until_ms(const char *value, size_t len);
/* Reads the holder from a key's value (NULL: another type); returns the holder's identity for the core. */
uint64_t lease_answer_read_holder(const char *value, size_t len, struct lease_holder *ret_holder);
void lease_answer_make(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
		       struct lease_answer *ret_answer);

/* ---- lease_fence.c: a guess for the next fence of any resource, and what to learn from a number seen ---- */

uint64_t lease_fence_guess(struct leases *leases);
void lease_fence_learn(struct leases *leases, uint64_t fence);

/* ---- lease_queue.c ---- */

enum { LEASE_QUEUE_CHAINS = 1024 };
/* The chain of the table that has the queue of a resource. */
unsigned lease_queue_chain(const struct leases *leases, const char *resource, size_t len);
bool lease_queues_init(struct leases *leases);
void lease_queues_free(struct leases *leases);
/* True if no more may wait for that resource, or at all. */
bool lease_queue_is_full(const struct leases *leases, const struct lease_request *request);
/* The waiter with that arrival; the first of all; NULL: none. */
struct lease_op *lease_queue_find(const struct leases *leases, const char *resource, size_t len, uint64_t arrival);
struct lease_op *lease_queue_find_first(const struct leases *leases, const char *resource, size_t len);
/* Visits the first waiter of each resource. */
void lease_queues_visit_first(const struct leases *leases, void (*visit)(struct lease_op *first));
/* A waiter behind which none waits; NULL: nobody waits. */
struct lease_op *lease_queues_find_any(const struct leases *leases);
/* To the end of the queue of its resource, before START; false where memory is short. It is the first there if it has
 * no queue_prev. */
bool lease_queue_enter(struct lease_op *op);
/* It is answered or given up, with that result. Returns the operation that becomes the first, or NULL, and how long
 * until that one may try by itself (REDLOCK_NEVER: not known). */
struct lease_op *lease_queue_exit(struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
				  uint64_t *ret_remaining_us) __attribute__((warn_unused_result));
/* Publishes the longest queues to /stats if they have changed, but not too often. Once per round of the loop: the rest
 * follows within a heartbeat. */
void lease_queues_publish(struct leases *leases);

/* ---- lease_op.c ---- */

/* An operation that has not started; NULL where memory is short. */
struct lease_op *lease_op_begin(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				void *arg);
/* Nobody waits for the answer any more. Returns the callback, if there was one. */
lease_done_fn *lease_op_forget_caller(struct lease_op *op);
/* One event and all that follows from it at once. The operation may be over afterwards: do not touch it again. */
void lease_op_dispatch(struct lease_op *op, const struct redlock_event *event);
/* FIRST: no other operation of this worker waits before it. */
void lease_op_dispatch_first(struct lease_op *op, uint64_t now_us, uint64_t remaining_us);
/* op->answer is made: it will be handed out. */
void lease_op_answered(struct lease_op *op, uint64_t now_us);
void lease_op_reject_draining(struct lease_op *op, uint64_t now_us);
/* True if the operation, an inspection that is answered, found a holder on one of these masters. */
bool lease_op_seen_on(const struct lease_op *op, uint16_t masters);
void lease_op_recycle(struct lease_op *op); /* if it is over */

/* ---- lease_notification.c: passes notifications on from now on ---- */

void lease_notification_listen(struct leases *leases);

/* ---- lease_submit.c: operations that the core runs, all but LEASE_FORCE ---- */

/* lease_submit(). `wait_for_all`: an inspection that waits until every master has answered. */
struct lease_op *lease_submit_op(struct leases *leases, const struct lease_request *request, bool wait_for_all,
				 lease_done_fn *done, void *arg);
void lease_submit_cancel(struct lease_op *op); /* lease_cancel() */
/* Starts operations that were held back, as far as they may. */
void lease_submit_backlog(struct leases *leases);

/* ---- lease_force.c: lease_submit() and lease_cancel() of LEASE_FORCE; the latter before it is answered ---- */

struct lease_op *lease_force_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				    void *arg);
void lease_force_cancel(struct lease_op *op);

/* ---- lease_list.c ---- */

bool lease_list_init(struct leases *leases);
/* Begins what lease_list() took in, as far as it may; true if there was any. */
bool lease_list_begin_new(struct leases *leases);
/* When all listings have ended. */
void lease_list_close(struct leases *leases);

#endif
