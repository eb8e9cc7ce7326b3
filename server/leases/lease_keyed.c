/* SPDX-License-Identifier: MIT */
/* Acquisitions with an Idempotency-Key: if the resource is held by a lease that an earlier request with the same key
 * was granted, the answer is that lease, extended.
 *
 *     ACQUIRE ─ granted ─► EXTEND, which confirms the key ─► a new lease
 *        │ ▲                   │ gone
 *        │ └───────────────────┴─ gone ─┐
 *        └─ held by a confirmed lease ─► EXTEND ─► that lease, again
 *
 * ACQUIRE and EXTEND are operations of their own (struct lease_op); the caller's operation only waits for them.
 * It is safe for these reasons:
 *   - A lease is confirmed after its attempt has won, with its final fence. After that redlockd releases it only for a
 *     DELETE or a forced release: not for a client that has left, not after a lost answer, not at the end of a stream,
 *     because another request may have got it. So one master with a confirmed lease proves that the lease was granted,
 *     and that no release of its attempt is under way.
 *   - It is given again only if a majority extended it with positive validity, like every lease.
 *   - It is extended only if a majority has its token. Otherwise repeated requests would keep the rest of a lost lease
 *     for ever.
 * A request that begins to wait asks all masters for the place that an earlier one with its key has left
 * (lease_place.c). If a majority gives it the same place, it waits there, with the old arrival. It votes again when a
 * master tells that a lease was confirmed with its key at any redlockd (extend.lua), or when such a message may have
 * been missed; and while a lease of its key is on some masters, but not yet on a majority. */
#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "lease_internal.h"
#include "server/base/base.h"

enum {
	STEP_US = 20000,    /* between two waiters that look without being told to */
	MISSED_US = 2000000 /* where messages may have been missed, all look within this time */
};

/* The acquisitions that wait with one key. */
struct lease_key_waiters {
	uint64_t key;
	LIST_HEAD(, lease_keyed) all;
};

struct lease_keyed {
	struct lease_key_waiters *waiters; /* that it belongs to; NULL: it does not wait */
	LIST_ENTRY(lease_keyed) same;      /* of those */
	TAILQ_ENTRY(lease_keyed) entry;    /* of leases->keyed.quiet, or of .soon */
	uint64_t look_us;                  /* when it votes again; REDLOCK_NEVER: not until it is told to */
	struct lease_op *op;               /* the caller's */
	struct lease_op *inner;            /* under way; NULL: the timer of `op` runs */
	struct lease_op *taker;            /* the operation that asks for the place; NULL: none */
	bool asked;                        /* the place was asked for */
	uint64_t arrival;                  /* of the place; 0: it has none yet */
	uint64_t random;
	uint32_t tries;  /* acquisitions begun */
	bool again;      /* the lease was granted to an earlier request */
	uint16_t looked; /* the attempt after which another look was asked for; 0: none */
	uint64_t fence;  /* of the lease */
	char token[LEASE_TOKEN_LEN];
};

static void leave_waiters(struct lease_keyed *keyed);
static void on_acquired(void *arg, const struct lease_answer *answer);
static void on_own_extended(void *arg, const struct lease_answer *answer);
static void on_taken(void *arg, const struct lease_answer *answer);
static bool look(struct lease_op *op, uint64_t now_us);

/* ---- steps ---- */

static void acquire(struct lease_keyed *keyed, uint64_t now_us)
{
	struct lease_request request = keyed->op->request;
	uint64_t waited_ms = (now_us - keyed->op->began_us) / 1000;
	assert(!keyed->inner && request.key != 0);
	if (request.wait_ms > 0)
		request.wait_ms = request.wait_ms > waited_ms ? request.wait_ms - (uint32_t)waited_ms : 1;
	request.arrival = keyed->arrival;
	keyed->tries++;
	keyed->looked = 0;
	keyed->inner = lease_op_submit(keyed->op->leases, &request, on_acquired, keyed);
	keyed->inner->key.keyed = keyed;
	keyed->inner->key.after_event = look;
}

