/* SPDX-License-Identifier: MIT */
/* Types and functions that the files of this folder share. */
#ifndef LEASE_INTERNAL_H
#define LEASE_INTERNAL_H

#include <sys/queue.h>

#include "leases.h"
#include "server/config/config.h"
#include "server/masters/masters.h"
#include "server/metrics/metrics.h"
#include "server/redlock/redlock.h"
#include "server/transport/transport.h"

/* Validity is reported in ms, rounded down. This is subtracted beforehand, with the drift, so that the core grants no
 * lease with less than 1 ms left. */
enum { LEASE_ROUNDING_US = 999 };

/* The holder of the resource as one master reported it. */
struct lease_sight {
	uint64_t time_ms; /* the master's time when it reported */
	uint64_t id;      /* of the token, or of another program's value */
	struct lease_holder holder;
	uint8_t blocking_index;      /* of a set: the index of the resource that this holder has */
	char token[LEASE_TOKEN_LEN]; /* holder.known: for a forced release, and for nobody else */
	char *buckets;               /* extend, GONE: for lease_repair.c, buckets_len bytes; NULL: none */
	uint16_t buckets_len;
	struct lease_holders *several; /* inspect: the leases that hold it together; NULL: they do not */
};

/* The state of an operation; lease_op_enter() alone changes it.
 *
 *                 ┌───────────────cancel──────────────┐
 *     SPARE ──► RUNNING ──answer──► ANSWERED ─handed─► LINGERING ──last reply──► SPARE
 *              burst │ ▲                ▲                 ▲
 *                    ▼ │ room           │                 │
 *                  HELD_BACK ───drain───┴─────cancel──────┘
 *                (or …_EXTENSION) */
enum lease_op_state {
	LEASE_OP_SPARE,
	LEASE_OP_HELD_BACK,           /* not started: too many others wait for masters */
	LEASE_OP_HELD_BACK_EXTENSION, /* the same; extensions start first, since their leases would end */
	LEASE_OP_RUNNING,
	LEASE_OP_ANSWERED,  /* the answer waits for leases_dispatch(); replies may be to come */
	LEASE_OP_LINGERING, /* nobody waits for the answer any more; replies may be to come */
	LEASE_OP_STATES
};

TAILQ_HEAD(lease_ops, lease_op);
TAILQ_HEAD(lease_queue_entries, lease_queue_entry);
STAILQ_HEAD(lease_refs, lease_ref);

/* An operation in the queue of one of its resources. */
struct lease_queue_entry {
	TAILQ_ENTRY(lease_queue_entry) entry;
	struct lease_queue *queue;
	struct lease_op *op;
};

/* The attempt under way. */
struct lease_op_attempt {
	uint16_t number;
	uint16_t reached; /* bit i: a command of it was handed to master i */
	char token[LEASE_TOKEN_LEN];
	struct lease_refs unsent; /* commands of it that could not be sent: their votes go to the core after the step */
};

/* The wait of an operation: lease_queue.c. */
struct lease_op_wait {
	struct lease_queue_entry *entries; /* one in the queue of each resource; NULL: it does not have to wait */
	struct lease_queue_entry alone;    /* `entries` if there is one resource */
	TAILQ_ENTRY(lease_op) age_entry;   /* of all that wait at this worker, for any resource */
	uint64_t missed_notifications;     /* leases->missed_notifications when it entered or last became the first */
	uint64_t notified_us;              /* the first notification; 0: none yet */
	TAILQ_ENTRY(lease_op) first_entry; /* of those that may have become the first, until FIRST is dispatched */
	uint64_t first_us;                 /* `remaining_us` of that FIRST */
	bool may_be_first;
	bool drained;              /* a drain ends the wait */
	uint16_t place_kept_ms;    /* how long its place is kept after it left the queue; 0: it is not kept */
	uint64_t held_up_until_us; /* until when a kept place comes first, by the last master that answered; 0: none */
};

