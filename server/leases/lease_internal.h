/* What the files lease*.c share; nobody else includes it. */
#ifndef LEASE_INTERNAL_H
#define LEASE_INTERNAL_H

#include <uv.h>

#include "leases.h"
#include "server/config/config.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"
#include "server/redlock/redlock.h"

/* Validity is told in whole ms, rounded down. What that may cost is taken off with the drift beforehand, so that the
 * core grants nothing of which less than a whole ms is left. */
enum { LEASE_ROUNDING_US = 999 };

/* What one master said about who holds the resource. */
struct lease_sight {
	uint64_t id; /* of the token, or of the foreign value */
	struct lease_holder holder;
	char token[LEASE_TOKEN_LEN]; /* holder.known: for a forced release, and for nobody else */
};

/* A master that could not be asked, and what that counts as. */
struct lease_unsent {
	uint16_t attempt, round;
	uint8_t master;
	uint8_t script, vote; /* enum redlock_script, enum redlock_vote */
};

/* One operation. Kept for reuse when it is finished, with its timer. */
struct lease_op {
	struct leases *leases;
	struct lease_op *next; /* in the list of those done, or of the spare ones */
	struct lease_op *all_next;
	uv_timer_t timer;
	struct redlock core;
	struct lease_request request;
	lease_done_fn *done; /* NULL: nobody waits for the answer */
	void *arg;
	uint64_t began_us;
	uint16_t attempt; /* whose token `token` is */
	char token[LEASE_TOKEN_LEN];
	/* its timer has fired, but so many rounds of the loop ago there were answers that the loop had not read */
	unsigned rounds_late;
	bool queued;   /* its answer waits in the list of those done */
	bool finished; /* the core is done with it */
	struct lease_answer answer;
	struct lease_queue *line; /* it waits, or may have to; NULL: it does not */
	struct lease_op *queue_next, *queue_prev;
	struct lease_op *older, *newer; /* of all that wait at this worker, whatever for */
	uint64_t missed_notifications;  /* of the lines, when it took its place */
	uint64_t notified_us;           /* when a master called it first; 0: none has */
	bool held_noted;                /* release: the time was told to the metrics */
	bool crowded;                   /* it would wait, but too many do */
	bool held_back;                 /* it has not started: enough others wait for masters */
	struct lease_op *held_next;
	bool busy;                 /* masters owe it answers that it waits for */
	struct lease_force *force; /* LEASE_FORCE, until it is answered: those that do the work */
	uint16_t reached;          /* bit i: a command of this attempt was handed to master i */
	size_t unsent_count;
	/* votes of masters that could not be asked, to be given to the core */
	struct lease_unsent unsent[2 * REDLOCK_MASTERS_MAX];
	struct lease_sight seen[]; /* for each master */
};

/* One command under way: says to the callback what was asked. */
struct lease_ref {
	struct lease_ref *next; /* in the list of spare ones */
	struct lease_op *op;
	uint16_t attempt, round;
	enum redlock_script script;
	uint8_t master;
	enum redlock_entry place;
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
	struct lease_op *done_first, *done_last;
	/* listings that have not begun, in the order in which they came */
	struct lease_listing *list_first, *list_last;
	struct lease_list_slot list_slots[LEASE_LISTINGS];
	bool list_answered; /* since the last pump: the HTTP side has something to write */
	struct lease_queues *lines;
	size_t waiting;                          /* operations whose answer somebody waits for */
	size_t busy;                             /* operations that wait for masters */
	struct lease_op *held_first, *held_last; /* those held back, in the order in which they came */
	unsigned unflushed;                      /* operations begun since the last flush */
	bool draining;
	/* hybrid logical clock: the last guess, or the largest number seen, in µs of the day's time */
	uint64_t fence_clock;
};

/* lease_command.c: the bytes that go to a master. */
struct lease_command {
	enum redlock_script script;
	const char *token; /* LEASE_TOKEN_LEN; release: "" for none */
	const char *place; /* acquire, release: as lease_place_write() makes it; "" or NULL: none */
	uint64_t fence;    /* acquire, raise */
	bool with_source;  /* EVAL instead of EVALSHA */
};
/* bytes of a command; of one with its source */
enum { LEASE_ENTRY_MAX = 64, LEASE_COMMAND_MAX = 2048, LEASE_COMMAND_SOURCE_MAX = 12288 };
/* "replica:arrival wait_ms", terminated: a place in the line, and for how long it may be needed; 0: it is given up. */
void lease_entry_write(const struct leases *leases, uint64_t arrival, uint64_t wait_ms,
		       char ret_entry[LEASE_ENTRY_MAX]);