static void extend(struct lease_keyed *keyed, const char token[LEASE_TOKEN_LEN], uint64_t fence)
{
	struct lease_request request = keyed->op->request;
	assert(!keyed->inner && fence > 0);
	memcpy(keyed->token, token, sizeof keyed->token);
	memcpy(request.token, token, sizeof request.token);
	request.operation = LEASE_EXTEND;
	request.fence = keyed->fence = fence;
	request.wait_ms = 0;
	keyed->inner = lease_op_submit(keyed->op->leases, &request, on_own_extended, keyed);
}

static void ask_for_place(struct lease_keyed *keyed)
{
	struct lease_request request = keyed->op->request;
	assert(!keyed->asked && !keyed->taker && request.wait_ms > 0);
	request.operation = LEASE_RELEASE;
	keyed->asked = true;
	keyed->taker = lease_op_submit(keyed->op->leases, &request, on_taken, keyed);
}

static void stop_taker(struct lease_keyed *keyed)
{
	struct lease_op *taker = keyed->taker;
	keyed->taker = NULL;
	if (taker)
		lease_op_cancel(taker);
}

static void finish_keyed(struct lease_keyed *keyed, const struct lease_answer *answer)
{
	struct lease_op *op = keyed->op;
	assert(!keyed->inner && op->key.keyed == keyed);
	stop_taker(keyed);
	lease_answer_set(&op->answer, answer);
	op->answer.waited_ms = (uint32_t)((clock_now_us() - op->began_us) / 1000);
	op->key.keyed = NULL;
	op->key.after_event = NULL;
	leave_waiters(keyed);
	free(keyed);
	lease_op_enter(op, LEASE_OP_ANSWERED); /* its parts have been counted */
	TAILQ_REMOVE(&op->leases->ops[LEASE_OP_ANSWERED], op, entry);
	TAILQ_INSERT_HEAD(&op->leases->ops[LEASE_OP_ANSWERED], op, entry); /* in the place of the part's answer */
}

/* Tries another acquisition after a pause: it was blocked by a request with its own key that is not granted yet, or by
 * a lease that has ended. False: no tries are left. */
static bool try_again(struct lease_keyed *keyed)
{
	const struct options *options = keyed->op->leases->options;
	uint64_t spread_ms = options->retry_max_ms - options->retry_min_ms + 1;
	assert(!keyed->inner);
	if (keyed->tries > options->retry_count)
		return false;
	transport_timer_start(keyed->op->timer, options->retry_min_ms + redlock_random(&keyed->random) % spread_ms);
	return true;
}

/* ---- the lease of the key ---- */

static bool is_own(const struct lease_op *op, unsigned master)
{
	bool is_late = op->key.late_of == op->attempt.number && redlock_has(op->key.late, master);
	return (is_late || lease_op_voted(op, master, REDLOCK_VOTE_HELD)) && op->seen[master].holder.known &&
	       op->seen[master].holder.key == op->request.key;
}

/* One master's sight of the lease of this key, if a majority has it and it is confirmed somewhere; else NULL. */
static const struct lease_sight *find_own_lease(const struct lease_op *op)
{
	for (unsigned i = 0; i < op->core.params.masters; i++) {
		unsigned votes = 0;
		for (unsigned j = 0; is_own(op, i) && op->seen[i].holder.confirmed && j < op->core.params.masters; j++)
			votes += is_own(op, j) && memcmp(op->seen[j].token, op->seen[i].token, LEASE_TOKEN_LEN) == 0;
		if (votes >= redlock_majority(op->core.params.masters))
			return &op->seen[i];
	}
	return NULL;
}

static bool is_any_own(const struct lease_op *op)
{
	for (unsigned i = 0; i < op->core.params.masters; i++)
		if (is_own(op, i))
			return true;
	return false;
}