/* LEASE_SLOT: lease_mode.c. */
struct lease_op_slot {
	uint8_t *taken; /* of each slot: how many masters reported in this attempt that it is taken; NULL: no slots */
	uint16_t index; /* the slot that this attempt asks for */
	uint16_t free;  /* `has_free`: a notification named this one since the attempt began */
	bool has_free;
};

/* An acquisition with a key: lease_keyed.c. */
struct lease_op_key {
	struct lease_keyed *keyed; /* NULL: it has no key */
	/* Called after each event; before START: the timer has fired. True: the operation has been cancelled. NULL:
	 * none. */
	bool (*after_event)(struct lease_op *op, uint64_t now_us);
	uint16_t late;    /* bit i: master i answered HELD to attempt `late_of` after it was lost */
	uint16_t late_of; /* the attempt of `late`; 0: none */
};

/* A request that shares an inspection: lease_share.c. */
struct lease_op_share {
	struct lease_share *inspection; /* the operation waits for this one; NULL: it shares none */
	TAILQ_ENTRY(lease_op) entry;    /* of those that share it */
	bool is_asked;                  /* it waits for the inspection that is under way, not for the next one */
};

/* The replies of the masters, apart from the votes: lease_sight.c. */
struct lease_op_replies {
	uint16_t extended;       /* extend: bit i: master i has extended the lease, or got it back */
	bool is_overtaken;       /* extend: another repair or acquisition came first to a master */
	uint8_t blocking_index;  /* of a set: the resource that another lease or waiter blocked last */
	bool hold_time_observed; /* release: the metrics have the time for which the lease was held */
};

/* One operation. Kept for reuse when it is finished, with its timer. */
struct lease_op {
	struct leases *leases;
	TAILQ_ENTRY(lease_op) entry; /* of those in its state */
	struct lease_op *all_next;
	enum lease_op_state state;
	struct transport_timer *timer;
	/* rounds of the loop since its timer fired while answers had arrived that the loop had not read */
	unsigned rounds_late;
	struct redlock core;
	struct lease_request request;
	struct text label; /* acquire, and a repair: of the value in Redis, after the fence */
	struct {
		lease_done_fn *done; /* NULL: nobody waits for the answer */
		void *arg;
	} caller;
	uint64_t began_us;
	struct lease_answer answer;
	struct lease_op_attempt attempt;
	struct lease_op_replies replies;
	struct lease_op_wait wait;
	struct lease_op_slot slot;
	struct lease_op_key key;
	struct lease_op_share share;
	/* After an inspection, while its reads (lease_details.c) or releases (lease_force.c) are under way: their
	 * pointer to this operation. */
	struct lease_op **follow_up;
	struct lease_sight seen[]; /* for each master */
};

/* One command under way, or one that could not be sent, for the callback. */
struct lease_ref {
	STAILQ_ENTRY(lease_ref) entry; /* of those not sent, or of spare ones */
	struct lease_op *op;
	uint16_t attempt, round;
	uint8_t master;
	enum redlock_vote vote; /* what it counts as if it was not sent */
	struct master_script command;
	char token[LEASE_TOKEN_LEN]; /* of that attempt */
};

/* A lease that lacks a vote: see lease_below.c. */
struct lease_below_entry {
	uint64_t id; /* of the token */
	uint64_t until_us;
	uint64_t returns; /* below.returns when it was extended; another number now: extend it again */
	uint8_t again;    /* how often it was extended again although no master had returned, since its holder did */
	TAILQ_ENTRY(lease_below_entry) entry;
	char token[LEASE_TOKEN_LEN];
	uint8_t set_count; /* as in struct lease_request, as the next two */
	uint16_t resource_len;
	char resource[];
};