/* Returns its length. `size`: LEASE_COMMAND_MAX, or LEASE_COMMAND_SOURCE_MAX for one with its source. */
size_t lease_command_format(const struct options *options, const struct lease_request *request,
			    const struct lease_command *command, char *ret_bytes, size_t size);
/* The bucket of a resource, 0 … LEASE_BUCKETS−1: the same on every redlockd. */
unsigned lease_command_bucket(const char *resource, size_t len);
/* How many keys one SCAN of a listing looks at: a master does nothing else meanwhile, about 50 µs. */
enum { LEASE_SCAN_KEYS = 100 };
unsigned lease_scan_keys(const struct lease_list_request *request);
/* SCAN cursor MATCH {prefix}{resource prefix}* COUNT keys. */
size_t lease_command_scan(const struct options *options, const struct lease_list_request *request, uint64_t cursor,
			  char ret_bytes[LEASE_COMMAND_MAX]);

/* lease.c: an operation of its own, or a spare one; NULL where memory is short. */
struct lease_op *lease_op_new(struct leases *leases);
/* One event and all that follows from it at once. The operation may be over afterwards: do not touch it again. */
void lease_op_drive(struct lease_op *op, const struct redlock_event *event);
/* op->answer is made: it will be handed out. */
void lease_op_answered(struct lease_op *op, uint64_t now_us);
void lease_op_recycle(struct lease_op *op); /* if it is over */

/* lease_line.c */
enum { LEASE_QUEUE_CHAINS = 1024 };
/* In which chain of the table the line of a resource is. */
unsigned lease_queue_chain(const struct leases *leases, const char *resource, size_t len);
bool lease_queues_init(struct leases *leases);
void lease_queues_free(struct leases *leases);
/* True if no more may wait for that resource, or at all. */
bool lease_queue_is_full(struct leases *leases, const struct lease_request *request);
/* To the end of the line of its resource, before START; false where memory is short. It is the first there if it has no
 * line_prev. */
bool lease_queue_enter(struct lease_op *op);
/* It is answered or given up, with that result: the next one becomes the first. */
void lease_queue_exit(struct lease_op *op, const struct redlock_result *result, uint64_t now_us);
/* Tells /stats of the longest lines if they have changed, but not too often. Once per round of the loop: what was too
 * soon is told within a heartbeat. */
void lease_queues_publish(struct leases *leases);
/* Answers all who wait with LEASE_DRAINING. */
void lease_queues_drain(struct leases *leases);

/* lease_calls.c */
/* An operation of a caller's that has not started; NULL where memory is short. */
struct lease_op *lease_op_begin(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				void *arg);
void lease_op_refuse_draining(struct lease_op *op, uint64_t now_us);
/* lease_submit(), but for an inspection that waits until every master has answered. */
struct lease_op *lease_submit_thorough(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				       void *arg);
/* True if the operation, an inspection that is answered, found a holder on one of these masters. */
bool lease_op_seen_on(const struct lease_op *op, uint16_t masters);

/* lease_force.c: lease_submit() and lease_cancel() of LEASE_FORCE; the latter before it is answered. */
struct lease_op *lease_force_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				    void *arg);
void lease_force_cancel(struct lease_op *op);

/* lease_list.c: begins what lease_list() took in, as far as it may; true if there was any. */
bool lease_list_begin_new(struct leases *leases);
bool lease_list_init(struct leases *leases);
/* When all that was under way has ended. */
void lease_list_close(struct leases *leases);

/* lease_answer.c: pure. */
uint64_t lease_token_id(const char token[LEASE_TOKEN_LEN]);
/* Our own value of a key: until when, in the master's ms, its lease can be extended, --max-hold-ms after it was given.
 * 0: no bound, or not ours. */
uint64_t lease_value_hold_until_ms(const char *value, size_t len);
/* Reads who holds a key from its value (NULL: another type); returns the holder's identity for the core. */
uint64_t lease_sight_read(const char *value, size_t len, struct lease_holder *ret_holder);
/* lease_fence.c: a guess for the next fence of any resource, and what to learn from a number seen. */
uint64_t lease_fence_guess(struct leases *leases);
void lease_fence_learn(struct leases *leases, uint64_t fence);
void lease_answer_make(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
		       struct lease_answer *ret_answer);

#endif