/* ---- when a waiter looks for the lease of its key ----
 *
 * Nothing polls: the confirmation of a key notifies those that wait with it. */

static int compare_keys(const void *a, const void *b)
{
	const struct lease_key_waiters *one = a, *other = b;
	return one->key < other->key ? -1 : one->key > other->key;
}

static struct lease_key_waiters *waiters_find(const struct leases *leases, uint64_t key)
{
	const struct lease_key_waiters wanted = {.key = key};
	struct lease_key_waiters *const *node = tfind(&wanted, &leases->keyed.by_key, compare_keys);
	return node ? *node : NULL;
}

static struct lease_keyed_list *look_list_of(const struct lease_keyed *keyed)
{
	struct lease_keyeds *all = &keyed->op->leases->keyed;
	return keyed->look_us == REDLOCK_NEVER ? &all->quiet : &all->soon;
}

/* .soon is in the order of the times. look_us: 0 (at once), REDLOCK_NEVER, or not before all others. */
static void look_at(struct lease_keyed *keyed, uint64_t look_us)
{
	TAILQ_REMOVE(look_list_of(keyed), keyed, entry);
	keyed->look_us = look_us;
	struct lease_keyed_list *list = look_list_of(keyed);
	const struct lease_keyed *last = TAILQ_LAST(list, lease_keyed_list);
	assert(look_us == 0 || !last || last->look_us <= look_us);
	if (look_us == 0)
		TAILQ_INSERT_HEAD(list, keyed, entry);
	else
		TAILQ_INSERT_TAIL(list, keyed, entry);
}

/* In after_us, but step_us later than all others, so that many waiters do not look at one time; and not later than it
 * would look anyway. */
static void look_after(struct lease_keyed *keyed, uint64_t after_us, uint64_t step_us, uint64_t now_us)
{
	const struct lease_keyed *last = TAILQ_LAST(&keyed->op->leases->keyed.soon, lease_keyed_list);
	if (keyed->look_us == REDLOCK_NEVER)
		look_at(keyed, MAX(now_us + after_us, last ? last->look_us + step_us : 0));
}

static void start_look_timer(struct lease_keyeds *all, uint64_t now_us)
{
	const struct lease_keyed *next = TAILQ_FIRST(&all->soon);
	if (next)
		transport_timer_start(all->timer, next->look_us > now_us ? (next->look_us - now_us) / 1000 + 1 : 1);
}

/* The timer's function. One looks at a time, since its look may end the wait of others; and the loop reads answers
 * before the next one looks. */
static void look_next(void *arg)
{
	struct leases *leases = arg;
	struct lease_keyed *next = TAILQ_FIRST(&leases->keyed.soon);
	uint64_t now_us = clock_now_us();
	bool is_due = next && next->look_us <= now_us;
	struct lease_op *op = is_due ? next->inner : NULL;
	if (is_due)
		look_at(next, REDLOCK_NEVER);
	start_look_timer(&leases->keyed, now_us);
	if (op && op->wait.entries)
		lease_op_dispatch(op, &(struct redlock_event){.kind = REDLOCK_LOOK, .now_us = now_us});
}

static void join_waiters(struct lease_keyed *keyed)
{
	struct leases *leases = keyed->op->leases;
	struct lease_keyeds *all = &leases->keyed;
	if (!all->timer) {
		all->timer = transport_timer_new(leases->loop, look_next, leases);
		TAILQ_INIT(&all->quiet);
		TAILQ_INIT(&all->soon);
	}
	struct lease_key_waiters *waiters = waiters_find(leases, keyed->op->request.key);
	if (!waiters) {
		waiters = memory_zeroed(1, sizeof *waiters);
		waiters->key = keyed->op->request.key;
		if (!tsearch(waiters, &all->by_key, compare_keys))
			memory_exhausted("keys");
	}
	keyed->waiters = waiters;
	keyed->look_us = REDLOCK_NEVER;
	LIST_INSERT_HEAD(&waiters->all, keyed, same);
	TAILQ_INSERT_TAIL(&all->quiet, keyed, entry);
}