struct leases {
	struct uv_loop_s *loop;
	const struct options *options;
	struct masters *masters;
	struct metrics *metrics;
	struct lease_op *all;
	struct lease_ops ops[LEASE_OP_STATES]; /* in the order in which they came to that state */
	struct lease_refs spare_refs;
	STAILQ_HEAD(, lease_listing) new_listings; /* not begun, in the order of their arrival */
	size_t listings;                           /* under way */
	bool has_news;                             /* since the last dispatch: the HTTP side has something to write */
	struct lease_queues {
		void *by_name; /* of tsearch(): balanced, whatever names the callers choose */
		LIST_HEAD(, lease_queue) all;
		struct lease_ops by_age; /* all that wait */
		struct lease_ops first;  /* those that may have become the first */
		size_t waiters;
		size_t listeners;      /* waiters and watched resources: notifications are wanted */
		bool changed;          /* since the last update of /stats */
		uint64_t published_ms; /* the time of that update */
	} queues;
	struct lease_watches {
		void *by_name; /* of tsearch() */
		LIST_HEAD(, lease_watch) all;
		size_t watchers;
	} watches;
	void *wanted;         /* of tsearch(): the resources whose holders want to know of waiters */
	struct lease_keyeds { /* acquisitions with a key that wait */
		void *by_key; /* of tsearch() */
		TAILQ_HEAD(lease_keyed_list, lease_keyed) quiet;
		struct lease_keyed_list soon;  /* those that vote again at a time of their own, in its order */
		struct transport_timer *timer; /* of the first of them; NULL: no acquisition with a key waits */
	} keyed;
	struct lease_shares {
		void *by_name;                   /* of tsearch() */
		TAILQ_HEAD(, lease_share) queue; /* those that wait for their turn */
		size_t long_under_way;
		uint8_t are_long[MASTER_FENCE_BUCKETS / 8]; /* a bit for each bucket */
	} shares;
	struct lease_below {
		void *by_id; /* of tsearch() */
		TAILQ_HEAD(, lease_below_entry) all;
		size_t count;
		uint64_t swept_us; /* the last time */
		uint64_t returns;  /* how often a master began to vote */
		unsigned voting;   /* masters, when that was looked at last */
		unsigned under_way;
	} below;
	struct lease_reads {
		TAILQ_HEAD(, lease_details) queue; /* those whose turn comes later */
		size_t under_way;
		bool starts; /* some of the queue are being started */
	} reads;
	uint64_t missed_notifications; /* how often masters may have dropped entries or notifications */
	size_t waiting;                /* operations whose answer somebody waits for */
	size_t busy;                   /* operations that wait for masters */
	unsigned unflushed;            /* operations begun since the last flush */
	bool draining;
	bool (*complete)(struct lease_op *op); /* lease_details_complete() */
	/* hybrid logical clock: the last guess, or the largest number seen, in µs of the time of day */
	uint64_t fence_clock;
};

/* ---- lease_value.c: pure ---- */

/* Until when, in the master's ms, the lease with this value can be extended (--max-hold-ms). 0: no bound, or not a
 * value of redlockd's. */
uint64_t lease_value_hold_until_ms(const char *value, size_t len);
/* Reads the holder from a key's value (NULL: another type); returns the holder's identity for the core. */
uint64_t lease_value_read_holder(const char *value, size_t len, struct lease_holder *ret_holder);
/* The identity of the holder with this token. */
uint64_t lease_value_token_id(const char token[LEASE_TOKEN_LEN]);
/* Gives the holder, a shallow copy of another one, memory of its own. */
void lease_holder_own(struct lease_holder *holder);
/* Frees what belongs to the holder alone. */
void lease_holder_fini(struct lease_holder *holder);
/* The label of an acquisition: "key:owner\ncaller\nmetadata", without empty parts at the end. A question mark stands
 * before a key until it is confirmed (extend.lua). Owner, caller and metadata are the operation's from now on. */
void lease_value_write_label(struct lease_op *op);
/* The same for a holder that was read from a value. */
void lease_value_write_label_again(const struct lease_holder *holder, struct text *label);

/* ---- lease_answer.c: pure ---- */

/* Frees what belongs to the answer alone. */
void lease_answer_fini(struct lease_answer *answer);
/* Copies an answer into one that was set before, or is zeroed, with memory of its own. */
void lease_answer_set(struct lease_answer *answer, const struct lease_answer *from);
/* Makes the answer from *result. Its holder shares the memory of op->seen. */
void lease_answer_make(const struct lease_op *op, const struct redlock_result *result, uint64_t now_us,
		       struct lease_answer *ret_answer);

/* ---- lease_mode.c ---- */

void lease_mode_write(const struct lease_op *op, struct master_script *command);
/* LEASE_SLOT: chooses the slot of a new attempt, and resets the counts of the attempt before. */
void lease_mode_choose_slot(struct lease_op *op);
/* A notification may name a slot that has just become free: the next attempt asks for it. */
void lease_mode_set_free(struct lease_op *op, const struct masters_notification *notification);
/* Counts the slots that a refusal names as taken: a digit for each slot, 1 if it is taken; 1 alone if all are taken; no
 * digits if no lease has slots. True if the slot that was asked for is taken on that master, but another one is not. */
bool lease_mode_count_taken(struct lease_op *op, const char *taken, size_t len);

/* ---- lease_several.c: the leases that hold a resource together. Pure ---- */

struct master_reply;
struct master_scan;
/* To the core all of them are one holder. */
enum { LEASE_SEVERAL_ID = 2 };
/* Reads the leases from the answer of a master to an inspection. NULL: the resource is not held by several leases. The
 * holder of a lease is not known if only its token is listed. */
struct lease_holders *lease_several_read(const struct master_reply *reply);
/* Puts the list that was read from that master into what its answer said. */
void lease_several_put_list(struct lease_holders **several, const struct master_scan *scan);
/* Merges the answers of all masters to an inspection: the leases that have a majority, or may have one. NULL: the
 * resource is not held by several leases. */
struct lease_holders *lease_several_merge(const struct lease_op *look);
/* The number that a token adds to the digest. */
uint64_t lease_several_digest(const char token[LEASE_TOKEN_LEN]);
/* Compares struct lease_held for qsort(): by fence, the order of the answer. */
int lease_several_compare_fences(const void *a, const void *b);
/* Adds an answer that shares the list. NULL is allowed. */
struct lease_holders *lease_several_share(struct lease_holders *several);
/* Removes an answer that shares the list; the last one frees it. NULL is allowed. */
void lease_several_free(struct lease_holders *several);

/* ---- lease_fence.c: a guess for the next fence of any resource, and what to learn from a number seen ---- */

uint64_t lease_fence_guess(struct leases *leases);
void lease_fence_learn(struct leases *leases, uint64_t fence);

/* ---- lease_queue.c ---- */

/* The key of a tree by name: the first members of a queue or a watch. */
struct lease_name {
	const char *resource;
	size_t resource_len;
};
int lease_name_compare(const void *a, const void *b);
/* Counts the requests of this worker that wait or watch: one more, or one less. */
void lease_queues_listen(struct leases *leases, bool more);
/* True if the limit of waiters for that resource, or for all, is reached. */
bool lease_queue_is_full(const struct leases *leases, const struct lease_request *request);
/* The waiter with that arrival; NULL: none. */
struct lease_op *lease_queue_find(const struct leases *leases, const char *resource, size_t len, uint64_t arrival);
/* Lists the waiters that a notification concerns, except for the waiter that it names: the shared waiters that it
 * notifies as well, and, if it names a waiter of another worker, the waiters that are the first here. An event of one
 * may end the wait of others, so check each again with lease_queue_has(). The caller frees *ret_waiters. If the
 * notification is for another redlockd, lease_queue_next() takes that into account from now on. */
struct lease_waiter {
	struct lease_op *op;
	uint64_t arrival;
	bool is_notified; /* false: the notification is for another waiter */
};
size_t lease_queue_list(const struct leases *leases, const struct masters_notification *notification,
			struct lease_waiter **ret_waiters);
bool lease_queue_has(const struct lease_waiter *waiter);
/* Visits the operations that are the first of all their queues and have not been since missed_notifications grew. */
void lease_queues_visit_first(const struct leases *leases, void (*visit)(struct lease_op *first));
/* Visits the operations that are no longer the first because `op` has entered before them. The visit must not end a
 * wait. */
void lease_queue_visit_passed(const struct lease_op *op, void (*visit)(struct lease_op *passed));
/* Adds the operation to the queue of each of its resources, before START: at the end, or at the place of its arrival if
 * the request has one. */