static void leave_waiters(struct lease_keyed *keyed)
{
	struct lease_keyeds *all = &keyed->op->leases->keyed;
	struct lease_key_waiters *waiters = keyed->waiters;
	if (!waiters)
		return;
	TAILQ_REMOVE(look_list_of(keyed), keyed, entry);
	LIST_REMOVE(keyed, same);
	if (LIST_EMPTY(&waiters->all)) {
		tdelete(waiters, &all->by_key, compare_keys);
		free(waiters);
	}
	if (TAILQ_EMPTY(&all->quiet) && TAILQ_EMPTY(&all->soon)) {
		transport_timer_free(all->timer);
		all->timer = NULL;
	}
}

void lease_keyed_handle_confirmed(struct leases *leases, uint64_t key)
{
	struct lease_key_waiters *waiters = waiters_find(leases, key);
	uint64_t now_us = clock_now_us();
	struct lease_keyed *keyed;
	if (!waiters)
		return;
	LIST_FOREACH(keyed, &waiters->all, same)
	look_at(keyed, 0);
	start_look_timer(&leases->keyed, now_us);
}

void lease_keyed_handle_missed(struct leases *leases)
{
	uint64_t now_us = clock_now_us(), count = 0;
	struct lease_keyed *keyed;
	if (!leases->keyed.timer)
		return;
	TAILQ_FOREACH (keyed, &leases->keyed.quiet, entry)
		count++;
	uint64_t step_us = count > MISSED_US / STEP_US ? MISSED_US / count : STEP_US;
	while ((keyed = TAILQ_FIRST(&leases->keyed.quiet)))
		look_after(keyed, step_us, step_us, now_us);
	start_look_timer(&leases->keyed, now_us);
}

/* ---- answers of the parts ---- */

static void on_acquired(void *arg, const struct lease_answer *answer)
{
	struct lease_keyed *keyed = arg;
	struct lease_op *acquired = keyed->inner;
	bool refused = answer->status == LEASE_LOCKED || answer->status == LEASE_TOO_MANY ||
		       answer->status == LEASE_SPLIT_VOTE;
	const struct lease_sight *own = refused ? find_own_lease(acquired) : NULL;
	bool is_in_the_way = refused && is_any_own(acquired);
	keyed->inner = NULL;
	acquired->key.keyed = NULL;
	acquired->key.after_event = NULL;
	keyed->again = own;
	if (own)
		extend(keyed, own->token, own->holder.fence);
	else if (answer->status == LEASE_OK)
		extend(keyed, answer->token, answer->fence);
	else if (!refused || keyed->op->request.wait_ms > 0 || !is_in_the_way || !try_again(keyed))
		finish_keyed(keyed, answer);
}

static void on_own_extended(void *arg, const struct lease_answer *answer)
{
	struct lease_keyed *keyed = arg;
	struct lease_answer final = *answer;
	bool gone = answer->status == LEASE_NOT_OWNER || answer->status == LEASE_EXPIRED;
	keyed->inner = NULL;
	if (gone && try_again(keyed))
		return;
	if (gone)
		final.status = LEASE_SPLIT_VOTE;
	final.fence = keyed->fence;
	final.confirmed = answer->status == LEASE_OK;
	final.again = final.confirmed && keyed->again;
	finish_keyed(keyed, &final);
}

/* ---- beginning, waiting, end ---- */

static void stop(struct lease_keyed *keyed)
{
	struct lease_op *inner = keyed->inner;
	keyed->inner = NULL;
	if (!inner)
		return;
	inner->key.keyed = NULL;
	inner->key.after_event = NULL;
	lease_op_cancel(inner);
}