void lease_queue_enter(struct lease_op *op);
/* Removes the operation from its queues: it has this result. */
void lease_queue_exit(struct lease_op *op, const struct redlock_result *result, uint64_t now_us);
/* Returns an operation that has become the first of all its queues and was not returned before; its first_us is the
 * time until it may try without a notification (REDLOCK_NEVER: not known). NULL: there are no more. */
struct lease_op *lease_queue_take_first(struct leases *leases);
/* Returns the waiter that will probably hold the resource next. This is the first waiter of this worker, if the
 * released lease was granted to a waiter of this worker, and no waiter of another redlockd was notified lately. NULL:
 * not known. */
struct lease_op *lease_queue_next(const struct leases *leases, const struct lease_request *release, uint64_t now_us);
/* True if another operation waits before it in one of its queues. Then it does not wake when the holder's time ends. */
bool lease_queue_has_earlier(const struct lease_op *op);
/* Publishes the longest queues to /stats if they have changed, but not too often. Call it once per round of the loop:
 * a change that is not published at once follows within a heartbeat. */
void lease_queues_publish(struct leases *leases);

/* ---- lease_keyed.c ---- */

/* A lease was confirmed with this key: all that wait with it vote again, one after the other. */
void lease_keyed_handle_confirmed(struct leases *leases, uint64_t key);
/* Such a message may have been missed: all that wait with a key vote again, within two seconds, or 1 ms after each
 * other. */
void lease_keyed_handle_missed(struct leases *leases);

/* ---- lease_watch.c ---- */

/* A master has published a change of the resource. */
void lease_watch_handle_change(struct leases *leases, const char *resource, size_t len);
/* Changes may have been missed. */
void lease_watch_handle_missed(struct leases *leases);
/* LEASE_WATCH_DRAINING for all. */
void lease_watch_drain(struct leases *leases);

/* A master has published that the resource has a first waiter. */
void lease_wanted_handle(struct leases *leases, unsigned master, const char *resource, size_t len);

/* ---- lease_sight.c ---- */

struct lease_ref;
/* Stores the holder that a reply names in op->seen, and writes it into the event for the core. */
void lease_sight_store(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply,
		       struct redlock_event *event);
/* Observes for how long a released lease was held, by the clock of the master that answers first. */
void lease_sight_observe_hold_time(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply);
/* Frees what belongs to it alone. */
void lease_sight_fini(struct lease_sight *sight);

/* ---- lease_repair.c: pure ---- */

/* Writes the command that sets the key of an extended lease on a master again. False: the data for it are not known, or
 * the lease may not get any older. */
bool lease_repair_write(struct lease_op *op, const struct redlock_output *out, uint8_t master,
			struct master_script *command);

/* ---- lease_below.c: redlockd_leases_below_full ---- */

/* A lease or a waiter is about to need the return of a master. Call it before, so that a return is one after that. */
void lease_below_begin(struct leases *leases);
/* An operation is over, and no answer to it is outstanding. */
void lease_below_update(const struct lease_op *op);
/* The next lease that was not extended since a master returned. The leases that were extended are at the end. */
struct lease_below_entry *lease_below_next(const struct lease_below *below);
void lease_below_move_to_end(struct lease_below *below, struct lease_below_entry *entry);
/* Forgets leases that have ended, within some seconds. Call it once per round of the loop. */
void lease_below_sweep(struct leases *leases);
void lease_below_free(struct leases *leases);

/* ---- lease_place.c: pure ---- */

/* True if the operation asks for a place: a release of nothing, which no metrics count. */
static inline bool lease_place_is_asked_for(const struct lease_op *op)
{
	return op->request.operation == LEASE_RELEASE && op->request.key != 0;
}
/* Stores whether a kept place blocks the resource on the master that replied. */
void lease_place_read(struct lease_op *op, const struct lease_ref *ref, const struct master_reply *reply);
/* Writes the place into a command: at the end of a wait it is kept. */
void lease_place_write(struct lease_op *op, const struct redlock_output *out, struct master_script *command);
/* `taker` has asked for a place and is answered. Returns the arrival that a majority gave it, so that no other request
 * gets the same one; 0: none. */
uint64_t lease_place_arrival(const struct lease_op *taker);

/* ---- lease_op.c ---- */

void lease_op_enter(struct lease_op *op, enum lease_op_state state);
/* One command, for all masters alike. */
struct master_script lease_op_command(const struct lease_op *op, const struct redlock_output *out);
/* The allowance for clocks that run differently, which shortens a lease for `ttl_us`. */
uint64_t lease_op_drift_us(const struct options *options, uint64_t ttl_us);
/* Creates an operation without starting its core. */
struct lease_op *lease_op_begin(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				void *arg);
/* Nobody waits for the answer any more. Returns the callback, if there was one. */
lease_done_fn *lease_op_forget_caller(struct lease_op *op);
/* Handles one event and all that follows from it at once. The operation may be over afterwards: do not use it again. */
void lease_op_dispatch(struct lease_op *op, const struct redlock_event *event);
/* FIRST: no other operation of this worker waits before it. */
void lease_op_dispatch_first(struct lease_op *op, uint64_t now_us, uint64_t remaining_us);
/* op->answer is made: it will be handed out. */
void lease_op_answered(struct lease_op *op, uint64_t now_us);
/* True if this is the vote of a master in the last attempt. */
static inline bool lease_op_voted(const struct lease_op *op, unsigned master, enum redlock_vote vote)
{
	return redlock_has(op->core.answered, master) && op->core.ballots[master].vote == vote;
}
/* Stores a late refusal of the last attempt of a waiting acquisition with a key; true if this was one. An attempt is
 * lost as soon as a majority cannot grant it. Some of the masters that refuse first may lack the lease of the key. Then
 * the masters that have it are a majority only together with the late ones. */
static inline bool lease_op_stores_late(struct lease_op *op, const struct lease_ref *ref, enum redlock_vote vote)
{
	if (!op->key.keyed || op->core.state != REDLOCK_WAITING || ref->attempt != op->attempt.number ||
	    ref->command.script != REDLOCK_SCRIPT_ACQUIRE || vote != REDLOCK_VOTE_HELD)
		return false;
	op->key.late = (uint16_t)((op->key.late_of == op->attempt.number ? op->key.late : 0) | 1U << ref->master);
	op->key.late_of = op->attempt.number;
	return true;
}
/* Enters LINGERING, or SPARE if no reply is to come. */
void lease_op_linger(struct lease_op *op);

/* ---- lease_submit.c ---- */

/* Starts operations that were held back, as far as they may. */
void lease_submit_backlog(struct leases *leases);

void lease_op_reject_draining(struct lease_op *op, uint64_t now_us);
/* Like lease_submit() and lease_cancel(), but an acquisition with a key is not treated differently. */
struct lease_op *lease_op_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				 void *arg);
void lease_op_cancel(struct lease_op *op);

/* ---- lease_share.c: inspections of one resource by many clients ---- */

/* True if the answer to the request may be that of another inspection that begins later. */
bool lease_share_is_possible(const struct lease_request *request);
/* Like lease_op_submit(). */
struct lease_op *lease_share_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
				    void *arg);
/* Cancels an operation that waits for an inspection (op->share.inspection). The inspection goes on. */
void lease_share_cancel(struct lease_op *op);

/* ---- lease_details.c: an inspection, and LEASE_FORCE, when the core has decided ---- */

/* Reads the missing details of several leases, and releases them if they are forced. True: the answer comes later.
 * False: op->answer is the answer. */
bool lease_details_complete(struct lease_op *op);

/* ---- lease_force.c: LEASE_FORCE, when its inspection is complete ---- */

/* Releases the leases that were found. True: the answer comes with the releases. False: op->answer is the answer. */
bool lease_force_release(struct lease_op *op);

/* ---- lease_list.c ---- */

/* Begins new listings, as far as the limit allows; true if there were any. */
bool lease_list_begin_new(struct leases *leases);

#endif