/* Removes the entries of a place that was given by too few masters, or too late. */
static void give_up_place(const struct lease_op *taker)
{
	for (unsigned i = 0; i < taker->core.params.masters; i++) {
		const struct redlock_output leave = {.script = REDLOCK_SCRIPT_RELEASE, .tokenless = true};
		struct master_script command = lease_op_command(taker, &leave);
		command.entry = (struct master_entry){.arrival = taker->core.ballots[i].fence,
						      .of_set = taker->request.set_count > 0};
		if (lease_op_voted(taker, i, REDLOCK_VOTE_GRANTED))
			masters_keep_release(taker->leases->masters, i, &command, false);
	}
}

static void on_taken(void *arg, const struct lease_answer *answer)
{
	struct lease_keyed *keyed = arg;
	const struct lease_op *taker = keyed->taker;
	uint64_t arrival = lease_place_arrival(taker);
	(void)answer;
	keyed->taker = NULL;
	if (arrival == 0 || !keyed->inner || !keyed->inner->wait.entries) {
		give_up_place(taker);
		return;
	}
	keyed->arrival = arrival;
	stop(keyed);
	acquire(keyed, clock_now_us());
}

/* True for the caller's operation, which consists of others. */
static bool is_of_caller(const struct lease_op *op)
{
	return op->key.keyed && op->key.keyed->op == op;
}

/* The pause of the caller's operation is over. */
static bool go_on(struct lease_op *op, uint64_t now_us)
{
	assert(is_of_caller(op) && !op->key.keyed->inner);
	acquire(op->key.keyed, now_us);
	return true;
}

struct lease_op *lease_submit(struct leases *leases, const struct lease_request *request, lease_done_fn *done,
			      void *arg)
{
	if (lease_share_is_possible(request))
		return lease_share_submit(leases, request, done, arg);
	if (request->key == 0)
		return lease_op_submit(leases, request, done, arg);
	assert(request->operation == LEASE_ACQUIRE);
	struct lease_op *op = lease_op_begin(leases, request, done, arg);
	struct lease_keyed *keyed = op->key.keyed = memory_zeroed(1, sizeof *keyed);
	op->key.after_event = go_on;
	keyed->op = op;
	keyed->random = random_number();
	if (request->wait_ms > 0)
		join_waiters(keyed);
	acquire(keyed, op->began_us);
	return op;
}

void lease_cancel(struct lease_op *op)
{
	if (op->share.inspection) {
		lease_share_cancel(op);
		return;
	}
	if (!is_of_caller(op)) {
		lease_op_cancel(op);
		return;
	}
	(void)lease_op_forget_caller(op);
	transport_timer_stop(op->timer);
	stop(op->key.keyed);
	stop_taker(op->key.keyed);
	leave_waiters(op->key.keyed);
	free(op->key.keyed);
	op->key.keyed = NULL;
	lease_op_linger(op);
}

/* True if the acquisition is a waiter whose lock is held by a lease of its own key. */
static bool look(struct lease_op *op, uint64_t now_us)
{
	struct lease_keyed *keyed = op->key.keyed;
	const struct lease_sight *own = op->core.state == REDLOCK_WAITING ? find_own_lease(op) : NULL;
	if (own) {
		const struct lease_sight lease = *own;
		assert(keyed->inner == op);
		stop(keyed);
		keyed->again = true;
		extend(keyed, lease.token, lease.holder.fence);
		return true;
	}
	if (op->core.state == REDLOCK_WAITING && !keyed->asked)
		ask_for_place(keyed);
	if (op->core.state == REDLOCK_WAITING && keyed->looked != op->attempt.number && is_any_own(op)) {
		uint64_t share_us = op->core.params.wait_us / REDLOCK_LOOKS_MAX;
		keyed->looked = op->attempt.number;
		look_after(keyed, MAX(share_us, REDLOCK_LOOK_AGAIN_US), STEP_US, now_us);
		start_look_timer(&op->leases->keyed, now_us);
	}
	return false;
}
